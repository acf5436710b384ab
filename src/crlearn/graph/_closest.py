"""The heaviest acyclic part of a weighted directed graph.

Keeping the edges that agree with an order of the nodes, and choosing the order that keeps the most
weight, is the linear ordering problem. It splits into the strongly connected components, because no
edge between two of them lies on a cycle. A component of up to `EXACT_UP_TO` nodes is solved exactly
by dynamic programming over subsets, 2^n n steps; a larger one by a local search that moves one node
at a time, restarted from kicked copies of the best order (about n^2 steps a move).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components

from crlearn.graph._check import BoolMatrix, check_square
from crlearn.graph._order import best_order

EXACT_UP_TO = 16
N_KICKS = 300

Order = NDArray[np.intp]
Weights = NDArray[np.float64]


def closest_dag(weights: ArrayLike, cut: float = 0.0) -> BoolMatrix:
    """Return the acyclic graph that keeps the most weight of a weighted directed graph.

    Parameters
    ----------
    weights
        ``weights[i, j]`` is the strength of the edge i -> j; signs and the diagonal are ignored.
    cut
        Edges weaker than this are left out from the start.

    Returns
    -------
    adjacency
        Acyclic; every edge of at least `cut` that lies on no cycle is kept. The kept weight is the
        largest possible if no more than 16 nodes can all reach each other, and a very good local
        optimum (the same on every call) beyond.

    Examples
    --------
    The weakest edge of a cycle goes:

    >>> closest_dag([[0, 3, 0], [0, 0, 2], [1, 0, 0]]).astype(int).tolist()
    [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    """
    strength = np.abs(check_square(weights, name="weights"))
    np.fill_diagonal(strength, 0.0)
    strength[strength < cut] = 0.0
    adjacency = strength > 0
    _, component = connected_components(adjacency, directed=True, connection="strong")
    for label in np.unique(component):
        nodes = np.flatnonzero(component == label)
        inside = np.ix_(nodes, nodes)
        adjacency[inside] &= _agrees_with(heaviest_order(strength[inside]))
    return adjacency


def heaviest_order(strength: Weights) -> Order:
    """Return an order of the nodes that keeps as much weight as can be found."""
    if len(strength) <= EXACT_UP_TO:
        return exact_order(strength)
    return local_search_order(strength)


def exact_order(strength: Weights) -> Order:
    """Return the order that keeps the most weight."""
    return best_order(-_weight_from_subsets(strength))


def local_search_order(strength: Weights) -> Order:
    """Return an order that no move of a single node improves, the best of many such orders."""
    rng = np.random.default_rng(0)
    net_outflow = strength.sum(axis=1) - strength.sum(axis=0)
    best = _improve_by_moves(strength, np.argsort(-net_outflow, kind="stable"))
    for _ in range(N_KICKS):
        other = _improve_by_moves(strength, _kicked(best, rng))
        if kept_weight(strength, other) > kept_weight(strength, best):
            best = other
    return best


def kept_weight(strength: Weights, order: Order) -> float:
    """Return the total weight of the edges that agree with an order."""
    return float(np.triu(strength[np.ix_(order, order)], k=1).sum())


def _weight_from_subsets(strength: Weights) -> Weights:
    """Return, for each subset of nodes (a bit mask) and each node, the weight from one to other."""
    n_nodes = len(strength)
    weight = np.zeros((2**n_nodes, n_nodes))
    for node in range(n_nodes):
        weight[2**node : 2 ** (node + 1)] = weight[: 2**node] + strength[node]
    return weight


def _improve_by_moves(strength: Weights, order: Order) -> Order:
    """Move one node at a time to the place where it gains most, until nothing gains."""
    rounding = 1e-12 * strength.sum()
    while True:
        gain = _gain_of_moves(strength[np.ix_(order, order)])
        origin, goal = np.unravel_index(np.argmax(gain), gain.shape)
        if gain[origin, goal] <= rounding:
            return order
        order = np.insert(np.delete(order, origin), goal, order[origin])


def _gain_of_moves(strength: Weights) -> Weights:
    """Return what moving the node at each place to each other place adds to the kept weight."""
    n_nodes = len(strength)
    # passing[i, k]: gained by putting i behind k. Its running sum gives all moves of i at once.
    passing = np.zeros((n_nodes, n_nodes + 1))
    np.cumsum(strength.T - strength, axis=1, out=passing[:, 1:])
    gain = np.where(np.tri(n_nodes, dtype=bool), passing[:, :-1], passing[:, 1:])
    return gain - gain.diagonal()[:, None]


def _kicked(order: Order, rng: np.random.Generator) -> Order:
    """Return a copy in which up to half of the nodes are placed anew."""
    n_moved = rng.integers(2, len(order) // 2, endpoint=True)
    moved = rng.choice(order, size=n_moved, replace=False)
    stay = order[~np.isin(order, moved)]
    return np.insert(stay, rng.integers(0, len(stay), size=n_moved, endpoint=True), moved)


def _agrees_with(order: Order) -> BoolMatrix:
    """Return the matrix that is True at [i, j] if i comes before j."""
    place = np.argsort(order)
    return place[:, None] < place[None, :]
