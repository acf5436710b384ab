"""The structured likelihood: z = H x with additive-noise mechanisms, everything but H profiled out.

One engine serves observational, interventional, multi-node and multi-domain data. It knows pools
of environments that share a mechanism, and parents; it knows no method. A call goes one way: a
family's search, its models of a latent given its parents (`nodes`), what these share (`core`), and
comes back with one record, `Fit`.
"""

from crlearn.likelihood._fit import FITS, Dependence, Fit, compared
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.core._subsample import some_rows
from crlearn.likelihood.core._tests import gaussian_p_values
from crlearn.likelihood.domains._checks import domain_checks, sign_check
from crlearn.likelihood.domains._model import DomainLikelihood
from crlearn.likelihood.domains._search import Unmixing, find_unmixing
from crlearn.likelihood.domains._start import Domains
from crlearn.likelihood.interventional._noise import moments_behind
from crlearn.likelihood.interventional._pair import OneDirection, one_direction
from crlearn.likelihood.interventional._search import fit_interventional, fit_linear
from crlearn.likelihood.interventional._start import grouped_targets, pools_of
from crlearn.likelihood.nodes._linear import LinearModel
from crlearn.likelihood.observational._mechanisms import is_gaussian, mechanisms_of, noises_of
from crlearn.likelihood.observational._prior import SignalPrior, prior_of, weighted_signals
from crlearn.likelihood.observational._search import agreement, fit_observational

__all__ = [
    "FITS",
    "Dependence",
    "DomainLikelihood",
    "Domains",
    "Fit",
    "LinearModel",
    "Moments",
    "OneDirection",
    "SignalPrior",
    "Unmixing",
    "agreement",
    "compared",
    "domain_checks",
    "find_unmixing",
    "fit_interventional",
    "fit_linear",
    "fit_observational",
    "gaussian_p_values",
    "grouped_targets",
    "is_gaussian",
    "mechanisms_of",
    "moments_behind",
    "noises_of",
    "one_direction",
    "pools_of",
    "prior_of",
    "sign_check",
    "some_rows",
    "weighted_signals",
]
