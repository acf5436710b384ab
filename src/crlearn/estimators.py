"""Every estimator by name: what files, studies and the command line may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crlearn import methods, published
from crlearn.base import BaseCRL

ESTIMATORS: dict[str, type[BaseCRL]] = {**methods.ESTIMATORS, **published.ESTIMATORS}

# In files of version 0.1.0 a published algorithm is its setting's method with estimator="paper".
_FORMERLY_PAPER = {
    "LinearInterventionCRL": "LSCALEI",
    "MultiNodeCRL": "UMNICRL",
    "ObservationalCRL": "ScoreLayers",
}
# Where "paper" or "test" stood in a parameter of its own, and where "test" stands now.
_FORMER_THRESHOLDS = {
    "LSCALEI": ("edge_threshold", "edge_cut"),
    "UMNICRL": ("rank_threshold", "rank_cut"),
    "ScoreLayers": ("threshold", "threshold"),
}


def rebuild(name: str, parameters: Mapping[str, Any]) -> BaseCRL:
    """Return the unfitted estimator that a file names, which an older version may have written."""
    if name in _FORMERLY_PAPER and "estimator" in parameters:
        name, parameters = _as_of_now(name, parameters)
    return ESTIMATORS[name](**parameters)


def _as_of_now(name: str, parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return class and parameters of today; what no longer applies is left out."""
    if parameters["estimator"] == "paper":
        name = _FORMERLY_PAPER[name]
        former, now = _FORMER_THRESHOLDS[name]
        threshold = parameters[former]
        parameters = {key: value for key, value in parameters.items() if key != former}
        if threshold == "test":
            parameters[now] = threshold
    known = ESTIMATORS[name]._get_param_names()
    return name, {key: value for key, value in parameters.items() if key in known}
