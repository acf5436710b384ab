"""Graphs with one error, for studies of what it costs to give a wrong graph.

The edge is the one that shows most: of those whose cause has no other way to its effect (without
such an edge the graph says the same of what interventions move), the one whose ends correlate most
in the environments that leave its effect alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import transitive_closure

if TYPE_CHECKING:
    from crlearn.data import Dataset

BoolMatrix = NDArray[np.bool_]

WRONG = ("$graph_less_an_edge", "$graph_with_a_reversed_edge")


def wrong_graphs(world: Dataset) -> Mapping[str, BoolMatrix | None]:
    """Return the true graph without an edge and with one turned around; None without edges."""
    edge = _edge_that_shows(world)
    less = turned = None
    if edge is not None:
        assert world.truth is not None
        less = np.array(world.truth.graph, dtype=bool)
        less[edge] = False
        turned = less.copy()
        turned[edge[::-1]] = True
    return dict(zip(WRONG, (less, turned), strict=True))


def _edge_that_shows(world: Dataset) -> tuple[int, int] | None:
    truth = world.truth
    if truth is None or truth.graph is None or not truth.graph.any():
        return None
    graph = np.array(truth.graph, dtype=bool)
    closure = transitive_closure(graph)
    around = graph.astype(int) @ closure.astype(int) > 0
    hit = np.zeros(truth.Z.shape, dtype=bool)
    if world.y is not None and truth.targets is not None:
        for label, targets in zip(world.environments, truth.targets, strict=True):
            hit[world.y == label] = targets
    edges = [(int(i), int(j)) for i, j in np.argwhere(graph & ~around)]

    def strength(edge: tuple[int, int]) -> float:
        rows = truth.Z[~hit[:, edge[1]]][:, list(edge)]
        return float(np.abs(np.array(np.corrcoef(rows.T)))[0, 1]) if len(rows) > 1 else 0.0

    return max(edges, key=strength)
