from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crlearn.likelihood import FITS, Fit
from crlearn.likelihood._nonlinearity import (
    has_bent_mechanisms,
    straight_p_values,
    straightest_parent,
)

N_ROWS = 4000
Mechanism = Callable[[np.ndarray, np.ndarray], np.ndarray]


def rows_of(outside: Mechanism, inside: Mechanism, *, seed: int = 0) -> list[np.ndarray]:
    """z0 -> z1, and z2 by mechanisms of both; the second environment has the intervention."""
    rng = np.random.default_rng(seed)
    environments = []
    for mechanism, scale in ((outside, 1.0), (inside, 0.5)):
        a = rng.standard_normal(N_ROWS)
        b = 0.5 * a + rng.standard_normal(N_ROWS)
        c = mechanism(a, b) + scale * rng.standard_normal(N_ROWS)
        environments.append(np.column_stack([a, b, c]))
    return environments


def fit_of(parents: tuple[int, ...] = (0, 1)) -> Fit:
    pool = np.array([[0, 0], [0, 0], [0, 1]])
    return Fit(np.eye(3), ((), (), parents), 0.0, pool=pool)


def p_value(outside: Mechanism, inside: Mechanism, **options) -> float:
    return float(straight_p_values(rows_of(outside, inside), fit_of(**options))[2])


def bent(a, b):
    return np.abs(a) + np.tanh(2 * b)


def line(a, b):
    return a + b


def bent_once(a, b):
    """Along a - b it is flat."""
    return np.abs(a + b)


@pytest.mark.parametrize(
    ("outside", "inside"),
    [
        pytest.param(line, lambda a, b: 0.5 * line(a, b), id="flat along a - b, in both"),
        pytest.param(bent_once, lambda a, b: 0.5 * bent_once(a, b), id="bent along a + b alone"),
        pytest.param(
            lambda a, b: np.abs(a) + b, lambda a, b: 0.5 * np.abs(a) + b, id="b has one slope"
        ),
        pytest.param(
            lambda a, b: np.abs(a) + b, lambda a, b: np.abs(a), id="b has another slope inside"
        ),
        pytest.param(line, lambda a, b: a - b, id="lines alone"),
    ],
)
def test_a_direction_that_no_mechanism_tells(outside: Mechanism, inside: Mechanism):
    assert p_value(outside, inside) > FITS


@pytest.mark.parametrize(
    ("outside", "inside"),
    [
        pytest.param(bent, lambda a, b: 0.5 * bent(a, b), id="bent along both"),
        pytest.param(bent, bent, id="the intervention is on the noise alone"),
        pytest.param(
            lambda a, b: np.abs(a) + b, lambda a, b: np.tanh(2 * b), id="bent inside or outside"
        ),
    ],
)
def test_mechanisms_that_tell(outside: Mechanism, inside: Mechanism):
    assert p_value(outside, inside) < FITS


@pytest.mark.parametrize(("mechanism", "tells"), [(bent, True), (line, False)])
def test_outside_of_interventions_bends_alone_tell(mechanism: Mechanism, tells: bool):
    """Another slope inside is no bend, and what is inside does not matter."""
    rows = rows_of(mechanism, lambda a, b: 0.3 * a - b)
    p_values = straight_p_values(rows, fit_of(), outside=True)
    assert bool(p_values[2] < FITS) == tells


def test_the_straightest_parent_and_its_slope():
    fit = Fit(np.eye(3), ((), (), (0, 1)), 0.0, pool=np.zeros((3, 2), dtype=int))

    def one_line(a, b):
        return np.abs(a) + 0.7 * b

    parent, p_value, slope = straightest_parent(rows_of(one_line, one_line), fit, 2)
    assert parent == 1
    assert p_value > FITS
    np.testing.assert_allclose(slope, 0.7, atol=0.03)
    assert straightest_parent(rows_of(bent, bent), fit, 2)[1] < FITS


def test_another_slope_does_not_tell_one_parent():
    """It may stand for two, one of them replaced by what matters of both."""

    def b_alone(a, b):
        return b

    assert p_value(b_alone, lambda a, b: 0.5 * b, parents=(1,)) > FITS
    assert p_value(b_alone, lambda a, b: np.tanh(b), parents=(1,)) < FITS


@pytest.mark.parametrize(("mechanism", "told"), [(bent, True), (bent_once, False), (line, False)])
def test_one_environment_shows_directional_nonlinearity(mechanism: Mechanism, told: bool):
    rows = rows_of(mechanism, mechanism, seed=1)[:1]
    fit = Fit(np.eye(3), ((), (), (0, 1)), 0.0)
    assert bool(straight_p_values(rows, fit)[2] < FITS) is told


def test_latents_without_parents_have_nothing_to_tell():
    assert straight_p_values(rows_of(line, line), fit_of(()))[2] == 0


def test_p_values_are_not_too_small_where_there_is_a_direction():
    p_values = [
        straight_p_values(rows_of(bent_once, bent_once, seed=seed), fit_of())[2]
        for seed in range(20)
    ]
    assert np.mean(np.array(p_values) < 0.2) < 0.5  # binomial: above it once in 400 such tests


@pytest.mark.parametrize("n_rows", [8, 12, 20])
def test_as_many_features_as_rows_tell_nothing(n_rows: int):
    for seed in range(10):
        few = [each[:n_rows] for each in rows_of(line, line, seed=seed)]
        assert straight_p_values(few, fit_of())[2] >= FITS


def test_whichever_features_are_chosen_a_line_is_seldom_seen_to_bend():
    """Of several sets of features the one that fits best is tested: each is looked at."""
    rng = np.random.default_rng(0)
    fit = Fit(np.eye(2), ((), (0,)), 0.0, pool=np.zeros((2, 1), dtype=int))
    p_values = []
    for _ in range(1500):
        a, noise = rng.standard_normal((2, 500))
        p_values.append(straightest_parent([np.column_stack([a, a + noise])], fit, 1)[1])
    assert np.mean(np.array(p_values) < 0.005) < 0.005


@pytest.mark.parametrize(("mechanism", "expected"), [(line, False), (bent, True)])
def test_bends_that_pay(mechanism: Mechanism, expected: bool):
    fit = fit_of()
    assert fit.pool is not None
    rows = rows_of(mechanism, lambda a, b: 0.5 * mechanism(a, b))
    assert has_bent_mechanisms(rows, fit.H, fit.graph, fit.pool) is expected
