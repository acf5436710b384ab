from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from crlearn.scores import GaussianScores

MEANS = [[0.0, 0.0], [1.0, -2.0]]
COVARIANCES = [[[4.0, 2.0], [2.0, 2.0]], [[1.0, 0.5], [0.5, 0.5]]]
AT = np.array([[0.0, 0.0], [1.0, 2.0], [-3.0, 0.5]])


def rows_with(mean: Any, covariance: Any, corners: np.ndarray) -> np.ndarray:
    return corners @ np.linalg.cholesky(covariance).T + mean


@pytest.fixture
def fitted(corners: np.ndarray) -> GaussianScores:
    X = np.concatenate(
        [rows_with(*moments, corners) for moments in zip(MEANS, COVARIANCES, strict=True)]
    )
    return GaussianScores().fit(X, np.repeat([0, 1], 4))


def test_the_difference_of_known_gaussians(fitted: GaussianScores):
    # By hand: the inverses are [[0.5, -0.5], [-0.5, 1]] and [[2, -2], [-2, 4]].
    np.testing.assert_allclose(fitted.difference([[0.0, 0.0]], 1), [[-6.0, 10.0]], atol=1e-12)
    np.testing.assert_allclose(fitted.difference([[1.0, 2.0]], 1), [[-7.5, 14.5]], atol=1e-12)


def test_the_log_ratio_is_that_of_the_densities(fitted: GaussianScores):
    normal: Any = multivariate_normal
    reference, other = (
        normal(mean, covariance) for mean, covariance in zip(MEANS, COVARIANCES, strict=True)
    )
    expected = other.logpdf(AT) - reference.logpdf(AT)
    np.testing.assert_allclose(fitted.log_ratio(AT, 1), expected, atol=1e-10)


def test_the_difference_is_minus_the_slope_of_the_log_ratio(fitted: GaussianScores):
    step = 1e-5
    slopes = [
        (fitted.log_ratio(AT + move, 1) - fitted.log_ratio(AT - move, 1)) / (2 * step)
        for move in step * np.eye(2)
    ]
    np.testing.assert_allclose(fitted.difference(AT, 1), -np.transpose(slopes), atol=1e-6)


def test_differences_turn_with_the_coordinates(linear_world: Any):
    # u = x A' + b has scores s A^-1.
    matrix, shift = np.array([[2.0, -1.0], [0.5, 3.0]]), np.array([1.0, -7.0])
    world = linear_world
    plain = GaussianScores().fit(world.X, world.codes).difference(world.at, 2)
    turned = GaussianScores().fit(world.X @ matrix.T + shift, world.codes)
    found = turned.difference(world.at @ matrix.T + shift, 2)
    np.testing.assert_allclose(found @ matrix, plain, atol=1e-9)


def test_close_to_the_truth_if_all_is_gaussian(linear_world: Any, curved_world: Any):
    assert max(linear_world.errors(GaussianScores().fit(linear_world.X, linear_world.codes))) < 0.01
    assert max(curved_world.errors(GaussianScores().fit(curved_world.X, curved_world.codes))) > 0.3


def test_an_environment_with_few_rows_is_named():
    X = np.random.default_rng(0).normal(size=(12, 3))
    with pytest.raises(ValueError, match="The rows of environment 1 must vary in all 3"):
        GaussianScores().fit(X, [0] * 10 + [1, 1])


def test_bad_input(fitted: GaussianScores):
    with pytest.raises(ValueError, match="not fitted yet: call fit first"):
        GaussianScores().difference(AT, 1)
    with pytest.raises(ValueError, match="not fitted yet"):
        GaussianScores().log_ratio(AT, 1)
    with pytest.raises(ValueError, match=r"shape \(N, 2\)"):
        fitted.difference([[1.0]], 1)
    with pytest.raises(ValueError, match="from 1 to 1"):
        fitted.difference(AT, 2)
