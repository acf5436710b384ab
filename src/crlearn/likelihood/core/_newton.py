"""Newton's method on an encoder: steps in D of (I + D) H, downhill in every direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

Matrix = NDArray[np.floating]

_SMALLEST_CURVATURE = 1e-6
_LONGEST_STEP = 0.5  # what a quadratic expansion can be trusted for
_MOST_TRIES = 12
_FIRST_DAMPING, _LEAST_DAMPING = 1e-3, 1e-9


@dataclass(frozen=True, eq=False)
class Expansion:
    """F around an encoder: value, gradient and Hessian in the off-diagonal entries of D."""

    value: float
    gradient: Matrix
    hessian: Matrix

    def step(self, damping: float = _FIRST_DAMPING) -> Matrix:
        """Return a damped Newton step; directions of negative curvature are turned around."""
        least = max(damping, _SMALLEST_CURVATURE)
        try:  # ten times as fast as eigenvalues, and nearly the same without negative curvature
            factor = cho_factor(self.hessian + least * np.eye(len(self.hessian)))
            return _shortened(-cho_solve(factor, self.gradient))
        except np.linalg.LinAlgError:
            pass
        curvature, directions = self._spectrum
        slope = directions.T @ self.gradient
        size = np.maximum(np.abs(curvature), _SMALLEST_CURVATURE) + damping
        return _shortened(-directions @ (slope / size))

    def gains(self, gradients: Matrix) -> Matrix:
        """Return what a Newton step would gain if the gradient were another, for a stack of them.

        The Hessian stays as it is: for functions that differ little from this one.
        """
        try:
            factor = cho_factor(self.hessian + _SMALLEST_CURVATURE * np.eye(len(self.hessian)))
            return 0.5 * (gradients.T * cho_solve(factor, gradients.T)).sum(axis=0)
        except np.linalg.LinAlgError:
            curvature, directions = self._spectrum
            size = np.maximum(np.abs(curvature), _SMALLEST_CURVATURE)
            return 0.5 * ((gradients @ directions) ** 2 / size).sum(axis=1)

    @cached_property
    def _spectrum(self) -> tuple[Matrix, Matrix]:
        curvature, directions = np.linalg.eigh(self.hessian)
        return curvature, directions

    def after(self, step: Matrix) -> float:
        """Return the value that the expansion promises after a step, or the present one."""
        change = float(self.gradient @ step + 0.5 * step @ self.hessian @ step)
        return self.value + min(0.0, change)


def _shortened(step: Matrix) -> Matrix:
    longest = np.abs(step).max(initial=0.0)
    return step * (_LONGEST_STEP / longest) if longest > _LONGEST_STEP else step


def moved(H: Matrix, step: Matrix) -> Matrix:
    """Return (I + D) H for a step in the off-diagonal entries of D."""
    n = len(H)
    D = np.zeros(n * n)
    D[~np.eye(n, dtype=bool).ravel()] = step
    return H + D.reshape(n, n) @ H


def descend(
    H: Matrix,
    expand: Callable[[Matrix], Expansion],
    value: Callable[[Matrix], float],
    normalised: Callable[[Matrix], Matrix],
    *,
    max_steps: int,
    tolerance: float,
    start: Expansion | None = None,
) -> tuple[Matrix, float]:
    """Go downhill until a step gains less than the tolerance; return the encoder and the value.

    Rows are brought to a common scale by `normalised` after every step.
    """
    H = normalised(H)
    point = expand(H) if start is None else start
    damping = _FIRST_DAMPING
    for steps_left in reversed(range(max_steps)):
        found = _lower(H, point, value, normalised, damping)
        if found is None:
            break
        H, lower, damping = found
        if point.value - lower < tolerance or steps_left == 0:
            return H, lower
        point = expand(H)
    return H, point.value


def _lower(
    H: Matrix,
    point: Expansion,
    value: Callable[[Matrix], float],
    normalised: Callable[[Matrix], Matrix],
    damping: float,
) -> tuple[Matrix, float, float] | None:
    """Return an encoder with a lower value, that value, and the damping to go on with."""
    for _ in range(_MOST_TRIES):
        candidate = normalised(moved(H, point.step(damping)))
        reached = value(candidate)
        if reached < point.value:
            return candidate, reached, max(damping / 10, _LEAST_DAMPING)
        damping *= 8
    return None
