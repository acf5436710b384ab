"""Who comes before whom: orders, the best of all orders, ancestors, closures, layers.

Graphs are whatever `check_dag` accepts; adjacency matrices have ``adjacency[i, j]`` True if i -> j.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crlearn.graph._check import BoolMatrix, GraphLike, check_dag

Nodes = NDArray[np.intp]


def topological_order(graph: GraphLike) -> Nodes:
    """Return the nodes with every parent before its children, smallest index first among equals.

    Examples
    --------
    >>> topological_order([[0, 0, 0], [1, 0, 0], [1, 1, 0]]).tolist()
    [2, 1, 0]
    """
    return _topological_order(check_dag(graph))


def best_order(costs: NDArray[np.floating]) -> Nodes:
    """Return the order of least cost, by dynamic programming over sets of nodes: 2^n n steps.

    Parameters
    ----------
    costs
        ``costs[members, j]`` is what node j costs if exactly the nodes of a set come before it; bit
        i of `members` says whether node i is in the set. ``(2^n, n)``.

    Examples
    --------
    Node 0 is cheap once node 1 was there:

    >>> best_order(np.array([[5, 1], [0, 9], [2, 0], [0, 0]])).tolist()
    [1, 0]
    """
    n_nodes = costs.shape[1]
    subsets = np.arange(2**n_nodes)
    size = np.bitwise_count(subsets)
    least = np.full(2**n_nodes, np.inf)
    least[0] = 0.0
    last = np.zeros(2**n_nodes, dtype=np.intp)
    for n_placed in range(1, n_nodes + 1):
        of_this_size = subsets[size == n_placed]
        for node in range(n_nodes):
            ending_in_node = of_this_size[of_this_size >> node & 1 == 1]
            before = ending_in_node ^ (1 << node)
            total = least[before] + costs[before, node]
            better = total < least[ending_in_node]
            least[ending_in_node[better]] = total[better]
            last[ending_in_node[better]] = node
    return _traced_back(last, n_nodes)


def transitive_closure(graph: GraphLike) -> BoolMatrix:
    """Return the matrix that is True at [i, j] if a directed path leads from i to j."""
    return _transitive_closure(check_dag(graph))


def transitive_reduction(graph: GraphLike) -> BoolMatrix:
    """Return the smallest graph with the same transitive closure."""
    adjacency = check_dag(graph)
    detours = adjacency.astype(float) @ _transitive_closure(adjacency) > 0
    return adjacency & ~detours


def parents_of(graph: GraphLike, node: int) -> Nodes:
    """Return the direct causes of a node, in ascending order."""
    adjacency = check_dag(graph)
    return np.flatnonzero(adjacency[:, _check_node(node, len(adjacency))])


def ancestors(graph: GraphLike, node: int) -> Nodes:
    """Return the direct and indirect causes of a node, in ascending order, without the node."""
    closure = transitive_closure(graph)
    return np.flatnonzero(closure[:, _check_node(node, len(closure))])


def descendants(graph: GraphLike, node: int) -> Nodes:
    """Return the direct and indirect effects of a node, in ascending order, without the node."""
    closure = transitive_closure(graph)
    return np.flatnonzero(closure[_check_node(node, len(closure))])


def layers(graph: GraphLike) -> list[Nodes]:
    """Return the nodes in layers, childless ones first.

    Layer k holds the nodes whose longest directed path to a childless node has k edges: layer 0
    are the childless nodes, layer 1 those that become childless without layer 0, and so on. Layers
    upstream of layer k are k + 1, k + 2, ...; every ancestor of a node lies upstream of it, and
    nodes of the same layer are not ancestors of each other.

    Examples
    --------
    The Y graph, 0 -> 1, 1 -> 2, 1 -> 3:

    >>> y_graph = [[0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    >>> [layer.tolist() for layer in layers(y_graph)]
    [[2, 3], [1], [0]]
    """
    adjacency = check_dag(graph)
    height = np.zeros(len(adjacency), dtype=int)
    for node in _topological_order(adjacency)[::-1]:
        if adjacency[node].any():
            height[node] = 1 + height[adjacency[node]].max()
    return [np.flatnonzero(height == k) for k in range(height.max(initial=-1) + 1)]


def _traced_back(last: NDArray[np.intp], n_nodes: int) -> Nodes:
    order = np.empty(n_nodes, dtype=np.intp)
    subset = 2**n_nodes - 1
    for position in reversed(range(n_nodes)):
        order[position] = last[subset]
        subset ^= 1 << int(last[subset])
    return order


def _topological_order(adjacency: BoolMatrix) -> Nodes:
    n_parents = adjacency.sum(axis=0)
    placed = np.zeros(len(adjacency), dtype=bool)
    order = np.empty(len(adjacency), dtype=np.intp)
    for position in range(len(adjacency)):
        node = np.argmax(~placed & (n_parents == 0))
        order[position] = node
        placed[node] = True
        n_parents -= adjacency[node]
    return order


def _transitive_closure(adjacency: BoolMatrix) -> BoolMatrix:
    closure = adjacency.copy()
    for node in _topological_order(adjacency)[::-1]:
        closure[node] |= closure[adjacency[node]].any(axis=0)
    return closure


def _check_node(node: int, n_nodes: int) -> int:
    if not 0 <= node < n_nodes:
        raise ValueError(f"node must be an index from 0 to {n_nodes - 1}. Got {node!r} instead.")
    return node
