from __future__ import annotations

import numpy as np
import pytest

from crlearn.published.layers._checks import normality_check, visibility_check
from crlearn.published.layers._leaves import Leaves


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


def layers(sizes: list[int], **said: float) -> list[Leaves]:
    return [Leaves(np.eye(sum(sizes))[:, :size], **{"deviation": 0.1, **said}) for size in sizes]


def test_layers_show_or_do_not():
    found = layers([1, 2], p_value=0.6, next_deviation=2.5, next_p_value=0.001)
    several = visibility_check(found, tested=True)
    assert several.passed
    assert "2 layers; more leaves would deviate by 2.5, p = 0.001" in several.detail
    known = visibility_check(layers([1, 2], next_deviation=2.5), tested=True)
    assert "more leaves would deviate by 2.5" in known.detail
    assert "p =" not in known.detail
    single = visibility_check(layers([3], p_value=0.6), tested=True)
    assert single.passed is False
    assert "all 3 latents can be leaves (deviation 0.1, p = 0.6)" in single.detail
    assert visibility_check(layers([1, 2]), tested=False).passed is None
    assert visibility_check(layers([1]), tested=True).passed is None
