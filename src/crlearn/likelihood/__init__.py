"""The structured likelihood: z = H x with additive-noise mechanisms, everything but H profiled out.

One engine serves observational, interventional, multi-node and multi-domain data. It knows pools
of environments that share a mechanism, and parents; it knows no method.
"""

from crlearn.likelihood._additive import AdditiveModel
from crlearn.likelihood._domain_moments import Domains, Invariance
from crlearn.likelihood._domain_search import Unmixing, find_unmixing
from crlearn.likelihood._gaussian import expand, minimise, objective
from crlearn.likelihood._graph_search import (
    Found,
    Graph,
    adjacency_of,
    best_graph_at,
    climb,
    graph_of,
)
from crlearn.likelihood._linear_search import (
    GoodnessOfFit,
    LinearFit,
    LinearProblem,
    edge_p_values,
    fit_linear,
    fit_without_order,
    rows_inside,
    standard_errors,
)
from crlearn.likelihood._noise_graph import CurvedAnswer, refine_nonlinear
from crlearn.likelihood._noise_search import NoisyFit, fit_with_noise
from crlearn.likelihood._nonlinear_search import NonlinearFit, fit_nonlinear
from crlearn.likelihood._observational import ObservationalFit, Rival, fit_observational
from crlearn.likelihood._pools import Moments, Pools
from crlearn.likelihood._targets import TargetFit, find_targets

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
