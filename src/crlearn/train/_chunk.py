"""The compiled part: a chunk of minibatch steps for all restarts at once.

All weights of one restart are a single flat vector: the optimiser is then one fused loop, and the
state of a run is a handful of arrays.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

Params = PyTree[Float[Array, "..."]]
Batch = PyTree[Array]


@runtime_checkable
class Objective(Hashable, Protocol):
    """What is trained. Equal objectives share compiled programs, so compare them by value."""

    def init(self, key: PRNGKeyArray) -> Params:
        """Draw the weights of one restart."""
        ...

    def loss(
        self, params: Params, batch: Batch, key: PRNGKeyArray, progress: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Mean loss of a batch; `progress` runs from 0 to 1 over the training (for annealing)."""
        ...


class Plan(NamedTuple):
    """What a compiled chunk depends on besides the objective and the shapes of its arrays."""

    learning_rate: float
    clip_norm: float
    total_steps: int


class State(NamedTuple):
    """The restarts, one row each."""

    weights: Float[Array, "*restarts weights"]
    optimizer: optax.OptState
    best_weights: Float[Array, "*restarts weights"]
    best_loss: Float[Array, "*restarts"]
    stale_chunks: Int[Array, "*restarts"]
    step_scale: Float[Array, "*restarts"]
    skipped: Int[Array, "*restarts"]
    dead: Bool[Array, "*restarts"]
    number: Int[Array, "*restarts"]


class Feed(NamedTuple):
    """What the restarts are fed in one chunk; the same for all of them.

    Attributes
    ----------
    training_rows, held_out_rows
        The data; no held-out rows: the training loss takes the place of the held-out loss.
    minibatches
        Row numbers, one batch a step.
    step_key, held_out_key
        Randomness of the steps and of the held-out loss.
    """

    training_rows: Batch
    held_out_rows: Batch | None
    minibatches: Int[Array, "steps batch"]
    step_key: PRNGKeyArray
    held_out_key: PRNGKeyArray


class Losses(NamedTuple):
    """Mean loss over the steps of a chunk, and the held-out loss after it."""

    training: Float[Array, "*restarts"]
    held_out: Float[Array, "*restarts"]


@partial(jax.jit, static_argnames=("objective", "plan"))
def fresh_state(objective: Objective, plan: Plan, keys: Key[Array, " restarts"]) -> State:
    """Draw the weights of every restart."""
    n_restarts = len(keys)
    weights = jax.vmap(lambda key: _flatten(objective.init(key)))(keys)
    return State(
        weights=weights,
        optimizer=jax.vmap(_optimizer(plan).init)(weights),
        best_weights=weights,
        best_loss=jnp.full(n_restarts, jnp.inf, weights.dtype),
        stale_chunks=jnp.zeros(n_restarts, int),
        step_scale=jnp.ones(n_restarts, weights.dtype),
        skipped=jnp.zeros(n_restarts, int),
        dead=jnp.zeros(n_restarts, bool),
        number=jnp.arange(n_restarts),
    )


@partial(jax.jit, static_argnames=("objective", "plan"))
def run_chunk(objective: Objective, plan: Plan, state: State, feed: Feed) -> tuple[State, Losses]:
    """Advance every restart by one step a minibatch."""
    advance = partial(_advance_one_restart, objective, plan, feed)
    if len(state.number) > 1:
        return jax.vmap(advance)(state)
    # Matrix products without a batch axis of length one are faster.
    return jax.tree.map(lambda x: x[None], advance(jax.tree.map(lambda x: x[0], state)))


def _advance_one_restart(
    objective: Objective, plan: Plan, feed: Feed, state: State
) -> tuple[State, Losses]:
    """Take one step a minibatch, then look at the held-out loss and keep the best weights."""

    def step(state: State, rows_and_key: tuple[Array, PRNGKeyArray]) -> tuple[State, Array]:
        rows, key = rows_and_key
        batch = jax.tree.map(lambda array: array[rows], feed.training_rows)
        return _step(objective, plan, state, batch, key)

    # The key follows the number of the restart: it does not matter who runs beside it.
    own_key = jax.random.fold_in(feed.step_key, state.number)
    keys = jax.random.split(own_key, len(feed.minibatches))
    state, losses = jax.lax.scan(step, state, (feed.minibatches, keys))
    training_loss = jnp.nanmean(jnp.where(jnp.isfinite(losses), losses, jnp.nan))

    if feed.held_out_rows is None:
        held_out_loss = training_loss
    else:
        params = unflatten(objective, state.weights)
        held_out_loss = objective.loss(
            params, feed.held_out_rows, feed.held_out_key, jnp.asarray(1.0)
        )
    improved = held_out_loss < state.best_loss
    state = state._replace(
        best_weights=jnp.where(improved, state.weights, state.best_weights),
        best_loss=jnp.where(improved, held_out_loss, state.best_loss),
        stale_chunks=jnp.where(improved, 0, state.stale_chunks + 1),
    )
    return state, Losses(training_loss, held_out_loss)


def _step(
    objective: Objective, plan: Plan, state: State, batch: Batch, key: PRNGKeyArray
) -> tuple[State, Float[Array, ""]]:
    """One step of one restart; left out if the loss or its gradient is not finite."""
    progress = _steps_taken(state.optimizer) / plan.total_steps
    loss, tree_gradient = jax.value_and_grad(objective.loss)(
        unflatten(objective, state.weights), batch, key, progress
    )
    gradient = _flatten(tree_gradient)
    update, optimizer = _optimizer(plan).update(gradient, state.optimizer, state.weights)
    finite = jnp.isfinite(loss) & jnp.isfinite(gradient).all()
    keep = partial(jnp.where, finite)
    state = state._replace(
        weights=keep(state.weights + state.step_scale * jnp.asarray(update), state.weights),
        optimizer=jax.tree.map(keep, optimizer, state.optimizer),
        skipped=state.skipped + ~finite,
    )
    return state, loss


def _optimizer(plan: Plan) -> optax.GradientTransformation:
    warmup = min(100, plan.total_steps // 10)
    schedule = optax.warmup_cosine_decay_schedule(
        init_value=plan.learning_rate / 10,
        peak_value=plan.learning_rate,
        warmup_steps=warmup,
        decay_steps=max(plan.total_steps, warmup + 1),
        end_value=plan.learning_rate / 50,
    )
    return optax.chain(optax.clip_by_global_norm(plan.clip_norm), optax.adam(schedule, b2=0.99))


def _steps_taken(optimizer: optax.OptState) -> Int[Array, ""]:
    return optax.tree_utils.tree_get(optimizer, "count", filtering=_is_schedule_count)


def _is_schedule_count(path: tuple[Any, ...], _: Any) -> bool:
    return any(getattr(entry, "tuple_name", None) == "ScaleByScheduleState" for entry in path)


def _flatten(tree: Params) -> Float[Array, " weights"]:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])


def unflatten(objective: Objective, weights: Float[Array, " weights"]) -> Params:
    """Give a flat vector of weights the form that the objective works with."""
    leaves, structure = jax.tree.flatten(jax.eval_shape(objective.init, jax.random.key(0)))
    ends = np.cumsum([leaf.size for leaf in leaves])
    pieces = jnp.split(weights, ends[:-1])
    return structure.unflatten(
        piece.reshape(leaf.shape) for piece, leaf in zip(pieces, leaves, strict=True)
    )
