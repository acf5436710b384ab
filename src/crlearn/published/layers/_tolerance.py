"""The smallest tolerance: a direction along which no Jacobian of a sample is far from zero.

Appendix C.2 of Welch, Zhang and Uhler asks for the least t such that ``|v' J_m v| <= t`` for all
samples m and some v of length one, by a commercial solver. Here linear programs take the place of
the quadratic one: along a direction, every ``v' J_m v`` is replaced by its tangent, the largest of
them is made as small as it can be inside a trust region, and samples enter the program when they
are violated (cutting planes). It starts where the Jacobians are smallest in mean square, which is
the answer for exact ones, and at the best of many random directions, as noise leaves many local
minima; these are first followed on the largest Jacobians alone.

Cost: O(N k^2) for each step, and a linear program of k variables with some dozens of constraints.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from crlearn.scores import isotropic_subspace, principal_matrices

Matrix = NDArray[np.floating]

# Random directions that are tried; starts are the best, if not alike. They are followed on the
# largest Jacobians, and the best of them on all.
_N_DIRECTIONS, _N_STARTS, _N_FINALISTS, _ALIKE = 2000, 4, 2, 0.9
_MOST_ROWS_OF_A_TRIAL = 1000
_MOST_STEPS, _MOST_CUTS = 60, 6
_FIRST_RADIUS, _LEAST_RADIUS = 0.1, 1e-7
_ROWS_OF_A_CUT = 12
# A search rests where tangents promise less than this share.
_CONVERGED = 1e-4
# What is below this share of the largest Jacobian is zero: exact Jacobians have leaves.
_ROUNDING = 1e-9


def flattest_direction(jacobians: Matrix, rng: np.random.Generator) -> tuple[Matrix, float]:
    """Return the unit vector whose largest ``|v' J_m v|`` is least, and that value.

    Parameters
    ----------
    jacobians
        Symmetric, ``(N, k, k)``.
    rng
        Draws the starts.
    """
    k = jacobians.shape[1]
    if k == 1:
        return np.ones(1), float(np.abs(jacobians).max())
    rounding = _ROUNDING * float(np.abs(jacobians).max())
    start = isotropic_subspace(principal_matrices(jacobians), 1, rng)[0][:, 0]
    best, least = _descend(jacobians, start, rounding)
    if least <= rounding:
        return best, least
    largest = np.argsort(np.linalg.norm(jacobians, axis=(1, 2)))[-_MOST_ROWS_OF_A_TRIAL:]
    few = jacobians[largest]
    trials = [_descend(few, start, rounding) for start in _promising(few, rng)]
    for start, _ in sorted(trials, key=lambda trial: trial[1])[:_N_FINALISTS]:
        direction, tolerance = _descend(jacobians, start, rounding)
        if tolerance < least:
            best, least = direction, tolerance
    return best, least


def _promising(jacobians: Matrix, rng: np.random.Generator) -> list[Matrix]:
    """Return the best of many random directions, those only that are not alike."""
    directions = rng.normal(size=(_N_DIRECTIONS, jacobians.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    squares = directions[:, :, None] * directions[:, None, :]
    along = np.tensordot(jacobians, squares, axes=((1, 2), (1, 2)))
    starts: list[Matrix] = []
    for candidate in directions[np.abs(along).max(axis=0).argsort()]:
        if all(abs(candidate @ start) < _ALIKE for start in starts):
            starts.append(candidate)
        if len(starts) == _N_STARTS:
            break
    return starts


def curvatures(jacobians: Matrix, direction: Matrix) -> Matrix:
    """Return ``v' J_m v`` of every sample."""
    return (jacobians @ direction) @ direction


def _descend(jacobians: Matrix, direction: Matrix, rounding: float) -> tuple[Matrix, float]:
    """Make the largest curvature smaller, step by step, as far as tangents show a way."""
    tolerance = float(np.abs(curvatures(jacobians, direction)).max())
    radius = _FIRST_RADIUS
    for _ in range(_MOST_STEPS):
        if radius < _LEAST_RADIUS or tolerance <= rounding:
            break
        moved, promised = _step(jacobians, direction, radius)
        if tolerance - promised <= _CONVERGED * tolerance:
            break
        reached = float(np.abs(curvatures(jacobians, moved)).max())
        if reached < tolerance:
            direction, tolerance, radius = moved, reached, 2 * radius
        else:
            radius /= 4
    return direction, tolerance


def _step(jacobians: Matrix, direction: Matrix, radius: float) -> tuple[Matrix, float]:
    """Return the direction in a box whose largest tangent is least, and that tangent.

    By cutting planes.
    """
    across = np.linalg.qr(direction[:, None], mode="complete")[0][:, 1:]
    images = jacobians @ direction
    values, slopes = images @ direction, 2 * images @ across
    move, cuts = np.zeros(across.shape[1]), np.zeros(0, dtype=np.intp)
    tangents = np.abs(values)
    for _ in range(_MOST_CUTS):
        worst = np.argpartition(tangents, -min(_ROWS_OF_A_CUT, len(tangents)))[-_ROWS_OF_A_CUT:]
        known, cuts = len(cuts), np.union1d(cuts, worst)
        if len(cuts) == known:
            break
        move = _least_largest(values[cuts], slopes[cuts], radius)
        tangents = np.abs(values + slopes @ move)
    moved = direction + across @ move
    return moved / np.linalg.norm(moved), float(tangents.max())


def _least_largest(values: Matrix, slopes: Matrix, radius: float) -> Matrix:
    """Return the move in a box for which the largest ``|values + slopes @ move|`` is least."""
    unit = float(np.abs(values).max()) or 1.0
    n_moves = slopes.shape[1]
    rows = np.concatenate([slopes, -slopes]) * (radius / unit)
    program = linprog(
        np.append(np.zeros(n_moves), 1.0),
        A_ub=np.column_stack([rows, -np.ones(len(rows))]),
        b_ub=np.concatenate([-values, values]) / unit,
        bounds=[(-1.0, 1.0)] * n_moves + [(0.0, None)],
        method="highs",
    )
    return np.zeros(n_moves) if program.x is None else radius * program.x[:-1]
