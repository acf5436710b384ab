"""Soft steps ``tanh(w @ u)`` whose places are learned, by variable projection.

A sum of soft steps is linear in its coefficients, which least squares give for any places. What is
left to search are the places alone, by Levenberg-Marquardt steps with the part of the slopes that
coefficients cannot make up for (L. Kaufman, A variable projection method for solving separable
nonlinear least squares problems, 1975). Outputs share the steps.

Cost: O(N m^2 p^2 + m^3 p^3) for each of at most 60 steps, N rows, m soft steps and p predictors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]

_MOST_STEPS = 60
_LONGEST_STEP = 0.5
# Added to the mean squares of functions, lest two equal ones have no least squares.
_RIDGE = 1e-8
# A search ends if so many steps reduce the error by less than this share, or at an error (where
# outputs have variance one) that the ridge alone leaves.
_PATIENCE, _CONVERGED, _SMALLEST_ERROR = 8, 1e-2, 1e-9
_FIRST_DAMPING, _LEAST_DAMPING, _DAMPING_FACTOR, _MOST_TRIES = 1e-2, 1e-9, 4.0, 6


@dataclass(frozen=True, eq=False)
class _Fit:
    """Least squares on constant, predictors and soft steps."""

    functions: Matrix
    moments: Matrix
    coefficients: Matrix
    residuals: Matrix
    error: float


def train_soft_steps(rows: Matrix, targets: Matrix, start: Matrix) -> Matrix:
    """Return places of soft steps that explain targets beside a linear function.

    Parameters
    ----------
    rows
        Standardised predictors, ``(N, p)``.
    targets
        ``(N, outputs)``; each output counts in units of its standard deviation.
    start
        Direction and shift of each soft step to begin with, ``(m, p + 1)``.

    Returns
    -------
    places
        The same, with an error that is no larger.
    """
    predictors = np.column_stack([rows, np.ones(len(rows))])
    spread = targets.std(axis=0)
    outputs = (targets - targets.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    places, fit, damping = start, _fitted(predictors, outputs, start), _FIRST_DAMPING
    errors = [fit.error]
    for _ in range(_MOST_STEPS):
        slope, curvature = _derivatives(predictors, fit)
        for _ in range(_MOST_TRIES):
            ridge = damping * np.trace(curvature) / len(curvature) + np.finfo(float).tiny
            step = np.linalg.solve(curvature + ridge * np.eye(len(curvature)), slope)
            step = np.clip(step, -_LONGEST_STEP, _LONGEST_STEP).reshape(places.shape)
            moved = _fitted(predictors, outputs, places + step)
            if moved.error < fit.error:
                places, fit = places + step, moved
                damping = max(damping / _DAMPING_FACTOR, _LEAST_DAMPING)
                break
            damping *= _DAMPING_FACTOR
        errors.append(fit.error)
        before = errors[max(len(errors) - 1 - _PATIENCE, 0)]
        resting = len(errors) > _PATIENCE and before - fit.error < _CONVERGED * fit.error
        if resting or fit.error < _SMALLEST_ERROR:
            break
    return places


def _fitted(predictors: Matrix, outputs: Matrix, places: Matrix) -> _Fit:
    functions = np.column_stack([predictors, np.tanh(predictors @ places.T)])
    moments = functions.T @ functions / len(functions)
    moments += _RIDGE * np.eye(len(moments))
    coefficients = np.linalg.solve(moments, functions.T @ outputs / len(functions))
    residuals = outputs - functions @ coefficients
    return _Fit(functions, moments, coefficients, residuals, float((residuals**2).mean()))


def _derivatives(predictors: Matrix, fit: _Fit) -> tuple[Matrix, Matrix]:
    """Return the way downhill and the Gauss-Newton curvature, by the entries of the places.

    The slope of a soft step is the same for all outputs up to its coefficient, so that second
    moments of slopes are taken once.
    """
    n_rows, p = predictors.shape
    steepness = 1 - fit.functions[:, p:] ** 2
    slopes = (steepness[:, :, None] * predictors[:, None, :]).reshape(n_rows, -1)
    across = slopes.T @ fit.functions / n_rows
    beyond = slopes.T @ slopes / n_rows - across @ np.linalg.solve(fit.moments, across.T)
    own = np.repeat(fit.coefficients[p:], p, axis=0)
    downhill = (slopes.T @ fit.residuals / n_rows * own).sum(axis=1)
    return downhill, beyond * (own @ own.T)
