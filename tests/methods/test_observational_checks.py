from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from crlearn.methods._observational_checks import (
    determination_check,
    environment_checks,
    luck_of_a_gaussian,
    nonlinearity_check,
    normality_check,
    visibility_check,
)
from crlearn.methods._score_layers import LayerRecovery
from crlearn.result import Alternative


@dataclass(frozen=True)
class FakeFit:
    gain: float = 500.0
    n_latents: int = 4

    @property
    def H(self) -> Any:  # noqa: N802
        return np.eye(self.n_latents)


def fit(*args: Any, **options: Any) -> Any:
    return FakeFit(*args, **options)


# Of the likelihood


def test_a_gain_that_luck_could_give_is_none():
    luck = luck_of_a_gaussian(4)
    assert 10 < luck < 20
    assert luck_of_a_gaussian(2) < luck < luck_of_a_gaussian(10)
    assert nonlinearity_check(fit(luck + 1)).passed
    check = nonlinearity_check(fit(luck - 1))
    assert check.passed is False
    assert f"gain {luck - 1:.1f} nats over a Gaussian" in check.detail
    assert "cannot be recovered from observational data" in check.detail
    assert nonlinearity_check(fit(0.0, n_latents=1)).passed is None


def other(gap: float, agreement: float) -> Alternative:
    return Alternative(np.zeros((4, 4), dtype=bool), None, gap, agreement)


@pytest.mark.parametrize(("gap", "passed"), [(4.9, False), (5.1, True)])
def test_another_answer_within_five_nats_leaves_the_structure_open(gap: float, passed: bool):
    twin, far = other(0.1, 0.99), other(30.0, 0.2)
    check = determination_check(fit(), (twin, far, other(np.float64(gap), 0.6)))
    assert check.passed is passed  # only False itself is reported
    assert "agreement of noises 0.60, below 0.9" in check.detail
    assert f"{gap} nats behind, and 5 are asked for" in check.detail
    assert "500.0 nats better than a Gaussian" in check.detail
    assert ("result_.alternatives" in check.detail) is not passed


def test_structures_that_agree_leave_nothing_open():
    check = determination_check(fit(), (other(0.1, 0.95),))
    assert check.passed
    assert "all 1 competing structures" in check.detail
    assert determination_check(fit(n_latents=1), ()).passed is None


# Of the published algorithm


def test_normality_is_refused_as_often_as_its_level_says():
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(100):
        rows = rng.normal(size=(500, 3))
        refused += bool(normality_check((rows - rows.mean(axis=0)) / rows.std(axis=0)).passed)
    assert refused <= 5


@pytest.mark.parametrize("kind", ["skewed", "heavy"])
def test_other_shapes_are_noticed(kind: str):
    rng = np.random.default_rng(0)
    rows = rng.exponential(size=(500, 3)) if kind == "skewed" else rng.laplace(size=(500, 3))
    check = normality_check((rows - rows.mean(axis=0)) / rows.std(axis=0))
    assert check.passed
    assert "p = " in check.detail
    assert normality_check(rows[:, :1]).passed is None


def recovery(sizes: list[int], p_value: float, next_p_value: float) -> LayerRecovery:
    n = sum(sizes)
    layers = tuple(np.split(np.arange(n), np.cumsum(sizes)[:-1]))
    diagnostics = {
        "p_values": np.array([p_value] * len(sizes)),
        "next_p_values": np.array([next_p_value] * len(sizes)),
    }
    encoder: Any = None
    return LayerRecovery(np.eye(n), np.zeros(n), layers, encoder, diagnostics)


def test_layers_show_or_do_not():
    several = visibility_check(recovery([1, 2], 0.6, 0.001), tested=True)
    assert several.passed
    assert "2 layers; that more are leaves has p = 0.001" in several.detail
    single = visibility_check(recovery([3], 0.6, np.nan), tested=True)
    assert single.passed is False
    assert "all 3 latents are leaves has p = 0.6" in single.detail
    assert visibility_check(recovery([1, 2], np.nan, np.nan), tested=False).passed is None
    assert visibility_check(recovery([1], 1.0, np.nan), tested=True).passed is None


# Of both


@pytest.mark.parametrize("y", [None, np.zeros(5, dtype=int), np.linspace(0, 1, 5)])
def test_no_labels_no_check(y: Any):
    assert environment_checks(y) == ()


@pytest.mark.parametrize("y", [[0, 1, 1], ["a", "b", "b"], [True, False, True]])
def test_labels_are_reported(y: Any):
    (check,) = environment_checks(np.array(y))
    assert check.passed is False
    assert "y has 2 labels and was not used" in check.detail
    assert "MultiNodeCRL" in check.detail
