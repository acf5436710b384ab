"""The completed partially directed graph: what all Markov-equivalent DAGs agree on."""

from __future__ import annotations

import numpy as np

from crlearn.graph._check import BoolMatrix, GraphLike, check_dag


def cpdag(graph: GraphLike) -> BoolMatrix:
    """Return the completed partially directed acyclic graph of a DAG.

    An edge keeps its direction if it has that direction in every DAG with the same conditional
    independences; it stands in the matrix in both directions otherwise.

    The edges into colliders of non-adjacent parents are directed first; then Meek's rules 1 to 3
    [1]_ are applied until nothing changes. (His rule 4 acts only on outside knowledge.)

    References
    ----------
    .. [1] C. Meek, "Causal inference and causal explanation with background knowledge", UAI 1995.

    Examples
    --------
    A chain has no direction, a collider has:

    >>> cpdag([[0, 1, 0], [0, 0, 1], [0, 0, 0]]).astype(int).tolist()
    [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    >>> cpdag([[0, 0, 1], [0, 0, 1], [0, 0, 0]]).astype(int).tolist()
    [[0, 0, 1], [0, 0, 1], [0, 0, 0]]
    """
    adjacency = check_dag(graph)
    directed = edges_into_colliders(adjacency)
    undirected = (adjacency | adjacency.T) & ~(directed | directed.T)
    return _complete(directed, undirected)


def edges_into_colliders(adjacency: BoolMatrix) -> BoolMatrix:
    """Return the edges a -> c for which some b -> c exists with a and b not adjacent."""
    apart = _not_adjacent(adjacency)
    return adjacency & _exists(apart, adjacency)


def _complete(directed: BoolMatrix, undirected: BoolMatrix) -> BoolMatrix:
    apart = _not_adjacent(directed | undirected)
    while True:
        forced = undirected & (
            _would_make_collider(directed, apart)
            | _would_close_cycle(directed)
            | _is_between_two_colliding(directed, undirected, apart)
        )
        if not forced.any():
            return directed | undirected
        directed = directed | forced
        undirected = undirected & ~(forced | forced.T)


def _would_make_collider(directed: BoolMatrix, apart: BoolMatrix) -> BoolMatrix:
    """Rule 1: a -> b, b - c, a and c not adjacent; c -> b would be a new collider, so b -> c."""
    return _exists(directed.T, apart)


def _would_close_cycle(directed: BoolMatrix) -> BoolMatrix:
    """Rule 2: a -> b -> c, a - c; c -> a would close a cycle, so a -> c."""
    return _exists(directed, directed)


def _is_between_two_colliding(
    directed: BoolMatrix, undirected: BoolMatrix, apart: BoolMatrix
) -> BoolMatrix:
    """Rule 3: a - b, a - c -> b, a - d -> b, c and d not adjacent; so a -> b."""
    # via[a, b, c]: a - c -> b. Two such c that are not adjacent must exist.
    via = undirected[:, None, :] & directed.T[None, :, :]
    return np.any(_exists(via, apart) & via, axis=2)


def _not_adjacent(adjacency: BoolMatrix) -> BoolMatrix:
    return ~(adjacency | adjacency.T | np.eye(len(adjacency), dtype=bool))


def _exists(left: BoolMatrix, right: BoolMatrix) -> BoolMatrix:
    """Return at [..., i, k] whether some j has left[..., i, j] and right[j, k]."""
    return left.astype(float) @ right.astype(float) > 0
