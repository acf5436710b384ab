from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from crlearn.config import config_context, numerics
from crlearn.train._chunk import (
    Feed,
    Plan,
    _step_size,
    fresh_state,
    put_together,
    run_chunk,
    starting_at,
    with_fixed,
)

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
    state = fresh_state(Quadratic(), keys)
    assert [vector.shape for vector in state.weights] == [(3, 7)]
    for i, key in enumerate(keys):
        expected = Quadratic().init(key)
        found = put_together(Quadratic(), (state.weights[0][i],), state.fixed)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_the_first_step_of_adam_is_the_warm_up_step_against_the_gradient():
    state = fresh_state(Quadratic(), jax.random.split(jax.random.key(0), 1))
    after, _ = run_chunk(Quadratic(), PLAN, state, feed(1))
    step = np.asarray(after.weights[0] - state.weights[0])
    np.testing.assert_allclose(step, -0.001 * np.sign(state.weights[0]), rtol=1e-3)


@pytest.mark.parametrize("total_steps", [1, 15, 100, 3000])
def test_steps_are_those_of_the_schedule_of_optax(total_steps: int):
    plan = PLAN._replace(total_steps=total_steps)
    warmup = min(100, total_steps // 10)
    schedule = optax.warmup_cosine_decay_schedule(
        init_value=1e-3,
        peak_value=1e-2,
        warmup_steps=warmup,
        decay_steps=max(total_steps, warmup + 1),
        end_value=2e-4,
    )
    steps = jnp.arange(total_steps + 3)
    np.testing.assert_allclose(_step_size(plan, steps), schedule(steps), rtol=1e-4)


def test_trainings_with_other_numbers_share_a_program():
    compiled = []

    @dataclass(frozen=True)
    class Counting(Quadratic):
        def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
            compiled.append(1)
            return super().loss(params, batch, key, progress)

    state = fresh_state(Counting(), jax.random.split(jax.random.key(0), 1))
    run_chunk(Counting(), PLAN, state, feed(2))
    n_times = len(compiled)
    run_chunk(Counting(), Plan(0.5, 1.0, 7), state, feed(2))
    assert len(compiled) == n_times > 0


def test_one_restart_and_many_agree():
    keys = jax.random.split(jax.random.key(0), 3)
    many = fresh_state(Quadratic(), keys)
    one = jax.tree.map(lambda leaf: leaf[:1], many)
    after_many, losses_many = run_chunk(Quadratic(), PLAN, many, feed(5))
    after_one, losses_one = run_chunk(Quadratic(), PLAN, one, feed(5))
    np.testing.assert_allclose(after_one.weights[0][0], after_many.weights[0][0], rtol=1e-5)
    np.testing.assert_allclose(losses_one.held_out[0], losses_many.held_out[0], rtol=1e-5)


def test_best_weights_are_those_of_the_lowest_held_out_loss():
    state = fresh_state(Quadratic(), jax.random.split(jax.random.key(0), 2))
    after, losses = run_chunk(Quadratic(), PLAN, state, feed(5))
    np.testing.assert_array_equal(after.best_loss, losses.held_out)
    np.testing.assert_array_equal(after.best_weights[0], after.weights[0])
    worse = after._replace(best_loss=jnp.zeros(2))
    again, _ = run_chunk(Quadratic(), PLAN, worse, feed(5))
    np.testing.assert_array_equal(again.best_weights[0], after.best_weights[0])
    np.testing.assert_array_equal(again.stale_chunks, [1, 1])


class Scaled(eqx.Module):
    """Leaves of several types: only `half`, `single` and `double` are weights."""

    half: Any
    single: Any
    double: Any
    order: Any
    keep: Any
    power: int
    function: Callable[[Any], Any]


@dataclass(frozen=True)
class Mixed:
    """The sum of the squares of weights with three precisions."""

    def init(self, key: Any) -> Scaled:
        return Scaled(
            half=jnp.full(2, 0.1, jnp.bfloat16),
            single=jnp.ones((2, 2), jnp.float32),
            double=jax.random.normal(key, (3,)).astype(float),
            order=jax.random.permutation(key, 3),
            keep=np.array([True, False, True]),
            power=2,
            function=jnp.sqrt,
        )

    def loss(self, params: Scaled, batch: Any, key: Any, progress: Any) -> Any:
        kept = jnp.where(params.keep, params.double[params.order], 0.0)
        squares = [(part**params.power).sum() for part in (params.half, params.single, kept)]
        return params.function(sum(squares)) + 0.0 * batch.sum()


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_leaves_keep_their_types_and_those_that_are_no_weights_stay(precision: Any):
    with config_context(precision=precision), numerics():
        keys = jax.random.split(jax.random.key(0), 2)
        state = fresh_state(Mixed(), keys)
        after, losses = run_chunk(Mixed(), PLAN, state, feed(20))
        for i, key in enumerate(keys):
            before = Mixed().init(key)
            one = jax.tree.map(lambda leaf: leaf[i], (after.weights, after.fixed))  # noqa: B023
            found = put_together(Mixed(), *one)
            for name in ("half", "single", "double"):
                assert getattr(found, name).dtype == getattr(before, name).dtype
                assert not np.array_equal(getattr(found, name), getattr(before, name))
            np.testing.assert_array_equal(found.order, before.order)
            np.testing.assert_array_equal(found.keep, before.keep)
            assert found.power == 2
            assert found.function is jnp.sqrt
            hidden = before.order[1]  # no gradient reaches it
            assert found.double[hidden] == before.double[hidden]
    assert np.isfinite(np.asarray(losses.training)).all()


def test_restarts_take_starts_in_turn():
    starts = [Mixed().init(jax.random.key(seed)) for seed in (7, 8)]
    started = starting_at(Mixed(), starts, 3)
    for row, params in enumerate([*starts, starts[0]]):
        one = jax.tree.map(lambda leaf: leaf[row], (started.weights, started.fixed))  # noqa: B023
        found = put_together(Mixed(), *one)
        np.testing.assert_array_equal(found.double, params.double)
        np.testing.assert_array_equal(found.order, params.order)
    assert not np.array_equal(starts[0].double, starts[1].double)
    jax.tree.map(np.testing.assert_array_equal, started.best_weights, started.weights)
    drawn = fresh_state(Mixed(), jax.random.split(jax.random.key(0), 3))
    same_form = lambda one, other: one.shape == other.shape and one.dtype == other.dtype  # noqa: E731
    assert jax.tree.all(jax.tree.map(same_form, started, drawn))


def test_another_structure_for_one_restart():
    state = fresh_state(Mixed(), jax.random.split(jax.random.key(0), 2))
    state = state._replace(best_loss=jnp.ones(2), stale_chunks=jnp.ones(2, int))
    one = jax.tree.map(lambda leaf: leaf[1], (state.weights, state.fixed))
    params = put_together(Mixed(), *one)
    other = eqx.tree_at(lambda tree: tree.keep, params, ~params.keep)
    revised = with_fixed(state, 1, other)
    np.testing.assert_array_equal(revised.fixed.keep[1], ~state.fixed.keep[1])
    np.testing.assert_array_equal(revised.fixed.keep[0], state.fixed.keep[0])
    np.testing.assert_array_equal(revised.best_loss, [1, np.inf])
    np.testing.assert_array_equal(revised.stale_chunks, [1, 0])
    jax.tree.map(np.testing.assert_array_equal, revised.weights, state.weights)


@dataclass(frozen=True)
class Distance:
    """Half the mean squared distance of the rows from a point."""

    def init(self, key: Any) -> Any:
        return jnp.zeros(1)

    def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
        return 0.5 * ((batch - params) ** 2).mean()


@pytest.mark.parametrize("n_rows", [3, 16, 17, 32, 1003])
def test_held_out_loss_in_parts_of_one_size_is_that_of_all_rows_but_a_few(n_rows: int):
    rows = jax.random.normal(jax.random.key(2), (n_rows, 1))
    one = feed(1)._replace(held_out_rows=rows)
    state = fresh_state(Distance(), jax.random.split(jax.random.key(0), 1))
    after, losses = run_chunk(Distance(), PLAN, state, one)
    n_parts = -(-n_rows // 16)
    used = rows[: n_rows - n_rows % n_parts]
    whole = Distance().loss(after.weights[0][0], used, None, None)
    np.testing.assert_allclose(losses.held_out[0], whole, rtol=1e-5)


def test_held_out_rows_are_never_seen_all_at_once():
    sizes: list[int] = []

    @dataclass(frozen=True)
    class Watched(Distance):
        def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
            sizes.append(len(batch))
            return super().loss(params, batch, key, progress)

    state = fresh_state(Watched(), jax.random.split(jax.random.key(0), 1))
    run_chunk(Watched(), PLAN, state, feed(1)._replace(held_out_rows=jnp.ones((1003, 1))))
    assert max(sizes) <= 4 * 4
