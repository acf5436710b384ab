"""The compiled part: a chunk of minibatch steps for all restarts at once.

All weights of one restart are a single flat vector (one for each number type, if there are
several): the optimiser is then one fused loop, and the state of a run is a handful of arrays. Whole
numbers, masks and whatever is no array stay as the objective drew them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree
from numpy.typing import NDArray

# Rows whose held-out loss is taken at once, in batches: nothing is kept for a gradient there, so
# that it takes less memory than a step if the network has some layers.
_HELD_OUT_BATCHES = 4

Params = PyTree[Any]
AnyArray = Array | np.ndarray  # of JAX inside chunks, of numpy between them
Weights = tuple[Float[AnyArray, "*restarts _"], ...]
Batch = PyTree[Array]


@runtime_checkable
class Objective(Hashable, Protocol):
    """What is trained. Equal objectives share compiled programs, so compare them by value."""

    def init(self, key: PRNGKeyArray) -> Params:
        """Draw the weights of one restart: leaves with floating point numbers are trained."""
        ...

    def loss(
        self, params: Params, batch: Batch, key: PRNGKeyArray, progress: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Mean loss of a batch; `progress` runs from 0 to 1 over the training (for annealing).

        The loss of many rows is taken to be the mean over batches of them.
        """
        ...


@runtime_checkable
class Revising(Objective, Protocol):
    """An objective with a structure that is not trained, but revised between chunks."""

    def revise(self, params: Params, rows: Batch, progress: float) -> Params | None:
        """Return the parameters of a restart with another structure, or None to leave them.

        `rows` are some hundred of the training rows.
        """
        ...


class Plan(NamedTuple):
    """How steps are taken; trainings that differ in these numbers share compiled programs."""

    learning_rate: float
    clip_norm: float
    total_steps: int


_NO_PLAN = Plan(1.0, 1.0, 1)  # an optimizer before its first step depends on none


class State(NamedTuple):
    """The restarts, one row each; `fixed` has the arrays that are not trained.

    Between chunks its arrays are numpy's.
    """

    weights: Weights
    fixed: PyTree[AnyArray]
    optimizer: optax.OptState
    best_weights: Weights
    best_loss: Float[AnyArray, "*restarts"]
    stale_chunks: Int[AnyArray, "*restarts"]
    step_scale: Float[AnyArray, "*restarts"]
    skipped: Int[AnyArray, "*restarts"]
    dead: Bool[AnyArray, "*restarts"]
    number: Int[AnyArray, "*restarts"]


class Left(NamedTuple):
    """Restarts that run no more, one row each: their best weights, and the loss of these."""

    weights: Weights
    fixed: PyTree[AnyArray]
    loss: Float[AnyArray, "*restarts"]
    number: Int[AnyArray, "*restarts"]

    @classmethod
    def of(cls, state: State, rows: NDArray[np.intp]) -> Left:
        """Take some restarts as they stand."""
        whole = cls(state.best_weights, state.fixed, state.best_loss, state.number)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], whole)


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


# A program that runs once is not worth optimising: this halves the time to compile the drawing.
_UNOPTIMISED = {"xla_backend_optimization_level": 0}


@partial(jax.jit, static_argnames="objective", compiler_options=_UNOPTIMISED)
def fresh_state(objective: Objective, keys: Key[Array, " restarts"]) -> State:
    """Draw the weights of every restart."""
    return _state(*jax.vmap(lambda key: _taken_apart(_drawn(objective, key)))(keys))


def starting_at(objective: Objective, starts: Sequence[Params], n_restarts: int) -> State:
    """Give each restart the weights of a start; they take these in turn."""
    rows = [_taken_apart(_as_drawn(objective, params)) for params in starts]
    taken = [rows[number % len(rows)] for number in range(n_restarts)]
    return _given_state(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *taken))


@jax.jit
def _given_state(weights: Weights, fixed: PyTree[AnyArray]) -> State:
    return _state(weights, fixed)


def _state(weights: Weights, fixed: PyTree[AnyArray]) -> State:
    """Return restarts with these weights before their first step."""
    n_restarts = len(weights[0])
    return State(
        weights=weights,
        fixed=fixed,
        optimizer=jax.vmap(_optimizer(_NO_PLAN).init)(weights),
        best_weights=weights,
        best_loss=jnp.full(n_restarts, jnp.inf, float),
        stale_chunks=jnp.zeros(n_restarts, int),
        step_scale=jnp.ones(n_restarts, float),
        skipped=jnp.zeros(n_restarts, int),
        dead=jnp.zeros(n_restarts, bool),
        number=jnp.arange(n_restarts),
    )


@partial(jax.jit, static_argnames="objective")
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
        params = put_together(objective, state.weights, state.fixed)
        held_out_loss = _held_out_loss(objective, params, feed)
    improved = held_out_loss < state.best_loss
    state = state._replace(
        best_weights=jax.tree.map(partial(jnp.where, improved), state.weights, state.best_weights),
        best_loss=jnp.where(improved, held_out_loss, state.best_loss),
        stale_chunks=jnp.where(improved, 0, state.stale_chunks + 1),
    )
    return state, Losses(training_loss, held_out_loss)


def _held_out_loss(objective: Objective, params: Params, feed: Feed) -> Float[Array, ""]:
    """Mean loss of the held-out rows, some batches at a time: their number sets no memory.

    All parts have one size, so that the loss is compiled once; up to as many rows as there are
    parts are left out.
    """
    rows, key = feed.held_out_rows, feed.held_out_key
    n_rows = len(jax.tree.leaves(rows)[0])
    n_parts = -(-n_rows // (_HELD_OUT_BATCHES * feed.minibatches.shape[1]))
    shape = (n_parts, n_rows // n_parts)
    parts = jax.tree.map(
        lambda array: array[: shape[0] * shape[1]].reshape(*shape, *array.shape[1:]), rows
    )

    def loss(part: tuple[Batch, PRNGKeyArray]) -> Float[Array, ""]:
        batch, key = part
        return jnp.asarray(objective.loss(params, batch, key, jnp.asarray(1.0)), float)

    return jax.lax.map(loss, (parts, jax.random.split(key, n_parts))).mean()


def _step(
    objective: Objective, plan: Plan, state: State, batch: Batch, key: PRNGKeyArray
) -> tuple[State, Float[Array, ""]]:
    """One step of one restart; left out if the loss or its gradient is not finite."""
    progress = _steps_taken(state.optimizer) / plan.total_steps
    params = put_together(objective, state.weights, state.fixed)
    trained, rest = eqx.partition(params, _is_trained)
    loss, tree_gradient = jax.value_and_grad(
        lambda trained: objective.loss(eqx.combine(trained, rest), batch, key, progress)
    )(trained)
    gradient = _flatten(tree_gradient)
    update, optimizer = _optimizer(plan).update(gradient, state.optimizer, state.weights)
    finite = jnp.isfinite(loss) & _all_finite(gradient)
    keep = partial(jnp.where, finite)

    def moved(weights: Array, update: Array) -> Array:
        return keep((weights + state.step_scale * update).astype(weights.dtype), weights)

    state = state._replace(
        weights=jax.tree.map(moved, state.weights, update),
        optimizer=jax.tree.map(keep, optimizer, state.optimizer),
        skipped=state.skipped + ~finite,
    )
    return state, loss


def _all_finite(weights: Weights) -> Bool[Array, ""]:
    return jnp.stack([jnp.isfinite(part).all() for part in weights]).all()


def _optimizer(plan: Plan) -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(plan.clip_norm), optax.adam(partial(_step_size, plan), b2=0.99)
    )


def _step_size(plan: Plan, step: ArrayLike) -> Float[Array, "*steps"]:
    """Return a size that rises for some steps and falls along a cosine.

    As `optax.warmup_cosine_decay_schedule`, whose numbers must be known when it is compiled.
    """
    step = jnp.asarray(step)
    warmup = jnp.minimum(100, plan.total_steps // 10)
    rising = 0.1 + 0.9 * step / jnp.maximum(warmup, 1)
    share = (step - warmup) / jnp.maximum(plan.total_steps - warmup, 1)
    falling = 0.02 + 0.98 * 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(share, 1)))
    return plan.learning_rate * jnp.where(step < warmup, rising, falling)


def _steps_taken(optimizer: optax.OptState) -> Int[Array, ""]:
    return optax.tree_utils.tree_get(optimizer, "count", filtering=_is_schedule_count)


def _is_schedule_count(path: tuple[Any, ...], _: Any) -> bool:
    return any(getattr(entry, "tuple_name", None) == "ScaleByScheduleState" for entry in path)


def _drawn(objective: Objective, key: PRNGKeyArray) -> Params:
    """Draw the weights of one restart; arrays of numpy become those of JAX."""
    return _with_arrays_of_jax(objective.init(key))


def _as_drawn(objective: Objective, params: Params) -> Params:
    """Return parameters with the number types in which the objective draws them."""
    form = eqx.filter_eval_shape(partial(_drawn, objective), jax.random.key(0))
    arrays, rest = eqx.partition(_with_arrays_of_jax(params), eqx.is_array)
    shapes = eqx.filter(form, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    return eqx.combine(jax.tree.map(lambda a, like: a.astype(like.dtype), arrays, shapes), rest)


def _with_arrays_of_jax(params: Params) -> Params:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if _is_any_array(leaf) else leaf, params)


def _is_any_array(leaf: Any) -> bool:
    return isinstance(leaf, AnyArray | np.generic)


def _is_trained(leaf: Any) -> bool:
    """Whether a leaf is an array (or the shape of one) with numbers that can move a little."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jnp.floating)


def _taken_apart(params: Params) -> tuple[Weights, PyTree[AnyArray]]:
    """Return the trained leaves as flat vectors, and the other arrays."""
    trained, rest = eqx.partition(params, _is_trained)
    return _flatten(trained), eqx.filter(rest, _is_any_array)


def put_together(objective: Objective, weights: Weights, fixed: PyTree[AnyArray]) -> Params:
    """Give flat vectors of weights the form that the objective works with."""
    trained, no_array = _form(objective, jnp.result_type(float))
    return eqx.combine(_unflatten(trained, weights), fixed, no_array)


@lru_cache(maxsize=16)
def _form(objective: Objective, precision: Any) -> tuple[Params, Params]:
    """Return the shapes of the trained leaves, and the leaves that are no arrays.

    They follow from the objective and from the precision in which it draws.
    """
    form = eqx.filter_eval_shape(partial(_drawn, objective), jax.random.key(0))
    trained, rest = eqx.partition(form, _is_trained)
    return trained, eqx.filter(rest, lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct))


def with_fixed(state: State, row: int, params: Params) -> State:
    """Give a restart the arrays that are not trained of `params`; its best loss starts anew."""
    fixed = eqx.filter(params, lambda leaf: _is_any_array(leaf) and not _is_trained(leaf))

    def replaced(old: Any, new: Any) -> Any:
        return np.concatenate([old[:row], np.asarray(new, dtype=old.dtype)[None], old[row + 1 :]])

    return state._replace(
        fixed=jax.tree.map(replaced, state.fixed, fixed),
        best_loss=replaced(state.best_loss, np.inf),
        stale_chunks=replaced(state.stale_chunks, 0),
    )


def _number_types(leaves: list[Any]) -> list[Any]:
    return list(dict.fromkeys(leaf.dtype for leaf in leaves))


def _flatten(trained: Params) -> Weights:
    """Return one vector for each number type, in the order in which they appear."""
    leaves = jax.tree.leaves(trained)
    return tuple(
        jnp.concatenate([leaf.ravel() for leaf in leaves if leaf.dtype == dtype])
        for dtype in _number_types(leaves)
    )


def _unflatten(form: Params, weights: Weights) -> Params:
    leaves, structure = jax.tree.flatten(form)
    pieces = {
        dtype: iter(_pieces([leaf for leaf in leaves if leaf.dtype == dtype], vector))
        for dtype, vector in zip(_number_types(leaves), weights, strict=True)
    }
    return structure.unflatten(next(pieces[leaf.dtype]) for leaf in leaves)


def _pieces(leaves: list[Any], vector: Float[AnyArray, " _"]) -> list[Any]:
    ends = np.cumsum([leaf.size for leaf in leaves]).tolist()
    starts = [0, *ends[:-1]]
    return [
        vector[start:end].reshape(leaf.shape)
        for start, end, leaf in zip(starts, ends, leaves, strict=True)
    ]
