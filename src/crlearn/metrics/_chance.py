"""What an answer that knows nothing scores: a random rotation of whitened latents.

Any whitening of the data is such a rotation of the (whitened) truth, so this is the level from
which a correlation-type metric starts to say something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import exp, lgamma, pi, sqrt

import numpy as np

from crlearn.metrics._check import Matrix
from crlearn.metrics._correlation import matched_total, ordered_total
from crlearn.metrics._subspace import Groups, group_similarity, seat_similarity

_MAX_COLUMNS, _MAX_ENTRIES = 40_000, 2_000_000


@dataclass(frozen=True)
class Sizes:
    """What a chance level depends on.

    Attributes
    ----------
    n_latents, n_recovered
        Numbers of true and recovered latents.
    groups, groups_hat
        Sizes of the true and recovered layers or blocks, if they are known.
    """

    n_latents: int
    n_recovered: int
    groups: tuple[int, ...] | None = None
    groups_hat: tuple[int, ...] | None = None

    @classmethod
    def checked(
        cls,
        n_latents: int,
        n_recovered: int | None,
        groups: Sequence[int] | None,
        groups_hat: Sequence[int] | None,
    ) -> Sizes:
        """Check numbers that a user gave."""
        n_recovered = n_latents if n_recovered is None else n_recovered
        if min(n_latents, n_recovered) < 1:
            raise ValueError(
                "n_latents and n_recovered must be at least 1. "
                f"Got {n_latents} and {n_recovered} instead."
            )
        return cls(
            n_latents,
            n_recovered,
            _check_sizes(groups, n_latents, "sizes"),
            _check_sizes(groups_hat, n_recovered, "sizes_hat"),
        )


def mac_level(sizes: Sizes) -> float:
    """Return E|q| for an entry q of a random rotation, spread over the true latents."""
    n = max(sizes.n_latents, sizes.n_recovered)
    one_entry = exp(lgamma(n / 2) - lgamma((n + 1) / 2)) / sqrt(pi)
    return one_entry * min(sizes.n_latents, sizes.n_recovered) / sizes.n_latents


def matched_level(sizes: Sizes) -> float:
    """Return the level of correlations after optimal matching."""
    return _matched_level(sizes.n_latents, sizes.n_recovered, ranks=False)


def matched_rank_level(sizes: Sizes) -> float:
    """Return the level of rank correlations after optimal matching."""
    return _matched_level(sizes.n_latents, sizes.n_recovered, ranks=True)


def layer_level(sizes: Sizes) -> float:
    """Return the level of `layer_recovery`; recovered layers have the true sizes by default."""
    if sizes.groups is None:
        raise _no_sizes("layer_recovery")
    groups_hat = sizes.groups_hat or sizes.groups
    return _grouped_level(sizes.n_latents, sizes.n_recovered, sizes.groups, groups_hat, True)


def block_level(sizes: Sizes) -> float:
    """Return the level of `block_recovery`: blocks are matched, unless they are the true ones."""
    groups_hat = sizes.groups_hat or sizes.groups
    if groups_hat is None:
        raise _no_sizes("block_recovery")
    in_order = sizes.groups_hat is None
    return _grouped_level(sizes.n_latents, sizes.n_recovered, sizes.groups, groups_hat, in_order)


def share_level(sizes: Sizes) -> float:
    """Return the level of `r2_within_blocks`."""
    if sizes.groups is None:
        raise _no_sizes("r2_within_blocks")
    return _share_level(sizes.n_latents, sizes.n_recovered, sizes.groups)


def _no_sizes(metric: str) -> ValueError:
    return ValueError(f"sizes must be given for the chance level of {metric!r}. Got None.")


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


@lru_cache(maxsize=256)
def _share_level(n_latents: int, n_recovered: int, sizes: tuple[int, ...]) -> float:
    rotations = _random_rotations(max(n_latents, n_recovered))[..., :n_recovered]
    shares = [(rotations[:, group] ** 2).sum(axis=1) for group in _consecutive(sizes)]
    seats = np.repeat(np.stack(shares, axis=-1), sizes, axis=-1)
    return _mean_total(matched_total, seats) / sum(sizes)


def _mean_total(total: Callable[[Matrix], float], similarities: Matrix) -> float:
    return float(np.mean([total(similarity) for similarity in similarities]))


def _random_rotations(n: int) -> Matrix:
    """Return random orthogonal matrices; fewer large ones, as their means vary less.

    The signs of their columns are those of the QR decomposition, which no metric here can see.
    """
    n_draws = max(5, min(_MAX_COLUMNS // n, _MAX_ENTRIES // n**2))
    return np.linalg.qr(np.random.default_rng(0).normal(size=(n_draws, n, n))).Q


def _check_sizes(sizes: Sequence[int] | None, total: int, name: str) -> tuple[int, ...] | None:
    if sizes is None:
        return None
    if min(sizes, default=0) < 0 or sum(sizes) > total:
        raise ValueError(
            f"{name} must not be negative and must add up to {total} at most. Got {list(sizes)}."
        )
    return tuple(int(size) for size in sizes)


def _consecutive(sizes: tuple[int, ...]) -> Groups:
    return [np.arange(start, end) for start, end in pairwise(np.cumsum([0, *sizes]))]
