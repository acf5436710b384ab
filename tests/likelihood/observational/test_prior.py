"""What follows for a noisy row, beside what is known of Gaussian signals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from crlearn.likelihood import SignalPrior, prior_of, weighted_signals
from crlearn.likelihood.core._density import Density
from crlearn.likelihood.observational._mechanisms import Mechanism, Mechanisms

NOISE = np.array([[0.2, 0.05], [0.05, 0.1]])
ROWS = np.random.default_rng(0).normal(size=(7, 2))


@pytest.fixture(scope="module")
def gaussian() -> SignalPrior:
    """Two latents without effects on each other, of variances 1 and 0.25."""
    nothing = Mechanism((), np.zeros((0, 0)), np.zeros(0), np.zeros(0), np.zeros(0))
    H = np.array([[1.0, 0.5], [-0.3, 1.0]])
    return SignalPrior(
        H, Mechanisms((nothing, nothing)), (Density.gaussian(1.0), Density.gaussian(0.5))
    )


def parts(y: np.ndarray, prior: SignalPrior, n_draws: int = 6000) -> list:
    normals = np.random.default_rng(1).standard_normal((1, n_draws, 2))
    return list(weighted_signals(y, NOISE, prior, lambda _: normals, n_draws))


def covariance(prior: SignalPrior) -> Any:
    back = np.linalg.inv(prior.H)
    return back @ np.diag([density.scale**2 for density in prior.densities]) @ back.T


def test_the_density_of_a_gaussian_signal(gaussian: SignalPrior):
    expected = multivariate_normal.logpdf(ROWS, np.zeros(2), covariance(gaussian))
    np.testing.assert_allclose(gaussian.log_density(ROWS), expected)


def test_likelihood_and_posterior_mean_are_those_of_gaussians(gaussian: SignalPrior):
    signal = covariance(gaussian)
    found = parts(ROWS, gaussian)
    likelihood = np.concatenate([part.log_likelihood for part in found])
    expected = multivariate_normal.logpdf(ROWS, np.zeros(2), signal + NOISE)
    np.testing.assert_allclose(likelihood, expected, atol=0.02)
    means = np.concatenate([part.expected(lambda s: s) for part in found])
    np.testing.assert_allclose(
        means, ROWS @ np.linalg.solve(signal + NOISE, signal), atol=0.02, rtol=0.02
    )


def test_drawn_signals_have_the_posterior(gaussian: SignalPrior):
    signal, row = covariance(gaussian), np.array([[1.0, -0.5]])
    y = np.repeat(row, 4000, axis=0)
    rng = np.random.default_rng(2)

    def normals(n_rows: int) -> np.ndarray:
        return rng.standard_normal((n_rows, 60, 2))

    found = weighted_signals(y, NOISE, gaussian, normals, 60)
    drawn = np.concatenate([part.drawn(rng) for part in found])
    share = np.linalg.solve(signal + NOISE, signal).T
    np.testing.assert_allclose(drawn.mean(axis=0), (share @ row[0]), atol=0.03)
    np.testing.assert_allclose(np.cov(drawn.T), signal - share @ signal, atol=0.01)


def test_rows_do_not_know_of_each_other(gaussian: SignalPrior):
    whole = parts(np.tile(ROWS, (2, 1)), gaussian, 999)
    alone = parts(ROWS[:1], gaussian, 999)
    np.testing.assert_array_equal(whole[0].expected(np.square)[0], alone[0].expected(np.square)[0])


def test_few_draws_do_where_signals_are_known_far_better_than_noise_is_small(
    gaussian: SignalPrior,
):
    sharp = SignalPrior(
        gaussian.H, gaussian.mechanisms, (Density.gaussian(1.0), Density.gaussian(0.1))
    )
    y = np.random.default_rng(3).multivariate_normal(np.zeros(2), covariance(sharp) + NOISE, 500)
    rng = np.random.default_rng(4)
    found = weighted_signals(
        y, NOISE, sharp, lambda n_rows: rng.standard_normal((n_rows, 300, 2)), 300
    )
    reached = np.concatenate([part.log_likelihood for part in found]).sum()
    exact = multivariate_normal.logpdf(y, np.zeros(2), covariance(sharp) + NOISE).sum()
    assert reached == pytest.approx(exact, abs=6)


def test_rows_far_from_the_prior_have_finite_answers(gaussian: SignalPrior):
    (found,) = parts(np.full((1, 2), 1e4), gaussian, 99)
    assert np.isfinite(found.log_likelihood).all()
    assert np.isfinite(found.expected(lambda s: s)).all()


def test_the_prior_of_a_fit_has_its_noises(chain):
    model = chain.model
    fit = model.scored(model.fitted(model.start(chain.H, ((), (0,), (1,)))))
    prior = prior_of(fit, model.y)
    np.testing.assert_allclose(prior.noises(model.y), model.residuals(fit), atol=1e-10)
    assert [density.scale for density in prior.densities] == pytest.approx(
        model.residuals(fit).std(axis=0)
    )
