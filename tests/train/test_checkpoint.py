from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from crlearn.config import config_context
from crlearn.exceptions import CorruptFileError
from crlearn.train._checkpoint import Checkpoint, Progress, fingerprint
from crlearn.train._chunk import State

DATA = (np.arange(6.0).reshape(3, 2), np.arange(3))


def progress(value: float) -> Progress:
    state = State(
        weights=(jnp.full((1, 2), value), jnp.full((1, 3), value, jnp.bfloat16)),
        fixed={"order": jnp.array([[2, 0, 1]]), "nothing": None},
        optimizer=optax.EmptyState(),
        best_weights=(jnp.zeros((1, 2)), jnp.zeros((1, 3), jnp.bfloat16)),
        best_loss=jnp.array([value]),
        stale_chunks=jnp.array([3]),
        step_scale=jnp.ones(1),
        skipped=jnp.zeros(1, int),
        dead=jnp.zeros(1, bool),
        number=jnp.zeros(1, int),
    )
    losses = (np.array([value]),)
    return Progress(state, losses, losses, np.array([value]), frozenset({0}))


def test_progress_comes_back_with_its_number_types(tmp_path: Path):
    file = Checkpoint(tmp_path / "state.crl", "abc")
    file.save(progress(1.5))
    found, wanted = file.resume(progress(0.0)), progress(1.5)
    jax.tree.map(np.testing.assert_array_equal, found.state, wanted.state)
    types = lambda state: [leaf.dtype for leaf in jax.tree.leaves(state)]  # noqa: E731
    assert types(found.state) == types(wanted.state)
    assert found.chunks_done == 1
    assert found.retried == {0}


def test_without_a_file_it_begins_at_the_start(tmp_path: Path):
    start = progress(0.0)
    assert Checkpoint(tmp_path / "state.crl", "abc").resume(start) is start


def test_the_file_of_another_run_is_refused(tmp_path: Path):
    Checkpoint(tmp_path / "state.crl", "abc").save(progress(1.5))
    with pytest.raises(CorruptFileError, match="belongs to another run"):
        Checkpoint(tmp_path / "state.crl", "abd").resume(progress(0.0))


def test_it_is_saved_now_and_then(tmp_path: Path):
    file = Checkpoint(tmp_path / "state.crl", "abc")
    file.save_now_and_then(progress(1.0))
    assert not file.path.exists()
    file.saved_at -= 2 * file.seconds_between_saves
    file.save_now_and_then(progress(1.0))
    assert file.path.exists()


def changed(array: Any) -> Any:
    array = array.copy()
    array.flat[0] += 1
    return array


def test_a_fingerprint_tells_runs_apart():
    same = fingerprint("objective", 3, data=DATA)
    assert fingerprint("objective", 3, data=DATA) == same
    assert fingerprint("objective", 4, data=DATA) != same
    assert fingerprint("objective", 3, data=(changed(DATA[0]), DATA[1])) != same
    with config_context(precision="float64"):
        assert fingerprint("objective", 3, data=DATA) != same
    with config_context(progress=False):
        assert fingerprint("objective", 3, data=DATA) == same
