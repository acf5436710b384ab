"""Cubic B-splines on uniform knots, with linear tails: the basis of structured scores.

All coordinates have the same number of basis functions, each its own interval. Inside the interval
the basis functions sum to one, so that constants and the coordinate itself are in their span;
outside it each is continued as a straight line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crlearn.tags import stored

Matrix = NDArray[np.floating]
Basis = NDArray[np.floating]  # coordinates x rows x basis functions

# Knots span the bulk of the data: this share of the rows is left outside on either side.
_OUTSIDE = 0.002
_DEGREE = 3


@stored("score/cubic-splines")
@dataclass(frozen=True, eq=False)
class CubicSplines:
    """Cubic B-splines, one interval for each coordinate.

    Attributes
    ----------
    low, high
        First and last knot of each coordinate.
    n_intervals
        Between them; there are three basis functions more than intervals.
    """

    low: NDArray[np.floating]
    high: NDArray[np.floating]
    n_intervals: int

    @classmethod
    def spanning(cls, rows: Matrix, n_knots: int) -> CubicSplines:
        """Put knots, boundaries included, over the bulk of each column."""
        low, high = np.quantile(rows, [_OUTSIDE, 1 - _OUTSIDE], axis=0)
        return cls.between(low, high, n_knots)

    @classmethod
    def between(cls, low: Matrix, high: Matrix, n_knots: int) -> CubicSplines:
        """Put knots, boundaries included, over given intervals; empty ones are widened."""
        low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
        smallest = np.maximum(1e-9 * np.maximum(np.abs(low), np.abs(high)), 1e-300)
        return cls(low, np.maximum(high, low + smallest), n_knots - 1)

    @property
    def n_basis(self) -> int:
        """Number of basis functions of each coordinate."""
        return self.n_intervals + _DEGREE

    @property
    def width(self) -> NDArray[np.floating]:
        """Distance of neighbouring knots."""
        return (self.high - self.low) / self.n_intervals

    def __call__(self, rows: Matrix) -> tuple[Basis, Basis]:
        """Return the basis functions at each row, and their derivatives; coordinates first."""
        places, near, steep = self.local(rows)
        values = np.zeros((*places.shape[:2], self.n_basis))
        slopes = np.zeros_like(values)
        np.put_along_axis(values, places, near, axis=-1)
        np.put_along_axis(slopes, places, steep, axis=-1)
        return values, slopes

    def local(self, rows: Matrix) -> tuple[NDArray[np.intp], Basis, Basis]:
        """Return which four basis functions are not zero at each row, their values and slopes."""
        low, high, width = (ends[:, None] for ends in (self.low, self.high, self.width))
        inside = np.clip(rows.T, low, high)
        position = (inside - low) / width
        cell = np.minimum(position.astype(np.intp), self.n_intervals - 1)
        t = position - cell
        values, slopes = _values(t), _slopes(t) / width[..., None]
        beyond = rows.T - inside
        outside = np.nonzero(beyond)
        if len(outside[0]):
            values[outside] += slopes[outside] * beyond[outside][:, None]
        return cell[..., None] + np.arange(_DEGREE + 1), values, slopes

    def beyond(self, rows: Matrix) -> Matrix:
        """Return how far each entry lies outside its interval, in lengths of the interval."""
        outside = np.maximum(self.low - rows, rows - self.high)
        return np.maximum(outside, 0.0) / (self.high - self.low)


def _values(t: Matrix) -> Basis:
    pieces = ((1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3)
    return np.stack(pieces, axis=-1) / 6


def _slopes(t: Matrix) -> Basis:
    pieces = (-((1 - t) ** 2), 3 * t**2 - 4 * t, -3 * t**2 + 2 * t + 1, t**2)
    return np.stack(pieces, axis=-1) / 2
