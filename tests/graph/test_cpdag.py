from itertools import combinations, product

import numpy as np
import pytest

from crlearn.graph import cpdag, find_cycle


def graph_of(n_nodes, *edges):
    adjacency = np.zeros((n_nodes, n_nodes), dtype=bool)
    for i, j in edges:
        adjacency[i, j] = True
    return adjacency


def undirected(*edges):
    return [*edges, *((j, i) for i, j in edges)]


def all_dags(n_nodes):
    pairs = list(combinations(range(n_nodes), 2))
    for states in product((None, False, True), repeat=len(pairs)):
        edges = [
            pair[:: -1 if flip else 1]
            for pair, flip in zip(pairs, states, strict=True)
            if flip is not None
        ]
        graph = graph_of(n_nodes, *edges)
        if not find_cycle(graph):
            yield graph


def skeleton_and_colliders(graph):
    """What characterises a Markov equivalence class (Verma and Pearl)."""
    skeleton = graph | graph.T
    colliders = frozenset(
        (a, b, child)
        for child in range(len(graph))
        for a, b in combinations(np.flatnonzero(graph[:, child]), 2)
        if not skeleton[a, b]
    )
    return skeleton.tobytes(), colliders


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        pytest.param(graph_of(3), graph_of(3), id="empty"),
        pytest.param(
            graph_of(3, (0, 1), (1, 2)), graph_of(3, *undirected((0, 1), (1, 2))), id="chain"
        ),
        pytest.param(
            graph_of(3, (1, 0), (1, 2)), graph_of(3, *undirected((0, 1), (1, 2))), id="fork"
        ),
        pytest.param(graph_of(3, (0, 1), (2, 1)), graph_of(3, (0, 1), (2, 1)), id="collider"),
        pytest.param(
            graph_of(3, (0, 1), (2, 1), (0, 2)),
            graph_of(3, *undirected((0, 1), (2, 1), (0, 2))),
            id="shielded collider",
        ),
        pytest.param(
            graph_of(4, (0, 2), (1, 2), (2, 3)),
            graph_of(4, (0, 2), (1, 2), (2, 3)),
            id="rule 1: 3 -> 2 would be a new collider",
        ),
        pytest.param(
            graph_of(4, (0, 2), (1, 2), (2, 3), (0, 3)),
            graph_of(4, (0, 2), (1, 2), (2, 3), (0, 3)),
            id="rule 2: 3 -> 0 would close a cycle",
        ),
        pytest.param(
            graph_of(4, (0, 1), (0, 2), (0, 3), (2, 1), (3, 1)),
            graph_of(4, (0, 1), (2, 1), (3, 1), *undirected((0, 2), (0, 3))),
            id="rule 3: 0 -> 1 between two colliding paths",
        ),
    ],
)
def test_by_hand(graph, expected):
    np.testing.assert_array_equal(cpdag(graph), expected)


@pytest.mark.parametrize("n_nodes", [2, 3, 4])
def test_same_cpdag_if_and_only_if_markov_equivalent(n_nodes):
    class_of_cpdag, members = {}, {}
    for graph in all_dags(n_nodes):
        markov_class = skeleton_and_colliders(graph)
        completed = cpdag(graph)
        assert class_of_cpdag.setdefault(completed.tobytes(), markov_class) == markov_class
        members.setdefault(markov_class, []).append((graph, completed))
    assert len(class_of_cpdag) == len(members)
    for graphs in members.values():
        union = np.any([graph for graph, _ in graphs], axis=0)
        for _, completed in graphs:
            np.testing.assert_array_equal(completed, union)


def test_numbers_of_graphs_and_classes():
    graphs = list(all_dags(4))
    assert len(graphs) == 543
    assert len({cpdag(graph).tobytes() for graph in graphs}) == 185
