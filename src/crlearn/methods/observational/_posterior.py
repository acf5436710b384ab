"""Observational latents and noises behind measurement noise: posterior means and variances.

The prior is the fit's: mechanisms and densities of noises. Draws are made of the same normals for
all rows and calls, evenly spread (Sobol's points), so that a row has one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, qmc

from crlearn.likelihood import weighted_signals
from crlearn.result import LinearEncoder
from crlearn.scores import Posterior
from crlearn.tags import stored

Matrix = NDArray[np.floating]

_LARGEST = 1e50  # signal, in sds, whose mechanisms are surely finite
_LOG_DRAWS = 7  # two to this power for each row, in each of three parts


class Signals(Protocol):
    """The distribution of a signal: `crlearn.likelihood.SignalPrior`, or the true one."""

    def latents(self, signal: Matrix) -> Matrix:
        """Return the latents of rows of a signal."""
        ...

    def noises(self, signal: Matrix) -> Matrix:
        """Return the exogenous noises of rows of a signal."""
        ...

    def log_density(self, signal: Matrix) -> NDArray[np.floating]:
        """Return the log-density of rows of a signal."""
        ...


@stored("encoder/mechanisms-posterior")
@dataclass(frozen=True, eq=False)
class MechanismsPosterior:
    """Posterior means of latents behind a noisy linear measurement, given their mechanisms.

    Attributes
    ----------
    signal
        The map from observations to the signal with noise.
    noise
        Covariance of the noise of the signal.
    prior
        Distribution of the signal.
    scale
        Units in which the latents come out, with signs.
    """

    signal: LinearEncoder
    noise: Matrix
    prior: Signals
    scale: Matrix

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return len(self.scale)

    @property
    def offset(self) -> Matrix:
        """What is taken off each row."""
        return self.signal.offset

    def __call__(self, X: Matrix) -> Matrix:
        """Return the posterior means of the latents of each row of `X`."""
        return self.posterior(X).mean

    def posterior(self, X: Matrix) -> Posterior:
        """Return posterior means and variances of the latents of each row of `X`."""
        return self._posterior(X, self.prior.latents)

    def posterior_of_noises(self, X: Matrix) -> Posterior:
        """Return posterior means and variances of the exogenous noises of each row of `X`."""
        return self._posterior(X, self.prior.noises)

    def _posterior(self, X: Matrix, function: Callable[[Matrix], Matrix]) -> Posterior:
        n = self.n_latents

        def powers(signal: Matrix) -> Matrix:
            values = function(signal) * self.scale
            return np.concatenate([values, values**2], axis=1)

        points, signal = _even_points(n), self.signal(X)
        moments = np.full((len(signal), 2 * n), np.nan)
        finite = (np.abs(signal) < _LARGEST).all(axis=1)
        parts = weighted_signals(
            signal[finite], self.noise, self.prior, lambda _: points, points.shape[1]
        )
        moments[finite] = np.concatenate([moments[:0], *(part.expected(powers) for part in parts)])
        mean, square = moments[:, :n], moments[:, n:]
        return Posterior(mean, np.maximum(square - mean**2, 0.0))


@stored("noise/posterior-of-mechanisms")
@dataclass(frozen=True, eq=False)
class MechanismNoisePosterior:
    """Map from observations to posterior means of exogenous noises.

    Attributes
    ----------
    latents
        Posterior of the latents.
    """

    latents: MechanismsPosterior

    @property
    def n_latents(self) -> int:
        """Number of noises."""
        return self.latents.n_latents

    def __call__(self, X: Matrix) -> Matrix:
        """Return the noises of each row of `X`."""
        return self.latents.posterior_of_noises(X).mean


@cache
def _even_points(n: int) -> Matrix:
    """Return points that stand for a standard Gaussian, three times, ``(1, draws, n)``."""
    points = norm.ppf(qmc.Sobol(3 * n, rng=0).random_base2(_LOG_DRAWS))
    return np.concatenate(np.split(points, 3, axis=1))[None]
