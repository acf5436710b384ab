from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from crlearn.config import numerics
from crlearn.flows import SpikeSlab, SpikeSlabObjective

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def in_double_precision() -> Any:
    with numerics():
        yield


@pytest.fixture
def prior() -> Any:
    """Return one with off shares of 1/2 and 1/4, spikes at 0 and 1, and slabs of their own."""
    drawn: Any = SpikeSlab.random(jax.random.key(0), 2, 3)
    return eqx.tree_at(
        lambda p: (p.logits, p.places, p.means, p.log_scales, p.factor),
        drawn,
        (
            jnp.array([0.0, np.log(1 / 3)]),
            jnp.array([0.0, 1.0]),
            drawn.means.at[0].set(jnp.array([0.5, -1.0])),
            drawn.log_scales.at[0].set(jnp.log(jnp.array([2.0, 1.5]))),
            jnp.array([[2.0, 0.0], [0.6, 1.3]]),
        ),
    )


def test_independent_latents_by_hand(prior: SpikeSlab):
    z, noise = RNG.normal(size=(5, 2)), 0.1
    off, on = norm.pdf(z, [0.0, 1.0], noise), norm.pdf(z, [0.5, -1.0], [2.0, 1.5])
    expected = np.log([0.5, 0.25] * off + [0.5, 0.75] * on).sum(axis=1)
    found = prior.independent(jnp.asarray(z), jnp.asarray(noise))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_latents_together_by_hand(prior: SpikeSlab):
    """Of both on, one off and both off."""
    z, noise = np.array([[2.0, -2.0], [0.0, -2.0], [2.0, 1.0], [0.01, 1.0]]), 0.1
    factor = np.asarray(prior.factor)
    covariance, mean = factor @ factor.T, np.array([0.5, -1.0])
    log_off = np.log([0.5, 0.25]) + norm.logpdf(z, [0.0, 1.0], noise)
    log_on = np.log([0.5, 0.75])
    alone = [norm.logpdf(z[:, i], mean[i], np.sqrt(covariance[i, i])) for i in range(2)]
    both: Any = multivariate_normal(mean, cast(Any, covariance))
    expected = [
        log_on.sum() + both.logpdf(z[0]),
        log_off[1, 0] + log_on[1] + alone[1][1],
        log_on[0] + alone[0][2] + log_off[2, 1],
        log_off[3].sum(),
    ]
    found = prior.together(jnp.asarray(z), jnp.asarray(noise))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_mixture_of_one_component_is_a_gaussian(prior: SpikeSlab):
    """The others have no weight."""
    weights = jnp.array([[50.0, 50.0], [0.0, 0.0], [0.0, 0.0]])
    mixture = eqx.tree_at(
        lambda p: (p.log_weights, p.one_gaussian), prior, (weights, jnp.asarray(False))
    )
    z = jnp.asarray(RNG.normal(size=(5, 2)))
    np.testing.assert_allclose(mixture.on(z), prior.on(z))


@pytest.mark.parametrize("joint", [False, True])
def test_the_loss_is_that_of_noisy_rows(joint: bool):
    """Noise is at its first level when training begins, and at its last when it has settled."""
    objective = SpikeSlabObjective(2, joint=joint, n_blocks=1)
    params = objective.init(jax.random.key(0))._replace(noises=jnp.array([0.3, 0.1]))
    rows, key = jnp.asarray(RNG.normal(size=(6, 1, 2))), jax.random.key(1)
    for progress, noise in ((0.0, 0.3), (0.8, 0.1), (1.0, 0.1)):
        noisy = rows[:, 0] + noise * jax.random.normal(key, (6, 2), rows.dtype)
        z, log_determinant = params.flow.forward(noisy)
        density = params.prior.together if joint else params.prior.independent
        expected = -(density(z, jnp.asarray(noise)) + log_determinant).mean()
        found = objective.loss(params, rows, key, jnp.asarray(progress))
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_noises_are_not_trained():
    objective = SpikeSlabObjective(2, n_blocks=1)
    params = objective.init(jax.random.key(0))
    rows, key = jnp.asarray(RNG.normal(size=(6, 1, 2))), jax.random.key(1)
    gradient = jax.grad(
        lambda noises: objective.loss(params._replace(noises=noises), rows, key, jnp.asarray(0.5))
    )(params.noises)
    np.testing.assert_array_equal(gradient, 0.0)


def test_objectives_are_compared_by_value():
    one = SpikeSlabObjective(3)
    assert one == SpikeSlabObjective(3)
    assert hash(one) != hash(replace(one, joint=True))
