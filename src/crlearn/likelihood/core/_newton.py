"""Newton's method, damped: the one loop by which models of the likelihood are minimised.

Steps solve (Hessian + damping S) step = -gradient with S the size of the Hessian's diagonal
(Marquardt), so that neither the units of parameters nor the number of rows matter. Parameters that
are alike, as the entries of an encoder or angles are, share the mean size (Levenberg): of four
multi-node worlds with 13 and 14 latents and few rows, two more were solved so. Where the Hessian is
indefinite, directions of negative curvature are reversed. A step that does not lower the value is
taken again with more damping.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

Matrix = NDArray[np.floating]
Vector = NDArray[np.floating]
State = TypeVar("State")

_factorised, _solved_by = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)

STEPS_OF_A_CHANGE = 20  # enough where the start is the optimum of a similar model
# Shares of the Hessian's diagonal.
_SMALLEST_CURVATURE = 1e-6
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-9, 1e8
_LESS, _MORE = 0.1, 8.0  # damping after a step that lowers the value, and after one that does not


@dataclass(frozen=True, eq=False)
class Expansion:
    """A function around a point: value, gradient and Hessian (or what stands in for it).

    `alike` says whether all parameters are in the same units.
    """

    value: float
    gradient: Vector
    hessian: Matrix
    alike: bool = False

    @cached_property
    def size(self) -> Vector:
        """Size of the curvature along each parameter."""
        diagonal = np.abs(np.diag(self.hessian))
        if self.alike and len(diagonal):
            return np.full(len(diagonal), diagonal.mean() + 1e-300)
        return np.maximum(diagonal, _SMALLEST_CURVATURE * diagonal.max(initial=0.0) + 1e-300)

    def step(self, damping: float = _FIRST_DAMPING, longest: float = np.inf) -> Vector:
        """Return a damped Newton step, none of its entries larger than `longest`."""
        step = -self._solved(self.gradient[None], max(damping, _SMALLEST_CURVATURE))[0]
        largest = np.abs(step).max(initial=0.0)
        return step * (longest / largest) if largest > longest else step

    def gains(self, gradients: Matrix) -> Vector:
        """Return what a Newton step would gain if the gradient were another, for a stack of them.

        The Hessian stays as it is: for functions that differ little from this one.
        """
        return 0.5 * (gradients * self._solved(gradients, _SMALLEST_CURVATURE)).sum(axis=1)

    def after(self, step: Vector) -> float:
        """Return the value that the expansion promises after a step, or the present one."""
        change = float(self.gradient @ step + 0.5 * step @ self.hessian @ step)
        return self.value + min(0.0, change)

    def _solved(self, gradients: Matrix, damping: float) -> Matrix:
        """Return the gradients divided by the damped Hessian."""
        if not len(self.hessian):
            return gradients
        damped = np.array(self.hessian)
        damped.flat[:: len(damped) + 1] += damping * self.size
        # Ten times as fast as eigenvalues, and the same without negative curvature. LAPACK itself:
        # what scipy does around it takes longer than a small matrix.
        factor, failed = _factorised(damped, clean=False)
        if not failed:
            return _solved_by(factor, gradients.T)[0].T
        curvature, axes, unit = self._spectrum
        size = np.maximum(np.abs(curvature), _SMALLEST_CURVATURE) + damping
        return ((gradients / unit) @ axes / size) @ axes.T / unit

    @cached_property
    def _spectrum(self) -> tuple[Vector, Matrix, Vector]:
        unit = np.sqrt(self.size)
        curvature, axes = np.linalg.eigh(self.hessian / unit[:, None] / unit)
        return curvature, axes, unit


def descend(
    start: State,
    expand: Callable[[State], Expansion],
    value: Callable[[State], float],
    move: Callable[[State, Vector], State],
    *,
    max_steps: int,
    tolerance: float,
    longest: float = np.inf,
    first: Expansion | None = None,
    damping: float = _FIRST_DAMPING,
    least_promise: float = 0.0,
    goal: float = np.inf,
) -> tuple[State, float]:
    """Minimise until a step gains less than the tolerance; return the state and its value.

    Parameters
    ----------
    start
        Whatever the functions take.
    expand, value
        The function with and without its derivatives; `value` may be infinite.
    move
        Returns the state after a step, brought to a common scale.
    longest
        Largest entry of a step.
    first
        Expansion at the start, if it is known.
    damping
        Of the first step: none is needed where the function is convex.
    least_promise
        Steps that promise a smaller gain are not tried: where values have rounding errors of that
        size, these would decide.
    goal
        Given up where all steps that are left, if each gained what the next one promises, would not
        reach it.
    """
    state, point = start, expand(start) if first is None else first
    damping = max(damping, _LEAST_DAMPING)  # which is multiplied
    for steps_left in reversed(range(max_steps)):
        if goal < np.inf:
            promised = point.value - point.after(point.step(damping, longest))
            if point.value - (steps_left + 1) * promised > goal:
                break
        found = _lower(state, point, value, move, damping, longest, least_promise)
        if found is None:
            break
        state, lower, damping = found
        if point.value - lower < tolerance or steps_left == 0:
            return state, lower
        point = expand(state)
    return state, point.value


def _lower(
    state: State,
    point: Expansion,
    value: Callable[[State], float],
    move: Callable[[State, Vector], State],
    damping: float,
    longest: float,
    least_promise: float,
) -> tuple[State, float, float] | None:
    """Return a state with a lower value, that value, and the damping to go on with."""
    while damping < _MOST_DAMPING:
        step = point.step(damping, longest)
        if point.value - point.after(step) < least_promise:
            break
        candidate = move(state, step)
        reached = value(candidate)
        if reached < point.value:
            return candidate, reached, max(_LESS * damping, _LEAST_DAMPING)
        damping *= _MORE
    return None


def descend_all(
    x: Matrix,
    expand: Callable[[Matrix], tuple[Matrix, Matrix]],
    value: Callable[[Matrix], Vector],
    move: Callable[[Matrix, Matrix], Matrix],
    *,
    max_steps: int,
    tolerance: float,
    margin: float = np.inf,
) -> tuple[Matrix, Vector]:
    """Minimise from many starts at once, ``(C, q)``; return where they end, and the values.

    `expand` returns gradients ``(C, q)`` and Hessians ``(C, q, q)``. It ends when all that are
    within `margin` of the best have arrived.
    """
    reached, damping = value(x), np.full(len(x), _FIRST_DAMPING)
    for _ in range(max_steps):
        new = move(x, _stacked_steps(*expand(x), damping))
        values = value(new)
        better = values < reached
        moving = (reached - values > tolerance) | (~better & (damping < 1))
        damping = np.where(better, _LESS * damping, _MORE * damping)
        x, reached = np.where(better[:, None], new, x), np.where(better, values, reached)
        if not moving[reached <= reached.min() + margin].any():
            break
    return x, reached


def _stacked_steps(gradients: Matrix, hessians: Matrix, damping: Vector) -> Matrix:
    curvature, axes = np.linalg.eigh(hessians)
    size = np.abs(curvature)
    size += damping[:, None] * size.max(axis=1, keepdims=True)
    slope = axes.swapaxes(1, 2) @ gradients[..., None]
    return -(axes @ (slope / size[..., None]))[..., 0]
