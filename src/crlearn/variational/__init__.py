"""Explicit priors on latents, fitted by a bound of the likelihood, and parts of autoencoders."""

from crlearn.variational._autoencoder import (
    AutoencoderFit,
    Diagonal,
    activity_check,
    divergence,
    evidence,
    fit_autoencoder,
    log_likelihood,
    product,
    random_networks,
    restart_check,
)
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
from crlearn.variational._mixture import MixturePrior
from crlearn.variational._prior import StructuralPrior
from crlearn.variational._start import straight_start

__all__ = [
    "AutoencoderFit",
    "Diagonal",
    "EvidenceBound",
    "Gaussian",
    "LinearMixing",
    "MixturePrior",
    "Parameters",
    "Rows",
    "StructuralPrior",
    "activity_check",
    "divergence",
    "draw",
    "evidence",
    "fit_autoencoder",
    "fit_prior",
    "log_likelihood",
    "log_weights",
    "noise_variance",
    "posterior",
    "product",
    "random_networks",
    "restart_check",
    "straight_start",
]
