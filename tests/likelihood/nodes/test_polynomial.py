from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

from crlearn.likelihood.nodes._polynomial import PolynomialModel


def rotation(n: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


def whitened_chain(n_rows: int = 2000, n: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of z_j = z_{j-1}^2 + noise, standardised, mixed and whitened; and the noises."""
    rng = np.random.default_rng(seed)
    noise = 0.4 * rng.standard_normal((n_rows, n))
    z = noise.copy()
    for j in range(n):
        z[:, j] += z[:, j - 1] ** 2 if j else 0
        z[:, j] = (z[:, j] - z[:, j].mean()) / z[:, j].std()
    x = z @ rng.standard_normal((n, n))
    x -= x.mean(axis=0)
    return x @ np.linalg.inv(np.linalg.cholesky(x.T @ x / n_rows)).T, noise


@pytest.fixture(scope="module")
def y() -> np.ndarray:
    return whitened_chain()[0]


def cubic(z: np.ndarray) -> np.ndarray:
    """Return one, the columns, and their products of two and three."""
    columns = [
        z[:, list(factors)].prod(axis=1)
        for degree in range(4)
        for factors in combinations_with_replacement(range(z.shape[1]), degree)
    ]
    return np.column_stack(columns)


def residual(z: np.ndarray, j: int) -> np.ndarray:
    given = cubic(z[:, :j])
    return z[:, j] - given @ np.linalg.lstsq(given, z[:, j], rcond=None)[0]


def test_the_value_is_that_of_regressions(y: np.ndarray):
    Q = rotation(4, 2)
    expected = sum(0.5 * np.log(np.mean(residual(y @ Q.T, j) ** 2)) for j in range(4))
    assert PolynomialModel(y).value(Q) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("seed", [3, 5])
def test_derivatives_are_exact(y: np.ndarray, seed: int):
    model, Q, step = PolynomialModel(y), rotation(4, seed), 1e-5
    point = model.expand(Q)
    moves = step * np.eye(6)
    slopes = [model.value(model.rotated(Q, m)) - model.value(model.rotated(Q, -m)) for m in moves]
    np.testing.assert_allclose(point.gradient, np.array(slopes) / (2 * step), atol=1e-6)
    rows = np.array(
        [
            model.expand(model.rotated(Q, m)).gradient - model.expand(model.rotated(Q, -m)).gradient
            for m in moves
        ]
    ) / (2 * step)
    np.testing.assert_allclose(point.hessian, (rows + rows.T) / 2, atol=1e-4, rtol=1e-4)


def test_minimise_never_goes_up_and_stays_a_rotation(y: np.ndarray):
    model, Q = PolynomialModel(y), rotation(4, 4)
    found, value = model.minimise(Q)
    assert value <= model.value(Q)
    assert value == pytest.approx(model.value(found), abs=1e-9)
    np.testing.assert_allclose(found @ found.T, np.eye(4), atol=1e-12)


def test_the_noises_of_a_chain_are_found():
    y, noise = whitened_chain(n_rows=5000)
    model = PolynomialModel(y)
    Q, _ = min((model.minimise(rotation(4, seed)) for seed in range(20)), key=lambda r: r[1])
    z = y @ Q.T
    for j in range(4):
        assert abs(np.corrcoef(noise[:, j], residual(z, j))[0, 1]) > 0.99


def test_one_variable():
    y = np.random.default_rng(0).standard_normal((100, 1))
    y = (y - y.mean()) / y.std()
    Q, value = PolynomialModel(y).minimise(np.eye(1))
    assert Q.shape == (1, 1)
    assert value == pytest.approx(0, abs=1e-7)


def test_an_odd_function_shows():
    """Quadratic mechanisms gain nothing on it: all products of three noises have mean zero."""
    rng = np.random.default_rng(0)
    cause = rng.standard_normal(5000)
    z = np.column_stack([cause, np.sin(2 * cause) + 0.3 * rng.standard_normal(5000)])
    z -= z.mean(axis=0)
    y = z @ np.linalg.inv(np.linalg.cholesky(z.T @ z / len(z))).T
    model = PolynomialModel(y)
    Q, value = min((model.minimise(rotation(2, seed)) for seed in range(5)), key=lambda r: r[1])
    assert value < -0.2
    assert abs(np.corrcoef(y @ Q[0], cause)[0, 1]) > 0.99
