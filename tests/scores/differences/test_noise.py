from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from crlearn.scores import (
    GaussianScores,
    ZeroTest,
    random_half,
    zero_test,
)

N_DIRECTIONS, N_ROWS = 3, 100


def simulated_test(rng: np.random.Generator, signal: float, n_halves: int = 20) -> ZeroTest:
    """Regression coefficients with unit noise: halves deviate from the whole by as much."""
    x = rng.normal(size=(N_ROWS, N_DIRECTIONS))
    scales = np.array([1.0, 0.7, 0.3])
    whole = scales * rng.normal(size=N_DIRECTIONS) + signal
    halves = whole + scales * rng.normal(size=(n_halves, N_DIRECTIONS))
    return zero_test(x @ whole, halves @ x.T)


def test_p_values_are_uniform_without_signal():
    rng = np.random.default_rng(0)
    p_values = [simulated_test(rng, signal=0.0).p_value for _ in range(400)]
    assert kstest(p_values, "uniform").pvalue > 0.05
    assert np.mean(np.array(p_values) < 0.01) < 0.03


def test_a_strong_signal_is_seen():
    rng = np.random.default_rng(0)
    assert all(simulated_test(rng, signal=6.0).p_value < 1e-3 for _ in range(20))


def test_directions_are_counted():
    rng = np.random.default_rng(0)
    halves = rng.normal(size=(200, 4)) @ np.kron(np.eye(4), np.ones((1, 50)))
    assert zero_test(np.zeros(200), halves).directions == pytest.approx(4, rel=0.1)
    same = rng.normal(size=(200, 1)) @ np.ones((1, 200))
    assert zero_test(np.zeros(200), same).directions == pytest.approx(1, rel=0.2)


def test_the_critical_value_belongs_to_the_p_value():
    test = simulated_test(np.random.default_rng(1), signal=1.0)
    assert test.critical_value(test.p_value) == pytest.approx(test.mean_square)


def test_without_noise_all_but_rounding_is_signal():
    zero, something = np.zeros(10), np.full(10, 1e-3)
    assert zero_test(zero, [zero, zero]).p_value == 1.0
    assert zero_test(something, [something, something]).p_value == 0.0
    assert zero_test(something, [something, something]).critical_value(0.05) == 0.0
    assert zero_test(something, [something, something], rounding=1e-6).p_value > 0.05
    with pytest.raises(ValueError, match=r"at least two fits. Got 1"):
        zero_test(zero, [zero])


def test_halves_take_half_of_each_environment():
    codes = np.array([0] * 10 + [1] * 5 + [2] * 4)
    rng = np.random.default_rng(0)
    half = random_half(codes, rng)
    assert np.bincount(codes[half]).tolist() == [5, 3, 2]
    assert len(set(half)) == 10
    assert not np.array_equal(half, random_half(codes, rng))


def test_fits_on_halves_show_the_noise_of_the_whole(linear_world: Any):
    # Along an axis on which nothing changes, against fits on fresh data.
    world = linear_world

    def found(X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        difference = GaussianScores().fit(X, codes).difference(world.at, 1)
        return (difference @ world.truth.mixing.matrix)[:, 1]

    rng = np.random.default_rng(0)
    halves = [random_half(world.codes, rng) for _ in range(40)]
    whole = found(world.X, world.codes)
    test = zero_test(whole, [found(world.X[half], world.codes[half]) for half in halves])
    fresh = []
    for seed in range(40):
        scms, draw = world.truth.scms, np.random.default_rng(seed)
        Z = [scm.sample(n, draw)[0] for scm, n in zip(scms, (2000, 1000, 3000), strict=True)]
        fresh.append(
            found(world.truth.mixing(np.concatenate(Z)), np.repeat([0, 1, 2], (2000, 1000, 3000)))
        )
    assert test.noise == pytest.approx(np.mean(np.square(fresh)), rel=0.4)
    assert test.p_value > 0.01
