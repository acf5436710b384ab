from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import BSpline

from crlearn.scores import CubicSplines


@pytest.fixture
def splines() -> CubicSplines:
    return CubicSplines.between(np.array([-2.0, 0.0]), np.array([3.0, 1.0]), 6)


def test_they_are_the_b_splines_of_scipy(splines: CubicSplines):
    rows = np.column_stack([np.linspace(-2, 3, 50), np.linspace(0, 1, 50)])
    values, slopes = splines(rows)
    for j in range(2):
        width = splines.width[j]
        knots = splines.low[j] + width * np.arange(-3, splines.n_intervals + 4)
        for b in range(splines.n_basis):
            one = BSpline.basis_element(knots[b : b + 5], extrapolate=False)
            expected = np.nan_to_num(one(rows[:, j]))
            np.testing.assert_allclose(values[j, :, b], expected, atol=1e-9)
        numeric = np.gradient(values[j], rows[:, j], axis=0)
        np.testing.assert_allclose(slopes[j, 1:-1], numeric[1:-1], atol=0.05 / width)


def test_they_sum_to_one_and_hold_straight_lines(splines: CubicSplines):
    rows = np.random.default_rng(0).uniform(-5, 6, (200, 2))  # inside and outside the knots
    values, slopes = splines(rows)
    np.testing.assert_allclose(values.sum(axis=2), 1)
    np.testing.assert_allclose(slopes.sum(axis=2), 0, atol=1e-9)
    for j in range(2):
        theta = np.linalg.lstsq(values[j], rows[:, j], rcond=None)[0]
        np.testing.assert_allclose(values[j] @ theta, rows[:, j], atol=1e-8)


def test_outside_the_knots_they_are_straight(splines: CubicSplines):
    edge, near, far = (np.array([[x, 0.5]]) for x in (3.0, 4.0, 5.0))
    at = [splines(rows)[0][0, 0] for rows in (edge, near, far)]
    np.testing.assert_allclose(at[2] - at[1], at[1] - at[0])
    np.testing.assert_allclose(splines(far)[1][0], splines(edge)[1][0])


def test_knots_span_the_bulk_of_the_data():
    rows = np.random.default_rng(0).standard_normal((10_000, 1))
    rows[0] = 1e6
    splines = CubicSplines.spanning(rows, 8)
    assert splines.n_basis == 10
    assert splines.high[0] < 4
    assert 0.003 < (splines.beyond(rows) > 0).mean() < 0.005


def test_a_constant_column_has_knots_too():
    splines = CubicSplines.spanning(np.full((10, 1), 3.0), 5)
    assert np.isfinite(splines(np.array([[3.0], [4.0]]))[0]).all()


def test_four_of_them_are_not_zero(splines: CubicSplines):
    rows = np.random.default_rng(0).uniform(-5, 6, (200, 2))
    places, values, slopes = splines.local(rows)
    assert places.shape == (2, 200, 4)
    for local, whole in zip((values, slopes), splines(rows), strict=True):
        np.testing.assert_array_equal(np.take_along_axis(whole, places, axis=-1), local)
        np.testing.assert_allclose(np.abs(whole).sum(axis=-1), np.abs(local).sum(axis=-1))
