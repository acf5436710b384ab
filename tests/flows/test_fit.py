from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from crlearn.flows import GaussianObjective, fit_flow
from crlearn.flows._fit import side_by_side
from crlearn.train import Training

OBJECTIVE = GaussianObjective(2, (0.6, 0.4), n_blocks=1, n_units=3)


def numbered(*sizes: int) -> list[np.ndarray]:
    """Environments in which every row has a number of its own."""
    first = np.cumsum([0, *sizes])
    return [
        np.arange(start, start + size)[:, None] * np.ones(2)
        for start, size in zip(first, sizes, strict=False)
    ]


def test_held_out_rows_are_never_trained_on():
    rows = numbered(50, 7, 1200)
    training, held_out = side_by_side(rows, np.random.default_rng(0))
    assert training.shape == (1080, 3, 2)
    assert held_out.shape == (120, 3, 2)
    for e, part in enumerate(rows):
        seen, kept = set(training[:, e, 0]), set(held_out[:, e, 0])
        assert not seen & kept
        assert seen | kept == set(part[:, 0])
        counts = np.unique(training[:, e, 0], return_counts=True)[1]
        assert np.ptp(counts) <= 1  # small environments are repeated evenly


def test_not_all_rows_of_a_large_environment_are_held_out():
    _, held_out = side_by_side(numbered(30_000), np.random.default_rng(0))
    assert len(held_out) == 2000


@pytest.fixture(scope="module")
def rows() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    plain = rng.normal(size=(300, 2))
    bent = np.column_stack([plain[:, 0] + 2 * np.abs(plain[:, 1]), plain[:, 1]])
    return [bent[:180], 2 * bent[180:]]


def fitted(rows: Any, **options: Any) -> Training:
    settings = {"n_steps": 60, "batch_size": 90, "learning_rate": 0.01, "n_restarts": 2, "seed": 0}
    return fit_flow(rows, OBJECTIVE, affine=True, **{**settings, **options})


@pytest.fixture(scope="module")
def fit(rows: Any) -> Training:
    return fitted(rows)


def test_it_trains_and_compares_restarts(fit: Training):
    assert fit.stopped == "max_epochs"
    assert fit.history["validation_loss"][-1] < fit.history["validation_loss"][0] - 0.01
    assert fit.loss == pytest.approx(min(fit.history["restart_loss"]))
    (agreement,), (gap,) = fit.agreements, fit.gaps
    assert 0.8 < agreement < 1
    assert gap == pytest.approx(np.ptp(fit.history["restart_loss"]))


def test_same_seed_same_bits(rows: Any, fit: Training):
    jax.tree.map(np.testing.assert_array_equal, fitted(rows).params, fit.params)


def test_it_goes_on_from_a_start(rows: Any, fit: Training):
    """Restarts that begin alike are alike."""
    again = fitted(rows, start=fit.params)
    assert again.history["validation_loss"][0] < fit.history["validation_loss"][0] - 0.01
    assert again.agreements[0] == pytest.approx(1)
    assert again.gaps[0] == pytest.approx(0)
