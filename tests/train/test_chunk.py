from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from crlearn.train._chunk import Feed, Plan, fresh_state, run_chunk, unflatten

PLAN = Plan(learning_rate=0.01, clip_norm=5.0, total_steps=100)


@dataclass(frozen=True)
class Quadratic:
    """Its loss does not depend on the batch, its gradient is known."""

    def init(self, key: Any) -> dict[str, Any]:
        return {"a": jax.random.normal(key, (2, 3)), "b": jnp.ones(())}

    def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
        return (params["a"] ** 2).sum() + params["b"] ** 2 + 0.0 * batch.sum()


def feed(n_steps: int) -> Feed:
    rows = jnp.zeros((10, 1))
    minibatches = jnp.zeros((n_steps, 4), int)
    return Feed(rows, rows, minibatches, jax.random.key(0), jax.random.key(1))


def test_flat_weights_have_the_form_of_the_objective():
    keys = jax.random.split(jax.random.key(0), 3)
    state = fresh_state(Quadratic(), PLAN, keys)
    assert state.weights.shape == (3, 7)
    for key, weights in zip(keys, state.weights, strict=True):
        expected = Quadratic().init(key)
        found = unflatten(Quadratic(), weights)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_the_first_step_of_adam_is_the_warm_up_step_against_the_gradient():
    state = fresh_state(Quadratic(), PLAN, jax.random.split(jax.random.key(0), 1))
    after, _ = run_chunk(Quadratic(), PLAN, state, feed(1))
    step = np.asarray(after.weights - state.weights)
    np.testing.assert_allclose(step, -0.001 * np.sign(state.weights), rtol=1e-3)


def test_one_restart_and_many_agree():
    keys = jax.random.split(jax.random.key(0), 3)
    many = fresh_state(Quadratic(), PLAN, keys)
    one = jax.tree.map(lambda leaf: leaf[:1], many)
    after_many, losses_many = run_chunk(Quadratic(), PLAN, many, feed(5))
    after_one, losses_one = run_chunk(Quadratic(), PLAN, one, feed(5))
    np.testing.assert_allclose(after_one.weights[0], after_many.weights[0], rtol=1e-5)
    np.testing.assert_allclose(losses_one.held_out[0], losses_many.held_out[0], rtol=1e-5)


def test_best_weights_are_those_of_the_lowest_held_out_loss():
    state = fresh_state(Quadratic(), PLAN, jax.random.split(jax.random.key(0), 2))
    after, losses = run_chunk(Quadratic(), PLAN, state, feed(5))
    np.testing.assert_array_equal(after.best_loss, losses.held_out)
    np.testing.assert_array_equal(after.best_weights, after.weights)
    worse = after._replace(best_loss=jnp.zeros(2))
    again, _ = run_chunk(Quadratic(), PLAN, worse, feed(5))
    np.testing.assert_array_equal(again.best_weights, after.best_weights)
    np.testing.assert_array_equal(again.stale_chunks, [1, 1])
