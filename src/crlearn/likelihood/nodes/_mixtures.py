"""Mixtures of a latent with its parents that soft interventions leave open."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import Graph, adjacency_of, topological_order
from crlearn.likelihood.core._moments import Moments

Matrix = NDArray[np.floating]


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
