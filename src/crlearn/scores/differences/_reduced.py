"""Scores in coordinates of a method's own choice."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.scores._base import Rows, ScoreDifference


class ReducedScores:
    """A score that wants rows as they were observed, at work in the span of the mixing.

    There are n coordinates u with ``x = basis @ u + offset``, and the difference in them is that
    of x times the basis.

    Parameters
    ----------
    score
        With ``original_coordinates``.
    basis
        Orthonormal columns, ``(d, n)``.
    offset
        The point of the span that has coordinates zero, ``(d,)``.
    """

    def __init__(self, score: ScoreDifference, basis: Rows, offset: Rows) -> None:
        self.score = score
        self.basis = basis
        self.offset = offset

    def fit(self, X: ArrayLike, codes: ArrayLike) -> Self:
        """Fit the score to the rows that the coordinates stand for."""
        self.score = self.score.fit(self._observed(X), codes)
        return self

    def difference(self, X: ArrayLike, environment: int) -> Rows:
        """Return score of the reference minus score of the environment at each row."""
        return self.score.difference(self._observed(X), environment) @ self.basis

    def _observed(self, X: ArrayLike) -> Rows:
        return np.asarray(X, dtype=float) @ self.basis.T + self.offset


def in_basis(score: Any, basis: Rows, offset: Rows) -> ScoreDifference:
    """Return a score for rows ``(x - offset) @ basis``; see `ReducedScores`."""
    if getattr(score, "original_coordinates", False):
        return ReducedScores(score, basis, offset)
    return score


def all_differences(
    score: ScoreDifference, X: Rows, codes: NDArray[np.intp], at: Rows
) -> NDArray[np.floating]:
    """Fit a score; return the differences of environments 1, 2, ... at the rows `at`, stacked."""
    fitted = score.fit(X, codes)
    return np.array([fitted.difference(at, code) for code in range(1, int(codes.max()) + 1)])
