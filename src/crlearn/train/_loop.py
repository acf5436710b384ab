"""The loop around the compiled chunks.

It advances in *chunks*: whole epochs of minibatch steps in one compiled call. Between two chunks
Python looks at the held-out losses, moves the progress bar and writes the checkpoint, so that an
interrupt loses at most the chunk in flight.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree
from numpy.typing import NDArray

from crlearn.config import numerics
from crlearn.exceptions import DivergenceError
from crlearn.progress import progress_bar
from crlearn.result import Check
from crlearn.train import _chunk
from crlearn.train._checkpoint import Checkpoint, Progress, fingerprint
from crlearn.train._chunk import Batch, Feed, Left, Objective, Plan, Revising, State

_FEWEST_STEPS_IN_A_CHUNK = 20
_MOST_HELD_OUT_ROWS = 10_000
_MOST_ROWS_TO_LOOK_AT = 4000  # of an objective that revises what is not trained
_RETRY_STEP = 0.1  # a diverged restart is run again with this share of its learning rate

EndOfTraining = Literal["early", "max_epochs", "interrupted"]


@dataclass(frozen=True)
class Settings:
    """How an objective is trained.

    Attributes
    ----------
    max_epochs
        Most passes over the training rows; few rows are passed over several times in a chunk, and
        the last chunk is a whole one.
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
        Best weights of the best restart, as numpy arrays; leaves that are no arrays are as drawn.
    loss
        Their held-out loss.
    history
        ``epoch``, ``train_loss`` and ``validation_loss`` of that restart, one entry a chunk, and
        ``restart_loss``: the best held-out loss of every restart.
    stopped
        Why it ended: ``"early"`` (held-out loss stalled), ``"max_epochs"`` or ``"interrupted"``.
    skipped_steps
        Steps of that restart left out because the loss or its gradient was not finite.
    retried
        Number of restarts that diverged and were run again with a smaller step.
    runners_up
        Best weights of the other restarts, the best first: those at the end of the race, where they
        were left. Restarts that diverged are not among them.
    agreements, gaps
        Of these, if they were `compared`: how much the answers of the first of them are like that
        of this restart, and by how much the held-out loss of each is larger.
    """

    params: PyTree[Any]
    loss: float
    history: dict[str, NDArray[Any]]
    stopped: EndOfTraining
    skipped_steps: int
    retried: int
    runners_up: tuple[PyTree[Any], ...] = ()
    agreements: tuple[float, ...] = ()
    gaps: tuple[float, ...] = ()


def train(
    objective: Objective,
    data: PyTree[NDArray[Any]],
    settings: Settings,
    *,
    seed: int,
    held_out: PyTree[NDArray[Any]] | None = None,
    start: PyTree[Any] | list[PyTree[Any]] | None = None,
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
    held_out
        Rows held out, in the place of a share of `data`.
    start
        Parameters to start from, in the place of those that the objective draws: for all
        restarts, or a list of some, which restarts take in turn.
    checkpoint
        File in which the progress is kept. If it exists, training goes on from there, to the same
        bits as without the interruption; it must come from the same data, objective and settings.
    description
        Text beside the progress bar.
    after_chunk
        Called with the number of chunks done, after each.
    """
    with numerics():
        run = _Run(objective, data, settings, seed, held_out, start)
        file = None
        if checkpoint is not None:
            everything = [part for part in (data, held_out, start) if part is not None]
            file = Checkpoint(checkpoint, fingerprint(objective, settings, seed, data=everything))
        return run.to_the_end(description, file, after_chunk)


def compared(
    training: Training, agreement: Callable[[Any, Any], float], enough: float = np.inf
) -> Training:
    """Return a training with what its other restarts say of the answer.

    Parameters
    ----------
    training
        All of whose restarts were trained to the end.
    agreement
        Of the answer's parameters with those of another restart.
    enough
        After a restart that agrees so well, no more are compared.
    """
    others = training.runners_up
    losses = np.sort(training.history["restart_loss"])[1 : 1 + len(others)]
    agreements: list[float] = []
    for other in others:
        agreements.append(agreement(training.params, other))
        if agreements[-1] >= enough:
            break
    return replace(
        training,
        agreements=tuple(agreements),
        gaps=tuple(float(loss - training.loss) for loss in losses),
    )


def finite_check(training: Training) -> Check:
    """Check that no restart diverged and that no step of the answer was left out."""
    return Check(
        "training stayed finite",
        training.retried == 0 and training.skipped_steps == 0,
        f"{training.retried} restarts diverged and were run again with a smaller step, "
        f"{training.skipped_steps} steps were left out",
    )


class _Run:
    """One training: what stays the same between its first chunk and its last."""

    def __init__(
        self,
        objective: Objective,
        data: PyTree[NDArray[Any]],
        settings: Settings,
        seed: int,
        held_out: PyTree[NDArray[Any]] | None,
        first: PyTree[Any] | None,
    ) -> None:
        self.objective = objective
        self.first = first
        self.settings = settings
        self.seed = seed
        keys = jax.random.split(jax.random.key(seed), 3)
        self.draw_key, self.step_key, self.held_out_key = keys
        share = settings.validation_fraction if held_out is None else 0.0
        self.training_rows, self.held_out_rows = _split(data, share, seed)
        if held_out is not None:
            self.held_out_rows = jax.tree.map(jnp.asarray, held_out)
        self.n_rows = _n_rows(self.training_rows)
        self._rows_to_look_at = jax.tree.map(
            lambda a: a[:_MOST_ROWS_TO_LOOK_AT], self.training_rows
        )
        self.batch_size = min(settings.batch_size, self.n_rows)
        self.steps_per_epoch = self.n_rows // self.batch_size
        epochs_per_chunk = math.ceil(_FEWEST_STEPS_IN_A_CHUNK / self.steps_per_epoch)
        self.epochs_per_chunk = min(epochs_per_chunk, settings.max_epochs)
        self.n_chunks = math.ceil(settings.max_epochs / self.epochs_per_chunk)
        self.steps_per_chunk = self.epochs_per_chunk * self.steps_per_epoch
        self.plan = Plan(
            settings.learning_rate, settings.clip_norm, self.n_chunks * self.steps_per_chunk
        )

    def to_the_end(
        self,
        description: str,
        checkpoint: Checkpoint | None,
        after_chunk: Callable[[int], None] | None,
    ) -> Training:
        """Run chunk after chunk until patience, epochs or the user put an end to it."""
        progress = self.start()
        if checkpoint is not None:
            progress = checkpoint.resume(progress)
        stopped: EndOfTraining = "max_epochs"
        with progress_bar(description, self.n_chunks, progress.chunks_done) as show:
            try:
                while progress.chunks_done < self.n_chunks:
                    if self._patience_is_over(progress.state):
                        stopped = "early"
                        break
                    progress = self.advance(progress)
                    show(f"held-out loss {progress.state.best_loss.min():.4g}")
                    if checkpoint is not None:
                        checkpoint.save_now_and_then(progress)
                    if after_chunk is not None:
                        after_chunk(progress.chunks_done)
            except KeyboardInterrupt:
                if progress.chunks_done == 0:
                    raise
                stopped = "interrupted"
                warnings.warn(
                    f"Training was interrupted after {self._epochs(progress.chunks_done)} of "
                    f"{self.settings.max_epochs} epochs; the best weights so far are kept.",
                    UserWarning,
                    stacklevel=4,
                )
        if checkpoint is not None:
            checkpoint.save(progress)
        return self._outcome(progress, stopped)

    def start(self) -> Progress:
        """Return the progress before the first chunk."""
        return Progress(
            self._fresh_state(), (), (), np.full(self.settings.n_restarts, np.inf), frozenset()
        )

    def advance(self, before: Progress) -> Progress:
        """Return the progress one chunk later."""
        before = before._replace(state=self._revised(before))
        feed = Feed(
            self.training_rows,
            self.held_out_rows,
            self._minibatches(before.chunks_done),
            jax.random.fold_in(self.step_key, before.chunks_done),
            self.held_out_key,
        )
        # Between chunks all is numpy: JAX would compile every little step for itself.
        state, losses = jax.device_get(
            _chunk.run_chunk(self.objective, self.plan, before.state, feed)
        )
        all_skipped = state.skipped - before.state.skipped == self.steps_per_chunk
        diverged = ~np.isfinite(losses.held_out) | all_skipped
        state, retried = self._retry_diverged(state, diverged, before.retried)
        numbers = np.asarray(state.number)
        restart_loss = before.restart_loss.copy()
        restart_loss[numbers] = state.best_loss
        after = Progress(
            state,
            (*before.training_losses, self._by_restart(numbers, losses.training)),
            (*before.held_out_losses, self._by_restart(numbers, losses.held_out)),
            restart_loss,
            retried,
            before.left,
        )
        return self._without_the_losers_of_the_race(after)

    def _revised(self, progress: Progress) -> State:
        """Let the objective revise what is not trained; losses from before do not count."""
        state = progress.state
        if not isinstance(self.objective, Revising):
            return state
        share = progress.chunks_done / self.n_chunks
        for row in range(len(state.number)):
            params = self._params(state, row)
            revised = self.objective.revise(params, self._rows_to_look_at, share)
            if revised is not None:
                state = _chunk.with_fixed(state, row, revised)
        return state

    def _fresh_state(self) -> State:
        n_restarts = self.settings.n_restarts
        if self.first is not None:
            starts = self.first if isinstance(self.first, list) else [self.first]
            state = _chunk.starting_at(self.objective, starts, n_restarts)
        else:
            keys = jax.random.split(self.draw_key, n_restarts)
            state = _chunk.fresh_state(self.objective, keys)
        return jax.device_get(state)

    def _minibatches(self, chunk: int) -> Int[Array, "steps batch"]:
        """Row numbers of a chunk's batches: each epoch is a fresh permutation of the rows."""
        rng = np.random.default_rng((self.seed, chunk))
        used = self.steps_per_epoch * self.batch_size
        epochs = [rng.permutation(self.n_rows)[:used] for _ in range(self.epochs_per_chunk)]
        return jnp.asarray(np.concatenate(epochs).reshape(-1, self.batch_size).astype(np.int32))

    def _retry_diverged(
        self, state: State, diverged: NDArray[np.bool_], retried: frozenset[int]
    ) -> tuple[State, frozenset[int]]:
        """Start a diverged restart anew with a smaller step; if it diverges again, give it up."""
        diverged = diverged & ~state.dead
        if not diverged.any():
            return state, retried
        numbers = state.number
        again = diverged & np.isin(numbers, list(retried))
        first_time = diverged & ~again
        fresh = jax.tree.map(lambda leaf: leaf[numbers], self._fresh_state())
        fresh = fresh._replace(
            step_scale=np.full_like(state.step_scale, _RETRY_STEP),
            skipped=state.skipped,
            best_weights=state.best_weights,
            best_loss=state.best_loss,
        )
        state = jax.tree.map(partial(_where_rows, first_time), fresh, state)
        state = state._replace(dead=state.dead | again)
        return state, retried | {int(number) for number in numbers[first_time]}

    def _without_the_losers_of_the_race(self, progress: Progress) -> Progress:
        is_over = progress.chunks_done >= self.settings.race * self.n_chunks
        if not is_over or len(progress.state.number) == 1:
            return progress
        leader = int(np.argmin(progress.state.best_loss))
        alone = jax.tree.map(lambda leaf: leaf[leader : leader + 1], progress.state)
        others = np.delete(np.arange(len(progress.state.number)), leader)
        return progress._replace(state=alone, left=Left.of(progress.state, others))

    def _patience_is_over(self, state: State) -> bool:
        over = state.dead
        if self.settings.patience is not None:
            stale_epochs = self._epochs(state.stale_chunks)
            over = over | (stale_epochs >= self.settings.patience)
        return bool(over.all())

    def _epochs(self, chunks: Any) -> Any:
        return chunks * self.epochs_per_chunk

    def _by_restart(self, numbers: NDArray[Any], losses: NDArray[Any]) -> NDArray[np.floating]:
        row = np.full(self.settings.n_restarts, np.nan)
        row[numbers] = losses
        return row

    def _outcome(self, progress: Progress, stopped: EndOfTraining) -> Training:
        state = progress.state
        best = int(np.argmin(state.best_loss))
        number = int(state.number[best])
        if not np.isfinite(state.best_loss[best]):
            raise DivergenceError(
                "Training diverged: the loss was not finite, also after starting again with "
                f"{_RETRY_STEP} of learning_rate={self.settings.learning_rate:g}. "
                "Give a smaller learning_rate, and check X for extreme values."
            )
        at_the_end = Left.of(state, np.arange(len(state.number)))
        return Training(
            params=self._params(at_the_end, best),
            loss=float(state.best_loss[best]),
            history={
                "epoch": self._epochs(np.arange(1, progress.chunks_done + 1)),
                "train_loss": np.array(progress.training_losses)[:, number],
                "validation_loss": np.array(progress.held_out_losses)[:, number],
                "restart_loss": progress.restart_loss,
            },
            stopped=stopped,
            skipped_steps=int(state.skipped[best]),
            retried=len(progress.retried),
            runners_up=self._runners_up(at_the_end, best) or self._runners_up(progress.left),
        )

    def _runners_up(self, left: Left | None, winner: int | None = None) -> tuple[PyTree[Any], ...]:
        """Return the weights of all restarts but the winner whose loss is finite, best first."""
        if left is None:
            return ()
        rows = [row for row in np.argsort(left.loss).tolist() if np.isfinite(left.loss[row])]
        return tuple(self._params(left, row) for row in rows if row != winner)

    def _params(self, restarts: State | Left, row: int) -> PyTree[Any]:
        """Return the parameters of a restart, in arrays of numpy."""
        pair = restarts.weights, restarts.fixed
        alone = jax.tree.map(lambda leaf: np.asarray(leaf[row]), pair)
        return _chunk.put_together(self.objective, *alone)


def _where_rows(mask: NDArray[np.bool_], yes: NDArray[Any], no: NDArray[Any]) -> NDArray[Any]:
    return np.where(mask.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)


def _n_rows(data: PyTree[Any]) -> int:
    return len(jax.tree.leaves(data)[0])


def _split(
    data: PyTree[NDArray[Any]], held_out_fraction: float, seed: int
) -> tuple[Batch, Batch | None]:
    n_rows = _n_rows(data)
    n_held_out = min(int(held_out_fraction * n_rows), _MOST_HELD_OUT_ROWS)
    order = np.random.default_rng(seed).permutation(n_rows)

    def take(rows: NDArray[np.intp]) -> Batch:
        return jax.tree.map(lambda array: jnp.asarray(array[rows]), data)

    if n_held_out == 0:
        return take(order), None
    return take(order[n_held_out:]), take(order[:n_held_out])
