"""Explicit priors on latents behind noisy measurements, fitted by a bound of the likelihood."""

from crlearn.variational._bound import (
    EvidenceBound,
    Gaussian,
    LinearMixing,
    Parameters,
    Rows,
    draw,
    log_weights,
    noise_variance,
    posterior,
)
from crlearn.variational._fit import fit_prior
from crlearn.variational._prior import StructuralPrior
from crlearn.variational._start import straight_start

__all__ = [
    "EvidenceBound",
    "Gaussian",
    "LinearMixing",
    "Parameters",
    "Rows",
    "StructuralPrior",
    "draw",
    "fit_prior",
    "log_weights",
    "noise_variance",
    "posterior",
    "straight_start",
]
