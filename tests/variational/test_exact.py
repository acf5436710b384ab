from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from crlearn.variational import GaussianPrior, ShiftPrior, fit_exactly

NOISE = np.array([[0.8, 0.3], [0.3, 0.6]])


def with_noise(z: np.ndarray, seed: int = 5) -> np.ndarray:
    return z + np.random.default_rng(seed).multivariate_normal(np.zeros(2), NOISE, len(z))


@pytest.fixture(scope="module")
def shifted() -> tuple[np.ndarray, np.ndarray]:
    """z0 -> z1 with slope 1.5; environments add 4 to z0, and -3 to z1."""
    rng, codes = np.random.default_rng(0), np.arange(60_000) % 3
    shifts = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, -3.0]])[codes]
    z0 = 1 + rng.normal(size=len(codes)) + shifts[:, 0]
    z1 = 1.5 * z0 + 0.5 * rng.normal(size=len(codes)) + shifts[:, 1]
    return np.column_stack([z0, z1]), codes


def test_shifts_effects_and_noises_are_found(shifted: tuple[np.ndarray, np.ndarray]):
    z, codes = shifted
    own = np.array([[False, False], [True, False], [False, True]])
    start = ShiftPrior.without_effects(own, np.array([[False, True], [False, False]]))
    fit = fit_exactly(start, with_noise(z), NOISE, codes)
    assert fit.settled
    assert fit.prior.shifts[1, 0] == pytest.approx(4, abs=0.05)
    assert fit.prior.shifts[2, 1] == pytest.approx(-3, abs=0.05)
    assert fit.prior.slopes[0, 1] == pytest.approx(1.5, abs=0.03)
    np.testing.assert_allclose(np.exp(fit.prior.log_scale), [1, 0.5], atol=0.05)


def test_the_likelihood_rises(shifted: tuple[np.ndarray, np.ndarray]):
    """Also where the start is not the answer: variances differ, against the prior."""
    z, codes = shifted
    noisy = with_noise(z * (1 + codes)[:, None])
    own = np.array([[False, False], [True, False], [False, True]])
    start = ShiftPrior.without_effects(own, np.array([[False, True], [False, False]]))
    fit = fit_exactly(start, noisy[:3000], NOISE, codes[:3000])
    assert len(fit.log_likelihood) > 2
    assert (np.diff(fit.log_likelihood) > -1e-6).all()


def test_one_gaussian_has_a_closed_form(shifted: tuple[np.ndarray, np.ndarray]):
    noisy = with_noise(shifted[0])
    fit = fit_exactly(GaussianPrior.standard("normal", 3, 2), noisy, NOISE, shifted[1])
    found = fit.prior.components()
    np.testing.assert_allclose(found.means[0], noisy.mean(axis=0))
    np.testing.assert_allclose(found.covariances[0], np.cov(noisy.T, ddof=0) - NOISE, rtol=1e-4)
    assert len(fit.log_likelihood) == 2


def test_no_variance_is_left_of_noise():
    noisy = with_noise(np.zeros((5000, 2)))
    codes = np.zeros(5000, dtype=int)
    fit = fit_exactly(GaussianPrior.standard("conditional", 1, 2), noisy, NOISE, codes)
    assert np.abs(fit.prior.components().covariances).max() < 0.06


def test_a_mixture_is_as_likely_as_one_of_noisy_rows(shifted: tuple[np.ndarray, np.ndarray]):
    """Components that are wider than the noise: nothing is lost by taking it off."""
    z = shifted[0][:3000] * 2
    noisy, codes = with_noise(z), shifted[1][:3000]
    fit = fit_exactly(GaussianPrior.standard("mixture", 3, 2, 3), noisy, NOISE, codes)
    noisy_mixture = GaussianMixture(3, n_init=3, random_state=0).fit(noisy)
    assert fit.log_likelihood[-1] / 3000 > noisy_mixture.score(noisy) - 0.01
    weights = np.exp(fit.prior.components().log_weights)
    np.testing.assert_array_equal(weights, weights[[0, 0, 0]])
