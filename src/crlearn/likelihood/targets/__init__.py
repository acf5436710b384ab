"""Interventions on unknown sets of latents."""

from crlearn.likelihood.targets._revision import revised_targets
from crlearn.likelihood.targets._search import (
    competing_targets,
    find_targets,
    in_causal_order,
)

__all__ = ["competing_targets", "find_targets", "in_causal_order", "revised_targets"]
