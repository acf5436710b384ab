import time
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlearn.graph import check_dag, closest_dag
from crlearn.graph._closest import exact_order, kept_weight, local_search_order


def random_weights(rng, n_nodes, density=0.7):
    weights = rng.random((n_nodes, n_nodes)) * (rng.random((n_nodes, n_nodes)) < density)
    np.fill_diagonal(weights, 0.0)
    return weights


def planted(rng, n_nodes):
    """A strong DAG in a hidden order, with weak edges everywhere."""
    strong = np.triu(rng.random((n_nodes, n_nodes)) < 0.4, k=1) * (0.5 + rng.random())
    weak = random_weights(rng, n_nodes) * 0.05
    shuffle = rng.permutation(n_nodes)
    return (strong + weak)[np.ix_(shuffle, shuffle)], np.argsort(shuffle)


@given(seed=st.integers(0, 2**32 - 1), n_nodes=st.integers(1, 6))
def test_small_graphs_keep_as_much_as_the_best_of_all_orders(seed, n_nodes):
    weights = random_weights(np.random.default_rng(seed), n_nodes)
    best = max(kept_weight(weights, np.array(order)) for order in permutations(range(n_nodes)))
    kept = check_dag(closest_dag(weights))
    assert weights[kept].sum() == pytest.approx(best)


@given(seed=st.integers(0, 2**32 - 1), n_nodes=st.integers(1, 8))
def test_an_acyclic_graph_is_its_own_projection(seed, n_nodes):
    rng = np.random.default_rng(seed)
    shuffle = rng.permutation(n_nodes)
    weights = np.triu(random_weights(rng, n_nodes), k=1)[np.ix_(shuffle, shuffle)]
    np.testing.assert_array_equal(closest_dag(weights), weights > 0)


@pytest.mark.parametrize("seed", range(10))
def test_local_search_reaches_the_exact_optimum(seed):
    weights = random_weights(np.random.default_rng(seed), 13)
    exact = kept_weight(weights, exact_order(weights))
    assert kept_weight(weights, local_search_order(weights)) == pytest.approx(exact)


def test_thirty_nodes_in_under_a_second():
    weights, true_order = planted(np.random.default_rng(0), 30)
    start = time.process_time()
    kept = closest_dag(weights)
    assert time.process_time() - start < 1.0
    check_dag(kept)
    assert weights[kept].sum() >= kept_weight(weights, true_order)
    strong = weights > 0.25
    np.testing.assert_array_equal(kept & strong, strong)


def test_many_small_cycles_are_solved_one_by_one():
    pairs = np.kron(np.eye(20), [[0.0, 2.0], [1.0, 0.0]])
    np.testing.assert_array_equal(closest_dag(pairs), pairs == 2.0)


def test_cut_is_the_weakest_edge_that_stays():
    weights = np.array([[0.0, 0.5, 0.4], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(closest_dag(weights, cut=0.5), weights >= 0.5)


def test_sign_diagonal_and_scale_do_not_matter():
    weights = random_weights(np.random.default_rng(3), 6)
    signed = weights * np.random.default_rng(4).choice([-1.0, 1.0], size=(6, 6)) + 7 * np.eye(6)
    for scale in (1e-12, 1.0, 1e12):
        np.testing.assert_array_equal(closest_dag(scale * signed), closest_dag(weights))


def test_no_nodes():
    assert closest_dag(np.zeros((0, 0))).shape == (0, 0)


def test_same_answer_every_time():
    weights = random_weights(np.random.default_rng(5), 20)
    np.testing.assert_array_equal(closest_dag(weights), closest_dag(weights))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros((2, 3)), r"weights must be .* Got shape \(2, 3\)"),
        ([[0, np.nan], [0, 0]], "finite"),
    ],
)
def test_errors(weights, message):
    with pytest.raises(ValueError, match=message):
        closest_dag(weights)
