"""Poisson noise: counts whose variance beside the latents is their mean.

Given the latents, x_k ~ Poisson(rate_k) with rates that are linear in them, independent of the
other features. In environment e the covariance of X is that of the rates plus the means of the
features there on the diagonal: the noise is known, and differs between environments. In units of
the noise of all environments together the covariances are freed from it, get noise of variance one
for it, and show the span of the latents as other covariances do (`inputs._factors`).

Beside the latents a count scatters as much as its mean says. For row i let r be what the span
leaves of it, in these units, and h the diagonal of the projection onto the span. Then

    |r|^2 - sum_k (1 - h_k) x_k / mean_k

has the mean zero if noise is Poisson, whatever the rates (the index of dispersion, of all features
together).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from crlearn.inputs._factors import Covariances, Factors, find_factors_in_noise
from crlearn.result import Check

Matrix = NDArray[np.floating]
Vector = NDArray[np.floating]

_LEVEL = 1e-3  # p-value below which noise is not Poisson
_NAME = "noise is Poisson"


def are_counts(X: Matrix) -> bool:
    """Whether all entries are whole numbers of at least 0."""
    return bool((X >= 0).all() and (np.floor(X) == X).all())


def check_counts(X: Matrix) -> None:
    """Refuse what Poisson noise cannot leave."""
    if are_counts(X):
        return
    row, column = (int(place) for place in np.argwhere((X < 0) | (np.floor(X) != X))[0])
    raise ValueError(
        "With noise='poisson' X must hold counts, whole numbers of at least 0. Got "
        f"{X[row, column]:g} in row {row}, column {column}. Give the counts as they were taken: "
        "not normalised, no logarithms, no covariates (what is left without their effects are no "
        "counts any more); or set noise='gaussian'."
    )


class _Dispersion(NamedTuple):
    """Variance over mean, and its standard error."""

    ratio: float
    error: float

    @property
    def p_value(self) -> float:
        return 2 * float(norm.sf(abs(self.ratio - 1) / self.error)) if self.error > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of each environment, in units of the noise of all together.

    Attributes
    ----------
    parts
        Rows of each environment, divided by `unit`.
    unit
        Standard deviation of the noise of each feature: the root of its mean.
    """

    parts: Sequence[Matrix]
    unit: Vector

    @classmethod
    def of(cls, parts: Sequence[Matrix]) -> Counts:
        """Read the rows of each environment; every feature varies."""
        unit = np.sqrt(sum(part.sum(axis=0) for part in parts) / sum(map(len, parts)))
        return cls([part / unit for part in parts], unit)

    @cached_property
    def noise(self) -> Matrix:
        """Variance of each feature's noise in each environment, ``(E, d)``; one on average."""
        return np.array([part.mean(axis=0) for part in self.parts]) / self.unit

    @cached_property
    def measured(self) -> Covariances:
        """Covariances of the counts."""
        return Covariances.of(self.parts)

    @cached_property
    def covariances(self) -> Covariances:
        """Covariances with noise of variance one, instead of their own."""
        return self.measured.plus(1 - self.noise)

    def factors(self, n_latents: int) -> Factors:
        """Find the factors behind the noise."""
        return find_factors_in_noise(self.covariances, n_latents, np.ones_like(self.unit))

    def noise_along(self, span: Matrix) -> Matrix:
        """Return the covariance of the noise in the directions of a span, ``(E, n, n)``."""
        return span.T @ (self.noise[:, :, None] * span)

    def dispersion_check(self, span: Matrix) -> Check:
        """Check that beside the latents variances are means."""
        d, n = span.shape
        if d == n:
            why = "there are as many latents as features, and nothing beside them to test it by"
            return Check(_NAME, None, why)
        found = self._dispersion(span)
        return Check(
            _NAME,
            found.p_value >= _LEVEL,
            f"beside the {n} latents the variance of features is {found.ratio:.3f} times their "
            f"mean (standard error {found.error:.2g}, p = {found.p_value:.2g})",
        )

    def _dispersion(self, span: Matrix) -> _Dispersion:
        """Compare variances beside a span with means, row by row."""
        weights = (1 - (span**2).sum(axis=1)) / self.unit
        scatter, usual = [], []
        for part in self.parts:
            rows = part - part.mean(axis=0)
            left = rows - (rows @ span) @ span.T
            scatter.append((left**2).sum(axis=1) * len(part) / max(len(part) - 1, 1))
            usual.append(part @ weights)
        mean = float(np.concatenate(usual).mean())
        excess = (np.concatenate(scatter) - np.concatenate(usual)) / mean
        return _Dispersion(1 + float(excess.mean()), float(excess.std() / np.sqrt(len(excess))))
