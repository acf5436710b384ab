"""X read as a linear measurement: units of the columns, their rank, and the span of the mixing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from crlearn.exceptions import IdentifiabilityError
from crlearn.inputs._components import (
    RANK_TOLERANCE,
    Components,
    is_wide,
    leading_components,
    rank_of,
    rough_variances,
)
from crlearn.inputs._environments import Environments, reference_of
from crlearn.result import Check, LinearEncoder

Matrix = NDArray[np.floating]

# A column whose sd is below this share of its largest value is constant up to rounding.
_CONSTANT_TOLERANCE = 1e-14
# Fewer rows show no layers.
_FEWEST_ROWS_PER_LATENT = 3
_RANK = "rank of X"
# Share of the weakest direction's variance. In linear worlds of five latents with 1,000 and 10,000
# rows, seeds 0 to 4, graphs were right up to 0.06 and wrong in one world of four from 0.1 on.
_HARMLESS_NOISE = 0.02
_MOST_LISTED = 8  # columns
# Rows that are standardised at a time.
_FEWEST_ROWS, _MOST_ROWS = 1024, 4096


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and standard deviation of each column; constant columns keep scale 1."""

    mean: NDArray[np.floating]
    scale: NDArray[np.floating]
    constant: NDArray[np.bool_]

    @classmethod
    def of(cls, X: NDArray[np.floating]) -> Scaling:
        """Measure the columns of `X`."""
        n_rows, n_columns = X.shape
        largest, mean = np.zeros(n_columns), np.zeros(n_columns)
        for rows in blocks(X):
            largest = np.maximum(largest, np.maximum(rows.max(axis=0), -rows.min(axis=0)))
            mean += np.full(len(rows), 1 / n_rows) @ rows
        unit = np.where(largest > 0, largest, 1.0)  # keeps the squares of 1e200 finite
        first, second = np.zeros(n_columns), np.zeros(n_columns)
        for rows in blocks(X):
            centred = (rows - mean) / unit
            first += centred.sum(axis=0) / n_rows
            second += np.einsum("ij,ij->j", centred, centred) / n_rows
        # What rounding has left of the mean is taken off.
        scale = np.sqrt(np.maximum(second - first**2, 0.0)) * unit
        constant = scale <= _CONSTANT_TOLERANCE * largest
        return cls(mean + first * unit, np.where(constant, 1.0, scale), constant)

    def __call__(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return `X` with mean zero and standard deviation one; constant columns become zero."""
        standardised = (X - self.mean) / self.scale
        standardised[:, self.constant] = 0.0
        return standardised

    def gram(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the Gram matrix of the standardised columns, or of the rows if they are fewer.

        It is divided by the number of rows: correlations, in the first case. No copy of X is made.
        """
        n_rows, n_columns = X.shape
        if n_columns > n_rows:
            groups = (slice(k, k + n_rows) for k in range(0, n_columns, n_rows))
            parts = (self.of_columns(chosen)(X[:, chosen]) for chosen in groups)
            return sum((part @ part.T for part in parts), np.zeros((n_rows, n_rows))) / n_rows
        total = np.zeros((n_columns, n_columns))
        for rows in blocks(X):
            standardised = self(rows)
            total += standardised.T @ standardised
        return total / n_rows

    def gram_times(self, X: NDArray[np.floating], basis: Matrix) -> Matrix:
        """Return the Gram matrix of the standardised columns times `basis`, without the former."""
        total = np.zeros(basis.shape)
        for rows in blocks(X):
            standardised = self(rows)
            total += standardised.T @ (standardised @ basis)
        return total / len(X)

    def of_columns(self, chosen: slice | NDArray[np.intp]) -> Scaling:
        """Return that of some columns."""
        return Scaling(self.mean[chosen], self.scale[chosen], self.constant[chosen])


def blocks(
    X: NDArray[np.floating], chosen: NDArray[np.intp] | None = None
) -> Iterator[NDArray[np.floating]]:
    """Yield some rows at a time: few enough for a processor's cache, where columns are not many.

    `chosen` are the positions of the rows; None: all.
    """
    size = min(max(_FEWEST_ROWS, 2 * X.shape[1]), _MOST_ROWS)
    if chosen is None:
        return (X[start : start + size] for start in range(0, len(X), size))
    return (X[chosen[start : start + size]] for start in range(0, len(chosen), size))


def check_columns(
    X: NDArray[np.floating],
    scaling: Scaling,
    variances: NDArray[np.floating] | None = None,
    *,
    enough: int | None = None,
) -> tuple[int, tuple[Check, ...]]:
    """Return the numerical rank of the standardised columns, and what is to be said about them.

    `variances` are those of the principal components, if they are known. Where there are thousands
    of rows and columns, the rank is not looked for much beyond `enough`.
    """
    if variances is None:
        variances = _variances(X, scaling, enough)
    return rank_of(variances), (_variation_check(scaling),)


def can_tell_noise(n_features: int, n_latents: int) -> bool:
    """Whether the covariance of features has more entries than factors and variances need."""
    return freedom_of_factors(n_features, n_latents) > 0


def freedom_of_factors(n_features: int, n_latents: int) -> int:
    """Return how many entries the covariance of features has more than factors and variances."""
    return ((n_features - n_latents) ** 2 - n_features - n_latents) // 2


@dataclass(frozen=True)
class Rank:
    """How many dimensions X fills, and how much of it lies outside the leading ones.

    Attributes
    ----------
    variances
        Of the leading principal components of the standardised columns; some may be missing.
    n_varying
        Number of columns that vary: the sum of all variances.
    n_rows
        Number of rows.
    """

    variances: NDArray[np.floating]
    n_varying: int
    n_rows: int

    @property
    def value(self) -> int:
        """The numerical rank."""
        return rank_of(self.variances)

    @property
    def stands_out(self) -> bool:
        """Whether the columns are exact combinations of fewer latents."""
        return self.value < min(self.n_varying, self.n_rows - 1, len(self.variances))

    @property
    def is_low(self) -> bool:
        """Whether it stands out, and so clearly that noise beside a few totals is no reason."""
        return self.stands_out and can_tell_noise(self.n_varying, self.value)

    def check(self, n_latents: int) -> Check:
        """Check that X is an exact mixture of so many latents, or one with harmless noise."""
        is_all = len(self.variances) >= min(self.n_varying, self.n_rows)
        rank = f"{self.value}{'' if is_all or self.value < len(self.variances) else ' or more'}"
        said = f"the {self.n_varying} columns that vary have rank {rank}"
        if self.value <= n_latents:
            return Check(_RANK, True, said)
        left_out = max(self.n_varying - float(self.variances[:n_latents].sum()), 0.0)
        noise = left_out / (min(self.n_varying, self.n_rows - 1) - n_latents)
        share = noise / float(self.variances[n_latents - 1])
        detail = (
            f"X has rank {rank}, and {n_latents} latents: measurement noise or a mixing that "
            f"is not linear. {left_out / self.n_varying:.2g} of the variance is left out, and "
            f"noise of that size would be {share:.2g} of the weakest direction that is kept"
        )
        return Check(_RANK, share < _HARMLESS_NOISE, detail)


def _variation_check(scaling: Scaling) -> Check:
    """Say which columns are constant and were dropped; it fails if rounding hides what varies."""
    name, n_columns = "columns vary", len(scaling.constant)
    rounding = np.spacing(np.abs(scaling.mean)) / np.sqrt(12)  # sd of the last digit
    hidden = np.flatnonzero(~scaling.constant & (rounding > RANK_TOLERANCE * scaling.scale))
    if len(hidden):
        return Check(
            name,
            False,
            f"{some_columns(hidden, n_columns)} vary so little beside an offset that rounding "
            "errors count for variation: subtract the offset where the numbers come from",
        )
    constant = np.flatnonzero(scaling.constant)
    if len(constant):
        detail = f"{some_columns(constant, n_columns)} are constant, carry nothing and are dropped"
        return Check(name, True, detail)
    return Check(name, True, f"all {n_columns} columns of X do")


def some_columns(positions: NDArray[np.intp], n_columns: int) -> str:
    """Return how many columns there are at these positions, and where."""
    listed = ", ".join(map(str, positions[:_MOST_LISTED]))
    more = ", ..." if len(positions) > _MOST_LISTED else ""
    return f"{len(positions)} of {n_columns} columns of X (at {listed}{more}, from 0)"


def _variances(
    X: NDArray[np.floating], scaling: Scaling, enough: int | None
) -> NDArray[np.floating]:
    if is_wide(X.shape):
        found = rough_variances(partial(scaling.gram_times, X), X.shape, enough)
        if found is not None:
            return found
    return np.linalg.eigvalsh(scaling.gram(X))


def choose_n_latents(n_latents: int | None, rank: int) -> int:
    """Return `n_latents`, or the rank of X if it is None; refuse more latents than the rank."""
    if rank == 0:
        raise ValueError(
            "All columns of X are constant, up to rounding: there is nothing to recover from them. "
            "If they vary beside a large offset, subtract it where the numbers come from."
        )
    if n_latents is None:
        return rank
    if n_latents > rank:
        raise IdentifiabilityError(
            f"The 'n_latents' parameter must be at most the rank of X, which is {rank} (columns "
            "are constant, repeated or combinations of others, or there are few rows). "
            f"Got {n_latents} instead."
        )
    return n_latents


def check_enough_rows(n_rows: int, n_latents: int) -> None:
    """Refuse so few rows that nothing can be seen in them."""
    fewest = _FEWEST_ROWS_PER_LATENT * n_latents
    if n_rows < fewest:
        raise ValueError(
            f"{n_latents} latents need at least {fewest} rows of X to show layers. Got {n_rows}."
        )


def whitening(
    X: NDArray[np.floating], n_latents: int | None
) -> tuple[LinearEncoder, tuple[Check, ...]]:
    """Return the map to the leading principal components with variance one, and checks."""
    span, rank, checks = components_of(X, n_latents)
    return span, (*checks, rank.check(span.n_latents))


def components_of(
    X: NDArray[np.floating], n_latents: int | None, scaling: Scaling | None = None
) -> tuple[LinearEncoder, Rank, tuple[Check, ...]]:
    """Return the map to all principal components or as many as asked for, rank, column checks."""
    scaling = scaling or Scaling.of(X)
    components = _components(X, scaling, n_latents)
    rank, checks = check_columns(X, scaling, components.variances)
    n = choose_n_latents(n_latents, rank)
    variances, directions = components.variances[:n], components.directions[:, :n]
    if len(directions) != X.shape[1]:  # directions among the rows
        directions = scaling(X).T @ directions / np.sqrt(np.maximum(variances, 1e-300) * len(X))
    leading = _with_fixed_signs(directions) / np.sqrt(variances)
    leading[scaling.constant] = 0.0
    span = LinearEncoder(leading.T / scaling.scale, scaling.mean)
    n_varying = int((~scaling.constant).sum())
    return span, Rank(components.variances, n_varying, len(X)), checks


def _components(X: NDArray[np.floating], scaling: Scaling, n_latents: int | None) -> Components:
    """Return the principal components of the columns; of the rows if they are fewer, but many."""
    if is_wide(X.shape):
        found = leading_components(partial(scaling.gram_times, X), X.shape, n_latents)
        if found is not None:
            return found
    variances, directions = np.linalg.eigh(scaling.gram(X))
    return Components(variances[::-1], directions[:, ::-1])


def _with_fixed_signs(directions: NDArray[np.floating]) -> NDArray[np.floating]:
    """Make the largest entry of each column positive, so that rounding cannot turn it around."""
    largest = np.abs(directions).argmax(axis=0)
    return directions * np.sign(directions[largest, np.arange(directions.shape[1])])


def in_readable_units(matrix: Matrix, X: Matrix, environments: Environments) -> LinearEncoder:
    """Give each latent sd 1 in the reference environment, and a positive largest coefficient.

    Coefficients are compared for standardised features, so that units do not matter.
    """
    reference, _ = reference_of(environments)
    rows = X[environments.codes == reference]
    mean = Scaling.of(rows).mean
    scale = ((rows - mean) @ matrix.T).std(axis=0)
    standardised = matrix * Scaling.of(X).scale
    largest = np.abs(standardised).argmax(axis=1)
    signs = np.where(standardised[np.arange(len(matrix)), largest] < 0, -1.0, 1.0)
    matrix = matrix * (signs / np.where(scale > 0, scale, 1.0))[:, None]
    return LinearEncoder(matrix, mean)
