"""Graphs as the parents of each node: what searches over graphs change, and may use as keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Parents = tuple[int, ...]
Graph = tuple[Parents, ...]  # the parents of each node, in ascending order


def graph_of(adjacency: NDArray[np.bool_]) -> Graph:
    """Return the parents of each node; ``adjacency[i, j]`` says that i causes j.

    Examples
    --------
    >>> graph_of(np.array([[0, 1], [0, 0]]))
    ((), (0,))
    """
    return tuple(tuple(np.flatnonzero(column).tolist()) for column in np.asarray(adjacency).T)


def adjacency_of(graph: Sequence[Parents]) -> NDArray[np.bool_]:
    """Return the adjacency matrix of parents."""
    adjacency = np.zeros((len(graph), len(graph)), dtype=bool)
    for j, parents in enumerate(graph):
        adjacency[list(parents), j] = True
    return adjacency


def complete_graph(order: Sequence[int]) -> Graph:
    """Return the graph in which every node has all nodes before it as parents."""
    place = np.argsort(order)
    return tuple(tuple(sorted(order[: place[j]])) for j in range(len(order)))


def is_acyclic(graph: Sequence[Parents]) -> bool:
    """Whether the nodes can be ordered such that parents come first."""
    placed: set[int] = set()
    while len(placed) < len(graph):
        free = [j for j in range(len(graph)) if j not in placed and placed.issuperset(graph[j])]
        if not free:
            return False
        placed.update(free)
    return True


def surrounding_parents(graph: Graph) -> Graph:
    """Return, for each node, those of its parents that are parents of all its children, too.

    Examples
    --------
    >>> surrounding_parents(((), (0,), (0, 1)))  # 0 -> 1, both -> 2
    ((), (0,), (0, 1))
    >>> surrounding_parents(((), (0,), (1,)))  # a chain
    ((), (), (1,))
    """
    return tuple(
        tuple(i for i in parents if all(i in others for others in graph if j in others))
        for j, parents in enumerate(graph)
    )


def with_parents(graph: Graph, node: int, parents: set[int]) -> Graph:
    """Return the graph in which a node has other parents."""
    return (*graph[:node], tuple(sorted(parents)), *graph[node + 1 :])


def neighbours(graph: Graph) -> Iterator[Graph]:
    """Yield the acyclic graphs that differ by one edge: removed, reversed or added."""
    for j in range(len(graph)):
        for i in range(len(graph)):
            if i == j:
                continue
            if i in graph[j]:
                without = with_parents(graph, j, set(graph[j]) - {i})
                yield without
                reversed_ = with_parents(without, i, {*graph[i], j})
                if is_acyclic(reversed_):
                    yield reversed_
            elif j not in graph[i]:
                added = with_parents(graph, j, {*graph[j], i})
                if is_acyclic(added):
                    yield added
