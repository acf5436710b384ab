"""Interventions on unknown sets of latents."""

from crlearn.likelihood.targets._revision import revised_targets
from crlearn.likelihood.targets._search import find_targets, in_causal_order

__all__ = ["find_targets", "in_causal_order", "revised_targets"]
