from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.config import config_context
from crlearn.exceptions import CorruptFileError, DivergenceError
from crlearn.train import Settings, Training, compared, finite_check, train

SETTINGS = Settings(
    max_epochs=12, batch_size=32, learning_rate=0.05, patience=None, validation_fraction=0.2
)


@dataclass(frozen=True)
class Regression:
    """Least squares: the simplest objective with a known answer."""

    n_inputs: int = 3

    def init(self, key: Any) -> dict[str, Any]:
        return {"slope": jax.random.normal(key, (self.n_inputs,)), "offset": jnp.zeros(())}

    def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
        x, y = batch
        return ((x @ params["slope"] + params["offset"] - y) ** 2).mean()


@dataclass(frozen=True)
class Exploding(Regression):
    """Not finite for every batch that holds a row above a level."""

    level: float = 0.0

    def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
        explosion = jnp.where(batch[0].max() > self.level, jnp.nan, 0.0)
        return super().loss(params, batch, key, progress) + explosion * params["slope"].sum()


@dataclass(frozen=True)
class Progress(Regression):
    """Its loss is the progress itself, so that the training curve shows it."""

    def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
        return progress + 0.0 * params["slope"].sum()


@dataclass(frozen=True)
class TwoValleys(Regression):
    """Valleys of different depth; the start decides which one is found."""

    def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
        slope = params["slope"][0]
        return (slope**2 - 1) ** 2 + 0.3 * slope + 0.0 * batch[0].sum()


def regression_data(n_rows: int = 500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, 3)).astype(np.float32)
    y = x @ np.array([1.0, -2.0, 0.5], np.float32) + 3
    return x, y.astype(np.float32)


def assert_same_bits(first: Any, second: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_finds_the_least_squares_solution():
    settings = replace(SETTINGS, max_epochs=60)
    training = train(Regression(), regression_data(), settings, seed=0)
    np.testing.assert_allclose(training.params["slope"], [1, -2, 0.5], atol=1e-3)
    np.testing.assert_allclose(training.params["offset"], 3, atol=1e-3)
    assert training.stopped == "max_epochs"
    assert training.loss < 1e-5


def test_same_seed_same_bits_and_other_seed_other_bits():
    first = train(Regression(), regression_data(), SETTINGS, seed=1)
    second = train(Regression(), regression_data(), SETTINGS, seed=1)
    other = train(Regression(), regression_data(), SETTINGS, seed=2)
    assert_same_bits(first.params, second.params)
    assert_same_bits(first.history, second.history)
    assert not np.array_equal(first.params["slope"], other.params["slope"])


def test_history_has_one_entry_a_chunk_and_counts_epochs():
    history = train(Regression(), regression_data(), SETTINGS, seed=0).history
    assert len(history["train_loss"]) == len(history["validation_loss"]) == len(history["epoch"])
    assert history["epoch"][-1] == SETTINGS.max_epochs
    assert history["validation_loss"][-1] < history["validation_loss"][0]


def test_progress_runs_from_zero_to_one():
    curve = train(Progress(), regression_data(), SETTINGS, seed=0).history["train_loss"]
    assert 0 <= curve[0] < 0.2
    assert 0.9 < curve[-1] < 1
    assert (np.diff(curve) > 0).all()


def test_stops_early_and_keeps_the_best_weights():
    settings = replace(SETTINGS, max_epochs=2000, patience=6)
    training = train(Regression(), regression_data(), settings, seed=0)
    assert training.stopped == "early"
    assert training.history["epoch"][-1] < 2000
    assert training.loss == training.history["validation_loss"].min().astype(np.float32)


def test_without_held_out_rows_the_training_loss_decides():
    settings = replace(SETTINGS, validation_fraction=0.0)
    history = train(Regression(), regression_data(), settings, seed=0).history
    np.testing.assert_array_equal(history["train_loss"], history["validation_loss"])


def test_fewer_rows_than_a_batch():
    settings = replace(SETTINGS, batch_size=10_000, max_epochs=50)
    training = train(Regression(), regression_data(20), settings, seed=0)
    assert 50 <= training.history["epoch"][-1] < 70  # whole chunks
    assert training.loss < training.history["validation_loss"][0]


@pytest.mark.parametrize("race", [0.2, 1.0])
def test_the_best_restart_is_kept(race: float):
    settings = replace(SETTINGS, n_restarts=8, race=race, max_epochs=20)
    training = train(TwoValleys(), regression_data(100), settings, seed=3)
    assert training.params["slope"][0] < 0  # the deeper valley
    assert len(training.history["restart_loss"]) == 8
    assert training.loss == pytest.approx(training.history["restart_loss"].min())


@pytest.mark.parametrize("race", [0.2, 1.0])
def test_the_other_restarts_come_back_best_first(race: float):
    settings = replace(SETTINGS, n_restarts=8, race=race, max_epochs=20)
    training = train(TwoValleys(), regression_data(100), settings, seed=3)
    slopes = [params["slope"][0] for params in training.runners_up]
    assert len(slopes) == 7
    assert training.params["slope"][0] not in slopes
    deep = [slope < 0 for slope in slopes]
    assert deep == sorted(deep, reverse=True)  # those in the deeper valley come first
    assert any(deep)
    assert not all(deep)


@pytest.mark.parametrize(("skipped", "retried"), [(0, 0), (2, 0), (0, 1)])
def test_what_was_not_finite_is_said(skipped: int, retried: int):
    check = finite_check(Training(None, 1.0, {}, "max_epochs", skipped, retried))
    assert check.passed == (skipped == retried == 0)
    assert f"{retried} restarts diverged" in check.detail
    assert f"{skipped} steps were left out" in check.detail


def test_restarts_are_compared_with_the_answer():
    settings = replace(SETTINGS, n_restarts=4, race=1.0, max_epochs=20)
    training = train(TwoValleys(), regression_data(100), settings, seed=3)
    found = compared(training, lambda one, other: float(one["slope"][0] * other["slope"][0]))
    slope = training.params["slope"][0]
    assert found.agreements == tuple(
        float(slope * params["slope"][0]) for params in training.runners_up
    )
    losses = sorted(training.history["restart_loss"])
    assert found.gaps == pytest.approx([loss - losses[0] for loss in losses[1:]])


def test_no_more_restarts_are_compared_than_it_takes():
    settings = replace(SETTINGS, n_restarts=4, race=1.0, max_epochs=20)
    training = train(Regression(), regression_data(100), settings, seed=3)
    found = compared(training, lambda one, other: 0.5, enough=0.5)
    assert found.agreements == (0.5,)
    assert len(found.gaps) == 3
    assert len(compared(training, lambda one, other: 0.5, enough=0.6).agreements) == 3


def test_one_restart_has_no_other():
    assert train(Regression(), regression_data(), SETTINGS, seed=0).runners_up == ()


def test_racing_does_not_change_the_course_of_the_leader():
    settings = replace(SETTINGS, n_restarts=4, race=1.0)
    to_the_end = train(Regression(), regression_data(), settings, seed=0)
    raced = train(Regression(), regression_data(), replace(settings, race=0.3), seed=0)
    leader = int(raced.history["restart_loss"].argmin())
    np.testing.assert_allclose(
        raced.history["restart_loss"][leader],
        to_the_end.history["restart_loss"][leader],
        rtol=1e-3,
    )


def test_steps_that_are_not_finite_are_left_out():
    x, y = regression_data()
    level = float(np.sort(x.max(axis=1))[-2])  # one row explodes, so one batch an epoch does
    settings = replace(SETTINGS, validation_fraction=0.0)
    training = train(Exploding(level=level), (x, y), settings, seed=0)
    assert training.skipped_steps == SETTINGS.max_epochs
    assert np.isfinite(training.params["slope"]).all()


def test_divergence_is_retried_once_and_then_reported():
    x, y = regression_data()
    with pytest.raises(DivergenceError, match=r"smaller learning_rate"):
        train(Exploding(level=-np.inf), (x, y), SETTINGS, seed=0)


def test_divergence_in_the_only_chunk_is_reported():
    settings = replace(SETTINGS, max_epochs=1)
    with pytest.raises(DivergenceError, match="not finite"):
        train(Exploding(level=-np.inf), regression_data(), settings, seed=0)


def test_a_retry_keeps_the_best_weights_found_before():
    @dataclass(frozen=True)
    class BreaksLate(Regression):
        def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
            broken = jnp.where((progress > 0.5) & (progress < 1), jnp.nan, 0.0)
            return super().loss(params, batch, key, progress) + broken * params["slope"].sum()

    training = train(BreaksLate(), regression_data(), SETTINGS, seed=0)
    assert training.retried == 1
    assert training.loss == pytest.approx(training.history["restart_loss"].min())
    assert training.loss <= np.nanmin(training.history["validation_loss"]) + 1e-6


def test_a_diverged_restart_starts_again_with_a_smaller_step():
    @dataclass(frozen=True)
    class TooFast(Regression):
        def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
            far = jnp.abs(params["slope"]).max() > 20
            return super().loss(params, batch, key, progress) + jnp.where(far, jnp.nan, 0.0)

    settings = replace(SETTINGS, learning_rate=100.0, max_epochs=40)
    training = train(TooFast(), regression_data(), settings, seed=0)
    assert training.retried == 1
    assert np.isfinite(training.loss)


@dataclass(frozen=True)
class Shuffled(Regression):
    """Weights of two precisions, an order of the columns for each restart, and a name."""

    def init(self, key: Any) -> dict[str, Any]:
        return {
            "slope": jax.random.normal(key, (3,)).astype(jnp.bfloat16),
            "offset": jnp.zeros(()),
            "order": jax.random.permutation(key, 3),
            "name": "shuffled",
        }

    def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
        x, y = batch
        return super().loss(params, (x[:, params["order"]], y), key, progress)


def test_whole_numbers_names_and_precisions_come_back_as_drawn():
    settings = replace(SETTINGS, max_epochs=40, n_restarts=3, race=0.2)
    params = train(Shuffled(), regression_data(), settings, seed=0).params
    assert params["name"] == "shuffled"
    assert params["slope"].dtype == jnp.bfloat16
    assert params["offset"].dtype == np.float32
    assert sorted(params["order"]) == [0, 1, 2]
    wanted = np.array([1, -2, 0.5])[params["order"]]
    np.testing.assert_allclose(params["slope"].astype(float), wanted, atol=0.05)


def test_rows_held_out_by_the_caller():
    """They take the place of a share of the data, all of which is trained on."""
    x, y = regression_data()
    settings = replace(SETTINGS, max_epochs=60)
    training = train(Regression(), (x, y), settings, seed=0, held_out=(x[:50], y[:50] + 2))
    np.testing.assert_allclose(training.params["offset"], 3, atol=0.2)
    assert training.loss == pytest.approx(training.history["validation_loss"].min(), abs=1e-5)
    assert training.history["validation_loss"][-1] == pytest.approx(4, abs=0.2)  # of the shift
    assert training.history["train_loss"][-1] < 1e-3


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_start_takes_on_the_precision(precision: Any):
    """A start is often drawn, or fitted, before the training sets the precision."""
    start = {"slope": np.array([1.0, -2.0, 0.5], np.float32), "offset": np.float64(3.0)}
    with config_context(precision=precision):
        training = train(Regression(), regression_data(), SETTINGS, seed=0, start=start)
    assert training.params["slope"].dtype == training.params["offset"].dtype == precision


def test_a_start_of_ones_own():
    data, settings = regression_data(), replace(SETTINGS, n_restarts=2, race=1.0)
    start = {"slope": np.array([1.0, -2.0, 0.5], np.float32), "offset": np.float32(3.0)}
    training = train(Regression(), data, settings, seed=0, start=start)
    assert training.history["validation_loss"].max() < 0.1
    one, other = training.history["restart_loss"]
    assert one == pytest.approx(other)


def test_a_start_for_each_restart():
    data, settings = regression_data(), replace(SETTINGS, n_restarts=2, race=1.0)
    good = {"slope": np.array([1.0, -2.0, 0.5], np.float32), "offset": np.float32(3.0)}
    bad = {"slope": np.full(3, 50.0, np.float32), "offset": np.float32(-50.0)}
    training = train(Regression(), data, settings, seed=0, start=[bad, good])
    first, second = training.history["restart_loss"]
    assert second == training.loss < first


@dataclass(frozen=True)
class Switching(Regression):
    """One column counts at a time; which one is revised in the middle of the training."""

    def init(self, key: Any) -> dict[str, Any]:
        return {**super().init(key), "column": jnp.asarray(0)}

    def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
        x, y = batch
        chosen = x * (jnp.arange(3) == params["column"])
        return super().loss(params, (chosen, y), key, progress)

    def revise(self, params: Any, rows: Any, progress: float) -> Any:
        if not 0.3 < progress < 0.6:
            return None
        x, y = rows
        explained = [abs(np.corrcoef(column, y)[0, 1]) for column in np.asarray(x).T]
        return {**params, "column": jnp.asarray(int(np.argmax(explained)))}


def test_an_objective_revises_what_is_not_trained():
    settings = replace(SETTINGS, max_epochs=40, n_restarts=2, race=1.0)
    training = train(Switching(), regression_data(), settings, seed=0)
    assert training.params["column"] == 1  # the column with the largest slope
    assert [params["column"] for params in training.runners_up] == [1]
    assert training.params["slope"][1] == pytest.approx(-2, abs=0.2)
    # Losses from before the last revision do not count.
    epochs, losses = training.history["epoch"], training.history["validation_loss"]
    assert training.loss == pytest.approx(losses[epochs > 24].min(), rel=1e-4)
    best_before = losses[epochs < 12].min()
    assert training.loss < best_before


def test_a_revised_structure_is_in_the_checkpoint(tmp_path: Any):
    settings, path = replace(SETTINGS, max_epochs=40), tmp_path / "state.crl"

    def interrupt(done: int) -> None:
        if done == 12:
            raise KeyboardInterrupt

    data = regression_data()
    whole = train(Switching(), data, settings, seed=0)
    with pytest.warns(UserWarning, match="interrupted after"):
        train(Switching(), data, settings, seed=0, checkpoint=path, after_chunk=interrupt)
    resumed = train(Switching(), data, settings, seed=0, checkpoint=path)
    assert_same_bits(resumed.params, whole.params)


class TestCheckpoint:
    def interrupted_after(self, n_chunks: int, path: Any, settings: Settings) -> Any:
        def interrupt(done: int) -> None:
            if done == n_chunks:
                raise KeyboardInterrupt

        with pytest.warns(UserWarning, match="interrupted after"):
            return train(
                Regression(),
                regression_data(),
                settings,
                seed=0,
                checkpoint=path,
                after_chunk=interrupt,
            )

    @pytest.mark.parametrize("n_chunks", [1, 3, 5])
    @pytest.mark.parametrize("n_restarts", [1, 3])
    def test_resumes_to_the_same_bits(self, tmp_path: Any, n_chunks: int, n_restarts: int):
        settings = replace(SETTINGS, n_restarts=n_restarts, race=0.5)
        whole = train(Regression(), regression_data(), settings, seed=0)
        path = tmp_path / "state.crl"
        part = self.interrupted_after(n_chunks, path, settings)
        assert part.stopped == "interrupted"
        resumed = train(Regression(), regression_data(), settings, seed=0, checkpoint=path)
        assert_same_bits(resumed.params, whole.params)
        assert_same_bits(resumed.history, whole.history)
        assert_same_bits(resumed.runners_up, whole.runners_up)
        assert len(resumed.runners_up) == n_restarts - 1
        assert resumed.stopped == whole.stopped

    def test_resumes_with_leaves_of_any_type(self, tmp_path: Any):
        settings = replace(SETTINGS, n_restarts=2, race=0.5)

        def interrupt(done: int) -> None:
            if done == 2:
                raise KeyboardInterrupt

        data, path = regression_data(), tmp_path / "state.crl"
        whole = train(Shuffled(), data, settings, seed=0)
        with pytest.warns(UserWarning, match="interrupted after"):
            train(Shuffled(), data, settings, seed=0, checkpoint=path, after_chunk=interrupt)
        resumed = train(Shuffled(), data, settings, seed=0, checkpoint=path)
        assert_same_bits(resumed.params, whole.params)

    def test_a_finished_run_is_not_run_again(self, tmp_path: Any):
        path = tmp_path / "state.crl"
        first = train(Regression(), regression_data(), SETTINGS, seed=0, checkpoint=path)
        chunks: list[int] = []
        second = train(
            Regression(),
            regression_data(),
            SETTINGS,
            seed=0,
            checkpoint=path,
            after_chunk=chunks.append,
        )
        assert chunks == []
        assert_same_bits(first.params, second.params)

    @pytest.mark.parametrize("change", ["data", "seed", "settings"])
    def test_a_checkpoint_of_another_run_is_refused(self, tmp_path: Any, change: str):
        path = tmp_path / "state.crl"
        train(Regression(), regression_data(), SETTINGS, seed=0, checkpoint=path)
        data = regression_data(499 if change == "data" else 500)
        settings = replace(SETTINGS, learning_rate=0.01) if change == "settings" else SETTINGS
        seed = 1 if change == "seed" else 0
        with pytest.raises(CorruptFileError, match="belongs to another run"):
            train(Regression(), data, settings, seed=seed, checkpoint=path)

    def test_a_damaged_checkpoint_is_refused(self, tmp_path: Any):
        path = tmp_path / "state.crl"
        train(Regression(), regression_data(), SETTINGS, seed=0, checkpoint=path)
        path.write_bytes(path.read_bytes()[:-10])
        with pytest.raises(CorruptFileError, match="not a whole crlearn file"):
            train(Regression(), regression_data(), SETTINGS, seed=0, checkpoint=path)


def test_an_interrupt_before_the_first_chunk_is_not_swallowed(monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("crlearn.train._chunk.run_chunk", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(Regression(), regression_data(), SETTINGS, seed=0)


def test_an_interrupt_keeps_the_best_weights_so_far():
    def interrupt(done: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="the best weights so far are kept"):
        training = train(Regression(), regression_data(), SETTINGS, seed=0, after_chunk=interrupt)
    assert training.stopped == "interrupted"
    assert len(training.history["epoch"]) == 4
    assert training.loss == training.history["validation_loss"].min().astype(np.float32)


def test_double_precision_by_setting():
    with config_context(precision="float64"):
        training = train(Regression(), regression_data(), SETTINGS, seed=0)
    assert training.params["slope"].dtype == np.float64
