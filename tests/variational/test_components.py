from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from crlearn.variational import Components, covariance_of, without_noise

NOISE = np.array([[0.5, 0.2], [0.2, 0.4]])
MEANS = np.array([[0.0, 1.0], [3.0, -1.0]])
COVARIANCES = np.array([[[1.0, 0.3], [0.3, 2.0]], [[0.5, 0.0], [0.0, 0.1]]])
# Environment 0 has both components, environment 1 only the second.
with np.errstate(divide="ignore"):
    PRIOR = Components(np.log([[0.25, 0.75], [0.0, 1.0]]), MEANS, COVARIANCES)


@pytest.fixture
def noisy() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(6, 2)) * 2


def density(k: int, rows: Any) -> Any:
    return multivariate_normal.logpdf(rows, MEANS[k], COVARIANCES[k] + NOISE)


def test_likelihood_of_a_mixture(noisy: np.ndarray):
    codes = np.array([0, 1, 0, 1, 0, 1])
    both = np.column_stack([density(0, noisy) + np.log(0.25), density(1, noisy) + np.log(0.75)])
    mixed: Any = logsumexp(both, axis=1)
    wanted = np.where(codes == 0, mixed, density(1, noisy))
    np.testing.assert_allclose(PRIOR.log_likelihood(noisy, NOISE, codes), wanted, rtol=1e-10)


def test_posterior_of_one_gaussian_is_the_closed_form(noisy: np.ndarray):
    mean, variance = PRIOR.posterior(noisy, NOISE, PRIOR.log_weights[np.ones(6, int)])
    precision = np.linalg.inv(COVARIANCES[1]) + np.linalg.inv(NOISE)
    covariance = np.linalg.inv(precision)
    linear = noisy @ np.linalg.inv(NOISE) + np.linalg.inv(COVARIANCES[1]) @ MEANS[1]
    np.testing.assert_allclose(mean, linear @ covariance, rtol=1e-8)
    np.testing.assert_allclose(variance, np.tile(np.diag(covariance), (6, 1)), rtol=1e-8)


def test_posterior_of_a_mixture_agrees_with_weighted_draws(noisy: np.ndarray):
    rng = np.random.default_rng(1)
    which = rng.random(400_000) < 0.75
    draws = np.where(
        which[:, None],
        rng.multivariate_normal(MEANS[1], COVARIANCES[1], len(which)),
        rng.multivariate_normal(MEANS[0], COVARIANCES[0], len(which)),
    )
    mean, variance = PRIOR.posterior(noisy[:2], NOISE, PRIOR.log_weights[0])
    for row, found, spread in zip(noisy[:2], mean, variance, strict=True):
        weights = multivariate_normal.pdf(draws, row, NOISE)  # type: ignore[arg-type]
        weights /= weights.sum()
        wanted = weights @ draws
        np.testing.assert_allclose(found, wanted, atol=0.02)
        np.testing.assert_allclose(spread, weights @ (draws - wanted) ** 2, atol=0.03)


def test_the_environment_says_the_component_or_does_not():
    assert not PRIOR.is_known
    with np.errstate(divide="ignore"):
        assert Components(np.log(np.eye(2)), MEANS, COVARIANCES).is_known


def test_noise_comes_off_a_covariance():
    np.testing.assert_allclose(without_noise(COVARIANCES[0] + NOISE, NOISE), COVARIANCES[0])
    np.testing.assert_allclose(without_noise(0.5 * NOISE, NOISE), 0, atol=1e-12)


def test_covariance_is_that_of_maximum_likelihood(noisy: np.ndarray):
    np.testing.assert_allclose(covariance_of(noisy), np.cov(noisy.T, ddof=0))
