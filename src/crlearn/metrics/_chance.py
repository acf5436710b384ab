"""What an answer that knows nothing scores: a random rotation of whitened latents.

Any whitening of the data is such a rotation of the (whitened) truth, so this is the level from
which a correlation-type metric starts to say something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import exp, lgamma, pi, sqrt

import numpy as np

from crlearn.metrics._check import Matrix, check_choice
from crlearn.metrics._correlation import matched_total, ordered_total
from crlearn.metrics._subspace import Groups, group_similarity, seat_similarity

_MATCHED = ("mcc", "mcc_spearman", "mac_matched")
_GROUPED = ("layer_recovery", "block_recovery")
_WITHOUT_CHANCE = (
    "r2",
    "relmse",
    "relmse_worst",
    "relmse_environment_1",
    "relmse_environment_2",
    "relmse_environment_3",
    "relmse_environment_4",
    "coverage",
    "frobenius",
    "scale_error",
    "parent_error",
    "ancestor_error",
    "shd",
    "shd_closure",
    "shd_cpdag",
    "edge_precision",
    "edge_recall",
    "edge_f1",
    "targets_right",
    "gain_over_gaussian",
    "rival_gap",
)
_MAX_COLUMNS, _MAX_ENTRIES = 40_000, 2_000_000


def chance_level(
    metric: str,
    n_latents: int,
    *,
    n_recovered: int | None = None,
    sizes: Sequence[int] | None = None,
    sizes_hat: Sequence[int] | None = None,
) -> float | None:
    """Return the expected value of a metric for a random rotation of whitened latents.

    A closed form for ``"mac"``, a Monte-Carlo mean with a fixed seed (error about 0.002) for the
    others.

    Parameters
    ----------
    metric
        Name of the metric.
    n_latents
        Number of true latents.
    n_recovered
        Number of recovered latents, if it differs.
    sizes, sizes_hat
        Sizes of the true and recovered layers or blocks, for ``"layer_recovery"`` and
        ``"block_recovery"``; one that is left out is treated as in these functions.

    Returns
    -------
    level
        None for metrics that have no such level: a rotation has an `r2` of 1, and graphs and errors
        are not correlations.

    Examples
    --------
    >>> round(chance_level("mac", 4), 3), round(chance_level("mcc", 4), 2)
    (0.424, 0.77)
    """
    check_choice(metric, ("mac", *_MATCHED, *_GROUPED, *_WITHOUT_CHANCE), "metric")
    n_recovered = n_latents if n_recovered is None else n_recovered
    if min(n_latents, n_recovered) < 1:
        raise ValueError(
            "n_latents and n_recovered must be at least 1. "
            f"Got {n_latents} and {n_recovered} instead."
        )
    if metric == "mac":
        return _mac_level(n_latents, n_recovered)
    if metric in _MATCHED:
        return _matched_level(n_latents, n_recovered, ranks=metric == "mcc_spearman")
    if metric in _GROUPED:
        in_order = metric == "layer_recovery" or sizes_hat is None
        sizes_hat = sizes if sizes_hat is None else sizes_hat
        if sizes_hat is None or (sizes is None and metric == "layer_recovery"):
            raise ValueError(f"sizes must be given for the chance level of {metric!r}. Got None.")
        return _grouped_level(
            n_latents,
            n_recovered,
            None if sizes is None else _check_sizes(sizes, n_latents, "sizes"),
            _check_sizes(sizes_hat, n_recovered, "sizes_hat"),
            in_order,
        )
    return None


def _mac_level(n_latents: int, n_recovered: int) -> float:
    """Return E|q| for an entry q of a random rotation, spread over the true latents."""
    n = max(n_latents, n_recovered)
    one_entry = exp(lgamma(n / 2) - lgamma((n + 1) / 2)) / sqrt(pi)
    return one_entry * min(n_latents, n_recovered) / n_latents


@lru_cache(maxsize=256)
def _matched_level(n_latents: int, n_recovered: int, ranks: bool) -> float:
    rotations = _random_rotations(max(n_latents, n_recovered))
    correlations = np.abs(rotations[:, :n_latents, :n_recovered])
    if ranks:
        # Rank correlation of two Gaussian variables, from their ordinary correlation.
        correlations = 6 / pi * np.arcsin(correlations / 2)
    return _mean_total(matched_total, correlations) / n_latents


@lru_cache(maxsize=256)
def _grouped_level(
    n_latents: int,
    n_recovered: int,
    sizes: tuple[int, ...] | None,
    sizes_hat: tuple[int, ...],
    in_order: bool,
) -> float:
    rotations = _random_rotations(max(n_latents, n_recovered))
    true = np.eye(rotations.shape[-1])[:, :n_latents]
    bases_hat = [rotations[..., group] for group in _consecutive(sizes_hat)]
    if sizes is None:
        similarity = seat_similarity(true, bases_hat, sizes_hat)
    else:
        similarity = group_similarity([true[:, group] for group in _consecutive(sizes)], bases_hat)
    return _mean_total(ordered_total if in_order else matched_total, similarity) / n_latents


def _mean_total(total: Callable[[Matrix], float], similarities: Matrix) -> float:
    return float(np.mean([total(similarity) for similarity in similarities]))


def _random_rotations(n: int) -> Matrix:
    """Return random orthogonal matrices; fewer large ones, as their means vary less.

    The signs of their columns are those of the QR decomposition, which no metric here can see.
    """
    n_draws = max(5, min(_MAX_COLUMNS // n, _MAX_ENTRIES // n**2))
    return np.linalg.qr(np.random.default_rng(0).normal(size=(n_draws, n, n))).Q


def _check_sizes(sizes: Sequence[int], total: int, name: str) -> tuple[int, ...]:
    if min(sizes, default=0) < 0 or sum(sizes) > total:
        raise ValueError(
            f"{name} must not be negative and must add up to {total} at most. Got {list(sizes)}."
        )
    return tuple(int(size) for size in sizes)


def _consecutive(sizes: tuple[int, ...]) -> Groups:
    return [np.arange(start, end) for start, end in pairwise(np.cumsum([0, *sizes]))]
