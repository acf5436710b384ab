from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlearn.graph import (
    ancestors,
    best_order,
    descendants,
    layers,
    parents_of,
    topological_order,
    transitive_closure,
    transitive_reduction,
)

DIAMOND = np.array([[0, 1, 1, 1], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=bool)


@st.composite
def dags(draw):
    n_nodes = draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    upper = np.triu(rng.random((n_nodes, n_nodes)) < rng.random(), k=1)
    shuffle = rng.permutation(n_nodes)
    return upper[np.ix_(shuffle, shuffle)]


def path_lengths(graph):
    """Longest path from each node to a leaf, straight from the definition."""

    def longest(node):
        return max((1 + longest(child) for child in np.flatnonzero(graph[node])), default=0)

    return [longest(node) for node in range(len(graph))]


def test_diamond_by_hand():
    assert topological_order(DIAMOND).tolist() == [0, 1, 2, 3]
    assert parents_of(DIAMOND, 3).tolist() == [0, 1, 2]
    assert ancestors(DIAMOND, 1).tolist() == [0]
    assert descendants(DIAMOND, 0).tolist() == [1, 2, 3]
    assert [layer.tolist() for layer in layers(DIAMOND)] == [[3], [1, 2], [0]]
    shortcut_gone = DIAMOND.copy()
    shortcut_gone[0, 3] = False
    np.testing.assert_array_equal(transitive_reduction(DIAMOND), shortcut_gone)


def test_an_isolated_node_is_a_leaf():
    assert [layer.tolist() for layer in layers([[0, 1, 0], [0, 0, 0], [0, 0, 0]])] == [[1, 2], [0]]


def test_empty_graph():
    empty = np.zeros((0, 0))
    assert topological_order(empty).tolist() == []
    assert layers(empty) == []
    assert transitive_closure(empty).shape == (0, 0)


@given(dags())
def test_order_puts_parents_first(graph):
    place = np.argsort(topological_order(graph))
    assert all(place[i] < place[j] for i, j in np.argwhere(graph))


def cost_of(order, costs):
    """What the nodes cost one after the other."""
    members, total = 0, 0.0
    for node in order:
        total += costs[members, node]
        members |= 1 << int(node)
    return total


@given(st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_no_order_is_better_than_the_best(n_nodes, seed):
    costs = np.random.default_rng(seed).standard_normal((2**n_nodes, n_nodes))
    found = best_order(costs)
    assert sorted(found) == list(range(n_nodes))
    best = min(cost_of(order, costs) for order in permutations(range(n_nodes)))
    assert cost_of(found, costs) == pytest.approx(best)


def test_what_cannot_be_is_not_chosen():
    """Only 2, 0, 1 has finite costs, though its last step is dear."""
    costs = np.full((8, 3), np.inf)
    costs[0, 2] = costs[0b100, 0] = 1.0
    costs[0b101, 1] = 1e9
    costs[0, 0] = -5.0
    assert best_order(costs).tolist() == [2, 0, 1]


def test_the_best_order_of_no_nodes():
    assert best_order(np.zeros((1, 0))).tolist() == []


@given(dags())
def test_closure_and_reduction_agree_with_networkx(graph):
    reference = nx.DiGraph(graph)
    nodes = range(len(graph))
    closure = nx.to_numpy_array(nx.transitive_closure_dag(reference), nodelist=nodes) != 0
    reduction = nx.to_numpy_array(nx.transitive_reduction(reference), nodelist=nodes) != 0
    np.testing.assert_array_equal(transitive_closure(graph), closure)
    np.testing.assert_array_equal(transitive_reduction(graph), reduction)
    for node in nodes:
        assert set(ancestors(graph, node)) == nx.ancestors(reference, node)
        assert set(descendants(graph, node)) == nx.descendants(reference, node)
        assert set(parents_of(graph, node)) == set(reference.predecessors(node))


@given(dags())
def test_layers_follow_the_definition(graph):
    found = layers(graph)
    length = path_lengths(graph)
    assert sorted(node for layer in found for node in layer) == list(range(len(graph)))
    for k, layer in enumerate(found):
        assert len(layer) > 0
        assert all(length[node] == k for node in layer)


@pytest.mark.parametrize("function", [parents_of, ancestors, descendants])
@pytest.mark.parametrize("node", [-1, 4])
def test_unknown_node(function, node):
    with pytest.raises(ValueError, match=f"node must be an index from 0 to 3. Got {node}"):
        function(DIAMOND, node)


def test_cycles_are_refused():
    with pytest.raises(ValueError, match="must be acyclic"):
        topological_order([[0, 1], [1, 0]])
