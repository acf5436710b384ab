"""What a fit says of the signal behind measurement noise, and what follows for a noisy row.

A row is y = s + v with Gaussian noise v of known covariance, and s has the density of the fit: of
latents z = H s that are mechanisms of each other plus noises. What s may have been is drawn by
importance sampling in two steps (Cappe, Guillin, Marin and Robert, Journal of Computational and
Graphical Statistics, 2004): y minus draws of v show about where s is, which may be known far better
than v is small; then half of the draws are of a Gaussian there, half are y minus new draws of v.
The mean weight of these is the likelihood of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood._fit import Fit
from crlearn.likelihood.core._density import Density
from crlearn.likelihood.observational._mechanisms import (
    Mechanisms,
    is_gaussian,
    mechanisms_of,
    noises_of,
)
from crlearn.tags import stored

Matrix = NDArray[np.floating]
Vector = NDArray[np.floating]
Normals = Callable[[int], Matrix]  # standard normals for so many rows, ``(rows, draws, n)``

_ENTRIES_AT_ONCE = 1_000_000  # of draws, in memory


class HasDensity(Protocol):
    """The distribution of a signal."""

    def log_density(self, signal: Matrix) -> Vector:
        """Return the log-density of rows of a signal."""
        ...


@stored("noise/signal-prior")
@dataclass(frozen=True, eq=False)
class SignalPrior:
    """The distribution of a signal of independent rows.

    Attributes
    ----------
    H
        Encoder of the signal, one row for each latent.
    mechanisms
        What is predicted of each latent.
    densities
        Of the noise of each latent.
    """

    H: Matrix
    mechanisms: Mechanisms
    densities: tuple[Density, ...]

    def latents(self, signal: Matrix) -> Matrix:
        """Return the latents of rows of a signal."""
        return signal @ self.H.T

    def noises(self, signal: Matrix) -> Matrix:
        """Return what the mechanisms leave of the latents."""
        Z = self.latents(signal)
        return Z - self.mechanisms(Z)

    def log_density(self, signal: Matrix) -> Vector:
        """Return the log-density of rows of a signal."""
        noises = self.noises(signal)
        each = (density.log_density(noises[:, j]) for j, density in enumerate(self.densities))
        return sum(each, start=np.full(len(signal), np.linalg.slogdet(self.H)[1]))


@dataclass(frozen=True, eq=False)
class Weighted:
    """Signals that some noisy rows may have had, ``(rows, draws, n)``, with log weights."""

    signals: Matrix
    log_weights: Matrix

    @property
    def shares(self) -> Matrix:
        """Weights that add up to one for each row."""
        weights = np.exp(self.log_weights - self.log_weights.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    @property
    def log_likelihood(self) -> Vector:
        """The log of each row's mean weight, and what that of so few draws is too small by."""
        largest = self.log_weights.max(axis=1)
        weights = np.exp(self.log_weights - largest[:, None])
        mean = weights.mean(axis=1)
        too_small = weights.var(axis=1) / (2 * weights.shape[1] * mean**2)
        return largest + np.log(mean) + too_small

    def moments(self, noise: Matrix) -> tuple[Matrix, Matrix]:
        """Return means and covariances; the fewer draws count, the nearer to those of the noise."""
        shares = self.shares
        mean = np.einsum("im,imk->ik", shares, self.signals)
        off = self.signals - mean[:, None]
        scatter = np.einsum("im,imk,iml->ikl", shares, off, off)
        n = len(noise)
        counting = (1 / (shares**2).sum(axis=1))[:, None, None]
        return mean, (counting * scatter + n * noise) / (counting + n)

    def drawn(self, rng: np.random.Generator) -> Matrix:
        """Return one signal for each row, with the probability of its weight."""
        ends = np.cumsum(self.shares, axis=1)
        chosen = (ends < rng.random((len(ends), 1))).sum(axis=1).clip(max=ends.shape[1] - 1)
        return self.signals[np.arange(len(ends)), chosen]

    def expected(self, function: Callable[[Matrix], Matrix]) -> Matrix:
        """Return the posterior mean of a function of the signal."""
        shape = self.signals.shape
        values = function(self.signals.reshape(-1, shape[2])).reshape(*shape[:2], -1)
        return np.einsum("im,imk->ik", self.shares, values)


def prior_of(fit: Fit, rows: Matrix) -> SignalPrior:
    """Return the distribution that a fit to rows of the signal has for it."""
    if is_gaussian(fit):
        densities = tuple(map(Density.gaussian, noises_of(fit, rows).std(axis=0)))
    else:
        # What a fit to similar values would start from is not kept.
        densities = tuple(
            replace(fit.parameters[j, 0].density, grid=None, weights=np.zeros(0))
            for j in range(len(fit.H))
        )
    return SignalPrior(fit.H, mechanisms_of(fit, rows), densities)


def weighted_signals(
    y: Matrix, noise: Matrix, prior: HasDensity, normals: Normals, n_draws: int
) -> Iterator[Weighted]:
    """Yield what the rows may have been without noise, some rows at a time.

    Parameters
    ----------
    y, noise
        Rows with noise, and its covariance.
    prior
        Distribution of the rows without it.
    normals
        A third of its draws are for the first step; one row of them may serve all rows.
    n_draws
        Number of draws for each row, a multiple of three.
    """
    n = len(noise)
    step = max(1, _ENTRIES_AT_ONCE // (n_draws * n))

    def log_density(signals: Matrix) -> Matrix:
        return prior.log_density(signals.reshape(-1, n)).reshape(signals.shape[:2])

    for start in range(0, len(y), step):
        rows = y[start : start + step]
        measured = Gaussians(rows, np.broadcast_to(noise, (len(rows), n, n)))
        first, second, third = np.split(normals(len(rows)), 3, axis=1)
        glance = measured.drawn(first)
        found = Gaussians(*Weighted(glance, log_density(glance)).moments(noise))
        signals = np.concatenate([measured.drawn(second), found.drawn(third)], axis=1)
        likelihood = measured.log_density(signals)
        proposed = np.logaddexp(likelihood, found.log_density(signals)) - np.log(2)
        yield Weighted(signals, log_density(signals) + likelihood - proposed)


@dataclass(frozen=True, eq=False)
class Gaussians:
    """One for each row: means ``(rows, n)`` and covariances ``(rows, n, n)``."""

    mean: Matrix
    covariance: Matrix

    @cached_property
    def _root(self) -> Matrix:
        return np.linalg.cholesky(self.covariance)

    def drawn(self, normals: Matrix) -> Matrix:
        """Return draws that are made of standard normals."""
        return self.mean[:, None] + normals @ np.swapaxes(self._root, 1, 2)

    def log_density(self, values: Matrix) -> Matrix:
        """Return the log-density of values of each row."""
        white = (values - self.mean[:, None]) @ np.swapaxes(np.linalg.inv(self._root), 1, 2)
        volume = np.log(np.diagonal(self._root, axis1=1, axis2=2)).sum(axis=1)
        n = values.shape[2]
        return -0.5 * (white**2).sum(axis=2) - volume[:, None] - 0.5 * n * np.log(2 * np.pi)
