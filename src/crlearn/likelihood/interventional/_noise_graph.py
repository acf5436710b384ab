"""Encoder and graph with nonlinear mechanisms and noise of any shape.

With nonlinear mechanisms the Gaussian likelihood is not only less sharp where noise has another
shape: its optimum is at a wrong encoder. So encoder and graph are found in turns. Given the
encoder, latents are regressed on features of their parents, residuals are judged by densities of
their own, and single edges change while BIC falls. Given the graph, the encoder is fitted as in
`nodes._any_noise_nonlinear`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood.core._density import fit_density
from crlearn.likelihood.nodes._any_noise_nonlinear import fit_noise_nonlinear
from crlearn.likelihood.nodes._basis import Basis
from crlearn.likelihood.search._edges import Graph, neighbours

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]

_ROWS_TO_SEARCH = 5_000  # of each environment
_MOST_TURNS = 5
_LEAST_GAIN = 1.0
_RIDGE = 1e-6


@dataclass(frozen=True, eq=False)
class CurvedAnswer:
    """Encoder and graph.

    Attributes
    ----------
    H
        Encoder.
    graph
        Parents of each latent.
    bic
        Negative log-likelihood with the cost of features and densities, in nats, on the rows of the
        search.
    """

    H: Matrix
    graph: Graph
    bic: float


def refine_nonlinear(
    rows: Sequence[Matrix],
    pool: IntMatrix,
    starts: Sequence[tuple[Matrix, Graph]],
    *,
    hard: bool,
) -> CurvedAnswer | None:
    """Improve what was found for Gaussian noise; None if the noise may well be Gaussian.

    Parameters
    ----------
    rows
        Of each environment, reduced to as many dimensions as there are latents.
    pool
        ``pool[j, e]`` is the pool of environment e for latent j.
    starts
        Encoders with their graphs: that of nonlinear mechanisms and Gaussian noise first, then
        others. The one of linear mechanisms should be among them: it needs covariances alone, so
        that the shape of the noise does no harm to it.
    hard
        Whether interventions cut a latent off its parents.
    """
    some = [each[:: -(-len(each) // _ROWS_TO_SEARCH)] for each in rows]
    if fit_noise_nonlinear(some, pool, starts[0][1], starts[0][0], hard=hard).is_gaussian:
        return None
    judged = [_judged(some, pool, H, graph, hard) for H, graph in starts]
    start = min(judged, key=lambda answer: answer.bic)
    best = _in_turns(some, pool, start.H, start.graph, hard)
    if max(map(len, rows)) > _ROWS_TO_SEARCH:
        whole = fit_noise_nonlinear(rows, pool, best.graph, best.H, hard=hard)
        best = CurvedAnswer(whole.H, best.graph, best.bic)
    return best


def _judged(
    rows: Sequence[Matrix], pool: IntMatrix, H: Matrix, graph: Graph, hard: bool
) -> CurvedAnswer:
    """Return the best graph for an encoder."""
    judge = Judge(rows, pool, H, hard=hard)
    graph = judge.best_from(graph)
    return CurvedAnswer(judge.H, graph, judge.bic(graph))


def _in_turns(
    rows: Sequence[Matrix], pool: IntMatrix, H: Matrix, graph: Graph, hard: bool
) -> CurvedAnswer:
    """Fit the encoder, then the graph, and so on while BIC falls."""
    best: CurvedAnswer | None = None
    for _ in range(_MOST_TURNS):
        H = fit_noise_nonlinear(rows, pool, graph, H, hard=hard).H
        judge = Judge(rows, pool, H, hard=hard)
        answer = CurvedAnswer(judge.H, graph, judge.bic(graph))
        if best is not None and answer.bic > best.bic - _LEAST_GAIN:
            break
        best = answer
        graph = judge.best_from(graph)
        if graph == best.graph:
            break
    assert best is not None
    return best


class Judge:
    """Judges graphs at a fixed encoder.

    Parameters
    ----------
    rows, pool, hard
        As for `refine_nonlinear`.
    H
        Encoder.
    """

    def __init__(self, rows: Sequence[Matrix], pool: IntMatrix, H: Matrix, *, hard: bool) -> None:
        everything = np.concatenate(rows)
        mean, scale = (everything @ H.T).mean(axis=0), (everything @ H.T).std(axis=0)
        self.H = H / scale[:, None]
        self._latents = [(each @ H.T - mean) / scale for each in rows]
        self._origin = mean / scale
        self._pool = pool
        self._hard = hard
        self._n_rows = len(everything)
        self._costs: dict[tuple[int, tuple[int, ...]], float] = {}

    def bic(self, graph: Graph) -> float:
        """Return the negative log-likelihood with the cost of features and densities, in nats."""
        total = sum(self.cost(j, parents) for j, parents in enumerate(graph))
        return float(total - self._n_rows * np.linalg.slogdet(self.H)[1])

    def best_from(self, graph: Graph) -> Graph:
        """Add, remove and turn edges while BIC falls."""
        lowest = self.bic(graph)
        while True:
            found = min(neighbours(graph), key=self.bic, default=graph)
            value = self.bic(found)
            if value > lowest - _LEAST_GAIN:
                return graph
            graph, lowest = found, value

    def cost(self, j: int, parents: tuple[int, ...]) -> float:
        """Return what latent j costs with these parents."""
        key = (j, tuple(sorted(parents)))
        if key not in self._costs:
            self._costs[key] = sum(self._cost(*key, int(p)) for p in np.unique(self._pool[j]))
        return self._costs[key]

    def _cost(self, j: int, parents: tuple[int, ...], p: int) -> float:
        inside = self._pool[j] == p
        z = np.concatenate([z for z, own in zip(self._latents, inside, strict=True) if own])
        price = 0.5 * np.log(self._n_rows)
        if not parents or (self._hard and p > 0):
            residuals, n_parameters = z[:, j], 1
        else:
            residuals, n_parameters = self._regress(z, j, list(parents), price)
        density = fit_density(residuals - residuals.mean())
        log_likelihood = float(density.log_density(residuals - residuals.mean()).sum())
        return price * (n_parameters + density.freedom) - log_likelihood

    def _regress(self, z: Matrix, j: int, parents: list[int], price: float) -> tuple[Matrix, int]:
        """Return the residuals of the best selection of features, and how many numbers it has."""
        columns, child = z[:, parents].astype(np.float32), z[:, j]
        basis = Basis.plain(len(parents)).fitted_to(
            [(columns, (child + self._origin[j]).astype(np.float32))]
        )
        values = basis(columns).values.astype(float)
        gram, crossed = values.T @ values, values.T @ child
        best, lowest = (child, 1), np.inf
        for selection in basis.selections():
            kept = selection.kept
            inside = gram[np.ix_(kept, kept)]
            inside = inside + _RIDGE * np.trace(inside) / len(kept) * np.eye(len(kept))
            residuals = child - values[:, kept] @ np.linalg.solve(inside, crossed[kept])
            cost = price * selection.n_parameters
            value = 0.5 * len(child) * np.log(residuals.var()) + cost
            if value < lowest:
                best, lowest = (residuals, selection.n_parameters), value
        return best
