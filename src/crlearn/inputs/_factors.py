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
from scipy.linalg import qr
from scipy.stats import chi2

from crlearn.inputs._components import RANK_TOLERANCE
from crlearn.inputs._span import Scaling, blocks, can_tell_noise
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


def find_factors(
    parts: Sequence[Matrix] | Covariances,
    n_latents: int,
    units: Vector | None = None,
    near: Factors | None = None,
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
    near
        Factors, one more or one fewer, whose noise is the only start.
    """
    covariances = parts if isinstance(parts, Covariances) else Covariances.of(parts)
    variances = covariances.variances
    each = can_tell_noise(len(variances), n_latents)
    if each and near is not None:
        start = _Turn(_principal(covariances, n_latents, near.noise), near.noise, -np.inf)
        return _factors(covariances, _climbed(covariances, start, _STILL))
    other = covariances.beside_the_others() if each else np.ones_like(variances)
    if units is not None and not each:
        other = np.maximum(units.min() / units, np.sqrt(_SMALLEST_NOISE)) ** 2
    found = [_started(covariances, n_latents, unit, each=each) for unit in (other, variances)]
    best = max(found, key=lambda turn: turn.log_likelihood)
    best = _climbed(covariances, best, _STILL) if each else best
    return _factors(covariances, best)


def find_factors_in_noise(covariances: Covariances, n_latents: int, noise: Vector) -> Factors:
    """Find the factors, by maximum likelihood, where the noise variances are known."""
    span = _principal(covariances, n_latents, noise)
    for _ in range(_MOST_ROUNDS):
        before, span = span, _better_span(covariances, span, noise)
        if np.linalg.norm(span - before @ (before.T @ span)) < _STILL:
            break
    return _factors(covariances, _Turn(span, noise, _log_likelihood(covariances, span, noise)))


def _factors(covariances: Covariances, turn: _Turn) -> Factors:
    """Return the record of where a climb has ended."""
    n_rows = int(covariances.sizes.sum())
    return Factors(
        turn.span,
        turn.noise,
        covariances.shares @ covariances.means,
        n_rows * turn.log_likelihood,
        _largest_outside(covariances, turn.span, turn.noise),
        n_rows,
        len(covariances.sizes),
    )


@dataclass(frozen=True, eq=False)
class Covariances:
    """Those of the environments: matrices, or rows where there are too many features.

    `added` is what belongs to the variances of features beside what the rows have.
    """

    sizes: NDArray[np.intp]
    means: Matrix
    diagonals: Matrix
    matrices: Matrix | None
    parts: tuple[Matrix, ...] = ()
    added: Matrix | None = None

    @classmethod
    def of(cls, parts: Sequence[Matrix]) -> Covariances:
        """Return those of the rows of each environment."""
        sizes = np.array([len(rows) for rows in parts])
        means = np.array([rows.mean(axis=0) for rows in parts])
        if _are_small(len(parts), parts[0].shape[1]):
            square = 2 * parts[0].shape[1:]
            matrices = np.array([np.cov(rows.T, bias=True).reshape(square) for rows in parts])
            return cls(sizes, means, _diagonals(matrices), matrices)
        variances = np.array([rows.var(axis=0) for rows in parts])
        return cls(sizes, means, variances, None, tuple(parts))

    @classmethod
    def of_columns(cls, X: Matrix, codes: NDArray[np.intp], scaling: Scaling) -> Covariances:
        """Return those of the columns of X that vary, standardised, in each environment."""
        varying = ~scaling.constant
        columns = slice(None) if varying.all() else np.flatnonzero(varying)
        standardise = scaling.of_columns(columns)
        rows = [np.flatnonzero(codes == e) for e in np.unique(codes)]
        n_features = int(varying.sum())
        if not _are_small(len(rows), n_features):
            return cls.of([standardise(X[own][:, columns]) for own in rows])
        means = np.zeros((len(rows), n_features))
        matrices = np.zeros((len(rows), n_features, n_features))
        for own, mean, matrix in zip(rows, means, matrices, strict=True):
            for some in blocks(X, own):  # a copy of X would take longer than the products
                standardised = standardise(some[:, columns])
                mean += standardised.sum(axis=0) / len(own)
                matrix += standardised.T @ standardised / len(own)
            matrix -= np.outer(mean, mean)
        return cls(np.array([len(own) for own in rows]), means, _diagonals(matrices), matrices)

    def of_features(self, chosen: NDArray[np.intp]) -> Covariances:
        """Return those of some features."""
        if self.matrices is None:
            return Covariances.of([rows[:, chosen] for rows in self.parts])
        matrices = self.matrices[:, chosen[:, None], chosen]
        return Covariances(self.sizes, self.means[:, chosen], _diagonals(matrices), matrices)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.means.shape[1]

    @cached_property
    def shares(self) -> Vector:
        """Share of the rows that each environment has."""
        return self.sizes / self.sizes.sum()

    @cached_property
    def variances(self) -> Vector:
        """Of the features, inside all environments together."""
        return self.shares @ self.diagonals

    @cached_property
    def pooled(self) -> Matrix | None:
        """The matrix of all environments together, if there are matrices."""
        return None if self.matrices is None else np.tensordot(self.shares, self.matrices, 1)

    def informative(self) -> NDArray[np.bool_]:
        """Return features that vary inside, and of which none is an exact combination of others.

        Of those that combine to nothing the one is left out that has the largest share in it: a
        total, not one of its parts. Where features are too many for matrices that is not looked at.
        """
        kept = self.variances > RANK_TOLERANCE**2
        if self.pooled is not None:
            among = np.flatnonzero(kept)
            correlations = in_units(self.pooled[among[:, None], among], self.variances[among])
            values, axes = np.linalg.eigh(correlations)
            nothing = axes[:, values < RANK_TOLERANCE**2 * values.max(initial=0.0)]
            *_, by_share = qr(nothing.T, mode="economic", pivoting=True)
            kept[among[by_share[: nothing.shape[1]]]] = False
        return kept

    def of_informative(self) -> Covariances:
        """Return those of the features that are informative."""
        kept = self.informative()
        return self if kept.all() else self.of_features(np.flatnonzero(kept))

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
        if self.pooled is None:
            return self.variances
        values, axes = np.linalg.eigh(in_units(self.pooled, self.variances))
        precision = (axes**2) @ (1 / np.maximum(values, _SMALLEST_NOISE))
        return self.variances / precision

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

    def along(self, basis: Matrix) -> Matrix:
        """Return the covariance of all rows along a basis, between environments and in them."""
        inside = self.mean_inside(basis, np.ones(self.n_features))
        means = (self.means - self.shares @ self.means) @ basis
        return inside + (self.shares * means.T) @ means

    def inside(self, span: Matrix, noise: Vector) -> _Inside:
        """Return their products with a span, and what is inside it."""
        moved = self.times(span, noise)
        each = span.T @ moved
        if self.added is not None:
            each = _positive(each)
        return _Inside(moved, each)

    def mean_inside(self, span: Matrix, noise: Vector) -> Matrix:
        """Return what is inside a span in all environments together."""
        if self.pooled is None:
            return np.tensordot(self.shares, self.inside(span, noise).each, 1)
        scaled = span / np.sqrt(noise)[:, None]
        return scaled.T @ self.pooled @ scaled


def _are_small(n_environments: int, n_features: int) -> bool:
    return n_environments * n_features**2 <= MOST_ENTRIES


def _diagonals(matrices: Matrix) -> Matrix:
    return np.diagonal(matrices, axis1=1, axis2=2).copy()


def in_units(matrix: Matrix, variances: Vector) -> Matrix:
    """Return a covariance in units in which features have been divided by standard deviations."""
    scale = 1 / np.sqrt(variances)
    return scale[:, None] * matrix * scale


def _positive(matrices: Matrix) -> Matrix:
    """Return covariances as they are, unless sampling errors have left nothing in a direction."""
    values, axes = np.linalg.eigh((matrices + np.swapaxes(matrices, 1, 2)) / 2)
    if values.min(initial=_LEAST_INSIDE) >= _LEAST_INSIDE:
        return matrices
    return (axes * np.maximum(values, _LEAST_INSIDE)[:, None]) @ np.swapaxes(axes, 1, 2)


class _Inside(NamedTuple):
    moved: Matrix
    each: Matrix


class _Turn(NamedTuple):
    span: Matrix
    noise: Vector
    log_likelihood: float


def _started(covariances: Covariances, n: int, unit: Vector, *, each: bool) -> _Turn:
    """Find span and noise that is proportional to `unit`, then roughly that of `each` feature."""
    span = _principal(covariances, n, unit)
    rest = (covariances.variances / unit).sum() - np.trace(covariances.mean_inside(span, unit))
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
    variances = covariances.variances
    span, noise = _better_span(covariances, turn.span, turn.noise), turn.noise
    beyond = covariances.mean_inside(span, noise) - np.eye(span.shape[1])
    explained = ((span @ beyond) * span).sum(axis=1)
    new = np.maximum(variances - noise * explained, _SMALLEST_NOISE * variances)
    if unit is not None:
        new = unit * (new / unit).mean()
    span = np.linalg.qr(span * np.sqrt(noise / new)[:, None])[0]
    return _Turn(span, new, -np.inf), float(np.abs(np.log(new / noise)).max())


def _principal(covariances: Covariances, n: int, unit: Vector) -> Matrix:
    """Return the leading directions of all environments together."""
    if covariances.pooled is not None:
        return np.linalg.eigh(in_units(covariances.pooled, unit))[1][:, -n:]
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
    if covariances.pooled is None:
        return float(_leading(covariances, noise, 1 + _SPARE, span)[0][0])
    whole = in_units(covariances.pooled, noise)
    left = whole - span @ (span.T @ whole)
    return float(np.linalg.eigvalsh(left - (left @ span) @ span.T)[-1])


def _better_span(covariances: Covariances, span: Matrix, noise: Vector) -> Matrix:
    """Return the span after one step of the fixed point, in units of the noise."""
    moved, inside = covariances.inside(span, noise)
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
