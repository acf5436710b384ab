"""Order and graph of latents whose mechanisms are different in every segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]
MechanismKind = Literal["nonlinear", "polynomial", "linear"]

_RIDGE = 1e-3
_TINY = 1e-12
_LEAST_GAIN = 1e-6
# Places of smooth steps along a latent of variance one, and how steep they are.
_STEPS = (-1.2, -0.4, 0.4, 1.2)
_STEEPNESS = 1.5


def functions_of_one(z: Any, kind: MechanismKind, arrays: Any = np) -> Any:
    """Return functions of each column, of variance one, beside the column itself: a last axis.

    `arrays` is numpy, or what takes its place.
    """
    if kind == "linear":
        return z[..., None]
    if kind == "polynomial":
        return arrays.stack([z, z**2, z**3], axis=-1)
    places = arrays.asarray(_STEPS, dtype=z.dtype)
    steps = arrays.tanh(_STEEPNESS * (z[..., None] - places))
    return arrays.concatenate([z[..., None], steps], axis=-1)


class SegmentRegressions:
    """Regressions of latents on sets of others in every segment, from moments of features.

    Features are functions of one latent. Latents depend linearly on covariates, whatever else they
    depend on.

    Parameters
    ----------
    moments
        Of the features in each segment, those of one latent after those of another, and of
        covariates, which come last.
    counts
        Rows of each segment.
    shares
        Share of each segment in what regressions cost.
    n_latents, n_covariates
        How many there are.
    """

    def __init__(
        self,
        moments: NDArray[np.floating],
        counts: NDArray[np.integer],
        shares: Matrix,
        n_latents: int,
        n_covariates: int = 0,
    ) -> None:
        self.moments, self.counts, self.shares = moments, counts, shares
        self.n_latents = n_latents
        columns = np.arange(moments.shape[1])
        self._of_latent = columns[: len(columns) - n_covariates].reshape(n_latents, -1)
        self._covariates = columns[len(columns) - n_covariates :]
        self._logs: dict[tuple[int, frozenset[int]], float] = {}

    @classmethod
    def of(
        cls,
        latents: Sequence[Matrix],
        covariates: Sequence[Matrix],
        shares: Matrix,
        kind: MechanismKind = "nonlinear",
    ) -> SegmentRegressions:
        """Return the regressions of rows that are given for each segment."""
        everything = np.concatenate(latents)
        mean, scale = everything.mean(axis=0), everything.std(axis=0)
        moments = []
        for rows, u in zip(latents, covariates, strict=True):
            functions = functions_of_one((rows - mean) / scale, kind)
            columns = np.concatenate([functions.reshape(len(rows), -1), u], axis=1)
            columns = columns - columns.mean(axis=0)
            moments.append(columns.T @ columns / len(rows))
        counts = np.array([len(rows) for rows in latents])
        n_covariates = covariates[0].shape[1]
        return cls(np.array(moments), counts, shares, everything.shape[1], n_covariates)

    def cost(self, latent: int, others: frozenset[int]) -> float:
        """Return minus the log-likelihood of a latent after others, in nats a row."""
        key = (latent, others)
        if key not in self._logs:
            logs = np.log(self.residual_variances(latent, others))
            self._logs[key] = float(0.5 * self.shares @ logs)
        return self._logs[key]

    def residual_variances(self, latent: int, others: frozenset[int]) -> Matrix:
        """Return what is left of a latent given others, in each segment."""
        itself = self._of_latent[latent, 0]
        used = np.concatenate([self._of_latent[sorted(others)].ravel(), self._covariates])
        variance = self.moments[:, itself, itself]
        if len(used):
            gram = self.moments[:, used[:, None], used].copy()
            diagonal = np.arange(len(used))
            gram[:, diagonal, diagonal] *= 1 + _RIDGE
            gram[:, diagonal, diagonal] += _TINY
            response = self.moments[:, used, itself]
            solution = np.linalg.solve(gram, response[..., None])[..., 0]
            variance = variance - (solution * response).sum(axis=1)
        freedom = np.maximum(self.counts - len(used) - 1, 1)
        return np.maximum(variance, _TINY) * self.counts / freedom

    def effects(self, latent: int, parents: frozenset[int]) -> dict[int, float]:
        """Return what each parent of a latent explains that the others do not, in nats a row."""
        least = self.cost(latent, parents)
        return {i: self.cost(latent, parents - {i}) - least for i in sorted(parents)}

    def parents(self, order: Sequence[int], least: float) -> BoolMatrix:
        """Return the graph: predecessors that explain at least so many nats a row are parents.

        The least of them is left out, one at a time, as long as that costs less.
        """
        graph = np.zeros((self.n_latents, self.n_latents), dtype=bool)
        for place, latent in enumerate(order):
            left = frozenset(order[:place])
            while left:
                effects = self.effects(latent, left)
                weakest = min(effects, key=effects.__getitem__)
                if effects[weakest] >= least:
                    break
                left -= {weakest}
            graph[sorted(left), latent] = True
        return graph


def better_order(regressions: SegmentRegressions, order: Sequence[int]) -> list[int]:
    """Return an order that no move of one latent to another place makes better."""
    now = list(order)
    best = _cost(regressions, now)
    while True:
        moves = [_moved(now, start, end) for start in range(len(now)) for end in range(len(now))]
        costs = [_cost(regressions, move) for move in moves]
        chosen = int(np.argmin(costs))
        if costs[chosen] > best - _LEAST_GAIN:
            return now
        now, best = moves[chosen], costs[chosen]


def _cost(regressions: SegmentRegressions, order: Sequence[int]) -> float:
    return sum(regressions.cost(j, frozenset(order[:k])) for k, j in enumerate(order))


def _moved(order: list[int], start: int, end: int) -> list[int]:
    move = order.copy()
    move.insert(end, move.pop(start))
    return move
