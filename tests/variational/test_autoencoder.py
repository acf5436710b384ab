from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from crlearn.inputs import Scaling
from crlearn.train import Settings
from crlearn.variational import (
    Diagonal,
    divergence,
    evidence,
    fit_autoencoder,
    log_likelihood,
    product,
    random_networks,
    restart_check,
)


def gaussian(mean: float, variance: float) -> Diagonal:
    return Diagonal(jnp.full((1, 1), mean), jnp.full((1, 1), np.log(variance)))


def test_a_product_weighs_by_precision():
    combined = product(gaussian(2.0, 1.0), gaussian(-1.0, 0.5))
    np.testing.assert_allclose(combined.mean, 0.0, atol=1e-6)
    np.testing.assert_allclose(np.exp(combined.log_variance), 1 / 3, rtol=1e-6)


def test_divergence_on_a_hand_built_case():
    assert divergence(gaussian(0.5, 2.0), gaussian(0.5, 2.0))[0] == pytest.approx(0, abs=1e-6)
    expected = 0.5 * (2.0 + 1.0 - 1 - np.log(2.0))
    assert divergence(gaussian(1.0, 2.0), gaussian(0.0, 1.0))[0] == pytest.approx(expected)


def test_draws_have_the_mean_and_the_variance():
    many = Diagonal(jnp.full((20_000, 1), 3.0), jnp.full((20_000, 1), np.log(4.0)))
    draws = np.asarray(many.draw(jax.random.key(0)))
    assert draws.mean() == pytest.approx(3, abs=0.05)
    assert draws.std() == pytest.approx(2, abs=0.05)


def test_log_likelihood_is_that_of_scipy():
    x, mean = np.random.default_rng(0).normal(size=(2, 5, 3))
    expected = norm.logpdf(x, mean, np.sqrt(0.3)).sum(axis=1)
    found = log_likelihood(jnp.asarray(x), jnp.asarray(mean), 0.3)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@dataclass(frozen=True)
class Reconstruction:
    """The plainest objective: squared errors."""

    n_latents: int = 2

    def init(self, key: Any) -> Any:
        one, other = jax.random.split(key)
        return random_networks(one, other, 3, self.n_latents, [8], "tanh")

    def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
        (x,) = batch
        return ((x - params["decoder"](evidence(params, x).mean)) ** 2).mean()


def fitted(X: Any, n_restarts: int = 1, **options: Any) -> Any:
    settings = Settings(max_epochs=200, learning_rate=0.02, n_restarts=n_restarts)
    return fit_autoencoder(Reconstruction(), X, Scaling.of(X), (), settings, **options)


@pytest.fixture(scope="module")
def measured() -> Any:
    rng = np.random.default_rng(0)
    return rng.normal(size=(400, 2)) @ rng.normal(size=(2, 3)) * [1, 100, 0.01] + [0, 5, 0]


def test_maps_are_in_the_units_of_the_data(measured: Any):
    X = measured
    rows = np.arange(len(X)) < 100
    fit = fitted(X, rows=rows)
    np.testing.assert_allclose(fit.latents[rows].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(fit.latents[rows].std(axis=0), 1, atol=1e-6)
    error = (fit.decoder(fit.latents) - X) / X.std(axis=0)
    assert fit.reconstruction_r2 == pytest.approx(1 - (error**2).mean(), abs=1e-6)
    assert fit.reconstruction_r2 > 0.9
    assert fit.details["held_out_loss"] == fit.training.loss


def test_restarts_without_a_prior_disagree(measured: Any):
    check = restart_check(fitted(measured))
    assert check.passed is None
    assert "raise n_restarts" in check.detail
    several = fitted(measured, n_restarts=3)
    assert len(several.agreement) == 2
    assert ((several.agreement > 0) & (several.agreement < 1)).all()
    assert restart_check(several).passed == (several.agreement.max() >= 0.85)
