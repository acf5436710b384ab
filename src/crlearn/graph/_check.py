"""What counts as a graph: the checks at every door of this folder."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

BoolMatrix = NDArray[np.bool_]
GraphLike = ArrayLike | nx.DiGraph


def check_dag(graph: GraphLike, n_nodes: int | None = None, name: str = "graph") -> BoolMatrix:
    """Return the adjacency matrix of a directed acyclic graph, or say what is wrong with it.

    Parameters
    ----------
    graph
        Square array (0/1, bool or edge weights; non-zero means an edge from row to column) or
        ``networkx.DiGraph``, whose nodes are taken in the order in which it lists them.
    n_nodes
        Number of nodes that the graph must have, if that is known.
    name
        Name of the argument in error messages.

    Returns
    -------
    adjacency
        ``adjacency[i, j]`` is True if i -> j.
    """
    adjacency = check_adjacency(graph, n_nodes, name)
    cycle = find_cycle(adjacency)
    if cycle:
        path = " -> ".join(str(node) for node in cycle)
        raise ValueError(
            f"{name} must be acyclic. Got the cycle {path}; remove one of its edges, "
            "or project a weighted graph with crlearn.graph.closest_dag."
        )
    return adjacency


def check_adjacency(
    graph: GraphLike, n_nodes: int | None = None, name: str = "graph"
) -> BoolMatrix:
    """Return a square bool matrix without self loops; cycles are allowed."""
    if isinstance(graph, nx.Graph):
        graph = networkx_weights(graph, name=name)
    weights = check_square(graph, n_nodes, name)
    adjacency = weights != 0
    if adjacency.diagonal().any():
        node = int(np.flatnonzero(adjacency.diagonal())[0])
        raise ValueError(
            f"{name} must have no self loops. Got an edge from node {node} to itself; "
            "set the diagonal to zero."
        )
    return adjacency


def check_square(
    matrix: ArrayLike, n_nodes: int | None = None, name: str = "graph"
) -> NDArray[np.float64]:
    """Return a finite square float matrix."""
    try:
        weights = np.asarray(matrix, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a square numeric array or a networkx.DiGraph. "
            f"Got {type(matrix).__name__} that cannot be read as numbers: {error}"
        ) from error
    expected = "square (n_nodes, n_nodes)" if n_nodes is None else f"({n_nodes}, {n_nodes})"
    square = weights.ndim == 2 and weights.shape[0] == weights.shape[1]
    if not square or (n_nodes is not None and weights.shape[0] != n_nodes):
        raise ValueError(
            f"{name} must be an adjacency matrix of shape {expected}, "
            f"where {name}[i, j] is the edge i -> j. Got shape {weights.shape} instead."
        )
    n_bad = int((~np.isfinite(weights)).sum())
    if n_bad:
        raise ValueError(
            f"{name} must be finite. Got {n_bad} NaN or infinite entries; use 0 for 'no edge'."
        )
    return weights


def check_names(names: Sequence[Hashable], n_nodes: int) -> list[Hashable]:
    """Return one distinct name for each node."""
    names = list(names)
    if len(names) != n_nodes or len(set(names)) != n_nodes:
        raise ValueError(
            f"names must hold one distinct name for each of the {n_nodes} nodes. Got {names!r}."
        )
    return names


def check_node_order(
    names: Sequence[Hashable] | None, nodes: Sequence[Hashable]
) -> Sequence[Hashable]:
    """Return `nodes`, in the order of `names` if that is given."""
    if names is None:
        return nodes
    if len(names) != len(nodes) or set(names) != set(nodes):
        raise ValueError(
            "names must hold every node of the graph once, in the order that is wanted. "
            f"The nodes are {list(nodes)!r}. Got {list(names)!r}."
        )
    return names


def networkx_weights(
    graph: nx.Graph, names: Sequence[Hashable] | None = None, name: str = "graph"
) -> NDArray[np.float64]:
    """Return the 0/1 matrix of a directed networkx graph, nodes in the order of `names`."""
    if not graph.is_directed():
        raise ValueError(
            f"{name} must be directed. Got an undirected networkx graph; use networkx.DiGraph."
        )
    place = {node: i for i, node in enumerate(check_node_order(names, list(graph.nodes)))}
    weights = np.zeros((len(place), len(place)))
    for parent, child in graph.edges():
        weights[place[parent], place[child]] = 1.0
    return weights


def find_cycle(adjacency: BoolMatrix) -> list[int]:
    """Return the nodes of one directed cycle, first node repeated at the end; or an empty list."""
    left = np.ones(len(adjacency), dtype=bool)
    while True:
        has_parent = adjacency[left].any(axis=0)
        if not (left & ~has_parent).any():
            break
        left &= has_parent
    if not left.any():
        return []
    # Every node that is left has a parent that is left: walking up must come back.
    walk = [int(np.flatnonzero(left)[0])]
    while walk[-1] not in walk[:-1]:
        walk.append(int(np.flatnonzero(adjacency[:, walk[-1]] & left)[0]))
    return walk[walk.index(walk[-1]) :][::-1]
