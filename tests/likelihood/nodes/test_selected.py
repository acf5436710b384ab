from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood._price import edge_prior, parameter_price, price_together
from crlearn.likelihood.core._encoder import moved
from crlearn.likelihood.core._moments import Moments, Pools
from crlearn.likelihood.nodes import _selected
from crlearn.likelihood.nodes._linear import objective
from crlearn.likelihood.nodes._selected import SelectedModel

MIXING = np.array([[1.0, 0.3, 0.2], [0.0, 1.0, 0.4], [0.1, 0.0, 1.0]])
POOL = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
GRAPH = ((), (0,), (0, 1))


def environments(n_rows: int, seed: int = 0, kept: float = 0.0) -> list[np.ndarray]:
    """z1 = sin(1.5 z0) + noise, z2 = |z1| + tanh(z0) + noise; in turn, each keeps so much of it."""
    rng = np.random.default_rng(seed)
    found = []
    for e in range(4):
        z = np.empty((n_rows, 3))
        z[:, 0] = rng.normal(0, 2.0 if e == 1 else 1.0, n_rows)
        z[:, 1] = (kept if e == 2 else 1) * np.sin(1.5 * z[:, 0]) + rng.normal(0, 0.6, n_rows)
        z[:, 2] = (kept if e == 3 else 1) * (np.abs(z[:, 1]) + np.tanh(z[:, 0])) + rng.normal(
            0, 0.5, n_rows
        )
        found.append(z @ MIXING.T)
    return found


@pytest.fixture(scope="module")
def model() -> SelectedModel:
    return SelectedModel(environments(3000), POOL, hard=True)


def test_without_parents_it_is_the_gaussian_model(model: SelectedModel):
    H = np.random.default_rng(0).standard_normal((3, 3))
    pools = Pools.of(Moments.of(environments(3000)), POOL)
    expected = objective(H, pools, np.zeros((3, 2, 3)))
    assert model.value(H, ((), (), ())) == pytest.approx(float(expected), abs=1e-9)


def test_the_gradient_is_the_derivative(model: SelectedModel):
    H = model.scaled(np.eye(3) + 0.1 * np.random.default_rng(1).standard_normal((3, 3)))
    point, step = model.expand(H, GRAPH), 2e-3
    numerical = [
        (model.value(moved(H, step * e), GRAPH) - model.value(moved(H, -step * e), GRAPH))
        / (2 * step)
        for e in np.eye(6)
    ]
    # The quadratic form under the root is fitted anew, which the gradient does not follow.
    np.testing.assert_allclose(point.gradient, numerical, atol=0.05)


def test_some_rows_tell_the_curvature_and_all_the_gradient(monkeypatch: pytest.MonkeyPatch):
    rows = environments(30_000)
    H = np.linalg.inv(MIXING) + 0.1 * np.random.default_rng(1).standard_normal((3, 3))
    some = SelectedModel(rows, POOL, hard=True).expand(H, GRAPH)
    monkeypatch.setattr(_selected, "_BLOCKS_FOR_CURVATURE", 10_000)
    every = SelectedModel(rows, POOL, hard=True).expand(H, GRAPH)
    np.testing.assert_allclose(some.gradient, every.gradient, rtol=1e-6)
    assert np.abs(some.hessian - every.hessian).max() < 0.1 * np.abs(every.hessian).max()
    assert np.abs(some.hessian - every.hessian).max() > 0


def test_what_is_left_behind_is_given_up(model: SelectedModel):
    """No step of this encoder reaches the score, so that none is taken."""
    start = model.scaled(np.eye(3))
    given_up = model.fitted(start, GRAPH, least_score=1e9)
    np.testing.assert_array_equal(given_up.H, start)


def test_newton_converges_in_a_few_steps_and_finds_the_encoder(model: SelectedModel):
    """Without the residual's terms in the Hessian it takes dozens."""
    start = np.linalg.inv(MIXING) + 0.15 * np.random.default_rng(2).standard_normal((3, 3))
    found = model.fitted(start, GRAPH, max_steps=8)
    best = model.fitted(np.linalg.inv(MIXING), GRAPH)
    assert found.log_likelihood == pytest.approx(best.log_likelihood, abs=3e-4 * model.n_rows)
    mixed = found.H @ MIXING
    mixed /= np.abs(mixed).max(axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(mixed), np.eye(3), atol=0.1)


def test_fits_are_counted_in_nats(model: SelectedModel):
    found = model.fitted(np.linalg.inv(MIXING), GRAPH, max_steps=2)
    value = model.value(found.H, GRAPH)
    assert found.log_likelihood == pytest.approx(-model.n_rows * value, abs=1e-6)
    assert found.price == pytest.approx(3 * edge_prior(3))
    assert found.mechanisms == "nonlinear"
    np.testing.assert_allclose(found.H, model.scaled(found.H))


def test_the_true_graph_has_the_highest_score(model: SelectedModel):
    def score(graph: tuple[tuple[int, ...], ...]) -> float:
        return model.fitted(np.linalg.inv(MIXING), graph).score

    others = [((), (0,), (1,)), ((), (), (0, 1)), ((), (0,), (0,)), ((1,), (), (0, 1))]
    assert all(score(GRAPH) > score(other) for other in others)


def test_predictions_point_to_the_true_graph(model: SelectedModel):
    fit = model.fitted(np.linalg.inv(MIXING), GRAPH)
    worse = [((), (0,), (1,)), ((), (), (0, 1)), ((), (0,), (0,))]
    predicted = model.predicted(fit, [GRAPH, *worse])
    assert predicted[0] == pytest.approx(fit.score, abs=1)
    assert (predicted[1:] < fit.score - model.hopeless).all()
    for graph in worse:
        wrong = model.fitted(np.linalg.inv(MIXING), graph)
        promised = model.predicted(wrong, [graph, GRAPH])
        assert promised[1] > promised[0] + 50


def test_nodes_that_are_known_are_not_computed_again(monkeypatch: pytest.MonkeyPatch):
    model = SelectedModel(environments(500), POOL, hard=True)
    H = model.scaled(np.linalg.inv(MIXING))
    first = model.nodes(H, [(1, (0,)), (2, (0, 1))])
    computed = []
    original = model._node
    monkeypatch.setattr(model, "_node", lambda *args: computed.append(args[1]) or original(*args))
    again = model.nodes(H, [(2, (0, 1)), (1, ()), (1, (0,))])
    assert again[0] is first[1]
    assert again[2] is first[0]
    assert computed == [1]
    model.nodes(2 * H, [(1, (0,))])
    model.nodes(3 * H, [(1, (0,))])  # in the place of 2 H, which has fewer nodes than H
    assert computed == [1, 1, 1]
    assert model.nodes(H, [(2, (0, 1))])[0] is first[1]


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_soft_interventions_keep_the_parents(kept: float):
    """What is cut off is cheaper without parents, what is not fits better with them."""
    rows = environments(500, kept=kept)
    values = {
        hard: SelectedModel(rows, POOL, hard=hard).value(np.linalg.inv(MIXING), GRAPH)
        for hard in (True, False)
    }
    assert (values[True] < values[False]) == (kept == 0)


def test_linear_effects_are_free_where_nothing_intervenes():
    """The encoder could have them as well: with them the model has no more dimensions."""
    rng = np.random.default_rng(3)
    rows = [rng.standard_normal((1000, 2)) for _ in range(2)]
    rows = [np.column_stack([z[:, 0], z[:, 0] + z[:, 1]]) for z in rows]
    pool = np.array([[0, 1], [0, 0]])
    model = SelectedModel(rows, pool, hard=True)
    H = model.scaled(np.eye(2))

    def gain(j: int) -> float:
        """Of the other as a parent, in nats, less what a linear regression gains."""
        i = 1 - j
        with_it, without = model.values(H, [(j, (i,)), (j, ())])
        pooled = np.concatenate([z for e, z in enumerate(rows) if not pool[j, e]])
        correlations = np.atleast_2d(np.corrcoef(pooled.T))
        left = float(1 - correlations[0, 1] ** 2)
        return model.n_rows * (without - with_it) + 0.5 * len(pooled) * np.log(left)

    price = parameter_price(model.n_rows)
    assert gain(1) == pytest.approx(-price, abs=1)  # of the constant
    assert gain(0) == pytest.approx(-2 * price, abs=1)


def test_many_weak_features_pay_together():
    """Five hinges gain less than the price of five coefficients, and more than chance."""
    rng = np.random.default_rng(4)
    a, noise = rng.standard_normal((2, 20_000))
    bends = np.abs(a + 1.2) - 2 * np.abs(a + 0.4) + 2 * np.abs(a - 0.4) - np.abs(a - 1.2)
    pool = np.zeros((2, 1), dtype=np.intp)

    def gain(effect: float) -> float:
        model = SelectedModel([np.column_stack([a, effect * bends + noise])], pool, hard=True)
        with_it, without = model.values(model.scaled(np.eye(2)), [(1, (0,)), (1, ())])
        return model.n_rows * (without - with_it)

    price = parameter_price(len(a))
    assert 0 < gain(0.12) < 6 * price - (price + price_together(len(a), (5,)))
    assert gain(0) < 0


def test_every_feature_where_none_are_chosen():
    rows = environments(500)
    every = SelectedModel(rows, POOL, hard=True, choose_features=False)
    chosen = SelectedModel(rows, POOL, hard=True)
    H = chosen.scaled(np.linalg.inv(MIXING))
    assert chosen.value(H, GRAPH) < every.value(H, GRAPH)


def test_other_pools_of_the_same_rows(model: SelectedModel):
    H, other = model.scaled(np.linalg.inv(MIXING)), np.roll(POOL, 1, axis=0)
    expected = SelectedModel(environments(3000), other, hard=True).value(H, GRAPH)
    assert model.with_pool(other).value(H, GRAPH) == expected
    assert model.value(H, GRAPH) < expected


def test_same_bits_again(model: SelectedModel):
    H = model.scaled(np.eye(3))
    assert model.value(H, GRAPH) == model.value(H, GRAPH)
