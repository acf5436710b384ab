from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crlearn.methods.additive._checks import (
    guarantee_of,
    natural_parameters,
    shape_checks,
    sizes_check,
    vanishing_check,
    variability,
    variability_check,
)
from crlearn.methods.additive._latents import Segments


def segments(n_segments: int, n_rows: int = 200) -> Segments:
    rows = np.split(np.arange(n_segments * n_rows), n_segments)
    return Segments(tuple(rows), np.zeros((n_segments * n_rows, 0)))


def spread(means: Any, scales: Any, draw: str = "normal", n_rows: int = 400) -> float:
    """Variability of noises with some means and standard deviations in each segment."""
    rng = np.random.default_rng(0)
    n_segments, n = means.shape
    drawn = getattr(rng, draw)(size=(n_segments, n_rows, n)) * scales[:, None] + means[:, None]
    noises, halves = drawn.reshape(-1, n), segments(n_segments, n_rows).halves
    return variability(*(natural_parameters(noises, noises, half) for half in halves))


CHANGING = np.random.default_rng(1).uniform([-2, -2, 0.5, 0.5], 2, size=(40, 4))


@pytest.mark.parametrize("draw", ["normal", "laplace"])
def test_means_and_variances_that_change_vary_enough(draw: str):
    value = spread(CHANGING[:, :2], CHANGING[:, 2:], draw)
    assert value > 0.3
    assert variability_check(value, 40, 2).passed


def test_natural_parameters_by_hand():
    part = segments(1, 2)
    Z, noises = np.array([[2.0], [4.0]]), np.array([[-0.5], [0.5]])
    np.testing.assert_allclose(natural_parameters(Z, noises, part), [[12.0, 4.0]])


def test_latents_that_always_change_together_do_not():
    value = spread(np.repeat(CHANGING[:, :1], 2, axis=1), np.repeat(CHANGING[:, 2:3], 2, axis=1))
    assert value < 0.1
    assert variability_check(value, 40, 2).passed is False


@pytest.mark.parametrize("draw", ["normal", "laplace"])
@pytest.mark.parametrize("means", [np.zeros((40, 2)), CHANGING[:, :2]], ids=["none", "means"])
def test_what_varies_by_chance_does_not_count(draw: str, means: Any):
    """Variances of rows differ where those of noises do not."""
    value = spread(means, np.ones((40, 2)), draw)
    assert value < 0.1
    assert variability_check(value, 40, 2).passed is False


def test_fewer_segments_than_the_theory_asks_for_never_pass():
    assert spread(CHANGING[:4, :2], CHANGING[:4, 2:]) == 0
    assert variability_check(0.9, 4, 2).passed is False


@pytest.mark.parametrize("kind", ["linear", "polynomial", "nonlinear"])
@pytest.mark.parametrize("truth", ["linear", "polynomial", "nonlinear"])
def test_mechanisms_of_another_shape_are_noticed(kind: Any, truth: str):
    shape = {"linear": lambda z: z, "polynomial": lambda z: z**2, "nonlinear": lambda z: z > 0}
    rng = np.random.default_rng(0)
    parts = segments(20)
    effects = np.repeat(rng.uniform(0.5, 2, size=20), 200)
    cause, noise = rng.normal(size=(2, 4000))
    Z = np.column_stack([cause, effects * shape[truth](cause) + noise])
    passed = [check.passed for check in shape_checks(Z, parts, kind)]
    simpler = ["linear", "polynomial", "nonlinear"]
    fits = simpler.index(truth) <= simpler.index(kind)
    assert passed == ([] if kind == "nonlinear" else [fits])


def test_segments_need_rows():
    assert sizes_check(segments(3, 20), 2).passed
    assert sizes_check(segments(3, 19), 2).passed is False


def latents(*found: tuple[float, float, int]) -> Any:
    """Latents with evidence, gap and number of segments without mechanism of each."""
    vanishing = tuple(SimpleNamespace(evidence=e, gap=g) for e, g, _ in found)
    identified = np.array([True, *(min(e, g) >= 5 for e, g, _ in found)])
    counts = [20, *(count for _, _, count in found)]
    matrix = np.arange(20)[:, None] < np.array(counts)
    return SimpleNamespace(
        vanishing=vanishing, identified=identified, vanishes=lambda n: matrix.astype(float)
    )


def test_mechanisms_that_vanish_are_counted():
    check = vanishing_check(latents((20.0, 30.0, 6), (9.0, np.inf, 4)), 20)
    assert check.passed
    assert check.detail == "of 20 segments: z1 in 6, z2 in 4"


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ((20.0, 1.0, 6), "two answers are within 1.0 nats"),
        ((2.0, 9.0, 6), "segments that are alike gain 2.0 nats"),
        ((-np.inf, 0.0, 0), "no three segments are alike"),
    ],
)
def test_latents_without_are_named_with_the_reason(found: Any, why: str):
    check = vanishing_check(latents((20.0, 30.0, 6), found), 20)
    assert check.passed is False
    assert f"z2 ({why})" in check.detail


def test_the_guarantee_is_partial_where_latents_are_not_identified():
    whole = guarantee_of(np.array([True, True]), 0.05)
    assert (whole.latents, whole.graph) == ("scale", "exact")
    assert "less than 10%" in whole.text
    partial = guarantee_of(np.array([True, False, True]), 0.05)
    assert (partial.latents, partial.graph) == ("ancestors", "none")
    assert partial.text.startswith("z0, z2 up to order, scale and shift; z1 only up to a function")
    assert partial.accounts_for == ("mechanisms vanish in some segments",)
