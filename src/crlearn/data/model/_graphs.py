"""Directed acyclic graphs to draw worlds from: bool matrices, ``graph[i, j]`` True if i causes j.

Unless said otherwise the order of the indices is a causal order.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.data._random import RandomState
from crlearn.graph import check_dag

Graph = NDArray[np.bool_]

GRAPH_KINDS = ("er", "er_k", "chain", "y", "fork", "full", "empty")


def erdos_renyi(
    n_nodes: int,
    edge_probability: float = 0.5,
    random_state: RandomState = None,
    *,
    shuffle: bool = False,
) -> Graph:
    """Erdős–Rényi graph: each pair is an edge with the same probability.

    Parameters
    ----------
    n_nodes
        Number of nodes.
    edge_probability
        Probability of each edge; ``n_nodes (n_nodes - 1) / 2`` times this edges are expected.
    random_state
        Seed or generator.
    shuffle
        If True the causal order is random, if False it is the order of the indices.
    """
    if not 0 <= edge_probability <= 1:
        raise ValueError(
            f"The 'edge_probability' must lie between 0 and 1. Got {edge_probability} instead."
        )
    rng = np.random.default_rng(random_state)
    graph = np.triu(rng.random((_checked_size(n_nodes), n_nodes)) < edge_probability, k=1)
    return _in_random_order(graph, rng) if shuffle else graph


def erdos_renyi_k(
    n_nodes: int,
    edges_per_node: float = 1.0,
    random_state: RandomState = None,
    *,
    exact: bool = True,
) -> Graph:
    """ER-k graph: k edges for each node, in a random causal order.

    Parameters
    ----------
    n_nodes
        Number of nodes.
    edges_per_node
        The k of ER-k.
    random_state
        Seed or generator.
    exact
        If True the graph has exactly ``k n_nodes`` edges (or all that there can be, if that is
        fewer); if False each edge is drawn independently and ``k n_nodes`` is the expected
        number.
    """
    if edges_per_node < 0:
        raise ValueError(
            f"The 'edges_per_node' must not be negative. Got {edges_per_node} instead."
        )
    n_pairs = _checked_size(n_nodes) * (n_nodes - 1) // 2
    n_edges = min(edges_per_node * n_nodes, n_pairs)
    rng = np.random.default_rng(random_state)
    if not exact:
        return erdos_renyi(n_nodes, n_edges / max(n_pairs, 1), rng, shuffle=True)
    graph = empty(n_nodes)
    rows, columns = np.triu_indices(n_nodes, k=1)
    chosen = rng.choice(n_pairs, size=round(n_edges), replace=False)
    graph[rows[chosen], columns[chosen]] = True
    return _in_random_order(graph, rng)


def chain(n_nodes: int) -> Graph:
    """Line ``0 -> 1 -> 2 -> ...``."""
    return np.eye(_checked_size(n_nodes), k=1, dtype=bool)


def y_graph(n_nodes: int = 4) -> Graph:
    """Stem that splits in two at its end: ``0 -> 1 -> 2`` and ``1 -> 3`` for four nodes."""
    if n_nodes < 3:
        raise ValueError(f"A Y graph needs at least 3 nodes. Got {n_nodes} instead.")
    graph = chain(n_nodes)
    graph[-2, -1] = False
    graph[-3, -1] = True
    return graph


def fork(n_nodes: int) -> Graph:
    """One common cause: node 0 causes all others."""
    graph = empty(n_nodes)
    graph[0, 1:] = True
    return graph


def full(n_nodes: int) -> Graph:
    """Every node causes all later ones."""
    return np.triu(np.ones((_checked_size(n_nodes), n_nodes), dtype=bool), k=1)


def empty(n_nodes: int) -> Graph:
    """No edges: independent nodes."""
    return np.zeros((_checked_size(n_nodes), n_nodes), dtype=bool)


def make_graph(
    graph: str | ArrayLike | nx.DiGraph,
    n_nodes: int,
    random_state: RandomState = None,
    *,
    edge_probability: float = 0.5,
    edges_per_node: float = 1.0,
) -> Graph:
    """Graph by name, or a graph of one's own, checked.

    Parameters
    ----------
    graph
        ``"er"``, ``"er_k"`` (both in a random causal order, so that the order of the indices says
        nothing), ``"chain"``, ``"y"``, ``"fork"``, ``"full"``, ``"empty"``; or an adjacency matrix
        with ``graph[i, j]`` non-zero if i causes j; or a ``networkx.DiGraph``.
    n_nodes
        Number of nodes.
    random_state
        Seed or generator, for the random kinds.
    edge_probability
        Of ``"er"``.
    edges_per_node
        Of ``"er_k"``.
    """
    if not isinstance(graph, str):
        return check_dag(graph, n_nodes, name="graph")
    if graph not in GRAPH_KINDS:
        allowed = ", ".join(repr(kind) for kind in GRAPH_KINDS)
        raise ValueError(
            f"The 'graph' must be one of {allowed}, an adjacency matrix or a networkx.DiGraph. "
            f"Got {graph!r} instead."
        )
    if graph == "er":
        return erdos_renyi(n_nodes, edge_probability, random_state, shuffle=True)
    if graph == "er_k":
        return erdos_renyi_k(n_nodes, edges_per_node, random_state)
    fixed = {"chain": chain, "y": y_graph, "fork": fork, "full": full, "empty": empty}
    return fixed[graph](n_nodes)


def _checked_size(n_nodes: int) -> int:
    if n_nodes < 1:
        raise ValueError(f"A graph needs at least 1 node. Got {n_nodes} instead.")
    return n_nodes


def _in_random_order(graph: Graph, rng: np.random.Generator) -> Graph:
    order = rng.permutation(len(graph))
    return graph[np.ix_(order, order)]
