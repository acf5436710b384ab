"""Mixtures of a latent with its parents that soft interventions leave open."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import Graph, adjacency_of, surrounding_parents, topological_order
from crlearn.likelihood.core._moments import Moments

Matrix = NDArray[np.floating]


def free_of_parents(H: Matrix, graph: Graph, moments: Moments, pool: NDArray[np.intp]) -> Matrix:
    """Take parents out of each latent where soft interventions leave that open.

    A latent may be mixed with its surrounding parents: no mechanism changes its form by that. Of
    all mixtures the one is taken in which the latent, where it is intervened on, does not depend on
    them in a linear way.
    """
    free, surrounding = H.copy(), surrounding_parents(graph)
    for j in topological_order(adjacency_of(graph)):
        parents, open_ones = graph[j], list(surrounding[j])
        inside = (pool[j] > 0) * moments.sizes
        if not open_ones or not inside.any():
            continue
        covariance = free @ moments.pooled(inside) @ free.T
        columns = list(parents)
        weights = np.linalg.solve(covariance[np.ix_(columns, columns)], covariance[columns, j])
        taken = [columns.index(i) for i in open_ones]
        free[j] -= weights[taken] @ free[open_ones]
    return free
