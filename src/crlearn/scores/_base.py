"""What all score differences share: the protocol, checks of their input, and whitening."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

Rows = NDArray[np.floating]
Codes = NDArray[np.intp]
ScoreFunction = Callable[[Rows, int], ArrayLike]

# Eigenvalues of a correlation matrix below this count as zero.
_RANK_TOLERANCE = 1e-12


@runtime_checkable
class ScoreDifference(Protocol):
    """Score of the reference minus score of another environment.

    An object may say ``original_coordinates = True``; methods then give it the rows as they were
    observed, and not in coordinates of their own choice.
    """

    def fit(self, X: ArrayLike, codes: ArrayLike) -> Self:
        """Learn from rows and their environments; environment 0 is the reference."""
        ...

    def difference(self, X: ArrayLike, environment: int) -> Rows:
        """Return the difference at each row of `X`, shape ``(N, d)``."""
        ...


@dataclass(frozen=True, eq=False)
class Whitening:
    """Affine change of coordinates ``u = (x - mean) @ matrix.T`` to covariance one.

    The matrix is triangular (the inverse of a Cholesky factor), so that the units of the columns of
    x do not change u.
    """

    mean: Rows
    matrix: Rows

    @classmethod
    def of(cls, mean: Rows, covariance: Rows, what: str) -> Whitening:
        """Whiten a covariance; `what` names the rows it came from, for the error message."""
        scale = np.sqrt(np.diagonal(covariance))
        unit = np.where(scale > 0, scale, 1.0)
        eigenvalues = np.linalg.eigvalsh(covariance / unit / unit[:, None])
        rank = int((eigenvalues > _RANK_TOLERANCE).sum())
        if rank < len(scale):
            raise ValueError(
                f"{what} must vary in all {len(scale)} directions to have a density. They span "
                f"{rank}. Reduce X to the directions in which it varies first (PCA), or give more "
                "rows."
            )
        factor = np.linalg.cholesky(covariance)
        return cls(mean, solve_triangular(factor, np.eye(len(factor)), lower=True))

    @classmethod
    def of_rows(cls, X: Rows, what: str) -> Whitening:
        """Whiten by mean and covariance of rows."""
        mean = X.mean(axis=0)
        return cls.of(mean, (X - mean).T @ (X - mean) / len(X), what)

    def __call__(self, X: Rows) -> Rows:
        """Return the rows in the whitened coordinates."""
        return (X - self.mean) @ self.matrix.T

    def pull_back(self, scores: Rows) -> Rows:
        """Return scores of the whitened rows as scores of the rows."""
        return scores @ self.matrix


def check_environments(X: ArrayLike, codes: ArrayLike) -> tuple[Rows, Codes]:
    """Check rows and the environment of each, counted 0, 1, ..., E - 1 with none left out."""
    X = check_rows(X)
    codes = np.asarray(codes)
    if codes.shape != (len(X),) or codes.dtype.kind not in "iu":
        raise ValueError(
            f"'codes' must hold one whole number for each of the {len(X)} rows of X. "
            f"Got shape {codes.shape} of type {codes.dtype}."
        )
    present = np.unique(codes)
    if len(present) < 2 or not np.array_equal(present, np.arange(len(present))):
        raise ValueError(
            "'codes' must count at least two environments without a gap, 0 (the reference), 1, 2, "
            f"and so on. Got {', '.join(map(str, present[:10]))}."
        )
    return X, codes.astype(np.intp)


def check_rows(X: ArrayLike, n_columns: int | None = None) -> Rows:
    """Check that X is a finite matrix, with `n_columns` columns if that is given."""
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or (n_columns is not None and X.shape[1] != n_columns):
        wanted = "d" if n_columns is None else n_columns
        raise ValueError(f"'X' must have shape (N, {wanted}). Got shape {X.shape} instead.")
    if not np.isfinite(X).all():
        raise ValueError("'X' must be finite. Got missing or infinite values; drop these rows.")
    return X


def check_environment(environment: Any, n_environments: int) -> int:
    """Check the number of an environment, which is not the reference."""
    if environment not in range(1, n_environments):
        raise ValueError(
            f"'environment' must be a whole number from 1 to {n_environments - 1}; 0 is the "
            f"reference. Got {environment!r} instead."
        )
    return int(environment)


def refuse_unfitted(score: Any, attribute: str) -> None:
    """Say that fit comes first."""
    if not hasattr(score, attribute):
        raise ValueError(f"This {type(score).__name__} is not fitted yet: call fit first.")
