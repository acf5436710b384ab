from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from crlearn.nets import BentLinear
from crlearn.variational import (
    EvidenceBound,
    LinearMixing,
    Parameters,
    Rows,
    draw,
    log_weights,
    noise_variance,
    posterior,
)

OBJECTIVE = EvidenceBound(
    n_features=3,
    n_rest=2,
    own=((False, False), (True, False)),
    causes=((False, True), (False, False)),
    mixing="any",
    width=4,
    n_components=1,
)


def rows(n: int = 6) -> Rows:
    rng = np.random.default_rng(0)
    return Rows(
        jnp.asarray(rng.normal(size=(n, 3)), float),
        jnp.asarray(rng.chisquare(2, n), float),
        jnp.arange(n) % 2,
    )


def exact(params: Parameters, batch: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the posterior and log-likelihood of latents that are standard normal."""
    mixing, variance = np.asarray(params.decoder.matrix), float(noise_variance(params))
    covariance: Any = mixing.T @ mixing + variance * np.eye(3)
    x = np.asarray(batch.x)
    outside = -0.5 * (np.asarray(batch.rest) / variance + 2 * np.log(2 * np.pi * variance))
    inside = multivariate_normal.logpdf(x, np.zeros(3), covariance)
    return x @ np.linalg.inv(covariance) @ mixing.T, inside + outside


def with_exact_posterior(params: Parameters) -> Parameters:
    """Let the encoder be what the posterior is while there are no effects."""
    mixing, variance = np.asarray(params.decoder.matrix), float(noise_variance(params))
    gain = np.linalg.inv(mixing.T @ mixing + variance * np.eye(3)) @ mixing.T
    root = np.linalg.cholesky(np.eye(2) - mixing @ gain)
    matrix = np.zeros((5, 5))
    matrix[:3, :2] = gain
    scales = np.diag(root)
    last = np.array([0, 0, *np.log(scales), root[1, 0] / scales[1]])
    bend = params.encoder.bend
    bend = type(bend)(bend.weights, (*bend.biases[:-1], jnp.asarray(last)), bend.activation)
    encoder = BentLinear(jnp.asarray(matrix), bend)
    return Parameters(encoder, params.decoder, params.log_noise, params.prior)


def test_the_bound_is_the_likelihood_at_the_exact_posterior():
    params, batch = OBJECTIVE.init(jax.random.key(0)), rows()
    wanted = exact(params, batch)[1]
    noise = jax.random.normal(jax.random.key(1), (5, 6, 2))
    exactly = with_exact_posterior(params)
    q = posterior(exactly, batch.x, batch.codes)
    weights = np.asarray(log_weights(exactly, batch, q, noise, OBJECTIVE.n_rest))
    np.testing.assert_allclose(weights, np.broadcast_to(wanted, (5, 6)), rtol=1e-4)
    loss = OBJECTIVE.loss(params, batch, jax.random.key(1), jnp.asarray(0.0))
    assert float(loss) > -wanted.mean() + 0.05  # of a posterior that is not


def test_the_loss_is_a_bound_whatever_the_posterior():
    params, batch = OBJECTIVE.init(jax.random.key(0)), rows(400)
    wanted = exact(params, batch)[1].mean()
    losses = [
        float(OBJECTIVE.loss(params, batch, jax.random.key(key), jnp.asarray(0.0)))
        for key in range(3)
    ]
    assert min(losses) > -wanted


def test_draws_have_the_covariance_of_the_posterior():
    params = with_exact_posterior(OBJECTIVE.init(jax.random.key(0)))
    q = posterior(params, rows(1).x, rows(1).codes)
    z = np.asarray(draw(q, jax.random.normal(jax.random.key(0), (20_000, 1, 2))))[:, 0]
    np.testing.assert_allclose(np.cov(z.T), q.root[0] @ q.root[0].T, atol=0.02)
    np.testing.assert_allclose(z.mean(axis=0), q.mean[0], atol=0.02)


@pytest.mark.parametrize("is_orthogonal", [True, False])
def test_rows_of_a_mixing(is_orthogonal: bool):
    matrix = np.random.default_rng(0).normal(size=(3, 5))
    mixing = LinearMixing(jnp.asarray(matrix), is_orthogonal)
    inner = np.asarray(mixing.rows @ mixing.rows.T)
    assert (np.abs(inner - np.diag(np.diag(inner))).max() < 1e-5) == is_orthogonal
    if not is_orthogonal:
        np.testing.assert_allclose(mixing.rows, matrix, rtol=1e-6)
    orthogonal = np.linalg.qr(matrix.T)[0].T * [[-2.0], [1.0], [3.0]]
    kept = LinearMixing(jnp.asarray(orthogonal), is_orthogonal)
    np.testing.assert_allclose(kept.rows, orthogonal, atol=1e-5)
    np.testing.assert_allclose(kept(jnp.eye(3)), orthogonal, atol=1e-5)


def test_a_decoder_that_bends():
    bent: Any = EvidenceBound(3, 0, OBJECTIVE.own, OBJECTIVE.causes, "nonlinear", width=4)
    assert isinstance(bent.init(jax.random.key(0)).decoder, BentLinear)
