from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlearn.graph import check_adjacency, check_dag, find_cycle

CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)


@pytest.mark.parametrize(
    "graph",
    [
        CHAIN,
        CHAIN.astype(int),
        CHAIN * -0.3,
        CHAIN.tolist(),
        nx.DiGraph([(0, 1), (1, 2)]),
        nx.DiGraph([("a", "b"), ("b", "c")]),
    ],
)
def test_every_way_to_write_a_graph_gives_the_same_matrix(graph):
    adjacency = check_dag(graph)
    assert adjacency.dtype == bool
    np.testing.assert_array_equal(adjacency, CHAIN)


def test_networkx_weights_of_zero_are_still_edges():
    graph = nx.DiGraph()
    graph.add_edge(0, 1, weight=0.0)
    assert check_dag(graph)[0, 1]


def test_input_is_not_shared():
    graph = CHAIN.copy()
    check_dag(graph)[0, 1] = False
    assert graph[0, 1]


def test_empty_graph():
    assert check_dag(np.zeros((0, 0))).shape == (0, 0)


@pytest.mark.parametrize(
    ("graph", "n_nodes", "message"),
    [
        (np.zeros((2, 3)), None, r"my_graph must be .* square .* Got shape \(2, 3\)"),
        (np.zeros(3), None, r"Got shape \(3,\)"),
        (CHAIN, 4, r"shape \(4, 4\).*Got shape \(3, 3\)"),
        ([[0, np.nan], [0, 0]], None, "my_graph must be finite. Got 1 NaN"),
        ([[0, np.inf], [0, 0]], None, "must be finite"),
        ([[0, 1], [0, 1]], None, "no self loops. Got an edge from node 1 to itself"),
        ([["a", "b"], ["c", "d"]], None, "cannot be read as numbers"),
        ([[0, 1], [0]], None, "cannot be read as numbers"),
        (None, None, r"Got shape \(\)"),
        (nx.Graph([(0, 1)]), None, "my_graph must be directed"),
        (
            [[0, 1], [1, 0]],
            None,
            r"my_graph must be acyclic. Got the cycle (0 -> 1 -> 0|1 -> 0 -> 1)",
        ),
        (nx.DiGraph([(0, 1), (1, 2), (2, 0)]), None, "must be acyclic"),
    ],
)
def test_errors_say_what_is_wrong(graph, n_nodes, message):
    with pytest.raises(ValueError, match=message):
        check_dag(graph, n_nodes, name="my_graph")


def test_cycle_is_named_in_its_own_direction():
    with pytest.raises(ValueError, match=r"0 -> 2 -> 1 -> 0|2 -> 1 -> 0 -> 2|1 -> 0 -> 2 -> 1"):
        check_dag([[0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])


def test_check_adjacency_allows_cycles():
    assert check_adjacency([[0, 1], [1, 0]]).sum() == 2


@given(seed=st.integers(0, 2**32 - 1), n_nodes=st.integers(1, 7))
def test_find_cycle_agrees_with_networkx(seed, n_nodes):
    rng = np.random.default_rng(seed)
    adjacency = rng.random((n_nodes, n_nodes)) < 0.25
    np.fill_diagonal(adjacency, False)
    cycle = find_cycle(adjacency)
    assert (cycle == []) == nx.is_directed_acyclic_graph(nx.DiGraph(adjacency))
    if cycle:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1
        assert all(adjacency[i, j] for i, j in pairwise(cycle))
