from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from crlearn.data import (
    chain,
    empty,
    erdos_renyi,
    erdos_renyi_k,
    fork,
    full,
    make_graph,
    y_graph,
)
from crlearn.data.model._graphs import GRAPH_KINDS
from crlearn.graph import check_dag


def edges(graph):
    return [tuple(edge) for edge in np.argwhere(graph).tolist()]


def test_fixed_graphs():
    assert edges(chain(4)) == [(0, 1), (1, 2), (2, 3)]
    assert edges(y_graph()) == [(0, 1), (1, 2), (1, 3)]
    assert edges(fork(4)) == [(0, 1), (0, 2), (0, 3)]
    assert edges(full(3)) == [(0, 1), (0, 2), (1, 2)]
    assert edges(empty(3)) == []


def test_erdos_renyi_keeps_the_order_unless_shuffled():
    graph = erdos_renyi(40, 0.3, 0)
    assert not np.tril(graph).any()
    assert graph.sum() == pytest.approx(0.3 * 40 * 39 / 2, rel=0.15)
    shuffled = erdos_renyi(40, 0.3, 0, shuffle=True)
    assert np.tril(shuffled).any()
    check_dag(shuffled)


@pytest.mark.parametrize(("n", "k", "expected"), [(10, 1, 10), (10, 3, 30), (4, 2, 6), (5, 0, 0)])
def test_er_k_has_exactly_so_many_edges(n, k, expected):
    graph = check_dag(erdos_renyi_k(n, k, 0))
    assert graph.sum() == expected


def test_er_k_in_expectation():
    counts = [erdos_renyi_k(10, 2, seed, exact=False).sum() for seed in range(200)]
    assert np.mean(counts) == pytest.approx(20, abs=1)
    assert np.std(counts) > 1


@pytest.mark.parametrize("kind", GRAPH_KINDS)
def test_every_name_gives_a_dag_and_the_seed_decides(kind):
    first, second = (make_graph(kind, 5, 3) for _ in range(2))
    assert check_dag(first).shape == (5, 5)
    assert first.dtype == bool
    np.testing.assert_array_equal(first, second)


def test_own_graphs():
    own = nx.DiGraph([(0, 1), (1, 2)])
    np.testing.assert_array_equal(make_graph(own, 3), chain(3))
    np.testing.assert_array_equal(make_graph(chain(3).astype(float), 3), chain(3))


def test_unknown_name():
    with pytest.raises(ValueError, match=r"'graph' must be one of 'er'.* Got 'star'"):
        make_graph("star", 3)


def test_cycle_and_shape():
    with pytest.raises(ValueError, match="acyclic"):
        make_graph([[0, 1], [1, 0]], 2)
    with pytest.raises(ValueError, match="shape"):
        make_graph(chain(3), 4)


def test_impossible_sizes():
    with pytest.raises(ValueError, match="at least 3 nodes"):
        y_graph(2)
    with pytest.raises(ValueError, match="at least 1 node"):
        chain(0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        erdos_renyi(3, 1.5)
    with pytest.raises(ValueError, match="must not be negative"):
        erdos_renyi_k(3, -1)


def test_single_node():
    for kind in ("er", "er_k", "chain", "fork", "full", "empty"):
        assert edges(make_graph(kind, 1, 0)) == []
