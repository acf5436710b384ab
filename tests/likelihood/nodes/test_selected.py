from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.core._moments import Moments, Pools
from crlearn.likelihood.core._newton import moved
from crlearn.likelihood.nodes._linear import objective
from crlearn.likelihood.nodes._selected import AdditiveModel

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
def model() -> AdditiveModel:
    return AdditiveModel(environments(3000), POOL, hard=True)


def test_without_parents_it_is_the_gaussian_model(model: AdditiveModel):
    H = np.random.default_rng(0).standard_normal((3, 3))
    pools = Pools.of(Moments.of(environments(3000)), POOL)
    expected = objective(H, pools, np.zeros((3, 2, 3)))
    assert model.value(H, ((), (), ())) == pytest.approx(float(expected), abs=1e-9)


def test_the_gradient_is_the_derivative(model: AdditiveModel):
    H = model.scaled(np.eye(3) + 0.1 * np.random.default_rng(1).standard_normal((3, 3)))
    point, step = model.expand(H, GRAPH), 2e-3
    numerical = [
        (model.value(moved(H, step * e), GRAPH) - model.value(moved(H, -step * e), GRAPH))
        / (2 * step)
        for e in np.eye(6)
    ]
    # The quadratic form under the root is fitted anew, which the gradient does not follow.
    np.testing.assert_allclose(point.gradient, numerical, atol=0.03)


def test_newton_converges_in_a_few_steps_and_finds_the_encoder(model: AdditiveModel):
    """Without the residual's terms in the Hessian it takes dozens."""
    start = np.linalg.inv(MIXING) + 0.15 * np.random.default_rng(2).standard_normal((3, 3))
    H, value = model.minimise(start, GRAPH, max_steps=8)
    assert value == pytest.approx(model.minimise(np.linalg.inv(MIXING), GRAPH)[1], abs=3e-4)
    mixed = H @ MIXING
    mixed /= np.abs(mixed).max(axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(mixed), np.eye(3), atol=0.1)


def test_the_true_graph_has_the_lowest_bic(model: AdditiveModel):
    def bic(graph: tuple[tuple[int, ...], ...]) -> float:
        return model.bic(model.minimise(np.linalg.inv(MIXING), graph)[1])

    others = [((), (0,), (1,)), ((), (), (0, 1)), ((), (0,), (0,)), ((1,), (), (0, 1))]
    assert all(bic(GRAPH) < bic(other) for other in others)


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_soft_interventions_keep_the_parents(kept: float):
    """What is cut off is cheaper without parents, what is not fits better with them."""
    rows = environments(500, kept=kept)
    values = {
        hard: AdditiveModel(rows, POOL, hard=hard).value(np.linalg.inv(MIXING), GRAPH)
        for hard in (True, False)
    }
    assert (values[True] < values[False]) == (kept == 0)


def test_every_feature_where_none_are_chosen():
    rows = environments(500)
    every = AdditiveModel(rows, POOL, hard=True, choose_features=False)
    chosen = AdditiveModel(rows, POOL, hard=True)
    H = chosen.scaled(np.linalg.inv(MIXING))
    assert chosen.value(H, GRAPH) < every.value(H, GRAPH)


def test_other_pools_of_the_same_rows(model: AdditiveModel):
    H, other = model.scaled(np.linalg.inv(MIXING)), np.roll(POOL, 1, axis=0)
    expected = AdditiveModel(environments(3000), other, hard=True).value(H, GRAPH)
    assert model.with_pool(other).value(H, GRAPH) == expected
    assert model.value(H, GRAPH) < expected


def test_same_bits_again(model: AdditiveModel):
    H = model.scaled(np.eye(3))
    assert model.value(H, GRAPH) == model.value(H, GRAPH)
