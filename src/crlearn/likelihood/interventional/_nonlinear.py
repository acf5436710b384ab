"""Encoder, graph and, if unknown, targets with nonlinear mechanisms: from few rows to all.

Graphs are searched on a part of the rows from several starts, revised on a larger part, and the
encoder is fitted to all rows at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import topological_order
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.nodes._selected import AdditiveModel
from crlearn.likelihood.search._edges import Found, Graph, adjacency_of, best_graph_at, climb
from crlearn.likelihood.targets._revision import retarget
from crlearn.progress import progress_bar

Matrix = NDArray[np.floating]

ROWS_TO_SEARCH = 5_000  # of each environment
ROWS_TO_REVISE = 20_000


@dataclass(frozen=True, eq=False)
class NonlinearFit:
    """An encoder with a graph and targets.

    Attributes
    ----------
    H
        Encoder.
    graph
        Parents of each latent.
    pool
        ``pool[j, e]`` is the number of the pool of environment e for latent j.
    bic
        Negative log-likelihood with the cost of the features, in nats, on the rows of the search.
    any_noise
        Whether noises have densities of their own, or are taken for Gaussian.
    """

    H: Matrix
    graph: Graph
    pool: NDArray[np.intp]
    bic: float
    any_noise: bool = False


def fit_nonlinear(
    rows: Sequence[Matrix],
    pool: NDArray[np.intp],
    starts: Sequence[tuple[Matrix, Graph | None]],
    *,
    hard: bool,
    unknown_targets: bool = False,
) -> NonlinearFit:
    """Find encoder and graph.

    Parameters
    ----------
    rows
        Of each environment, reduced to as many dimensions as there are latents.
    pool
        Pools of each latent; see `AdditiveModel`.
    starts
        Encoders, each with a graph; None: the best graph at that encoder.
    hard
        Whether interventions cut a latent off its parents.
    unknown_targets
        Whether `pool` is a guess (0: not intervened on, 1: intervened on), which may be changed.
    """
    model = AdditiveModel(_part(rows, ROWS_TO_SEARCH), pool, hard=hard)
    n_stages = len(starts) + 1 + unknown_targets + 2
    with progress_bar("Nonlinear mechanisms", n_stages) as advance:
        best: Found | None = None
        for H, graph in starts:
            start = best_graph_at(model, H) if graph is None else graph
            best = _better(best, climb(model, H, start))
            advance(f"BIC {best.bic:.0f}")
        assert best is not None
        best = _better(best, climb(model, best.H, best_graph_at(model, best.H)))
        advance(f"BIC {best.bic:.0f}")
        if unknown_targets:
            model, best = retarget(model, best)
            advance(f"BIC {best.bic:.0f}")
        if max(map(len, rows)) > ROWS_TO_SEARCH:
            revised = AdditiveModel(_part(rows, ROWS_TO_REVISE), model.pool, hard=hard)
            best = climb(revised, best.H, best.graph, n_tried=5)
        advance("all rows")
        whole = AdditiveModel(rows, model.pool, hard=hard, choose_features=False)
        H, _ = whole.minimise(best.H, best.graph)
        advance("")
    if not hard:
        H = free_of_parents(H, best.graph, Moments.of(rows), model.pool)
    return NonlinearFit(H, best.graph, model.pool, best.bic)


def free_of_parents(H: Matrix, graph: Graph, moments: Moments, pool: NDArray[np.intp]) -> Matrix:
    """Take parents out of each latent where soft interventions leave that open.

    A latent may be mixed with those parents that are parents of all its children, too: no
    mechanism changes its form by that. Of all mixtures the one is taken in which the latent, where
    it is intervened on, does not depend on them in a linear way.
    """
    free = H.copy()
    for j in topological_order(adjacency_of(graph)):
        parents = graph[j]
        children = [k for k, others in enumerate(graph) if j in others]
        open_ones = [i for i in parents if all(i in graph[k] for k in children)]
        inside = (pool[j] > 0) * moments.sizes
        if not open_ones or not inside.any():
            continue
        covariance = free @ moments.pooled(inside) @ free.T
        columns = list(parents)
        weights = np.linalg.solve(covariance[np.ix_(columns, columns)], covariance[columns, j])
        taken = [columns.index(i) for i in open_ones]
        free[j] -= weights[taken] @ free[open_ones]
    return free


def _better(one: Found | None, other: Found) -> Found:
    return other if one is None or other.bic < one.bic else one


def _part(rows: Sequence[Matrix], most: int) -> list[Matrix]:
    """Return at most so many rows of each environment, evenly spread: their order may matter."""
    return [
        each[np.linspace(0, len(each) - 1, most).astype(int)] if len(each) > most else each
        for each in rows
    ]
