"""Explicit priors on latents, fitted by a bound of the likelihood of noisy measurements."""

from crlearn.variational._bound import EvidenceBound, Parameters, Rows, posterior, log_weights, draw, decode, noise_variance
from crlearn.variational._prior import StructuralPrior

__all__ = ["EvidenceBound", "Parameters", "Rows", "StructuralPrior"]
