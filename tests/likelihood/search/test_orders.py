from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations, product

import numpy as np
import pytest

from crlearn.graph import Graph, complete_graph, is_acyclic
from crlearn.likelihood.nodes._linear import LinearModel, expand, objective
from crlearn.likelihood.nodes._protocol import Key
from crlearn.likelihood.nodes._selected import SelectedModel
from crlearn.likelihood.search._orders import (
    _changes,
    _inserted,
    best_graph_at,
    best_order_at,
    better_order_at,
    nearby_orders,
    search_orders,
)

N = 4


class Table:
    """Nodes with arbitrary values."""

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.n_rows = n, 1
        self._rng, self._known = np.random.default_rng(seed), dict[Key, float]()

    def values(self, H: np.ndarray, wanted: Sequence[Key]) -> np.ndarray:
        for key in wanted:
            self._known.setdefault(key, float(self._rng.standard_normal()))
        return np.array([self._known[key] for key in wanted])

    def total(self, graph: Graph) -> float:
        return float(self.values(np.eye(self.n), list(enumerate(graph))).sum())


def value_at(model: LinearModel, H: np.ndarray, order: Sequence[int]) -> float:
    return float(objective(H, model.pools, model.masks(complete_graph(order))))


@pytest.mark.parametrize("seed", range(5))
def test_no_order_is_better_than_the_best(seed: int):
    table = Table(N, seed)
    found = table.total(complete_graph(best_order_at(table, np.eye(N))))
    assert found == pytest.approx(
        min(table.total(complete_graph(order)) for order in permutations(range(N)))
    )


@pytest.mark.parametrize("seed", range(5))
def test_no_graph_is_better_than_the_best(seed: int):
    table = Table(3, seed)
    choices = [
        [
            parents
            for size in range(3)
            for parents in combinations([i for i in range(3) if i != j], size)
        ]
        for j in range(3)
    ]
    graphs = [graph for graph in product(*choices) if is_acyclic(graph)]
    assert len(graphs) == 25
    found = best_graph_at(table, np.eye(3))
    assert is_acyclic(found)
    assert table.total(found) == pytest.approx(min(map(table.total, graphs)))


def test_latents_have_three_parents_at_most():
    class Crowded(Table):
        def values(self, H: np.ndarray, wanted: Sequence[Key]) -> np.ndarray:
            return np.array([-float(len(parents)) for _, parents in wanted])

    found = best_graph_at(Crowded(6, 0), np.eye(6))
    assert is_acyclic(found)
    assert sorted(map(len, found)) == [0, 1, 2, 3, 3, 3]


def test_the_best_graph_at_the_true_encoder():
    mixing = np.array([[1.0, 0.3, 0.2], [0.0, 1.0, 0.4], [0.1, 0.0, 1.0]])
    rng = np.random.default_rng(0)
    environments = []
    for e in range(4):
        z = rng.standard_normal((2000, 3)) * [1.0, 0.5, 0.5]
        z[:, 0] *= 1 + (e == 1)
        z[:, 1] += (e != 2) * np.abs(z[:, 0])
        z[:, 2] += (e != 3) * np.sin(2 * z[:, 1])
        environments.append(z @ mixing.T)
    pool = np.insert(np.eye(3, dtype=np.intp), 0, 0, axis=1)
    model = SelectedModel(environments, pool, hard=True)
    assert best_graph_at(model, model.scaled(np.linalg.inv(mixing))) == ((), (0,), (1,))


@pytest.mark.parametrize("intervention", ["hard", "soft"])
def test_moves_in_an_order_cost_what_the_models_cost(exact, intervention: str):
    model = exact(0, intervention).model
    H, order = np.random.default_rng(0).standard_normal((N, N)), [2, 0, 3, 1]
    changes, gradients = _changes(model, H, order)
    off = ~np.eye(N, dtype=bool)
    now = expand(H, model.pools, model.masks(complete_graph(order)))
    for start, end in np.ndindex(N, N):
        moved = complete_graph(_inserted(order, start, end))
        then = expand(H, model.pools, model.masks(moved))
        assert changes[start, end] == pytest.approx(then.value - now.value, abs=1e-12)
        slopes = gradients[start, end][off]
        np.testing.assert_allclose(slopes, then.gradient - now.gradient, atol=1e-11)


@pytest.mark.parametrize("seed", range(3))
def test_moves_lead_to_the_best_order_of_a_fixed_encoder(exact, seed: int):
    world = exact(seed)
    H = np.linalg.inv(world.mixing)
    moved, best = better_order_at(world.model, H, [3, 2, 1, 0]), best_order_at(world.model, H)
    assert value_at(world.model, H, moved) == pytest.approx(
        value_at(world.model, H, best), abs=1e-4
    )
    for order in permutations(range(N)):
        assert value_at(world.model, H, best) <= value_at(world.model, H, order) + 1e-12


@pytest.mark.parametrize("intervention", ["hard", "soft"])
def test_the_reversed_order_is_turned_around(exact, intervention: str):
    """On exact covariances the truth reaches the saturated model, and nothing is above it."""
    world = exact(1, intervention)
    start = np.linalg.inv(world.mixing)
    found = search_orders(world.model, start, [3, 2, 1, 0])
    saturated = -world.model.n_rows * world.model.moments.saturated
    assert found.log_likelihood == pytest.approx(saturated, abs=1)
    assert sorted(map(len, found.graph)) == [0, 1, 2, 3]


def test_many_latents_are_moved_by_what_moves_promise(exact):
    """Beyond eleven latents moves are ranked before any is predicted; the last one comes first."""
    world = exact(0, n=12)
    start = np.linalg.inv(world.mixing)
    found = search_orders(world.model, start, [11, *range(11)])
    saturated = -world.model.n_rows * world.model.moments.saturated
    assert found.log_likelihood == pytest.approx(saturated, abs=1)


def test_near_orders_turn_no_true_edge_around(exact):
    """Latents 0 and 1 have nothing to do with latent 2, and all are ancestors of 3."""
    world = exact(0)
    truth = world.model.fitted(np.linalg.inv(world.mixing), complete_graph(range(N)))
    near = nearby_orders(world.model, truth, truth.adjacency)
    orders = {tuple(np.argsort(other.adjacency.sum(axis=0)).tolist()) for other in near}
    assert orders == {(0, 2, 1, 3), (2, 0, 1, 3)}
    for other in near:
        assert other.log_likelihood == pytest.approx(truth.log_likelihood, abs=1e-2)
    assert not nearby_orders(world.model, truth, world.graph)


def test_inserted():
    assert _inserted([2, 0, 3, 1], 0, 3) == [0, 3, 1, 2]
    assert _inserted([2, 0, 3, 1], 3, 0) == [1, 2, 0, 3]
