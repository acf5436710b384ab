"""`evaluate`: the metrics that a method's guarantee makes meaningful, all at once."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from crlearn.base import latents_of, posterior_of, without_effects_of
from crlearn.metrics._check import check_matrix, check_samples
from crlearn.metrics._comparison import Comparison, Unavailable
from crlearn.metrics._evaluation import Evaluation
from crlearn.metrics._registry import METRICS, Metric, find_metrics

if TYPE_CHECKING:
    from crlearn.data import Dataset
    from crlearn.result import Result


class FittedModel(Protocol):
    """What `evaluate` needs of an estimator."""

    result_: Result

    def transform(self, X: Any) -> Any:
        """Return the latents of each row."""
        ...


def evaluate(
    model: FittedModel | Pipeline,
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
        Fitted estimator, or a fitted Pipeline of scikit-learn that ends in one. After other steps,
        metrics that compare the linear encoder or decoder with the mixing are not available: the
        estimator knows them in terms of what those steps made of X only.
    dataset
        With ``truth``; not necessarily the one that the model was fitted on.
    metrics
        Names of metrics of `crlearn.metrics`. By default those that the model's guarantee makes
        meaningful: for latents up to scale `mcc` (and ``mcc_spearman``), `r2` and `scale_error`;
        mixed with parents or ancestors `mcc`, `r2`, `parent_error` or `ancestor_error`; up to
        layers `layer_recovery`, `mac`, `mac_matched`, `r2`; up to blocks `block_recovery`, `r2`;
        without a guarantee `mcc`, `r2`. For the graph `shd` and the edge scores, `shd_closure` or
        `shd_cpdag`; `targets_right` if targets were recovered. Those that need something the model
        does not have, such as a linear encoder, are left out. Two more need no truth: the log
        evidence of the fit in nats, ``"gain_over_gaussian"`` (over a Gaussian without structure)
        and ``"evidence_gap"`` (over the best competing structure that is another answer).
        `relmse_worst` is that of the worst environment, ``"relmse_environment_1"`` to
        ``"relmse_environment_4"`` are those of the first four in the order of labels, and
        `coverage` is the share of true latents inside the 90% intervals of a model that states
        them. ``"noise_mcc"`` compares noises inside of environments, for models that have
        mechanisms of each; ``"mcc_latent_1"`` to ``"mcc_latent_4"`` are single latents.
        ``"shd_pc"`` is of the graph that PC finds on the recovered latents, in rows where both
        latents of a pair are active if the model has a method ``active(X)`` that says where;
        ``"shd_pc_of_truth"`` is of that on the true latents.
        ``"signal_to_error"`` and ``"centred_signal_to_error"`` are of the score's Jacobians that a
        model estimated, in the units of X, if it states them.
        ``METRICS[name].description`` says in a line what a metric is.
    unavailable
        What to do about a metric in `metrics` that this model does not have: ``"raise"`` says why,
        ``"skip"`` leaves it out.

    Returns
    -------
    evaluation
        Mapping from names to values, with `chance` levels.

    Notes
    -----
    A model that recovers exogenous noises, layers or blocks states them in its result:
    ``result_.noise_encoder`` (a map from X to noises), ``result_.layers`` (childless latents first;
    by default those of its graph) and ``result_.blocks``.
    """
    found = _compare(model, dataset)
    chosen = _meaningful(found.result) if metrics is None else find_metrics(metrics)
    for metric in chosen:
        metric.check_installed()
    if metrics is None or unavailable == "skip":
        scores = _those_available(found, chosen)
    else:
        scores = {metric.name: _compute(found, metric) for metric in chosen}
    return Evaluation(
        scores,
        chance={name: _chance(found, METRICS[name]) for name in scores},
        perfect={name: METRICS[name].perfect for name in scores},
        matching=found.matching,
    )


def _compare(model: FittedModel | Pipeline, dataset: Dataset) -> Comparison:
    estimator = model[-1] if isinstance(model, Pipeline) else model
    result = getattr(estimator, "result_", None)
    if result is None:
        ends = f" that ends in {estimator!r}," if isinstance(model, Pipeline) else ""
        raise NotFittedError(
            "model must be a fitted estimator of crlearn, or a fitted Pipeline that ends in one. "
            f"Got a {type(model).__name__}{ends} that is not; call its fit first."
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
    with warnings.catch_warnings():
        # A dataset keeps its names beside X, so a model of a data frame's would miss them there.
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        if isinstance(model, Pipeline) and len(model) > 1:
            X = model[:-1].transform(X)
            # Matrices in these units must not be compared with the mixing.
            result = replace(result, encoder=result.encoder.__call__, decoder=None)
        latents = latents_of(estimator, X, dataset.y, dataset.covariates)
    _, Z_hat = check_samples(dataset.truth.Z, latents, names)
    posterior = None
    if hasattr(estimator, "posterior"):
        posterior = partial(posterior_of, estimator, X, dataset.y, dataset.covariates)
    X = without_effects_of(estimator, X, dataset.covariates)
    environments = getattr(dataset, "environments", ())
    activity = getattr(estimator, "active", None)
    return Comparison(
        dataset.truth, result, np.asarray(X), Z_hat, dataset.y, posterior, environments, activity
    )


def _meaningful(result: Result) -> list[Metric]:
    aimed_at = result.guarantee.intended or result.guarantee
    latents, graph = aimed_at.latents, aimed_at.graph
    return [m for m in METRICS.values() if latents in m.latents or graph in m.graphs]


def _those_available(found: Comparison, metrics: Iterable[Metric]) -> dict[str, float]:
    scores = {}
    for metric in metrics:
        try:
            scores[metric.name] = float(metric.compute(found))
        except Unavailable:
            continue
    return scores


def _compute(found: Comparison, metric: Metric) -> float:
    try:
        return float(metric.compute(found))
    except Unavailable as reason:
        available = ", ".join(_those_available(found, METRICS.values()))
        raise ValueError(
            f"The metric {metric.name!r} cannot be computed here: {reason}. "
            f"Available are {available}."
        ) from None


def _chance(found: Comparison, metric: Metric) -> float | None:
    return None if metric.chance is None else metric.chance(metric.sizes(found))
