"""The structured likelihood: z = H x with additive-noise mechanisms, everything but H profiled out.

One engine serves observational, interventional, multi-node and multi-domain data. It knows pools
of environments that share a mechanism, and parents; it knows no method.
"""

from crlearn.likelihood.core._moments import Moments, Pools
from crlearn.likelihood.domains._checks import domain_checks
from crlearn.likelihood.domains._search import Unmixing, find_unmixing
from crlearn.likelihood.domains._start import Domains, Invariance
from crlearn.likelihood.interventional._linear import (
    GoodnessOfFit,
    LinearFit,
    LinearProblem,
    edge_p_values,
    fit_linear,
    fit_without_order,
    rows_inside,
    standard_errors,
)
from crlearn.likelihood.interventional._noise import NoisyFit, fit_with_noise
from crlearn.likelihood.interventional._noise_graph import CurvedAnswer, refine_nonlinear
from crlearn.likelihood.interventional._nonlinear import NonlinearFit, fit_nonlinear
from crlearn.likelihood.nodes._linear import expand, minimise, objective
from crlearn.likelihood.nodes._selected import AdditiveModel
from crlearn.likelihood.observational._search import ObservationalFit, Rival, fit_observational
from crlearn.likelihood.search._edges import (
    Found,
    Graph,
    adjacency_of,
    best_graph_at,
    climb,
    graph_of,
)
from crlearn.likelihood.targets._search import TargetFit, find_targets

__all__ = [
    "AdditiveModel",
    "CurvedAnswer",
    "Domains",
    "Found",
    "GoodnessOfFit",
    "Graph",
    "Invariance",
    "LinearFit",
    "LinearProblem",
    "Moments",
    "NoisyFit",
    "NonlinearFit",
    "ObservationalFit",
    "Pools",
    "Rival",
    "TargetFit",
    "Unmixing",
    "adjacency_of",
    "best_graph_at",
    "climb",
    "domain_checks",
    "edge_p_values",
    "expand",
    "find_targets",
    "find_unmixing",
    "fit_linear",
    "fit_nonlinear",
    "fit_observational",
    "fit_with_noise",
    "fit_without_order",
    "graph_of",
    "minimise",
    "objective",
    "refine_nonlinear",
    "rows_inside",
    "standard_errors",
]
