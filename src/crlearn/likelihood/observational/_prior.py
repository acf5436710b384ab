"""What a fit says of the signal behind measurement noise, and what follows for a noisy row.

A row is y = s + v with Gaussian noise v of known covariance, and s has the density of the fit: of
latents z = H s that are mechanisms of each other plus noises. Given y, s is y minus a draw of v,
each draw weighted by the density of what is left (importance sampling). The mean weight is the
likelihood of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
Draws = Callable[[int], Matrix]  # noise for so many rows, ``(rows, draws, n)``

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

    rows: slice
    signals: Matrix
    log_weights: Matrix

    @property
    def shares(self) -> Matrix:
        """Weights that add up to one for each row."""
        weights = np.exp(self.log_weights - self.log_weights.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    @property
    def log_likelihood(self) -> Vector:
        """The log of each row's mean weight."""
        largest = self.log_weights.max(axis=1)
        return largest + np.log(np.exp(self.log_weights - largest[:, None]).mean(axis=1))

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
    y: Matrix, prior: HasDensity, draws: Draws, n_draws: int
) -> Iterator[Weighted]:
    """Yield what the rows may have been without noise, some rows at a time."""
    step = max(1, _ENTRIES_AT_ONCE // (n_draws * y.shape[1]))
    for start in range(0, len(y), step):
        rows = slice(start, min(start + step, len(y)))
        signals = y[rows, None, :] - draws(rows.stop - rows.start)
        log_weights = prior.log_density(signals.reshape(-1, y.shape[1]))
        yield Weighted(rows, signals, log_weights.reshape(signals.shape[:2]))
