"""Explicit priors on latents (g-modelling), and parts of autoencoders.

A `Prior` says p(z | environment): a `GaussianPrior` (one Gaussian, one for each environment, or a
mixture), a `ShiftPrior` or a `StructuralPrior`. Behind a linear mixing Gaussian ones are fitted by
the likelihood itself, `fit_exactly`; behind networks all are by a bound of it, `fit_prior`.
"""

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
    PriorName,
    Rows,
    draw,
    log_weights,
    noise_variance,
    posterior,
)
from crlearn.variational._components import Components, covariance_of, without_noise
from crlearn.variational._exact import ExactFit, fit_exactly
from crlearn.variational._fit import fit_prior
from crlearn.variational._gaussians import GaussianPrior, number_of_components
from crlearn.variational._mixture import MixturePrior
from crlearn.variational._prior import ExactPrior, KnownCauses, Prior, StructuralPrior
from crlearn.variational._shift import ShiftPrior
from crlearn.variational._start import straight_start

__all__ = [
    "AutoencoderFit",
    "Components",
    "Diagonal",
    "EvidenceBound",
    "ExactFit",
    "ExactPrior",
    "Gaussian",
    "GaussianPrior",
    "KnownCauses",
    "LinearMixing",
    "MixturePrior",
    "Parameters",
    "Prior",
    "PriorName",
    "Rows",
    "ShiftPrior",
    "StructuralPrior",
    "activity_check",
    "covariance_of",
    "divergence",
    "draw",
    "evidence",
    "fit_autoencoder",
    "fit_exactly",
    "fit_prior",
    "log_likelihood",
    "log_weights",
    "noise_variance",
    "number_of_components",
    "posterior",
    "product",
    "random_networks",
    "restart_check",
    "straight_start",
    "without_noise",
]
