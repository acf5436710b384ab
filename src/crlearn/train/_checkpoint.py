"""The progress of a run on disk, with a fingerprint of all that determines its bits."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import NDArray

from crlearn.config import get_config
from crlearn.exceptions import CorruptFileError
from crlearn.persist import read_record, write_record
from crlearn.result import installed_versions
from crlearn.train._chunk import Left, State

_Tree = TypeVar("_Tree", State, Left)


class Progress(NamedTuple):
    """How far a run has come; replaced as a whole, so that an interrupt never sees half a chunk.

    Attributes
    ----------
    state
        The restarts that still run.
    training_losses, held_out_losses
        One array a chunk, one entry a restart; not a number once a restart has left the race.
    restart_loss
        Best held-out loss of every restart.
    retried
        Numbers of the restarts that diverged and were run again.
    left
        The restarts that lost the race; None before its end.
    """

    state: State
    training_losses: tuple[NDArray[np.floating], ...]
    held_out_losses: tuple[NDArray[np.floating], ...]
    restart_loss: NDArray[np.floating]
    retried: frozenset[int] = frozenset()
    left: Left | None = None

    @property
    def chunks_done(self) -> int:
        """Number of chunks behind us."""
        return len(self.held_out_losses)


def fingerprint(*parts: Any, data: PyTree[NDArray[Any] | jax.Array]) -> str:
    """Hash what determines the bits of a run: its parts, data, precision, device and versions."""
    digest = hashlib.sha256()
    config = replace(get_config(), progress=False, compile_cache=None)
    for part in (*parts, config, jax.default_backend(), installed_versions()):
        digest.update(repr(part).encode())
    for array in jax.tree.leaves(data):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class Checkpoint:
    """A file that holds the progress of one run."""

    seconds_between_saves = 10.0

    def __init__(self, path: str | Path, fingerprint: str) -> None:
        self.path = Path(path)
        self.fingerprint = fingerprint
        self.saved_at = time.monotonic()

    def save_now_and_then(self, progress: Progress) -> None:
        """Save if the last time is some seconds ago."""
        if time.monotonic() - self.saved_at >= self.seconds_between_saves:
            self.save(progress)

    def save(self, progress: Progress) -> None:
        """Write the progress; the file changes as a whole or not at all."""
        write_record(
            self.path,
            kind="checkpoint",
            record={
                "fingerprint": self.fingerprint,
                "state": jax.tree.leaves(progress.state),
                "training_losses": progress.training_losses,
                "held_out_losses": progress.held_out_losses,
                "restart_loss": progress.restart_loss,
                "retried": sorted(progress.retried),
                "left": jax.tree.leaves(progress.left),
            },
        )
        self.saved_at = time.monotonic()

    def resume(self, start: Progress) -> Progress:
        """Return the progress in the file, or `start` if there is none yet."""
        if not self.path.exists():
            return start
        record = read_record(self.path, kind="checkpoint")
        if record.get("fingerprint") != self.fingerprint:
            raise CorruptFileError(
                f"The checkpoint {self.path} belongs to another run: the data, the settings, the "
                "seed, the device or the versions differ. Name another file, or delete it to "
                "start anew."
            )
        left = Left.of(start.state, np.arange(0))
        return Progress(
            _filled(start.state, record["state"]),
            record["training_losses"],
            record["held_out_losses"],
            record["restart_loss"],
            frozenset(record["retried"]),
            _filled(left, record["left"]) if record["left"] else None,
        )


def _filled(form: _Tree, arrays: list[NDArray[Any]]) -> _Tree:
    """Return saved arrays in a form whose leaves have their number types."""
    leaves, structure = jax.tree.flatten(form)
    saved = [np.asarray(new, dtype=leaf.dtype) for leaf, new in zip(leaves, arrays, strict=True)]
    return jax.tree.unflatten(structure, saved)
