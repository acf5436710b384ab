from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.variational import GaussianPrior, number_of_components

CODES = np.arange(300) % 3


@pytest.fixture
def latents() -> np.ndarray:
    """Three environments that differ in mean and covariance."""
    z = np.random.default_rng(0).normal(size=(300, 2)) @ [[1.0, 0.5], [0.0, 1.0]]
    return z * (1 + CODES)[:, None] + 6 * np.outer(CODES, [1.0, -1.0])


def prior(kind: Any, latents: np.ndarray) -> GaussianPrior:
    return GaussianPrior.standard(kind, 3, 2, 3).at_moments(latents, CODES)


@pytest.mark.parametrize("kind", ["normal", "mixture", "conditional"])
def test_density_is_that_of_the_components(kind: Any, latents: np.ndarray):
    fitted = prior(kind, latents)
    found = fitted.log_density(jnp.asarray(latents), jnp.asarray(CODES))
    exact = fitted.components().log_likelihood(latents, np.zeros((2, 2)), CODES)
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-3)


def test_one_gaussian_has_the_moments_of_all_rows(latents: np.ndarray):
    found = prior("normal", latents).components()
    np.testing.assert_allclose(found.means[0], latents.mean(axis=0))
    np.testing.assert_allclose(found.covariances[0], np.cov(latents.T, ddof=0), rtol=1e-4)
    np.testing.assert_array_equal(found.log_weights, np.zeros((3, 1)))


def test_each_environment_has_its_own(latents: np.ndarray):
    found = prior("conditional", latents).components()
    for e in range(3):
        rows = latents[e == CODES]
        np.testing.assert_allclose(found.means[e], rows.mean(axis=0))
        np.testing.assert_allclose(found.covariances[e], np.cov(rows.T, ddof=0), rtol=1e-4)
    assert found.is_known


def test_a_mixture_finds_the_groups_without_labels(latents: np.ndarray):
    found = prior("mixture", latents).components()
    order = found.means[:, 0].argsort()
    wanted = [latents[e == CODES].mean(axis=0) for e in range(3)]
    np.testing.assert_allclose(found.means[order], wanted, atol=0.7)
    np.testing.assert_allclose(np.exp(found.log_weights).sum(axis=1), 1)


def test_draws_share_the_environments_of_their_rows(latents: np.ndarray):
    fitted = prior("conditional", latents)
    draws = jnp.asarray(latents[:8].reshape(2, 4, 2))
    codes = jnp.asarray(CODES[:4])
    together = fitted.log_density(draws, codes)
    alone = jnp.stack([fitted.log_density(draw, codes) for draw in draws])
    np.testing.assert_allclose(together, alone, rtol=1e-5)


def test_slopes_are_finite_where_environments_lack_components(latents: np.ndarray):
    fitted = prior("conditional", latents)
    slope: Any = jax.grad(lambda z: fitted.log_density(z, jnp.asarray(CODES)).sum())
    found = np.asarray(slope(jnp.asarray(latents)))
    first = latents[0]
    law: Any = fitted.components()
    wanted = -np.linalg.solve(law.covariances[0], first - law.means[0])
    np.testing.assert_allclose(found[0], wanted, rtol=1e-3)
    assert np.isfinite(found).all()


def test_the_number_of_components():
    one = np.random.default_rng(0).normal(size=(400, 2))
    far = np.concatenate([one, one + 20, one - [20, 0]])
    assert number_of_components(one) == 1
    assert number_of_components(far) == 3
