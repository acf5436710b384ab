"""`evaluate`: the metrics that a method's guarantee makes meaningful, all at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError

from crlearn.base import latents_of
from crlearn.metrics._alignment import (
    coverage,
    frobenius,
    relmse,
    relmse_by_environment,
    relmse_worst,
)
from crlearn.metrics._chance import chance_level
from crlearn.metrics._check import check_matrix, check_samples
from crlearn.metrics._comparison import Comparison, Unavailable
from crlearn.metrics._correlation import mac, mac_matched, mcc
from crlearn.metrics._evaluation import Evaluation
from crlearn.metrics._graphs import (
    edge_f1,
    edge_precision,
    edge_recall,
    shd,
    shd_closure,
    shd_cpdag,
    targets_right,
)
from crlearn.metrics._subspace import block_recovery, layer_recovery, r2
from crlearn.metrics._unmixing import ancestor_error, parent_error, scale_error

if TYPE_CHECKING:
    from crlearn.data import Dataset
    from crlearn.result import Result


class FittedModel(Protocol):
    """What `evaluate` needs of an estimator."""

    result_: Result

    def transform(self, X: Any) -> Any:
        """Return the latents of each row."""
        ...


def _layer_recovery(found: Comparison) -> float:
    """Compare exogenous noises, or the latents up to upstream layers if there are no noises."""
    if found.recovers_noise:
        return layer_recovery(found.truth.noise, found.noise_hat, found.layers, found.layers_hat)
    return layer_recovery(found.Z, found.Z_hat, found.layers, found.layers_hat, upstream=True)


def _parent_error(found: Comparison) -> float:
    return parent_error(*found.linear_maps, found.truth.graph, match=False)


def _ancestor_error(found: Comparison) -> float:
    return ancestor_error(*found.linear_maps, found.truth.graph, match=False)


def _relmse_environment(number: int, found: Comparison) -> float:
    errors = relmse_by_environment(found.Z, found.Z_hat, found.labels)
    if number > len(errors):
        raise Unavailable(f"there are {len(errors)} environments only")
    return float(errors[number - 1])


# As many environments have a number of their own, for figures that show each.
_RELMSE_ENVIRONMENTS = {
    f"relmse_environment_{number}": partial(_relmse_environment, number) for number in range(1, 5)
}

_COMPUTE: dict[str, Callable[[Comparison], float]] = {
    "mcc": lambda found: mcc(found.Z, found.Z_hat),
    "mcc_spearman": lambda found: mcc(found.Z, found.Z_hat, "spearman"),
    "r2": lambda found: r2(found.Z, found.Z_hat),
    "mac": lambda found: mac(found.truth.noise, found.noise_hat),
    "mac_matched": lambda found: mac_matched(found.truth.noise, found.noise_hat),
    "layer_recovery": _layer_recovery,
    "block_recovery": lambda found: block_recovery(
        found.Z, found.Z_hat, blocks_hat=found.blocks_hat
    ),
    "relmse": lambda found: relmse(found.Z, found.Z_hat),
    "relmse_worst": lambda found: relmse_worst(found.Z, found.Z_hat, found.labels),
    **_RELMSE_ENVIRONMENTS,
    "coverage": lambda found: coverage(found.Z, *found.intervals),
    "frobenius": lambda found: frobenius(found.mixing, found.mixing_hat),
    "scale_error": lambda found: scale_error(*found.linear_maps, match=False),
    "parent_error": _parent_error,
    "ancestor_error": _ancestor_error,
    "shd": lambda found: shd(*found.graphs),
    "shd_closure": lambda found: shd_closure(*found.graphs),
    "shd_cpdag": lambda found: shd_cpdag(*found.partial_graphs),
    "edge_precision": lambda found: edge_precision(*found.graphs),
    "edge_recall": lambda found: edge_recall(*found.graphs),
    "edge_f1": lambda found: edge_f1(*found.graphs),
    "targets_right": lambda found: targets_right(*found.targets),
    "gain_over_gaussian": lambda found: found.stated("gain_over_gaussian"),
    "rival_gap": lambda found: found.stated("rival_gap"),
}

# Every name that `evaluate` knows.
METRICS = tuple(_COMPUTE)

_ZERO_IS_PERFECT = {
    "relmse",
    "relmse_worst",
    *_RELMSE_ENVIRONMENTS,
    "frobenius",
    "scale_error",
    "parent_error",
    "ancestor_error",
    "shd",
    "shd_closure",
    "shd_cpdag",
}

# In nats, or about intervals: the truth itself has no level that is known beforehand.
_WITHOUT_PERFECT = {"gain_over_gaussian", "rival_gap", "coverage"}

_MEANINGFUL_FOR_LATENTS = {
    "scale": ("mcc", "mcc_spearman", "r2", "scale_error"),
    "parents": ("mcc", "r2", "parent_error"),
    "ancestors": ("mcc", "r2", "ancestor_error"),
    "layers": ("layer_recovery", "mac", "mac_matched", "r2"),
    "blocks": ("block_recovery", "r2"),
    "span": ("mcc", "r2"),
    "none": ("mcc", "r2"),
}

_MEANINGFUL_FOR_GRAPH = {
    "exact": ("shd", "edge_precision", "edge_recall", "edge_f1"),
    "closure": ("shd_closure",),
    "cpdag": ("shd_cpdag",),
    "layers": (),
    "none": (),
}


def evaluate(
    model: FittedModel,
    dataset: Dataset,
    metrics: Sequence[str] | None = None,
    *,
    unavailable: Literal["raise", "skip"] = "raise",
) -> Evaluation:
    """Compare a fitted model with the truth behind a simulated dataset.

    Recovered latents are matched to true ones by absolute correlation over all rows of the dataset;
    graphs, targets and encoders are compared in that matching. To score one environment only, pass
    that part of the dataset.

    Parameters
    ----------
    model
        Fitted estimator.
    dataset
        With ``truth``; not necessarily the one that the model was fitted on.
    metrics
        Names of metrics of `crlearn.metrics`. By default those that the model's guarantee makes
        meaningful: for latents up to scale `mcc` (and ``mcc_spearman``), `r2` and `scale_error`;
        mixed with parents or ancestors `mcc`, `r2`, `parent_error` or `ancestor_error`; up to
        layers `layer_recovery`, `mac`, `mac_matched`, `r2`; up to blocks `block_recovery`, `r2`;
        without a guarantee `mcc`, `r2`. For the graph `shd` and the edge scores, `shd_closure` or
        `shd_cpdag`; `targets_right` if targets were recovered. Those that need something the model
        does not have, such as a linear encoder, are left out. Two more need no truth: the evidence
        that a model states in nats, ``"gain_over_gaussian"`` (over a Gaussian without structure)
        and ``"rival_gap"`` (over the best rival that is another answer). `relmse_worst` is that of
        the worst environment, ``"relmse_environment_1"`` to ``"relmse_environment_4"`` are those of
        the first four in the order of labels, and `coverage` is the share of true latents inside
        the 90% intervals of a model that states them.
    unavailable
        What to do about a metric in `metrics` that this model does not have: ``"raise"`` says why,
        ``"skip"`` leaves it out.

    Returns
    -------
    evaluation
        Mapping from names to values, with `chance` levels.

    Notes
    -----
    A model that recovers exogenous noises, layers or blocks states them in ``result_.details`` as
    ``"noise_encoder"`` (a map from X to noises), ``"layers"`` (lists of latents, from the leaves
    up; by default those of its graph) and ``"blocks"`` (lists of latents).
    """
    found = _compare(model, dataset)
    if metrics is None:
        scores = _those_available(found, _meaningful(found.result))
    elif unavailable == "skip":
        scores = _those_available(found, _check_names(metrics))
    else:
        scores = {name: _compute(found, name) for name in _check_names(metrics)}
    return Evaluation(
        scores,
        chance={name: _chance(found, name) for name in scores},
        perfect={name: perfect_level(name) for name in scores},
        matching=found.matching,
    )


def perfect_level(name: str) -> float | None:
    """Return what the truth itself scores: 0 for errors, 1 for the others, None for nats."""
    if name in _WITHOUT_PERFECT:
        return None
    return 0.0 if name in _ZERO_IS_PERFECT else 1.0


def _compare(model: FittedModel, dataset: Dataset) -> Comparison:
    result = getattr(model, "result_", None)
    if result is None:
        raise NotFittedError(
            f"model must be fitted. Got a {type(model).__name__} that is not; call its fit first."
        )
    if dataset.truth is None:
        raise ValueError(
            "dataset must hold the truth to compare with. Got dataset.truth = None; "
            "the worlds of crlearn.data.make_* have one."
        )
    X = check_matrix(dataset.X, "dataset.X")
    n_features = getattr(model, "n_features_in_", X.shape[1])
    if X.shape[1] != n_features:
        raise ValueError(
            f"dataset.X must have the {n_features} features that the model was fitted on. "
            f"Got {X.shape[1]} features."
        )
    names = ("truth.Z", "model.transform(dataset.X)")
    _, Z_hat = check_samples(dataset.truth.Z, _latents(model, X, dataset.y), names)
    return Comparison(dataset.truth, result, X, Z_hat, dataset.y, getattr(model, "posterior", None))


def _latents(model: FittedModel, X: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        # A dataset keeps its names beside X, so a model of a data frame's would miss them there.
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        return latents_of(model, X, y)


def _meaningful(result: Result) -> tuple[str, ...]:
    return (
        *_MEANINGFUL_FOR_LATENTS[result.guarantee.latents],
        *_MEANINGFUL_FOR_GRAPH[result.guarantee.graph],
        "targets_right",
    )


def _those_available(found: Comparison, names: Sequence[str]) -> dict[str, float]:
    scores = {}
    for name in names:
        try:
            scores[name] = float(_COMPUTE[name](found))
        except Unavailable:
            continue
    return scores


def _compute(found: Comparison, name: str) -> float:
    try:
        return float(_COMPUTE[name](found))
    except Unavailable as reason:
        available = ", ".join(_those_available(found, list(_COMPUTE)))
        raise ValueError(
            f"The metric {name!r} cannot be computed here: {reason}. Available are {available}."
        ) from None


def _check_names(metrics: Sequence[str]) -> list[str]:
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    unknown = [name for name in names if name not in _COMPUTE]
    if unknown:
        raise ValueError(
            f"metrics must be among {', '.join(_COMPUTE)}. Got {', '.join(map(repr, unknown))}."
        )
    return names


def _chance(found: Comparison, name: str) -> float | None:
    sizes: dict[str, list[int]] = {}
    if name == "layer_recovery":
        sizes = {"sizes": _sizes(found.layers), "sizes_hat": _sizes(found.layers_hat)}
    elif name == "block_recovery":
        sizes = {"sizes_hat": _sizes(found.blocks_hat)}
    return chance_level(name, found.n_latents, n_recovered=found.n_recovered, **sizes)


def _sizes(groups: Sequence[ArrayLike]) -> list[int]:
    return [np.size(group) for group in groups]
