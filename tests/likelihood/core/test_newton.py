from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.core._newton import Expansion, descend, moved


def test_moved_changes_off_diagonal_entries_only():
    H = np.array([[1.0, 2.0], [3.0, 4.0]])
    D = np.array([[0.0, 0.1], [0.2, 0.0]])
    np.testing.assert_allclose(moved(H, np.array([0.1, 0.2])), H + D @ H)


def test_a_step_goes_downhill_where_the_curvature_is_negative():
    point = Expansion(0.0, np.array([1.0, 1.0]), np.diag([2.0, -2.0]))
    assert (point.step(damping=0.0) < 0).all()


def test_steps_are_capped():
    point = Expansion(0.0, np.array([100.0, 0.0]), np.eye(2))
    assert np.abs(point.step()).max() == pytest.approx(0.5)


def test_the_promise_is_never_above_the_present_value():
    point = Expansion(3.0, np.array([0.0, 0.0]), np.diag([1.0, 1.0]))
    assert point.after(np.array([1.0, 1.0])) == 3.0
    assert point.after(np.zeros(2)) == 3.0
    downhill = Expansion(3.0, np.array([1.0, 0.0]), np.eye(2))
    assert downhill.after(np.array([-1.0, 0.0])) == pytest.approx(2.5)


def test_descend_finds_the_minimum_of_a_smooth_function():
    """F(H) = |log h_12|^2-like bowl in the off-diagonal entries of H, around a known matrix."""
    goal = np.array([[1.0, 0.3], [-0.2, 1.0]])

    def value(H: np.ndarray) -> float:
        return float(((H - goal) ** 2).sum())

    def expand(H: np.ndarray) -> Expansion:
        steps = [np.array([1.0, 0.0]), np.array([0.0, 1.0])]
        change = [moved(H, step) - H for step in steps]
        gradient = np.array([2 * ((H - goal) * each).sum() for each in change])
        hessian = np.array([[2 * (a * b).sum() for b in change] for a in change])
        return Expansion(value(H), gradient, hessian)

    start = np.array([[1.0, 0.0], [0.0, 1.0]])
    H, reached = descend(start, expand, value, np.copy, max_steps=50, tolerance=1e-14)
    assert reached == pytest.approx(value(H))
    assert np.abs(expand(H).gradient).max() < 1e-6
    assert reached < value(start)


def test_descend_stops_at_the_given_number_of_steps():
    calls = []

    def expand(H: np.ndarray) -> Expansion:
        calls.append(H)
        return Expansion(float(H[0, 1]), np.array([1.0, 0.0]), np.zeros((2, 2)))

    descend(np.eye(2), expand, lambda H: float(H[0, 1]), np.copy, max_steps=3, tolerance=0.0)
    assert len(calls) == 3


def test_gains_are_those_of_newton_steps_and_never_negative():
    gradients = np.array([[1.0, 0.0], [2.0, 2.0], [0.0, 0.0]])
    point = Expansion(0.0, np.zeros(2), np.diag([1.0, 4.0]))
    np.testing.assert_allclose(point.gains(gradients), [0.5, 2.5, 0.0], atol=1e-5)
    saddle = Expansion(0.0, np.zeros(2), np.diag([1.0, -4.0]))
    np.testing.assert_allclose(saddle.gains(gradients), [0.5, 2.5, 0.0], atol=1e-5)
