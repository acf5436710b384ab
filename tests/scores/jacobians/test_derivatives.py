from __future__ import annotations

from typing import Any

import numpy as np

from crlearn.scores._base import Whitening
from crlearn.scores.jacobians._derivatives import in_blocks

WHITENING = Whitening(np.array([1.0, 2.0]), np.array([[2.0, 0.0], [1.0, 4.0]]))


def cubic(weight: float, rows: Any) -> Any:
    return weight * rows**3, 3 * weight * rows[:, :, None] ** 2 * np.eye(2)


def test_values_come_back_in_the_coordinates_of_the_rows(monkeypatch: Any):
    X = np.random.default_rng(0).normal(size=(7, 2))
    whole = in_blocks(cubic, 0.5, X, WHITENING)
    monkeypatch.setattr("crlearn.scores.jacobians._derivatives._ROWS_PER_BLOCK", 3)
    parts = in_blocks(cubic, 0.5, X, WHITENING)
    u, m = WHITENING(X), WHITENING.matrix
    np.testing.assert_allclose(whole[0], 0.5 * u**3 @ m, rtol=1e-5)
    wanted = m.T @ (1.5 * u[:, :, None] ** 2 * np.eye(2)) @ m
    np.testing.assert_allclose(whole[1], wanted, rtol=1e-5)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_no_rows():
    scores, jacobians = in_blocks(cubic, 0.5, np.zeros((0, 2)), WHITENING)
    assert scores.shape == (0, 2)
    assert jacobians.shape == (0, 2, 2)
