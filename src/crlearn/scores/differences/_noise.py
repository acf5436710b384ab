"""Is a score difference zero, or is it not? Half-samples tell what noise alone would give.

A mean square is never zero. But a fit on a random half of the rows differs from the fit on all of
them by as much as the latter differs from its limit: variance 2/N - 1/N = 1/N. So the fits on
halves show how large, and in how many independent directions, the noise of a difference is. They
say nothing about its bias: Gaussian scores of data that are not Gaussian are wrong in the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import f as f_distribution

from crlearn.scores._base import Codes


@dataclass(frozen=True)
class ZeroTest:
    """Test of the hypothesis that a function is zero.

    Attributes
    ----------
    mean_square
        Mean square of the estimated function over the rows.
    noise
        What noise alone is expected to give.
    directions
        In how many independent directions the noise varies: the degrees of freedom.
    n_halves
        Number of half-samples that showed the noise.
    """

    mean_square: float
    noise: float
    directions: float
    n_halves: int

    @property
    def p_value(self) -> float:
        """Chance that noise alone gives as large a mean square."""
        if self.noise == 0:
            return 0.0 if self.mean_square > 0 else 1.0
        return float(f_distribution.sf(self.mean_square / self.noise, *self._null))

    def critical_value(self, level: float) -> float:
        """Return the mean square that noise alone exceeds with this chance."""
        return self.noise * float(f_distribution.isf(level, *self._null))

    @property
    def _null(self) -> tuple[float, float]:
        """Degrees of freedom of the mean square and of its estimate."""
        return self.directions, self.directions * self.n_halves


def random_half(codes: Codes, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the numbers of half of the rows of each environment, drawn at random."""
    halves = []
    for code in np.unique(codes):
        rows = rng.permutation(np.flatnonzero(codes == code))
        halves.append(rows[: (len(rows) + 1) // 2])
    return np.sort(np.concatenate(halves))


def zero_test(function: ArrayLike, halves: ArrayLike, rounding: float = 0.0) -> ZeroTest:
    """Test whether an estimated function is zero.

    The mean square of noise is a weighted sum of squares; it is taken for a multiple of chi-squared
    with the same mean and variance, and that the mean comes from the halves makes it F.

    Parameters
    ----------
    function
        Values at the rows, any shape.
    halves
        The same, estimated on random halves of the data: one more axis, in front.
    rounding
        Mean square that counts as zero even if the halves show no noise at all.
    """
    function = np.ravel(np.asarray(function, dtype=float))
    deviations = np.asarray(halves, dtype=float).reshape(-1, len(function)) - function
    n_halves = len(deviations)
    if n_halves < 2:
        raise ValueError(f"'halves' must hold at least two fits. Got {n_halves}.")
    products = deviations @ deviations.T / len(function)
    noise = np.trace(products) / n_halves
    # Halves are independent of each other, so these squares are unbiased for the sum of squares.
    squares = (products**2).sum() - (np.diagonal(products) ** 2).sum()
    squares /= n_halves * (n_halves - 1)
    directions = 1.0 if squares == 0 else max(1.0, float(noise**2 / squares))
    return ZeroTest(float(np.mean(function**2)), float(noise) + rounding, directions, n_halves)
