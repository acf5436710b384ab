"""How close to the truth: latents, graphs, targets, and the level of chance.

Metrics take the truth first. `METRICS` has each of them with what is perfect, what chance reaches
and what it says; `evaluate` picks those that a method's guarantee makes meaningful.
"""

from crlearn.metrics._alignment import (
    coverage,
    frobenius,
    relmse,
    relmse_by_environment,
    relmse_worst,
)
from crlearn.metrics._correlation import correlation_matrix, mac, mac_matched, match, mcc
from crlearn.metrics._evaluate import evaluate
from crlearn.metrics._evaluation import Evaluation
from crlearn.metrics._graphs import (
    edge_f1,
    edge_precision,
    edge_recall,
    shd,
    shd_closure,
    shd_cpdag,
    shd_pc,
    targets_right,
)
from crlearn.metrics._registry import METRICS, Metric, chance_level, find_metrics
from crlearn.metrics._subspace import (
    block_recovery,
    layer_recovery,
    r2,
    r2_across_blocks,
    r2_within_blocks,
)
from crlearn.metrics._unmixing import (
    ancestor_error,
    nested_error,
    parent_error,
    scale_error,
    surrounding_error,
)

__all__ = [
    "METRICS",
    "Evaluation",
    "Metric",
    "ancestor_error",
    "block_recovery",
    "chance_level",
    "correlation_matrix",
    "coverage",
    "edge_f1",
    "edge_precision",
    "edge_recall",
    "evaluate",
    "find_metrics",
    "frobenius",
    "layer_recovery",
    "mac",
    "mac_matched",
    "match",
    "mcc",
    "nested_error",
    "parent_error",
    "r2",
    "r2_across_blocks",
    "r2_within_blocks",
    "relmse",
    "relmse_by_environment",
    "relmse_worst",
    "scale_error",
    "shd",
    "shd_closure",
    "shd_cpdag",
    "shd_pc",
    "surrounding_error",
    "targets_right",
]
