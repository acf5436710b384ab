from __future__ import annotations

import numpy as np

from crlearn.published.layers._soft_steps import train_soft_steps

ROWS = np.random.default_rng(0).normal(size=(400, 3))
NOISE = np.random.default_rng(1).normal(size=(400, 2))


def start(size: int) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(size, 4))


def unexplained(places: np.ndarray, targets: np.ndarray) -> float:
    """Share of the variance that soft steps, a constant and the predictors leave."""
    steps = np.tanh(ROWS @ places[:, :3].T + places[:, 3])
    functions = np.column_stack([np.ones(len(ROWS)), ROWS, steps])
    left = targets - functions @ np.linalg.lstsq(functions, targets)[0]
    return float((left.var(axis=0) / targets.var(axis=0)).max())


def test_two_soft_steps_are_found_by_a_few():
    true = np.array([[1.0, -2.0, 0.5, 0.3], [0.0, 1.5, 1.0, -0.5]])
    steps = np.tanh(ROWS @ true[:, :3].T + true[:, 3])
    targets = steps @ np.array([[1.0, 100.0], [-2.0, 50.0]]) + 3.0
    places = train_soft_steps(ROWS, targets, start(6))
    assert unexplained(start(6), targets) > 0.01
    assert unexplained(places, targets) < 1e-6


def test_functions_that_are_no_steps_are_found_too():
    target = np.sin(ROWS[:, :1] - 2 * ROWS[:, 1:2])
    assert unexplained(start(12), target) > 0.2
    assert unexplained(train_soft_steps(ROWS, target, start(12)), target) < 0.01


def test_the_error_never_grows_and_noise_does_no_harm():
    places = train_soft_steps(ROWS, NOISE, start(3))
    assert 0.8 < unexplained(places, NOISE) <= unexplained(start(3), NOISE) + 1e-6


def test_constant_columns_and_targets_do_no_harm():
    rows, targets = ROWS.copy(), np.tanh(ROWS[:, :1])
    rows[:, 2] = 0.0
    for target in (targets, np.column_stack([targets, np.ones(400)]), np.ones((400, 1))):
        assert np.isfinite(train_soft_steps(rows, target, start(2))).all()


def test_same_start_same_bits():
    first, again = (train_soft_steps(ROWS, NOISE, start(3)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
