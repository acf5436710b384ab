"""Observational latents and noises behind measurement noise: posterior means and variances.

The prior is the fit's: mechanisms and densities of noises. Draws of the measurement noise are the
same for all rows and calls, evenly spread (Sobol's points), so that a row has one answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, qmc

from crlearn.likelihood import SignalPrior, weighted_signals
from crlearn.result import LinearEncoder
from crlearn.scores import Posterior
from crlearn.tags import stored

Matrix = NDArray[np.floating]

_LOG_DRAWS = 8  # two to this power, for each row


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
    prior: SignalPrior
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
        n = self.n_latents

        def powers(signal: Matrix) -> Matrix:
            Z = self.prior.latents(signal)
            return np.concatenate([Z, Z**2], axis=1)

        moments = self._expected(X, powers)
        mean, square = moments[:, :n], moments[:, n:]
        variance = np.maximum(square - mean**2, 0.0)
        return Posterior(mean * self.scale, variance * self.scale**2)

    def noises(self, X: Matrix) -> Matrix:
        """Return the posterior means of the exogenous noises of each row of `X`."""
        return self._expected(X, self.prior.noises) * self.scale

    def _expected(self, X: Matrix, function) -> Matrix:
        noise = _even_points(self.n_latents) @ np.linalg.cholesky(self.noise).T
        parts = weighted_signals(self.signal(X), self.prior, lambda _: noise, len(noise))
        return np.concatenate([part.expected(function) for part in parts])


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
        return self.latents.noises(X)


@cache
def _even_points(n: int) -> Matrix:
    """Return points that stand for a standard Gaussian in n dimensions."""
    points = qmc.Sobol(n, rng=0).random_base2(_LOG_DRAWS)
    return norm.ppf(points)
