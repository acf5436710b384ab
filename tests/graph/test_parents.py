from __future__ import annotations

from itertools import product

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crlearn.graph import (
    adjacency_of,
    complete_graph,
    graph_of,
    is_acyclic,
    neighbours,
    surrounding_parents,
    with_parents,
)

CHAIN = ((), (0,), (1,))


@st.composite
def digraphs(draw) -> np.ndarray:
    """Any directed graph without loops, cyclic or not."""
    n = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return (rng.random((n, n)) < 0.8 * rng.random()) & ~np.eye(n, dtype=bool)


@given(digraphs())
def test_acyclicity_agrees_with_networkx(adjacency: np.ndarray):
    graph = graph_of(adjacency)
    assert is_acyclic(graph) == nx.is_directed_acyclic_graph(nx.DiGraph(adjacency))


@given(digraphs())
def test_matrices_and_parents_say_the_same(adjacency: np.ndarray):
    graph = graph_of(adjacency)
    assert (adjacency_of(graph) == adjacency).all()
    assert all(parents == tuple(sorted(parents)) for parents in graph)
    assert all(isinstance(i, int) for parents in graph for i in parents)


def test_no_nodes():
    assert graph_of(np.zeros((0, 0), dtype=bool)) == ()
    assert is_acyclic(())
    assert list(neighbours(())) == []


def test_complete_graph():
    assert complete_graph([2, 0, 1]) == ((2,), (0, 2), ())
    assert complete_graph(np.array([1, 0]).tolist()) == ((1,), ())


def test_other_parents():
    assert with_parents(CHAIN, 2, {1, 0}) == ((), (0,), (0, 1))
    assert CHAIN == ((), (0,), (1,))


def test_neighbours_of_a_chain():
    found = list(neighbours(CHAIN))
    assert len(found) == len(set(found)) == 5  # two removed, two reversed, 0 -> 2 added
    assert all(is_acyclic(graph) for graph in found)
    assert ((), (), (1,)) in found
    assert ((1,), (), (1,)) in found
    assert ((), (0,), (0, 1)) in found


def test_neighbours_are_all_acyclic_graphs_that_differ_in_one_pair():
    pairs = [(0, 1), (0, 2), (1, 2)]
    every = []
    for states in product((0, 1, 2), repeat=3):  # none, forwards, backwards
        adjacency = np.zeros((3, 3), dtype=bool)
        for (i, j), state in zip(pairs, states, strict=True):
            adjacency[i, j], adjacency[j, i] = state == 1, state == 2
        if is_acyclic(graph_of(adjacency)):
            every.append((states, graph_of(adjacency)))
    assert len(every) == 25
    for states, graph in every:
        near = {
            other
            for different, other in every
            if sum(a != b for a, b in zip(states, different, strict=True)) == 1
        }
        found = list(neighbours(graph))
        assert len(found) == len(set(found))
        assert set(found) == near


def test_surrounding_parents_are_parents_of_all_children():
    assert surrounding_parents(CHAIN) == ((), (), (1,))  # 0 is no parent of 2
    assert surrounding_parents(((), (0,), (0, 1))) == ((), (0,), (0, 1))
    # 3 has both parents; 1 has 4 as a child, which 0 has not.
    assert surrounding_parents(((), (0,), (0,), (1, 2), (1,))) == ((), (), (), (1, 2), (1,))
