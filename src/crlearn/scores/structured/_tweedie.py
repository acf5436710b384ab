"""From noisy latents to their posterior: Tweedie's formulas with a structured score.

If u = z + noise with noise of covariance S and u has the density f, then E[z | u] = u + S s(u) and
Cov[z | u] = S + S J(u) S, with s the gradient of log f and J its Jacobian: the prior of z itself is
never needed. A score of v = T^-1 u with symmetric T has s(u) = T^-1 s(v): the same reads u + G s(v)
and S + G J(v) G' with the gain G = S T^-1, which is R for T = R, R^2 = S.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from crlearn.scores.structured._score import StructuredScore
from crlearn.scores.structured._shifted import ShiftedScore
from crlearn.tags import stored

Matrix = NDArray[np.floating]

# A posterior variance is at least this share of the noise variance, whatever the spline says.
_SMALLEST_SHARE = 1e-3
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior means and variances of the latents, one row a sample, one column a latent."""

    mean: NDArray[np.floating]
    variance: NDArray[np.floating]

    @property
    def sd(self) -> NDArray[np.floating]:
        """Posterior standard deviations."""
        return np.sqrt(self.variance)

    def interval(self, level: float = 0.9) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the ends of intervals that hold each latent with this probability.

        They are those of a normal distribution with the posterior's mean and variance.
        """
        if not 0 < level < 1:
            raise ValueError(f"The 'level' must lie between 0 and 1. Got {level} instead.")
        reach = norm.ppf(0.5 + level / 2) * self.sd
        return self.mean - reach, self.mean + reach


@stored("encoder/denoiser")
@dataclass(frozen=True, eq=False)
class Denoiser:
    """The encoder of methods that denoise: a linear map, then Tweedie's formula.

    By default the score is that of noisy latents in coordinates in which their noise is white:
    errors of a score would be multiplied by the noise, which is large where columns of a mixing
    are alike.

    Attributes
    ----------
    matrix, offset
        Noisy latents are ``matrix @ (x - offset)``.
    root
        Symmetric square root of the covariance of their noise.
    score
        Of noisy latents in the coordinates of `axes` where the targets are known; None: as
        `pooled`.
    pooled
        The same where they are not; None: no shrinkage.
    shrinkage
        Share of Tweedie's correction that is made.
    reach
        How far rows of the fit lay outside the knots, in lengths of their interval.
    axes
        What noisy latents are divided by before the score sees them, one number each; posterior
        variances then use the slopes of the score along each latent only. None: `root`, and the
        whole Jacobian where noise is correlated.
    """

    matrix: NDArray[np.floating]
    offset: NDArray[np.floating]
    root: NDArray[np.floating]
    score: StructuredScore | ShiftedScore | None = None
    pooled: StructuredScore | None = None
    shrinkage: float = 1.0
    reach: float = 0.0
    axes: NDArray[np.floating] | None = None

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.matrix.shape[0]

    def __call__(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the posterior means of rows from unknown environments."""
        return self.posterior(X).mean

    def noisy(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the latents with their measurement noise."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is caught later
            return (np.asarray(X, dtype=float) - self.offset) @ self.matrix.T

    def posterior(
        self, X: NDArray[np.floating], intervened: NDArray[Any] | None = None
    ) -> Posterior:
        """Return means and variances; `intervened` tells the targets of each row's environment.

        They are doses where the score is a `ShiftedScore`.
        """
        noisy = self.noisy(X)
        variance = np.broadcast_to((self.root**2).sum(axis=0), noisy.shape).copy()
        score, targets = self.score, intervened
        if score is None or targets is None:
            score, targets = self.pooled, np.zeros(noisy.shape, dtype=bool)
        if score is None or not self.shrinkage:
            return Posterior(noisy, variance)
        mean = np.full_like(noisy, np.nan)
        usable = np.flatnonzero(np.isfinite(noisy).all(axis=1))
        for start in range(0, len(usable), _ROWS_AT_ONCE):
            rows = usable[start : start + _ROWS_AT_ONCE]
            mean[rows], variance[rows] = self._tweedie(score, noisy[rows], targets[rows])
        return Posterior(mean, variance)

    def beyond(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return how far each row lies outside the knots, in lengths of their interval."""
        if self.pooled is None:
            return np.zeros(len(X))
        return self.pooled.splines.beyond(self._coordinates(self.noisy(X))).max(axis=1)

    def _coordinates(self, noisy: Matrix) -> Matrix:
        return whitened(noisy, self.root) if self.axes is None else noisy / self.axes

    def _tweedie(
        self, score: StructuredScore | ShiftedScore, noisy: Matrix, intervened: NDArray[Any]
    ) -> tuple[Matrix, Matrix]:
        variances = (self.root**2).sum(axis=0)
        gain = self.root if self.axes is None else self.root @ self.root / self.axes
        is_diagonal = np.array_equal(self.root, np.diag(np.diag(self.root)))
        if self.axes is not None or is_diagonal:
            slope, curve = score(self._coordinates(noisy), intervened)
            change = curve @ (gain**2).T
        else:
            slope, jacobian = score(self._coordinates(noisy), intervened, jacobian=True)
            change = np.einsum("ij,njk,ki->ni", gain, jacobian, gain, optimize=True)
        mean = noisy + self.shrinkage * slope @ gain.T
        variance = variances + self.shrinkage * change
        return mean, np.maximum(variance, _SMALLEST_SHARE * variances)


def root_of(covariance: Matrix) -> Matrix:
    """Return the symmetric square root of a covariance; exactly diagonal if that is."""
    variances = np.diag(covariance)
    if np.array_equal(covariance, np.diag(variances)):
        return np.diag(np.sqrt(variances))
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def whitened(noisy: Matrix, root: Matrix) -> Matrix:
    """Return noisy latents in coordinates in which their noise has unit covariance."""
    return noisy @ np.linalg.inv(root)
