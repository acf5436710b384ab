import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlearn.graph import cpdag
from crlearn.metrics import (
    edge_f1,
    edge_precision,
    edge_recall,
    shd,
    shd_closure,
    shd_cpdag,
    shd_pc,
    targets_right,
)

CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
FORK = np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0]], dtype=bool)
COLLIDER = np.array([[0, 1, 0], [0, 0, 0], [0, 1, 0]], dtype=bool)
FULL = np.triu(np.ones((3, 3), dtype=bool), k=1)
EMPTY = np.zeros((3, 3), dtype=bool)
DISTANCES = [shd, shd_closure, shd_cpdag]
SHARES = [edge_precision, edge_recall, edge_f1]


def random_dag(rng, n_nodes):
    shuffle = rng.permutation(n_nodes)
    return np.triu(rng.random((n_nodes, n_nodes)) < 0.5, k=1)[np.ix_(shuffle, shuffle)]


@st.composite
def three_dags(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_nodes = draw(st.integers(1, 6))
    return [random_dag(rng, n_nodes) for _ in range(3)], rng.permutation(n_nodes)


@pytest.mark.parametrize("distance", DISTANCES)
@given(three_dags())
def test_distances_are_distances(distance, graphs_and_order):
    (a, b, c), order = graphs_and_order
    n_pairs = len(a) * (len(a) - 1) // 2
    assert 0 <= distance(a, b) <= n_pairs
    assert distance(a, a) == 0
    assert distance(a, b) == distance(b, a)
    assert distance(a, c) <= distance(a, b) + distance(b, c)
    relabel = np.ix_(order, order)
    assert distance(a[relabel], b[relabel]) == distance(a, b)


@given(three_dags())
def test_edge_shares(graphs_and_order):
    (a, b, _), _ = graphs_and_order
    precision, recall, f1 = edge_precision(a, b), edge_recall(a, b), edge_f1(a, b)
    assert all(0 <= share <= 1 for share in (precision, recall, f1))
    assert precision == edge_recall(b, a)
    harmonic = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0
    assert f1 == pytest.approx(harmonic)
    assert [share(a, a) for share in SHARES] == [1, 1, 1]


@pytest.mark.parametrize(
    ("graph", "graph_hat", "expected"),
    [
        (CHAIN, EMPTY, (2, 3, 2)),
        (CHAIN, FULL, (1, 0, 1)),
        (CHAIN, CHAIN.T, (2, 3, 0)),
        (CHAIN, FORK, (1, 2, 0)),
        (CHAIN, COLLIDER, (1, 2, 2)),
        (FULL, FULL.T, (3, 3, 0)),
    ],
)
def test_distances_by_hand(graph, graph_hat, expected):
    assert tuple(distance(graph, graph_hat) for distance in DISTANCES) == expected


@pytest.mark.parametrize(
    ("graph", "graph_hat", "expected"),
    [
        (CHAIN, FULL, (2 / 3, 1, 0.8)),
        (CHAIN, FORK, (1 / 2, 1 / 2, 1 / 2)),
        (CHAIN, CHAIN.T, (0, 0, 0)),
        (CHAIN, EMPTY, (0, 0, 0)),
        (EMPTY, CHAIN, (0, 0, 0)),
        (EMPTY, EMPTY, (1, 1, 1)),
    ],
)
def test_edge_shares_by_hand(graph, graph_hat, expected):
    assert [share(graph, graph_hat) for share in SHARES] == pytest.approx(expected)


def test_a_cpdag_is_taken_as_it_stands():
    assert shd_cpdag(CHAIN, cpdag(CHAIN)) == 0
    assert shd_cpdag(COLLIDER, cpdag(CHAIN)) == 2


def test_networkx_graphs():
    assert shd(nx.DiGraph([(0, 1), (1, 2)]), CHAIN) == 0


@pytest.mark.parametrize("metric", [*DISTANCES, *SHARES])
def test_graphs_must_fit(metric):
    with pytest.raises(ValueError, match=r"graph_hat must .*shape \(3, 3\).*Got shape \(2, 2\)"):
        metric(CHAIN, np.zeros((2, 2)))
    cyclic = [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    with pytest.raises(ValueError, match="graph_hat must be acyclic"):
        metric(CHAIN, cyclic)


def test_targets_by_hand():
    targets = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    assert targets_right(targets, targets) == 1
    assert targets_right(targets, np.zeros((4, 2))) == 0.25
    assert targets_right(targets, [[0, 0], [1, 0], [1, 0], [0, 1]]) == 0.5


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 5))
def test_targets_bounds_and_relabelling(seed, n_environments, n_latents):
    rng = np.random.default_rng(seed)
    targets, targets_hat = rng.random((2, n_environments, n_latents)) < 0.5
    share = targets_right(targets, targets_hat)
    assert 0 <= share <= 1
    environments, latents = rng.permutation(n_environments), rng.permutation(n_latents)
    relabel = np.ix_(environments, latents)
    assert targets_right(targets[relabel], targets_hat[relabel]) == pytest.approx(share)


def test_targets_must_fit():
    with pytest.raises(ValueError, match=r"same shape .* Got \(2, 3\) and \(2, 2\)"):
        targets_right(np.zeros((2, 3)), np.zeros((2, 2)))


def test_shd_of_what_pc_finds():
    pytest.importorskip("causallearn", reason="PC is that of causal-learn, an extra")
    noise = np.random.default_rng(0).normal(size=(3000, 3))
    Z = noise @ np.linalg.inv(np.eye(3) - COLLIDER)
    assert shd_pc(COLLIDER, Z) == 0
    assert shd_pc(CHAIN, Z) == 2  # both edges are undirected there
    assert shd_pc(EMPTY, Z) == 2
    assert shd_pc(COLLIDER, noise) == 2
    with pytest.raises(ValueError, match="the graph found in Z"):
        shd_pc(COLLIDER, Z[:, :2])
