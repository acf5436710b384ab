from __future__ import annotations

import numpy as np
import pytest

from crlearn.published.layers._regression import Basis, fit_regression, held_out_errors

X = np.random.default_rng(0).normal(size=(600, 2)) * [10.0, 0.1] + [5.0, -3.0]
U = (X - [5.0, -3.0]) / [10.0, 0.1]
NOISE = np.random.default_rng(1).normal(size=(600, 1))
EMPTY = np.zeros((0, 2))


def rng() -> np.random.Generator:
    return np.random.default_rng(2)


def test_what_is_quadratic_is_found_exactly():
    Y = np.column_stack([U[:, 0] ** 2 - 3 * U[:, 0] * U[:, 1], 1 + U[:, 1]])
    regression, error = fit_regression(X, Y, rng())
    np.testing.assert_allclose(regression(X), Y, atol=1e-6)
    assert error.max() < 1e-12
    far = np.array([[105.0, -4.0]])
    np.testing.assert_allclose(regression(far), [[100 + 3 * 10 * 10, -9.0]], rtol=1e-6)


@pytest.mark.parametrize("function", [np.tanh, lambda u: np.sin(2 * u), lambda u: np.exp(-(u**2))])
def test_the_error_is_little_more_than_the_noise(function):
    Y = function(U[:, :1]) + 0.3 * NOISE
    regression, error = fit_regression(X, Y, rng())
    assert ((regression(X) - function(U[:, :1])) ** 2).mean() < 0.2 * 0.09
    assert error == pytest.approx(0.09, rel=0.3)


def test_noise_is_left_alone():
    regression, _ = fit_regression(X, NOISE, rng())
    assert (regression(X) - NOISE.mean()).std() < 0.15
    assert np.corrcoef((NOISE - regression(X))[:, 0], NOISE[:, 0])[0, 1] > 0.99


def test_each_output_has_a_ridge_of_its_own():
    Y = np.column_stack([U[:, 0] ** 2, NOISE[:, 0]])
    together, _ = fit_regression(X, Y, rng())
    assert ((together(X)[:, 0] - Y[:, 0]) ** 2).mean() < 1e-6
    assert together(X)[:, 1].std() < 0.3


def test_held_out_errors_are_those_of_refits():
    # One constant-free function and no ridge to speak of: leave out each fifth by hand.
    basis = Basis(np.array([[1, 0]]), EMPTY, 1.0, EMPTY, np.zeros(0))
    Y = U[:, :1] + NOISE
    total = 0.0
    for k in range(5):
        out = np.arange(600) % 5 == k
        slope, offset = np.polyfit(U[~out, 0], Y[~out, 0], 1)
        total += ((Y[out, 0] - slope * U[out, 0] - offset) ** 2).sum()
    assert held_out_errors(basis, U, Y)[0, 0] == pytest.approx(total / 600, rel=1e-9)


def test_networks_of_many_predictors_are_found():
    # Two networks as `make_observational` draws them; functions in random places leave a tenth.
    draws = np.random.default_rng(3)
    rows, hidden = draws.normal(size=(2000, 8)), draws.normal(size=(16, 4))
    steps = np.tanh(rows[:, :4] @ hidden.T + draws.normal(size=16))
    mix = np.kron(np.eye(2), np.ones((8, 1))) * draws.normal(size=(16, 2))
    Y = steps @ mix
    regression, error = fit_regression(rows[:1500], Y[:1500], rng())
    left = ((regression(rows[1500:]) - Y[1500:]) ** 2).mean(axis=0)
    assert (left / Y.var(axis=0)).max() < 1e-3
    assert (error / Y.var(axis=0)).max() < 1e-3


def test_the_error_is_that_of_new_rows():
    draws = np.random.default_rng(4)
    rows = draws.normal(size=(3000, 4))
    Y = np.tanh(2 * rows.sum(axis=1, keepdims=True)) + 0.3 * draws.normal(size=(3000, 1))
    regression, error = fit_regression(rows[:1000], Y[:1000], rng())
    assert len(regression.basis.directions) == 20  # trained ones
    new = ((regression(rows[1000:]) - Y[1000:]) ** 2).mean(axis=0)
    assert error == pytest.approx(new, rel=0.15)
    assert new < 1.15 * 0.09


def test_columns_that_do_not_vary_do_no_harm():
    regression, _ = fit_regression(np.column_stack([X, np.ones(600)]), U[:, :1] ** 2, rng())
    values = regression(np.column_stack([X, np.ones(600)]))
    np.testing.assert_allclose(values, U[:, :1] ** 2, atol=1e-6)


def test_outliers_far_from_everything_do_no_harm():
    rows = X.copy()
    rows[0] = [1e6, 1e4]
    regression, _ = fit_regression(rows, np.tanh(U[:, :1]), rng())
    assert np.isfinite(regression(rows)).all()


def test_few_rows_and_blocks(monkeypatch: pytest.MonkeyPatch):
    regression, _ = fit_regression(X[:12], U[:12, :1], rng())
    whole = regression(X)
    np.testing.assert_allclose(whole, U[:, :1], atol=1e-4)
    monkeypatch.setattr("crlearn.published.layers._regression._ROWS_PER_BLOCK", 7)
    np.testing.assert_allclose(regression(X), whole, rtol=1e-12)
    assert regression(X[:0]).shape == (0, 1)
