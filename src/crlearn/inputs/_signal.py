"""X read as latents behind a linear measurement, with noise or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crlearn.inputs._count import NumberOfLatents, count_latents
from crlearn.inputs._environments import Environments
from crlearn.inputs._factors import Covariances, Factors, find_factors
from crlearn.inputs._poisson import Counts, are_counts, check_counts
from crlearn.inputs._span import Rank, Scaling, components_of, some_columns
from crlearn.result import Check, LinearEncoder

Matrix = NDArray[np.floating]
NoiseName = Literal["auto", "gaussian", "poisson", "none"]

_WEAKEST = 1e-3  # variance of a direction beside the strongest, where noise hides it
_COUNTS = Check(
    "X holds counts",
    None,
    "the variance of their noise was estimated, the same in all environments; if they are Poisson "
    "counts, noise='poisson' knows it in each of them",
)


@dataclass(frozen=True, eq=False)
class Signal:
    """As many directions of X as there are latents, in which the latents together are white.

    Attributes
    ----------
    encoder
        The map to these directions.
    noise
        Covariance of the measurement noise in them in each environment (in the order of the
        labels), ``(E, n, n)``; None: there is none.
    checks
        What is to be said about the columns and the noise.
    feature_noise
        Standard deviation of the noise of each feature in all rows, where there is noise.
    details
        How the number of latents was found, if it was.
    """

    encoder: LinearEncoder
    checks: tuple[Check, ...]
    noise: Matrix | None = None
    feature_noise: NDArray[np.floating] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.encoder.n_latents

    def noise_in(self, order: NDArray[np.intp]) -> Matrix | None:
        """Return the noise of the environments in another order."""
        return None if self.noise is None else self.noise[order]


def read_signal(
    X: Matrix,
    environments: Environments,
    n_latents: NumberOfLatents,
    n_targets: int,
    noise: NoiseName = "auto",
) -> Signal:
    """Return the directions of the latents, and the noise in them.

    Without a number of latents (None) the rank is taken, if it stands out; else noise fills all
    dimensions, and there is one for each target, which is compared with the number that the noise
    leaves (``"auto"``), where features are enough to tell it. By default there is noise if X fills
    all its dimensions and these are more than the latents. Poisson noise there is always; as it
    changes with environments, what they change says nothing of the number of latents.
    """
    if noise == "poisson":
        check_counts(X)
    given = None if isinstance(n_latents, str) else n_latents
    columns = _Columns(X, environments, Scaling.of(X))
    span, rank, checks = components_of(X, given, columns.scaling)
    details: Mapping[str, Any] = {}
    factors: Factors | None = None
    if given is None and (n_latents is not None or not rank.is_low):
        from_targets = n_latents is None
        is_alike = noise != "poisson" and not rank.is_low
        count = count_latents(
            X,
            rank=rank,
            features=columns.covariances if is_alike else None,
            likely=n_targets if from_targets else 0,
            refuse=not from_targets,
        )
        counted = count.stands_out and not from_targets
        n = count.value if counted else min(n_targets, rank.value)
        span = LinearEncoder(span.matrix[:n], span.offset)
        factors = count.factors if count.value == n else None
        if counted or (count.stands_out and n < rank.value):
            checks, details = (*checks, count.compared(n)), count.details
    signal = _read(columns, span, rank, checks, noise, factors)
    return replace(signal, details=details)


@dataclass(frozen=True, eq=False)
class _Columns:
    """X, its units, and the covariances of its informative columns."""

    X: Matrix
    environments: Environments
    scaling: Scaling

    @cached_property
    def covariances(self) -> Covariances:
        return self._found[0]

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which columns vary inside environments, and are no combinations of others."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[Covariances, NDArray[np.bool_]]:
        found = Covariances.of_columns(self.X, self.environments.codes, self.scaling)
        inside = ~self.scaling.constant
        inside[inside] = found.informative()
        return found.of_informative(), inside


def _read(
    columns: _Columns,
    span: LinearEncoder,
    rank: Rank,
    checks: tuple[Check, ...],
    noise: NoiseName,
    factors: Factors | None,
) -> Signal:
    n = span.n_latents
    if noise == "poisson":
        return _behind_noise(columns, checks, _poisson(columns, n))
    if noise == "none" or not _has_noise(rank, n):
        if noise == "gaussian":
            checks = (*checks, _no_noise_to_tell(rank, n))
        return Signal(span, (*checks, rank.check(n)))
    if noise == "auto" and are_counts(columns.X):
        checks = (*checks, _COUNTS)
    return _behind_noise(columns, checks, _gaussian(columns, n, factors))


def _has_noise(rank: Rank, n_latents: int) -> bool:
    return rank.value > n_latents and not rank.is_low


def _no_noise_to_tell(rank: Rank, n_latents: int) -> Check:
    why = (
        "there are no more features than latents, so that noise cannot be told from them"
        if rank.n_varying <= n_latents
        else "X is an exact mixture of few latents"
    )
    return Check("measurement noise", None, f"{why}; none is taken off")


class _Noise(NamedTuple):
    """Factors of some columns that were divided by `unit`, and their noise in each environment.

    `whole` is the covariance of all rows along the factors, noise and all.
    """

    columns: NDArray[np.bool_]
    unit: NDArray[np.floating]
    factors: Factors
    whole: Matrix
    noise: Matrix
    checks: tuple[Check, ...]


def _gaussian(columns: _Columns, n_latents: int, factors: Factors | None) -> _Noise:
    """Find noise that has one variance for each feature, the same in all environments."""
    covariances, unit = columns.covariances, columns.scaling.scale[columns.inside]
    if factors is None:
        factors = find_factors(covariances, n_latents, unit)
    checks = [factors.independence_check()]
    if n_latents > 1:
        fewer = find_factors(covariances, n_latents - 1, unit, near=factors)
        checks.append(factors.visibility_check(fewer))
    whole = covariances.along(factors.encoder.matrix.T)
    noise = np.broadcast_to(np.eye(n_latents), (len(covariances.sizes), n_latents, n_latents))
    return _Noise(columns.inside, unit, factors, whole, noise, tuple(checks))


def _poisson(columns: _Columns, n_latents: int) -> _Noise:
    """Find factors behind noise whose variance is the mean of a feature in an environment."""
    chosen, codes = columns.inside, columns.environments.codes
    counts = Counts.of([columns.X[codes == e][:, chosen] for e in np.unique(codes)])
    factors = counts.factors(n_latents)
    checks = [counts.dispersion_check(factors.span)]
    if n_latents < len(counts.unit):
        checks.append(factors.independence_check())
    if n_latents > 1:
        checks.append(factors.visibility_check(counts.factors(n_latents - 1)))
    whole = counts.measured.along(factors.encoder.matrix.T)
    noise = counts.noise_along(factors.span)
    return _Noise(chosen, counts.unit, factors, whole, noise, tuple(checks))


def _behind_noise(columns: _Columns, checks: tuple[Check, ...], found: _Noise) -> Signal:
    chosen, unit, factors, whole, noise, noise_checks = found
    n_features = columns.X.shape[1]
    values, axes = np.linalg.eigh(whole)
    signal = np.maximum(values - 1, _WEAKEST * values.max())
    whiten = axes.T / np.sqrt(signal)[:, None]
    matrix = np.zeros((len(values), n_features))
    matrix[:, chosen] = whiten @ factors.encoder.matrix / unit
    feature_noise = np.zeros(n_features)
    feature_noise[chosen] = np.sqrt(factors.noise) * unit
    left_out = np.flatnonzero(~chosen & ~columns.scaling.constant)
    if len(left_out):
        said = (
            f"{some_columns(left_out, n_features)} do not vary inside environments or are exact "
            "combinations of others, and are left out"
        )
        checks = (*checks, Check("columns have noise of their own", True, said))
    return Signal(
        LinearEncoder(matrix, columns.scaling.mean),
        (*checks, *noise_checks),
        whiten @ noise @ whiten.T,
        feature_noise,
    )
