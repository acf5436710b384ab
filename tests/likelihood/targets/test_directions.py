from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.targets._directions import (
    RankOne,
    distinct,
    rank_one_directions,
    tangent,
)

SIZES = np.array([100, 200, 300, 400])


def planted(seed: int, q: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Matrices whose differences are spanned by the squares of three directions, and those."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((q, q))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    weights = rng.standard_normal((len(SIZES), q))
    squares = directions[:, :, None] * directions[:, None, :]
    return np.eye(q) + np.tensordot(weights, squares, 1), directions


def sure(matrices: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The defect straight from its definition, minimised over combinations by eigenvalues."""
    centred = matrices - np.average(matrices, axis=0, weights=SIZES)
    weighted = np.sqrt(SIZES)[:, None, None] * centred
    without = weighted - np.einsum("eij,i,j->e", weighted, x, x)[:, None, None] * np.outer(x, x)
    flat = without.reshape(len(SIZES), -1)
    values = np.linalg.eigvalsh(flat @ flat.T)
    return 0.5 * values[1]  # the smallest belongs to the weights that centring takes out


def test_squares_in_the_span_have_no_defect():
    matrices, directions = planted(0)
    span = RankOne.of(matrices, SIZES)
    assert span.defect(directions).max() < 1e-8
    elsewhere = np.array([[1.0, 0.0, 0.0]])
    assert span.defect(elsewhere)[0] > 1e-3


def test_defect_agrees_with_its_definition():
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((4, 3, 3))
    matrices = noise + noise.transpose(0, 2, 1)
    x = rng.standard_normal(3)
    x /= np.linalg.norm(x)
    assert RankOne.of(matrices, SIZES).defect(x[None])[0] == pytest.approx(sure(matrices, x))


@pytest.mark.parametrize("seed", range(4))
def test_derivatives_of_the_defect(seed: int):
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((4, 3, 3))
    span = RankOne.of(noise + noise.transpose(0, 2, 1), SIZES)
    x = rng.standard_normal((2, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    gradient, hessian = span.expand(x)
    for c in range(2):
        move = tangent(rng.standard_normal(3), x[c])
        move /= np.linalg.norm(move)

        def value(angle: float, c: int = c, move: np.ndarray = move) -> float:
            return float(span.defect((np.cos(angle) * x[c] + np.sin(angle) * move)[None])[0])

        h = 1e-3
        slope = (value(h) - value(-h)) / (2 * h)
        curvature = (value(h) + value(-h) - 2 * value(0)) / h**2
        assert gradient[c] @ move == pytest.approx(slope, rel=1e-3, abs=1e-3)
        assert move @ hessian[c] @ move == pytest.approx(curvature, rel=1e-2, abs=1e-2)


def test_the_power_method_finds_planted_directions():
    matrices, directions = planted(2)
    found = rank_one_directions(RankOne.of(matrices, SIZES), np.random.default_rng(0), 40)
    # Local optima may come with them, but behind them.
    assert np.abs(directions @ found[:3].T).max(axis=1) == pytest.approx(1, abs=1e-6)


def test_distinct_keeps_the_first_of_equal_directions():
    x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    np.testing.assert_array_equal(distinct(x), x[:2])
