from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.flows import SegmentRegressions, functions_of_one
from crlearn.flows.segments._orders import better_order

N_SEGMENTS, N_ROWS = 12, 500
SHARES = np.full(N_SEGMENTS, 1 / N_SEGMENTS)


def chain(seed: int = 0, effect: Any = np.tanh) -> Any:
    """Three latents in a chain; effects, means and variances are different in each segment."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(N_SEGMENTS):
        z = rng.uniform(-1, 1, size=3) + rng.uniform(0.3, 1.5, size=3) * rng.normal(
            size=(N_ROWS, 3)
        )
        for j in (1, 2):
            z[:, j] += rng.uniform(1, 3) * effect(z[:, j - 1])
        parts.append(z)
    return parts


def none(parts: Any) -> Any:
    return [part[:, :0] for part in parts]


def test_without_others_what_is_left_is_the_variance():
    parts = chain()
    regressions = SegmentRegressions.of(parts, none(parts), SHARES)
    pooled = np.concatenate(parts)[:, 1].std()
    expected = [part[:, 1].var(ddof=1) / pooled**2 for part in parts]
    assert regressions.residual_variances(1, frozenset()) == pytest.approx(expected)


def test_parents_explain_what_the_mechanism_does():
    parts = chain()
    regressions = SegmentRegressions.of(parts, none(parts), SHARES)
    effects = regressions.effects(2, frozenset({0, 1}))
    assert effects[1] > 0.2
    assert abs(effects[0]) < 0.01


@pytest.mark.parametrize("start", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_the_order_and_the_graph_are_those_of_the_chain(start: list[int]):
    parts = chain()
    regressions = SegmentRegressions.of(parts, none(parts), SHARES)
    order = better_order(regressions, start)
    assert order == [0, 1, 2]
    assert regressions.parents(order, 0.05).astype(int).tolist() == [
        [0, 1, 0],
        [0, 0, 1],
        [0, 0, 0],
    ]


def test_covariates_explain_what_is_theirs():
    parts = chain()
    rng = np.random.default_rng(1)
    covariates = [rng.normal(size=(N_ROWS, 1)) for _ in parts]
    moved = [part + 0.5 * u for part, u in zip(parts, covariates, strict=True)]
    with_them = SegmentRegressions.of(moved, covariates, SHARES)
    without = SegmentRegressions.of(parts, none(parts), SHARES)
    scale = np.concatenate(moved)[:, 0].var() / np.concatenate(parts)[:, 0].var()
    assert with_them.residual_variances(0, frozenset()) * scale == pytest.approx(
        without.residual_variances(0, frozenset()), rel=0.02
    )


def test_kinds_of_mechanisms_have_their_functions():
    z = np.array([[-1.0, 2.0]])
    assert functions_of_one(z, "linear")[0].tolist() == [[-1.0], [2.0]]
    assert functions_of_one(z, "polynomial")[0].tolist() == [[-1.0, 1.0, -1.0], [2.0, 4.0, 8.0]]
    assert functions_of_one(z, "nonlinear").shape == (1, 2, 5)


def test_squares_are_seen_by_polynomials_and_not_by_lines():
    parts = chain(effect=np.square)
    costs = {
        kind: SegmentRegressions.of(parts, none(parts), SHARES, kind).cost(1, frozenset({0}))
        for kind in ("linear", "polynomial", "nonlinear")
    }
    assert costs["polynomial"] < costs["nonlinear"] < costs["linear"]
