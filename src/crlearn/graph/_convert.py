"""Graphs to and from other libraries: networkx, causal-learn, DoWhy."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from crlearn.exceptions import import_extra
from crlearn.graph._check import (
    BoolMatrix,
    GraphLike,
    check_adjacency,
    check_dag,
    check_names,
    check_node_order,
    networkx_weights,
)

# causal-learn's matrix holds at [i, j] the mark at i's end of the edge between i and j.
_TAIL, _NO_EDGE, _ARROW = -1, 0, 1


def to_networkx(adjacency: ArrayLike, names: Sequence[Hashable] | None = None) -> nx.DiGraph:
    """Return a ``networkx.DiGraph``; nodes are called 0, 1, ... unless `names` says otherwise.

    Undirected edges of a CPDAG become two edges.
    """
    matrix = check_adjacency(adjacency, name="adjacency")
    nodes = list(range(len(matrix))) if names is None else check_names(names, len(matrix))
    graph = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from((nodes[i], nodes[j]) for i, j in np.argwhere(matrix))
    return graph


def from_networkx(graph: nx.DiGraph, names: Sequence[Hashable] | None = None) -> BoolMatrix:
    """Return the adjacency matrix, with the nodes in the order of `names` (or of the graph)."""
    return check_adjacency(networkx_weights(graph, names))


def to_causallearn(graph: GraphLike, names: Sequence[str] | None = None) -> Any:
    """Return a ``GeneralGraph`` of causal-learn; needs the extra ``graph``.

    An edge that stands in both directions (CPDAG) becomes an undirected one. The nodes of a matrix
    are called z0, z1, ... unless `names` says otherwise.
    """
    general_graph = import_extra("causallearn.graph.GeneralGraph", "graph").GeneralGraph
    graph_node = import_extra("causallearn.graph.GraphNode", "graph").GraphNode
    edge = import_extra("causallearn.graph.Edge", "graph").Edge
    endpoint = import_extra("causallearn.graph.Endpoint", "graph").Endpoint

    adjacency = check_adjacency(graph)
    nodes = [graph_node(name) for name in _text_names(names, graph, len(adjacency))]
    converted = general_graph(nodes)
    mark = {True: endpoint.TAIL, False: endpoint.ARROW}
    for i, j in np.argwhere(np.triu(adjacency | adjacency.T)):
        mark_at_i, mark_at_j = mark[bool(adjacency[i, j])], mark[bool(adjacency[j, i])]
        converted.add_edge(edge(nodes[i], nodes[j], mark_at_i, mark_at_j))
    return converted


def from_causallearn(graph: Any, names: Sequence[str] | None = None) -> BoolMatrix:
    """Return the adjacency matrix of causal-learn's ``GeneralGraph`` or ``CausalGraph``.

    Undirected edges stand in the matrix in both directions. Edges that are neither directed nor
    undirected (as in a PAG) raise a ValueError. Nodes come in the order of `names` (or of the
    graph).
    """
    graph = getattr(graph, "G", graph)
    marks = np.asarray(graph.graph)
    adjacency = marks == _TAIL
    understood = np.isin(marks, (_TAIL, _NO_EDGE, _ARROW)).all()
    if not understood or ((marks == _ARROW) & (marks.T == _ARROW)).any():
        raise ValueError(
            "graph must have directed and undirected edges only. Got a causal-learn graph with "
            "bidirected or circle-marked edges, which stand for hidden causes."
        )
    nodes = graph.get_node_names()
    order = [nodes.index(name) for name in check_node_order(names, nodes)]
    return adjacency[np.ix_(order, order)]


def to_dowhy(graph: GraphLike, names: Sequence[str] | None = None) -> str:
    """Return the GML text that DoWhy's ``CausalModel(graph=...)`` reads.

    `names` are the columns of the data frame that DoWhy is given with it; by default the nodes of a
    networkx graph, and z0, z1, ... for a matrix.
    """
    adjacency = check_dag(graph)
    named = to_networkx(adjacency, _text_names(names, graph, len(adjacency)))
    return " ".join(nx.generate_gml(named))


def _text_names(names: Sequence[str] | None, graph: GraphLike, n_nodes: int) -> list[str]:
    if names is not None:
        return [str(name) for name in check_names(names, n_nodes)]
    if isinstance(graph, nx.DiGraph):
        return [str(node) for node in graph.nodes]
    return [f"z{i}" for i in range(n_nodes)]
