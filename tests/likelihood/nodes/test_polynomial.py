from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.nodes._polynomial import Monomials, PolynomialModel


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


class TestMonomials:
    def test_all_of_two_variables(self):
        found = Monomials(2, 3).all
        assert found == [
            (),
            (0,),
            (1,),
            (0, 0),
            (0, 1),
            (1, 1),
            *[(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 1)],
        ]

    def test_values(self):
        values = Monomials(2, 2).values(np.array([[2.0, 3.0]]))
        np.testing.assert_array_equal(values, [[1, 2, 3, 4, 6, 9]])

    @pytest.mark.parametrize("degree", [1, 2, 3])
    def test_transforms_take_monomials_of_y_to_those_of_z(self, y: np.ndarray, degree: int):
        monomials, Q = Monomials(4, degree), rotation(4, 1)
        values, start = monomials.values(y[:50]), 0
        expected = monomials.values(y[:50] @ Q.T)
        for T in monomials.transforms(Q):
            span = slice(start, start + len(T))
            np.testing.assert_allclose(values[:, span] @ T.T, expected[:, span], atol=1e-9)
            start += len(T)
        assert start == len(monomials.all)


@pytest.mark.parametrize("degree", [2, 3])
def test_the_value_is_that_of_regressions(y: np.ndarray, degree: int):
    Q = rotation(4, 2)
    z = y @ Q.T
    expected = 0.0
    for j in range(4):
        given = Monomials(j, degree).values(z[:, :j]) if j else np.ones((len(z), 1))
        residual = z[:, j] - given @ np.linalg.lstsq(given, z[:, j], rcond=None)[0]
        expected += 0.5 * np.log(np.mean(residual**2))
    assert PolynomialModel.of(y, degree).value(Q) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("degree", [2, 3])
@pytest.mark.parametrize("seed", [3, 5])
def test_derivatives_are_exact(y: np.ndarray, degree: int, seed: int):
    model, Q, step = PolynomialModel.of(y, degree), rotation(4, seed), 1e-5
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
    model, Q = PolynomialModel.of(y, 2), rotation(4, 4)
    found, value = model.minimise(Q)
    assert value <= model.value(Q)
    assert value == pytest.approx(model.value(found), abs=1e-9)
    np.testing.assert_allclose(found @ found.T, np.eye(4), atol=1e-12)


def test_the_noises_of_a_chain_are_found():
    y, noise = whitened_chain(n_rows=5000)
    model = PolynomialModel.of(y, 2)
    Q, _ = min((model.minimise(rotation(4, seed)) for seed in range(20)), key=lambda r: r[1])
    z = y @ Q.T
    for j in range(4):
        given = Monomials(j, 2).values(z[:, :j]) if j else np.ones((len(z), 1))
        residual = z[:, j] - given @ np.linalg.lstsq(given, z[:, j], rcond=None)[0]
        assert abs(np.corrcoef(noise[:, j], residual)[0, 1]) > 0.99


def test_one_variable():
    y = np.random.default_rng(0).standard_normal((100, 1))
    y = (y - y.mean()) / y.std()
    Q, value = PolynomialModel.of(y, 2).minimise(np.eye(1))
    assert Q.shape == (1, 1)
    assert value == pytest.approx(0, abs=1e-9)
