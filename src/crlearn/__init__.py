"""crlearn: causal representation learning with scikit-learn's interface.

Given observations X that are an unknown mixture of hidden causal variables, recover those
variables and the causal graph among them, as far as theory says that this is possible, and say how
far that is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from crlearn.config import config_context, get_config, set_config
    from crlearn.methods import (
        IVAE,
        BetaVAE,
        EmpiricalBayesCRL,
        GaussianPriorCRL,
        ICABaseline,
        LatentANM,
        LinearInterventionCRL,
        MultiNodeCRL,
        NonlinearInterventionCRL,
        ObservationalCRL,
        PCABaseline,
        SparseMixtureCRL,
        StructuralPriorCRL,
        VaDE,
    )
    from crlearn.persist import load, save

# Public names in pipeline order; each is imported when it is first used.
_HOME = {
    "PCABaseline": "crlearn.methods",
    "ICABaseline": "crlearn.methods",
    "BetaVAE": "crlearn.methods",
    "VaDE": "crlearn.methods",
    "IVAE": "crlearn.methods",
    "LatentANM": "crlearn.methods",
    "LinearInterventionCRL": "crlearn.methods",
    "MultiNodeCRL": "crlearn.methods",
    "NonlinearInterventionCRL": "crlearn.methods",
    "ObservationalCRL": "crlearn.methods",
    "EmpiricalBayesCRL": "crlearn.methods",
    "SparseMixtureCRL": "crlearn.methods",
    "StructuralPriorCRL": "crlearn.methods",
    "GaussianPriorCRL": "crlearn.methods",
    "save": "crlearn.persist",
    "load": "crlearn.persist",
    "get_config": "crlearn.config",
    "set_config": "crlearn.config",
    "config_context": "crlearn.config",
}
_PARTS = (
    "bench",
    "data",
    "flows",
    "graph",
    "likelihood",
    "methods",
    "metrics",
    "nets",
    "published",
    "report",
    "scores",
    "train",
    "variational",
    "config",
    "exceptions",
    "result",
)

__all__ = [
    "IVAE",
    "BetaVAE",
    "EmpiricalBayesCRL",
    "GaussianPriorCRL",
    "ICABaseline",
    "LatentANM",
    "LinearInterventionCRL",
    "MultiNodeCRL",
    "NonlinearInterventionCRL",
    "ObservationalCRL",
    "PCABaseline",
    "SparseMixtureCRL",
    "StructuralPriorCRL",
    "VaDE",
    "__version__",
    "config_context",
    "get_config",
    "load",
    "save",
    "set_config",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _PARTS:
        return import_module(f"crlearn.{name}")
    raise AttributeError(f"module 'crlearn' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PARTS])
