"""The one training loop.

Every network in crlearn is trained here. An `Objective` says how weights are drawn and what the
loss is; `train` does the rest: minibatch steps in a jitted scan, restarts under one `vmap`, early
stopping on held-out loss, best weights, divergence caught, checkpoints that resume to the same
bits, progress.

The loop advances in *chunks* (whole epochs of minibatch steps in one compiled call). Between two
chunks Python looks at the held-out losses, moves the progress bar and writes the checkpoint, so an
interrupt loses at most the chunk in flight. All weights of one restart are a single flat vector:
the optimiser is then one fused loop, and the state of a run is a handful of arrays.
"""

from __future__ import annotations

import hashlib
import math
import time
import warnings
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from crlearn.config import get_config, numerics
from crlearn.exceptions import CorruptFileError, DivergenceError
from crlearn.persist import read_record, write_record
from crlearn.progress import progress_bar

Params = PyTree[Float[Array, "..."]]
Batch = PyTree[Array]

_FEWEST_STEPS_IN_A_CHUNK = 20
_MOST_HELD_OUT_ROWS = 10_000
_RETRY_STEP = 0.1  # a diverged restart is run again with this share of its learning rate


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


@dataclass(frozen=True)
class Settings:
    """How an objective is trained.

    Attributes
    ----------
    max_epochs
        Most passes over the training rows.
    batch_size
        Rows of a minibatch (all rows, if there are fewer).
    learning_rate
        Largest step of Adam: reached after a short warm-up, then lowered along a cosine.
    clip_norm
        Gradients longer than this are shortened to it.
    validation_fraction
        Share of the rows held out to stop early and to choose among restarts; 0 uses training loss.
    patience
        Epochs without improvement of the held-out loss after which training stops; None: never.
    n_restarts
        Independent draws of the weights, trained side by side.
    race
        Share of the training after which only the leading restart goes on; 1 trains all to the end.
    """

    max_epochs: int = 100
    batch_size: int = 256
    learning_rate: float = 1e-3
    clip_norm: float = 5.0
    validation_fraction: float = 0.1
    patience: int | None = 20
    n_restarts: int = 1
    race: float = 0.2


@dataclass(frozen=True, eq=False)
class Training:
    """What `train` returns.

    Attributes
    ----------
    params
        Best weights of the best restart, as numpy arrays.
    loss
        Their held-out loss.
    history
        ``epoch``, ``train_loss`` and ``validation_loss`` of that restart, one entry a chunk, and
        ``restart_loss``: the best held-out loss of every restart.
    stopped
        Why it ended: ``"early"`` (held-out loss stalled), ``"max_epochs"`` or ``"interrupted"``.
    skipped_steps
        Steps left out because the loss or its gradient was not finite.
    retried
        Restarts that diverged and were run again with a smaller step.
    """

    params: PyTree[NDArray[Any]]
    loss: float
    history: dict[str, NDArray[Any]]
    stopped: Literal["early", "max_epochs", "interrupted"]
    skipped_steps: int
    retried: int


class _Plan(NamedTuple):
    """What a compiled chunk depends on besides the objective and the shapes of its arrays."""

    learning_rate: float
    clip_norm: float
    total_steps: int


class _State(NamedTuple):
    """One row a restart."""

    weights: Float[Array, "restarts weights"]
    optimizer: optax.OptState
    best_weights: Float[Array, "restarts weights"]
    best_loss: Float[Array, " restarts"]
    stale_chunks: Int[Array, " restarts"]
    step_scale: Float[Array, " restarts"]
    skipped: Int[Array, " restarts"]
    dead: Bool[Array, " restarts"]
    number: Int[Array, " restarts"]


def train(
    objective: Objective,
    data: PyTree[NDArray[Any]],
    settings: Settings,
    *,
    seed: int,
    checkpoint: str | Path | None = None,
    description: str = "training",
    after_chunk: Callable[[int], None] | None = None,
) -> Training:
    """Minimise the mean loss of `objective` over the rows of `data`.

    Parameters
    ----------
    objective
        Draws the weights and gives the loss.
    data
        Arrays with one row a sample, in any nesting.
    settings
        How to train.
    seed
        Determines everything that is random: same seed, same bits on the same machine.
    checkpoint
        File in which the state is kept. If it exists, training goes on from there, to the same
        bits as without the interruption; it must come from the same data, objective and settings.
    description
        Text beside the progress bar.
    after_chunk
        Called with the number of chunks done, after each.
    """
    with numerics():
        run = _Run(objective, data, settings, seed, checkpoint)
        return run.to_the_end(description, after_chunk)


class _Run:
    """One training, between its first chunk and its last."""

    def __init__(
        self,
        objective: Objective,
        data: PyTree[NDArray[Any]],
        settings: Settings,
        seed: int,
        checkpoint: str | Path | None,
    ) -> None:
        self.objective = objective
        self.settings = settings
        self.seed = seed
        keys = jax.random.split(jax.random.key(seed), 3)
        self.draw_key, self.step_key, self.held_out_key = keys
        self.training_rows, self.held_out_rows = _split(data, settings.validation_fraction, seed)
        n_rows = _n_rows(self.training_rows)
        self.batch_size = min(settings.batch_size, n_rows)
        self.steps_per_epoch = n_rows // self.batch_size
        epochs_per_chunk = math.ceil(_FEWEST_STEPS_IN_A_CHUNK / self.steps_per_epoch)
        self.epochs_per_chunk = min(epochs_per_chunk, settings.max_epochs)
        self.n_chunks = math.ceil(settings.max_epochs / self.epochs_per_chunk)
        total_steps = self.n_chunks * self.epochs_per_chunk * self.steps_per_epoch
        self.plan = _Plan(settings.learning_rate, settings.clip_norm, total_steps)

        self.state = self._fresh_state()
        self.chunks_done = 0
        self.train_losses: list[NDArray[Any]] = []
        self.held_out_losses: list[NDArray[Any]] = []
        self.restart_loss = np.full(settings.n_restarts, np.inf)
        self.retried: set[int] = set()
        self.checkpoint = None if checkpoint is None else _Checkpoint(Path(checkpoint), self, data)

    def to_the_end(self, description: str, after_chunk: Callable[[int], None] | None) -> Training:
        if self.checkpoint is not None:
            self.checkpoint.resume()
        stopped: Literal["early", "max_epochs", "interrupted"] = "max_epochs"
        with progress_bar(description, self.n_chunks, self.chunks_done) as advance:
            try:
                while self.chunks_done < self.n_chunks:
                    if self._patience_is_over():
                        stopped = "early"
                        break
                    self._advance_one_chunk()
                    advance(f"held-out loss {self.state.best_loss.min():.4g}")
                    if self.checkpoint is not None:
                        self.checkpoint.save_now_and_then()
                    if after_chunk is not None:
                        after_chunk(self.chunks_done)
            except KeyboardInterrupt:
                if self.chunks_done == 0:
                    raise
                stopped = "interrupted"
                warnings.warn(
                    f"Training was interrupted after {self._epochs_done()} of "
                    f"{self.settings.max_epochs} epochs; the best weights so far are kept.",
                    UserWarning,
                    stacklevel=4,
                )
        if self.checkpoint is not None:
            self.checkpoint.save()
        return self._outcome(stopped)

    def _fresh_state(self) -> _State:
        keys = jax.random.split(self.draw_key, self.settings.n_restarts)
        weights = _draw_weights(self.objective, keys)
        optimizer = jax.vmap(_optimizer(self.plan).init)(weights)
        n = self.settings.n_restarts
        return _State(
            weights=weights,
            optimizer=optimizer,
            best_weights=weights,
            best_loss=jnp.full(n, jnp.inf, weights.dtype),
            stale_chunks=jnp.zeros(n, int),
            step_scale=jnp.ones(n, weights.dtype),
            skipped=jnp.zeros(n, int),
            dead=jnp.zeros(n, bool),
            number=jnp.arange(n),
        )

    def _advance_one_chunk(self) -> None:
        skipped_before = np.asarray(self.state.skipped)
        state, train_loss, held_out_loss = _run_chunk(
            self.objective,
            self.plan,
            self.state,
            self.training_rows,
            self.held_out_rows,
            self._minibatches(),
            jax.random.fold_in(self.step_key, self.chunks_done),
            self.held_out_key,
        )
        held_out = np.asarray(held_out_loss)
        steps = self.epochs_per_chunk * self.steps_per_epoch
        all_skipped = np.asarray(state.skipped) - skipped_before == steps
        self.state = self._retry_diverged(state, ~np.isfinite(held_out) | all_skipped)
        self.train_losses.append(self._by_restart(train_loss))
        self.held_out_losses.append(self._by_restart(held_out_loss))
        self.restart_loss[np.asarray(self.state.number)] = np.asarray(self.state.best_loss)
        self.chunks_done += 1
        self._drop_the_losers_of_the_race()

    def _minibatches(self) -> Int[Array, "steps batch"]:
        """Row numbers of this chunk's batches: each epoch is a fresh permutation of the rows."""
        rng = np.random.default_rng((self.seed, self.chunks_done))
        n_rows = _n_rows(self.training_rows)
        used = self.steps_per_epoch * self.batch_size
        epochs = [rng.permutation(n_rows)[:used] for _ in range(self.epochs_per_chunk)]
        return jnp.asarray(np.concatenate(epochs).reshape(-1, self.batch_size).astype(np.int32))

    def _retry_diverged(self, state: _State, diverged: NDArray[np.bool_]) -> _State:
        """Start a diverged restart anew with a smaller step; if it diverges again, give it up."""
        diverged = diverged & ~np.asarray(state.dead)
        if not diverged.any():
            return state
        numbers = np.asarray(state.number)
        again = diverged & np.isin(numbers, list(self.retried))
        first_time = diverged & ~again
        self.retried.update(int(number) for number in numbers[first_time])
        fresh = jax.tree.map(lambda leaf: leaf[numbers], self._fresh_state())
        fresh = fresh._replace(
            step_scale=jnp.full_like(state.step_scale, _RETRY_STEP), skipped=state.skipped
        )
        state = jax.tree.map(partial(_where_rows, jnp.asarray(first_time)), fresh, state)
        state = state._replace(dead=state.dead | jnp.asarray(again))
        if state.dead.all() and not jnp.isfinite(state.best_loss).any():
            raise DivergenceError(
                "Training diverged: the loss was not finite, also after starting again with "
                f"{_RETRY_STEP} of learning_rate={self.settings.learning_rate:g}. "
                "Give a smaller learning_rate, and check X for extreme values."
            )
        return state

    def _drop_the_losers_of_the_race(self) -> None:
        still_running = len(self.state.number)
        if still_running > 1 and self.chunks_done >= self.settings.race * self.n_chunks:
            leader = int(jnp.argmin(self.state.best_loss))
            self.state = jax.tree.map(lambda leaf: leaf[leader : leader + 1], self.state)

    def _patience_is_over(self) -> bool:
        over = np.asarray(self.state.dead)
        if self.settings.patience is not None:
            stale_epochs = np.asarray(self.state.stale_chunks) * self.epochs_per_chunk
            over = over | (stale_epochs >= self.settings.patience)
        return bool(over.all())

    def _by_restart(self, values: Array) -> NDArray[np.floating]:
        row = np.full(self.settings.n_restarts, np.nan)
        row[np.asarray(self.state.number)] = np.asarray(values)
        return row

    def _epochs_done(self) -> int:
        return min(self.chunks_done * self.epochs_per_chunk, self.settings.max_epochs)

    def _outcome(self, stopped: Literal["early", "max_epochs", "interrupted"]) -> Training:
        best = int(jnp.argmin(self.state.best_loss))
        number = int(self.state.number[best])
        weights = _unflatten(self.objective, self.state.best_weights[best])
        chunks = np.arange(1, self.chunks_done + 1)
        return Training(
            params=jax.tree.map(np.asarray, weights),
            loss=float(self.state.best_loss[best]),
            history={
                "epoch": np.minimum(chunks * self.epochs_per_chunk, self.settings.max_epochs),
                "train_loss": np.array(self.train_losses)[:, number],
                "validation_loss": np.array(self.held_out_losses)[:, number],
                "restart_loss": self.restart_loss,
            },
            stopped=stopped,
            skipped_steps=int(self.state.skipped.sum()),
            retried=len(self.retried),
        )


class _Checkpoint:
    """The state of a run on disk, with a fingerprint of all that determines its bits."""

    seconds_between_saves = 10.0

    def __init__(self, path: Path, run: _Run, data: PyTree[NDArray[Any]]) -> None:
        self.path = path
        self.run = run
        self.fingerprint = _fingerprint(run, data)
        self.saved_at = time.monotonic()

    def save_now_and_then(self) -> None:
        if time.monotonic() - self.saved_at >= self.seconds_between_saves:
            self.save()

    def save(self) -> None:
        run = self.run
        write_record(
            self.path,
            kind="checkpoint",
            record={
                "fingerprint": self.fingerprint,
                "chunks_done": run.chunks_done,
                "state": [np.asarray(leaf) for leaf in jax.tree.leaves(run.state)],
                "train_losses": run.train_losses,
                "held_out_losses": run.held_out_losses,
                "restart_loss": run.restart_loss,
                "retried": sorted(run.retried),
            },
        )
        self.saved_at = time.monotonic()

    def resume(self) -> None:
        if not self.path.exists():
            return
        record = read_record(self.path, kind="checkpoint")
        if record["fingerprint"] != self.fingerprint:
            raise CorruptFileError(
                f"The checkpoint {self.path} belongs to another run: the data, the settings, the "
                "seed or the device differ. Name another file, or delete it to start anew."
            )
        run = self.run
        leaves, structure = jax.tree.flatten(run.state)
        arrays = [
            jnp.asarray(saved, dtype=leaf.dtype)
            for leaf, saved in zip(leaves, record["state"], strict=True)
        ]
        run.state = jax.tree.unflatten(structure, arrays)
        run.chunks_done = record["chunks_done"]
        run.train_losses = list(record["train_losses"])
        run.held_out_losses = list(record["held_out_losses"])
        run.restart_loss = np.array(record["restart_loss"])
        run.retried = set(record["retried"])


def _fingerprint(run: _Run, data: PyTree[NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    config = replace(get_config(), progress=False, compile_cache=None)
    for part in (run.objective, asdict(run.settings), run.seed, config, jax.default_backend()):
        digest.update(repr(part).encode())
    for array in jax.tree.leaves(data):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@partial(jax.jit, static_argnames=("objective", "plan"))
def _run_chunk(
    objective: Objective,
    plan: _Plan,
    state: _State,
    training_rows: Batch,
    held_out_rows: Batch | None,
    minibatches: Int[Array, "steps batch"],
    key: PRNGKeyArray,
    held_out_key: PRNGKeyArray,
) -> tuple[_State, Float[Array, " restarts"], Float[Array, " restarts"]]:
    """Advance every restart by one step a minibatch."""

    def advance(restart: _State) -> tuple[_State, Float[Array, ""], Float[Array, ""]]:
        # The key follows the number of the restart: it does not matter who runs beside it.
        own_key = jax.random.fold_in(key, restart.number)
        return _advance_one_restart(
            objective,
            plan,
            restart,
            training_rows,
            held_out_rows,
            minibatches,
            own_key,
            held_out_key,
        )

    if len(state.number) > 1:
        return jax.vmap(advance)(state)
    # Matrix products without a batch axis of length one are faster.
    return jax.tree.map(lambda x: x[None], advance(jax.tree.map(lambda x: x[0], state)))


def _advance_one_restart(
    objective: Objective,
    plan: _Plan,
    state: _State,
    training_rows: Batch,
    held_out_rows: Batch | None,
    minibatches: Int[Array, "steps batch"],
    key: PRNGKeyArray,
    held_out_key: PRNGKeyArray,
) -> tuple[_State, Float[Array, ""], Float[Array, ""]]:
    """Take one step a minibatch, then look at the held-out loss and keep the best weights."""

    def step(state: _State, rows_and_key: tuple[Array, PRNGKeyArray]) -> tuple[_State, Array]:
        rows, step_key = rows_and_key
        batch = jax.tree.map(lambda array: array[rows], training_rows)
        return _step(objective, plan, state, batch, step_key)

    keys = jax.random.split(key, len(minibatches))
    state, losses = jax.lax.scan(step, state, (minibatches, keys))
    train_loss = jnp.nanmean(jnp.where(jnp.isfinite(losses), losses, jnp.nan))

    if held_out_rows is None:
        held_out_loss = train_loss
    else:
        params = _unflatten(objective, state.weights)
        held_out_loss = objective.loss(params, held_out_rows, held_out_key, jnp.asarray(1.0))
    improved = held_out_loss < state.best_loss
    state = state._replace(
        best_weights=jnp.where(improved, state.weights, state.best_weights),
        best_loss=jnp.where(improved, held_out_loss, state.best_loss),
        stale_chunks=jnp.where(improved, 0, state.stale_chunks + 1),
    )
    return state, train_loss, held_out_loss


def _step(
    objective: Objective, plan: _Plan, state: _State, batch: Batch, key: PRNGKeyArray
) -> tuple[_State, Float[Array, ""]]:
    """One step of one restart; left out if the loss or its gradient is not finite."""
    progress = _steps_taken(state.optimizer) / plan.total_steps
    loss, tree_gradient = jax.value_and_grad(objective.loss)(
        _unflatten(objective, state.weights), batch, key, progress
    )
    gradient = _flatten(tree_gradient)
    update, optimizer = _optimizer(plan).update(gradient, state.optimizer, state.weights)
    finite = jnp.isfinite(loss) & jnp.isfinite(gradient).all()
    keep = partial(jnp.where, finite)
    weights = keep(state.weights + state.step_scale * jnp.asarray(update), state.weights)
    state = state._replace(
        weights=weights,
        optimizer=jax.tree.map(keep, optimizer, state.optimizer),
        skipped=state.skipped + ~finite,
    )
    return state, loss


def _optimizer(plan: _Plan) -> optax.GradientTransformation:
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


@partial(jax.jit, static_argnames=("objective",))
def _draw_weights(
    objective: Objective, keys: Key[Array, " restarts"]
) -> Float[Array, "restarts weights"]:
    return jax.vmap(lambda key: _flatten(objective.init(key)))(keys)


def _flatten(tree: Params) -> Float[Array, " weights"]:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])


def _unflatten(objective: Objective, weights: Float[Array, " weights"]) -> Params:
    leaves, structure = jax.tree.flatten(jax.eval_shape(objective.init, jax.random.key(0)))
    ends = np.cumsum([leaf.size for leaf in leaves])
    pieces = jnp.split(weights, ends[:-1])
    return structure.unflatten(
        piece.reshape(leaf.shape) for piece, leaf in zip(pieces, leaves, strict=True)
    )


def _where_rows(mask: Bool[Array, " rows"], yes: Array, no: Array) -> Array:
    return jnp.where(mask.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)


def _n_rows(data: PyTree[Any]) -> int:
    return len(jax.tree.leaves(data)[0])


def _split(
    data: PyTree[NDArray[Any]], held_out_fraction: float, seed: int
) -> tuple[Batch, Batch | None]:
    n_rows = _n_rows(data)
    n_held_out = min(int(held_out_fraction * n_rows), _MOST_HELD_OUT_ROWS)
    order = np.random.default_rng(seed).permutation(n_rows)
    take = lambda rows: jax.tree.map(lambda array: jnp.asarray(array[rows]), data)  # noqa: E731
    if n_held_out == 0:
        return take(order), None
    return take(order[n_held_out:]), take(order[:n_held_out])
