from __future__ import annotations

import numpy as np
import pytest

from crlearn.scores import GaussianScores, ScoreDifference
from crlearn.scores._base import (
    Whitening,
    check_environment,
    check_environments,
    check_rows,
)


def skewed_rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(200, 3)) @ rng.normal(size=(3, 3)) + 5


def test_whitened_rows_have_mean_zero_and_covariance_one():
    X = skewed_rows()
    rows = Whitening.of_rows(X, "X")(X)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.cov(rows.T, bias=True), np.eye(3), atol=1e-12)


def test_the_units_of_columns_do_not_change_whitened_rows():
    X = skewed_rows()
    units = np.array([0.25, 8.0, 1024.0])
    np.testing.assert_array_equal(
        Whitening.of_rows(X * units, "X")(X * units), Whitening.of_rows(X, "X")(X)
    )


def test_scores_are_pulled_back_by_the_transposed_matrix():
    # The density exp(-|u|^2 / 2) of the whitened rows has the score -u.
    X = skewed_rows()
    whitening = Whitening.of_rows(X, "X")
    expected = -(X - X.mean(axis=0)) @ np.linalg.inv(np.cov(X.T, bias=True))
    np.testing.assert_allclose(whitening.pull_back(-whitening(X)), expected, atol=1e-10)


@pytest.mark.parametrize(
    "X", [np.ones((10, 2)), np.column_stack([np.arange(10.0), 2 * np.arange(10.0)]), np.eye(3)[:2]]
)
def test_rows_without_a_density_are_refused(X: np.ndarray):
    with pytest.raises(ValueError, match=r"These rows must vary in all . directions.*They span"):
        Whitening.of_rows(X, "These rows")


def test_codes_may_be_of_any_size_and_order():
    X, codes = check_environments(np.ones((4, 1)), np.array([2, 0, 1, 0], dtype=np.uint8))
    assert X.dtype == np.float64
    assert codes.tolist() == [2, 0, 1, 0]


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([0, 1], "one whole number for each of the 3 rows"),
        ([0.0, 1.0, 1.0], "of type float64"),
        ([0, 0, 0], "at least two environments without a gap"),
        ([0, 2, 2], "Got 0, 2"),
        ([1, 2, 2], "0 .the reference., 1, 2"),
    ],
)
def test_bad_codes_are_refused(codes: list, message: str):
    with pytest.raises(ValueError, match=message):
        check_environments(np.ones((3, 2)), codes)


def test_bad_rows_are_refused():
    with pytest.raises(ValueError, match=r"shape \(N, d\). Got shape \(3,\)"):
        check_rows(np.ones(3))
    with pytest.raises(ValueError, match=r"shape \(N, 2\)"):
        check_rows(np.ones((3, 3)), 2)
    with pytest.raises(ValueError, match="'X' must be finite"):
        check_rows([[1.0, np.nan]])


@pytest.mark.parametrize("environment", [0, 3, -1, 1.5, "1", None])
def test_bad_environments_are_refused(environment: object):
    with pytest.raises(ValueError, match="whole number from 1 to 2"):
        check_environment(environment, 3)


def test_the_protocol_is_recognised():
    assert isinstance(GaussianScores(), ScoreDifference)
    assert not isinstance(object(), ScoreDifference)
