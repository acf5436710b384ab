"""Factors behind noisy features: x = L f + e, the noise of each feature independent of the others.

Environments share the loadings L and the noise variances, and each has a covariance of its own for
the factors (factor analysis of several groups, Joreskog, Psychometrika, 1971). In units of the
noise, in which all variances are one, the likelihood is highest at the span U of the loadings where

    U ~ sum_e s_e S_e U (I - (U' S_e U)^-1),

with the covariances S_e and the shares s_e of the environments: directions in which an environment
is hardly larger than its noise count little there. Spans and variances are found in turns.

What the noise leaves of the factors is f = U' x in these units, with noise of variance one in every
direction. No other direction says anything about them.

Where noise is known and differs between environments, that of all together is put in its place, on
the diagonals of the S_e; then spans are found in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.result import Check, LinearEncoder

Matrix = NDArray[np.floating]
Vector = NDArray[np.floating]

_MOST_ROUNDS = 500
_ROUNDS_OF_ONE_VARIANCE = 5  # in which starts keep their proportions
# Relative change of the variances, or of the span where they are known; starts are compared at a
# rough one, by which they differ far more than that.
_ROUGH, _STILL = 1e-2, 1e-5
_LEAST_INSIDE = 0.01  # variance beside the noise that sampling errors leave in a direction
_SMALLEST_NOISE = 1e-10  # beside the variance of a feature
# Entries of covariances that are kept in memory; beyond that products with the rows are formed.
MOST_ENTRIES = 20_000_000
# Eigenvalues of noise may reach this far beyond the edge of the Marchenko-Pastur law.
SLACK = 1.15
_LEVEL = 1e-3  # p-value below which a factor is seen
_SPARE, _POWERS = 3, 20  # directions and products in the search for the largest one of the noise


@dataclass(frozen=True, eq=False)
class Factors:
    """Loadings and noise of features, found from several environments.

    Attributes
    ----------
    span
        U, orthonormal columns in units of the noise, ``(d, n)``.
    noise
        Variance of each feature's noise, ``(d,)``.
    offset
        Taken off each row.
    log_likelihood
        Of all rows, up to a constant.
    largest_outside
        Variance, in units of the noise, of the strongest direction beside the factors.
    n_rows, n_environments
        Of the data.
    """

    span: Matrix
    noise: Vector
    offset: Vector
    log_likelihood: float
    largest_outside: float
    n_rows: int
    n_environments: int

    @cached_property
    def encoder(self) -> LinearEncoder:
        """The map to the factors; their noise has variance one in every direction."""
        return LinearEncoder((self.span / np.sqrt(self.noise)[:, None]).T, self.offset)

    @property
    def n_parameters(self) -> int:
        """Number of free parameters, but for the noise."""
        d, n = self.span.shape
        return n * (d - n) + self.n_environments * n * (n + 1) // 2

    def independence_check(self) -> Check:
        """Check that the factors explain all that features share."""
        d, n = self.span.shape
        edge = SLACK * (1 + np.sqrt((d - n) / self.n_rows)) ** 2
        return Check(
            "measurement noise is independent across features",
            bool(self.largest_outside <= edge),
            f"beside the {n} latents the largest variance of features together is "
            f"{self.largest_outside:.2f} times that of the noise; independent noise has up to "
            f"{edge:.2f}",
        )

    def visibility_check(self, fewer: Factors) -> Check:
        """Check that the factors stand out from the noise: that one factor less explains less."""
        ratio = 2 * (self.log_likelihood - fewer.log_likelihood)
        p_value = float(chi2.sf(ratio, self.n_parameters - fewer.n_parameters))
        return Check(
            "latents stand out from the noise",
            p_value < _LEVEL,
            f"likelihood ratio to one latent less {ratio:.0f}, p = {p_value:.2g}",
        )


def can_tell_noise(n_features: int, n_latents: int) -> bool:
    """Whether the covariance of features has more entries than factors and variances need."""
    return (n_features - n_latents) ** 2 > n_features + n_latents


def find_factors(
    parts: Sequence[Matrix] | Covariances, n_latents: int, units: Vector | None = None
) -> Factors:
    """Find the factors of the rows of each environment, by maximum likelihood.

    Starts are noise that is as large as a feature varies, and as it varies beside what all others
    say of it. Where features are so few that variances of their own cannot be told, noise is as
    large as a feature varies, or alike in all.

    Parameters
    ----------
    parts
        Rows of each environment, or their covariances.
    n_latents
        Number of factors.
    units
        What features were divided by before: noise that was alike is not any more.
    """
    covariances = parts if isinstance(parts, Covariances) else Covariances.of(parts)
    variances = covariances.shares @ covariances.diagonals
    each = can_tell_noise(len(variances), n_latents)
    other = covariances.beside_the_others() if each else np.ones_like(variances)
    if units is not None and not each:
        other = np.maximum(units.min() / units, np.sqrt(_SMALLEST_NOISE)) ** 2
    found = [_started(covariances, n_latents, unit, each=each) for unit in (other, variances)]
    best = max(found, key=lambda turn: turn.log_likelihood)
    best = _climbed(covariances, best, _STILL) if each else best
    return _factors(covariances, best.span, best.noise, best.log_likelihood)


def find_factors_in_noise(covariances: Covariances, n_latents: int, noise: Vector) -> Factors:
    """Find the factors, by maximum likelihood, where the noise variances are known."""
    span = _principal(covariances, n_latents, noise)
    for _ in range(_MOST_ROUNDS):
        before, span = span, _better_span(covariances, span, noise)
        if np.linalg.norm(span - before @ (before.T @ span)) < _STILL:
            break
    return _factors(covariances, span, noise, _log_likelihood(covariances, span, noise))


def _factors(covariances: Covariances, span: Matrix, noise: Vector, value: float) -> Factors:
    """Return the record of a span whose mean log-likelihood of a row is `value`."""
    n_rows = sum(map(len, covariances.parts))
    return Factors(
        span,
        noise,
        covariances.shares @ covariances.means,
        n_rows * value,
        _largest_outside(covariances, span, noise),
        n_rows,
        len(covariances.parts),
    )


@dataclass(frozen=True, eq=False)
class Covariances:
    """Those of the environments: matrices, or rows where there are too many features.

    `added` is what belongs to the variances of features beside what the rows have.
    """

    parts: tuple[Matrix, ...]
    means: Matrix
    shares: Vector
    diagonals: Matrix
    matrices: Matrix | None
    added: Matrix | None = None

    @classmethod
    def of(cls, parts: Sequence[Matrix]) -> Covariances:
        """Return those of the rows of each environment."""
        sizes = np.array([len(rows) for rows in parts])
        n_features = parts[0].shape[1]
        small = len(parts) * n_features**2 <= MOST_ENTRIES
        matrices = np.array([np.cov(rows.T, bias=True) for rows in parts]) if small else None
        return cls(
            tuple(parts),
            np.array([rows.mean(axis=0) for rows in parts]),
            sizes / sizes.sum(),
            np.array([rows.var(axis=0) for rows in parts]),
            matrices,
        )

    def plus(self, added: Matrix) -> Covariances:
        """Return them with so much more variance of each feature, ``(E, d)``."""
        matrices = self.matrices
        if matrices is not None:
            matrices = matrices + added[:, :, None] * np.eye(added.shape[1])
        return replace(self, diagonals=self.diagonals + added, matrices=matrices, added=added)

    def beside_the_others(self) -> Vector:
        """Return what the variance of each feature is, given all others; as it is if they are many.

        Noise is never larger.
        """
        variances = self.shares @ self.diagonals
        if self.matrices is None:
            return variances
        scale = 1 / np.sqrt(variances)
        whole = scale[:, None] * np.tensordot(self.shares, self.matrices, 1) * scale
        values, axes = np.linalg.eigh(whole)
        precision = (axes**2) @ (1 / np.maximum(values, _SMALLEST_NOISE))
        return variances / precision

    def times(self, basis: Matrix, noise: Vector) -> Matrix:
        """Return their products with a basis, ``(E, d, n)``, in units of the noise."""
        scale = 1 / np.sqrt(noise)[:, None]
        scaled = scale * basis
        if self.matrices is not None:
            return scale * (self.matrices @ scaled)
        products = [
            rows.T @ (along - along.mean(axis=0)) / len(rows)
            for rows, along in ((rows, rows @ scaled) for rows in self.parts)
        ]
        more = 0.0 if self.added is None else self.added[:, :, None] * scaled
        return scale * (np.array(products) + more)

    def inside(self, span: Matrix, noise: Vector) -> _Inside:
        """Return their products with a span, and what is inside it."""
        moved = self.times(span, noise)
        each = span.T @ moved
        if self.added is not None:
            each = _positive(each)
        return _Inside(moved, each, np.tensordot(self.shares, each, 1))


def _positive(matrices: Matrix) -> Matrix:
    """Return covariances as they are, unless sampling errors have left nothing in a direction."""
    values, axes = np.linalg.eigh((matrices + np.swapaxes(matrices, 1, 2)) / 2)
    if values.min(initial=_LEAST_INSIDE) >= _LEAST_INSIDE:
        return matrices
    return (axes * np.maximum(values, _LEAST_INSIDE)[:, None]) @ np.swapaxes(axes, 1, 2)


class _Inside(NamedTuple):
    moved: Matrix
    each: Matrix
    mean: Matrix


class _Turn(NamedTuple):
    span: Matrix
    noise: Vector
    log_likelihood: float


def _started(covariances: Covariances, n: int, unit: Vector, *, each: bool) -> _Turn:
    """Find span and noise that is proportional to `unit`, then roughly that of `each` feature."""
    variances = covariances.shares @ covariances.diagonals
    span = _principal(covariances, n, unit)
    rest = (variances / unit).sum() - np.trace(covariances.inside(span, unit).mean)
    noise = unit * max(rest / (len(unit) - n), _SMALLEST_NOISE)
    turn = _Turn(span, noise, -np.inf)
    if each:
        for _ in range(_ROUNDS_OF_ONE_VARIANCE):
            turn, _ = _next(covariances, turn, unit)
        return _climbed(covariances, turn, _ROUGH)
    return _climbed(covariances, turn, _STILL, unit)


def _climbed(
    covariances: Covariances, turn: _Turn, still: float, unit: Vector | None = None
) -> _Turn:
    """Find span and noise in turns, until variances hardly change."""
    for _ in range(_MOST_ROUNDS):
        turn, change = _next(covariances, turn, unit)
        if change < still:
            break
    return turn._replace(log_likelihood=_log_likelihood(covariances, turn.span, turn.noise))


def _next(covariances: Covariances, turn: _Turn, unit: Vector | None = None) -> tuple[_Turn, float]:
    """Return the next span and noise, which is proportional to `unit` if that is given."""
    variances = covariances.shares @ covariances.diagonals
    span, noise = _better_span(covariances, turn.span, turn.noise), turn.noise
    beyond = covariances.inside(span, noise).mean - np.eye(span.shape[1])
    explained = np.einsum("ji,ik,jk->j", span, beyond, span)
    new = np.maximum(variances - noise * explained, _SMALLEST_NOISE * variances)
    if unit is not None:
        new = unit * (new / unit).mean()
    span = np.linalg.qr(span * np.sqrt(noise / new)[:, None])[0]
    return _Turn(span, new, -np.inf), float(np.abs(np.log(new / noise)).max())


def _principal(covariances: Covariances, n: int, unit: Vector) -> Matrix:
    """Return the leading directions of all environments together."""
    if covariances.matrices is not None:
        scale = 1 / np.sqrt(unit)
        whole = scale[:, None] * np.tensordot(covariances.shares, covariances.matrices, 1) * scale
        return np.linalg.eigh(whole)[1][:, -n:]
    return _leading(covariances, unit, n + _SPARE)[1][:, :n]


def _leading(
    covariances: Covariances, noise: Vector, n: int, beside: Matrix | None = None
) -> tuple[Vector, Matrix]:
    """Return the leading directions by products with a few random ones, outside of a span."""

    def outside(basis: Matrix) -> Matrix:
        return basis if beside is None else basis - beside @ (beside.T @ basis)

    basis = np.random.default_rng(0).standard_normal((len(noise), min(n, len(noise))))
    before = image = basis
    for _ in range(_POWERS):
        basis = np.linalg.qr(outside(basis))[0]
        image = outside(np.tensordot(covariances.shares, covariances.times(basis, noise), 1))
        before, basis = basis, image
    values, turn = np.linalg.eigh(before.T @ image)
    return values[::-1], before @ turn[:, ::-1]


def _largest_outside(covariances: Covariances, span: Matrix, noise: Vector) -> float:
    """Return the largest variance outside the span, in units of the noise."""
    d, n = span.shape
    if d == n:
        return 0.0
    if covariances.matrices is None:
        return float(_leading(covariances, noise, 1 + _SPARE, span)[0][0])
    scale = 1 / np.sqrt(noise)
    whole = scale[:, None] * np.tensordot(covariances.shares, covariances.matrices, 1) * scale
    left = whole - span @ (span.T @ whole)
    return float(np.linalg.eigvalsh(left - (left @ span) @ span.T)[-1])


def _better_span(covariances: Covariances, span: Matrix, noise: Vector) -> Matrix:
    """Return the span after one step of the fixed point, in units of the noise."""
    moved, inside, _ = covariances.inside(span, noise)
    weight = np.eye(span.shape[1]) - np.linalg.inv(inside)
    step = np.tensordot(covariances.shares, moved @ weight, 1)
    left, _, right = np.linalg.svd(step, full_matrices=False)
    return left @ right


def _log_likelihood(covariances: Covariances, span: Matrix, noise: Vector) -> float:
    """Return the mean log-likelihood of a row, up to a constant."""
    inside = covariances.inside(span, noise).each
    total = (covariances.diagonals / noise).sum(axis=1)
    outside = total - np.trace(inside, axis1=1, axis2=2)
    by_environment = np.linalg.slogdet(inside)[1] + span.shape[1] + outside
    return -0.5 * float(np.log(noise).sum() + covariances.shares @ by_environment)
