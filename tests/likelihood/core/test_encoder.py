from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.core._encoder import (
    in_free_entries,
    log_volume,
    moved,
    off_diagonal,
    unit_rows,
)

H = np.array([[1.0, 2.0, 0.5], [3.0, 4.0, -1.0], [0.0, 1.0, 2.0]])


def volume(D: np.ndarray) -> float:
    return -float(np.log(abs(np.linalg.det((np.eye(3) + D.reshape(3, 3)) @ H))))


def numerically(function, at: np.ndarray, step: float = 1e-4) -> np.ndarray:
    moves = step * np.eye(len(at))
    return np.array([(function(at + move) - function(at - move)) / (2 * step) for move in moves])


def test_moved_changes_off_diagonal_entries_only():
    encoder = np.array([[1.0, 2.0], [3.0, 4.0]])
    D = np.array([[0.0, 0.1], [0.2, 0.0]])
    np.testing.assert_allclose(moved(encoder, np.array([0.1, 0.2])), encoder + D @ encoder)


def test_unit_rows():
    np.testing.assert_allclose(
        unit_rows(np.array([[3.0, 4.0], [0.0, -2.0]])), [[0.6, 0.8], [0, -1]]
    )


def test_the_volume_and_its_derivatives():
    value, gradient, hessian = log_volume(H)
    nowhere = np.zeros(9)
    assert value == pytest.approx(volume(nowhere))
    np.testing.assert_allclose(gradient.ravel(), numerically(volume, nowhere), atol=1e-7)
    curved = numerically(lambda D: numerically(volume, D), nowhere)
    np.testing.assert_allclose(hessian.reshape(9, 9), curved, atol=1e-6)


def test_free_entries_are_those_that_moved_changes():
    _, gradient, hessian = log_volume(H)
    gradient, hessian = (
        gradient + np.arange(9.0).reshape(3, 3),
        hessian + np.arange(81.0).reshape(3, 3, 3, 3),
    )
    free_gradient, free_hessian = in_free_entries(gradient, hessian)
    places = np.flatnonzero(off_diagonal(3))
    assert places.tolist() == [1, 2, 3, 5, 6, 7]
    np.testing.assert_array_equal(free_gradient, gradient.ravel()[places])
    flat = hessian.reshape(9, 9)
    np.testing.assert_array_equal(free_hessian, [[flat[a, b] for b in places] for a in places])
