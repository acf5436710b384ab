"""Nonlinear regression on the layers upstream, chosen by errors on held-out rows; plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist

from crlearn.published.layers._soft_steps import train_soft_steps
from crlearn.tags import stored

Matrix = NDArray[np.floating]

_N_FOLDS = 5
_RIDGES = 10.0 ** np.arange(-16.0, 1.0, 2.0)
_MOST_FUNCTIONS = 220
_FUNCTIONS_PER_ROW = 0.1
_MOST_ROWS_OF_A_CHOICE = 5000
_ROWS_PER_BLOCK = 8192
_STEEPNESS = 1.5
# Soft steps that are trained, and rows that train them. A fit that leaves less than this share of
# the variance has nothing to gain from them.
_MOST_TRAINED = 24
_FEWEST_ROWS_OF_A_TRAINING, _MOST_ROWS_OF_A_TRAINING = 200, 3000
_EXPLAINED = 1e-8
# Functions whose size is below this vary only by rounding.
_CONSTANT = 1e-10


@stored("noise/basis")
@dataclass(frozen=True, eq=False)
class Basis:
    """Functions of standardised predictors: monomials, radial functions and soft steps.

    Attributes
    ----------
    powers
        Exponents of the monomials, ``(q, p)``.
    centres, width
        Of Gaussian radial functions, ``(m, p)``.
    directions, shifts
        Of soft steps ``tanh(direction @ u + shift)``, ``(k, p)`` and ``(k,)``.
    """

    powers: NDArray[np.intp]
    centres: Matrix
    width: float
    directions: Matrix
    shifts: Matrix

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.powers) + len(self.centres) + len(self.directions)

    def __call__(self, rows: Matrix) -> Matrix:
        """Return the functions at each row."""
        monomials = np.ones((len(rows), len(self.powers)))
        for column, exponents in zip(rows.T, self.powers.T, strict=True):
            monomials *= _powers_of(column, exponents)
        radial = np.exp(cdist(rows, self.centres, "sqeuclidean") / (-2 * self.width**2))
        steps = np.tanh(rows @ self.directions.T + self.shifts)
        return np.column_stack([monomials, radial, steps])


@stored("noise/regression")
@dataclass(frozen=True, eq=False)
class Regression:
    """Ridge regression on functions of standardised predictors.

    Attributes
    ----------
    mean, scale
        Of the predictors, ``(p,)``.
    basis
        The functions.
    intercept, coefficients
        ``(outputs,)`` and ``(functions, outputs)``.
    """

    mean: Matrix
    scale: Matrix
    basis: Basis
    intercept: Matrix
    coefficients: Matrix

    def __call__(self, X: Matrix) -> Matrix:
        """Return the predictions at each row, ``(N, outputs)``."""
        predictions = np.empty((len(X), len(self.intercept)))
        for start in range(0, len(X), _ROWS_PER_BLOCK):
            block = slice(start, start + _ROWS_PER_BLOCK)
            rows = (X[block] - self.mean) / self.scale
            predictions[block] = self.basis(rows) @ self.coefficients + self.intercept
        return predictions


def fit_regression(X: Matrix, Y: Matrix, rng: np.random.Generator) -> tuple[Regression, Matrix]:
    """Regress Y on X; basis and ridge have the least error on held-out fifths of the rows.

    Candidates are linear, quadratic and cubic functions, and linear functions with up to 220 radial
    functions around random rows, or as many soft steps in random directions; each with ridges from
    1e-16 to 1. Each output has a ridge of its own. The choice is made on at most 5,000 rows.
    Functions in random places miss much of what depends on many predictors. So up to 24 soft steps
    are trained on four fifths of these rows, and taken if they do better than the best candidate on
    the other fifth.

    Cost: O(N q^2 + q^3) for q functions, of which there are at most N / 10 beyond linear ones, and
    that of `train_soft_steps`.

    Parameters
    ----------
    X, Y
        Predictors ``(N, p)`` and targets ``(N, outputs)``.
    rng
        Draws the functions and the order of the rows.

    Returns
    -------
    regression
        The best candidate, fitted to all rows.
    error
        Its mean square error on held-out rows, for each output.
    """
    mean, scale = X.mean(axis=0), X.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    order = rng.permutation(len(X))
    rows, targets = ((X - mean) / scale)[order], Y[order]
    basis, ridges, error = _best_candidate(
        rows[:_MOST_ROWS_OF_A_CHOICE], targets[:_MOST_ROWS_OF_A_CHOICE], rng
    )
    paths = _ridge_paths(_folds(basis, rows, targets), basis.size)
    weights = [paths[ridge][:, output] for output, ridge in enumerate(ridges)]
    intercept, *coefficients = np.array(weights).T
    regression = Regression(mean, scale, basis, intercept, np.array(coefficients))
    return regression, error


def _best_candidate(
    rows: Matrix, targets: Matrix, rng: np.random.Generator
) -> tuple[Basis, NDArray[np.intp], Matrix]:
    """Return a basis, and the place of the ridge and the error on held-out rows of each output."""
    spread = np.maximum(targets.var(axis=0), np.finfo(float).tiny)
    bases = _candidates(rows, rng)
    errors = [held_out_errors(basis, rows, targets) for basis in bases]
    unexplained = [(error.min(axis=0) / spread).sum() for error in errors]
    best = int(np.argmin(unexplained))
    basis, ridges, error = bases[best], errors[best].argmin(axis=0), errors[best].min(axis=0)
    if unexplained[best] < _EXPLAINED or len(rows) < _FEWEST_ROWS_OF_A_TRAINING:
        return basis, ridges, error
    trained = _trained_basis(rows, targets, rng)
    its_errors = held_out_errors(trained, rows, targets, n_held_out=1)
    before = held_out_errors(basis, rows, targets, n_held_out=1).min(axis=0)
    ratio = its_errors.min(axis=0) / np.maximum(before, np.finfo(float).tiny)
    if ((ratio - 1) * before / spread).sum() >= 0:
        return basis, ridges, error
    # The fifth says how much less the error is, and all rows how large: it may have little noise.
    return trained, its_errors.argmin(axis=0), error * ratio


def _candidates(rows: Matrix, rng: np.random.Generator) -> list[Basis]:
    """Return the bases that have few enough functions for the number of rows."""
    n_rows, p = rows.shape
    most = min(_MOST_FUNCTIONS, int(_FUNCTIONS_PER_ROW * n_rows))
    no_rows, none = np.zeros((0, p)), np.zeros(0)
    linear, quadratic, cubic = (_monomials(p, degree) for degree in (1, 2, 3))
    bases = [
        Basis(powers, no_rows, 1.0, no_rows, none)
        for powers in (linear, quadratic, cubic)
        if powers is linear or len(powers) <= most
    ]
    if most - p >= 2:
        centres = rows[: most - p]
        width = float(np.median(pdist(centres))) / 2 or 1.0
        directions = rng.normal(size=(most - p, p)) * _STEEPNESS / np.sqrt(p)
        shifts = rng.normal(size=most - p)
        bases.append(Basis(linear, centres, width, no_rows, none))
        bases.append(Basis(linear, no_rows, 1.0, directions, shifts))
    return bases


def _trained_basis(rows: Matrix, targets: Matrix, rng: np.random.Generator) -> Basis:
    """Return linear functions and trained soft steps; the first fifth has no part in it."""
    p = rows.shape[1]
    size = min(_MOST_TRAINED, max(int(_FUNCTIONS_PER_ROW * len(rows)) // (p + 1), 1))
    used = np.flatnonzero(np.arange(len(rows)) % _N_FOLDS)[:_MOST_ROWS_OF_A_TRAINING]
    directions = rng.normal(size=(size, p)) * _STEEPNESS / np.sqrt(p)
    start = np.column_stack([directions, rng.normal(size=size)])
    places = train_soft_steps(rows[used], targets[used], start)
    return Basis(_monomials(p, 1), np.zeros((0, p)), 1.0, places[:, :-1], places[:, -1])


def held_out_errors(
    basis: Basis, rows: Matrix, targets: Matrix, n_held_out: int = _N_FOLDS
) -> Matrix:
    """Return the mean square error on held-out rows, for each ridge and output.

    The first `n_held_out` fifths of the rows are held out, one after the other.
    """
    q, folds = basis.size, _folds(basis, rows, targets)
    errors = np.zeros((len(_RIDGES), targets.shape[1]))
    for k, held_out in enumerate(folds[:n_held_out]):
        for path, error in zip(_ridge_paths(folds[:k] + folds[k + 1 :], q), errors, strict=True):
            error += ((held_out[:, : 1 + q] @ path - held_out[:, 1 + q :]) ** 2).sum(axis=0)
    return errors / sum(len(rows[k::_N_FOLDS]) for k in range(n_held_out))


def _folds(basis: Basis, rows: Matrix, targets: Matrix) -> list[Matrix]:
    return [_factor(basis, rows[k::_N_FOLDS], targets[k::_N_FOLDS]) for k in range(_N_FOLDS)]


def _factor(basis: Basis, rows: Matrix, targets: Matrix) -> Matrix:
    """Return a triangular matrix with the products of constant, functions and targets.

    It has all that least squares need of the rows, and their precision too: products themselves
    would lose half of the digits.
    """
    columns = np.column_stack([np.ones(len(rows)), basis(rows), targets])
    return np.asarray(np.linalg.qr(columns, mode="r"))


def _ridge_paths(factors: Sequence[Matrix], q: int) -> list[Matrix]:
    """Return intercept and coefficients for each ridge, in units of functions of variance one."""
    factor = np.asarray(np.linalg.qr(np.concatenate(factors), mode="r"))
    # Below the row of the constant, columns count from their means.
    functions, targets = factor[1:, 1 : 1 + q], factor[1:, 1 + q :]
    length = np.linalg.norm(functions, axis=0)
    # A radial function around an outlier is zero at all other rows, and counts nothing.
    unit = np.where(length > _CONSTANT * np.sqrt(len(functions)), length, np.inf)
    left, values, right = np.linalg.svd(functions / unit, full_matrices=False)
    projected = left.T @ targets
    shrunk = [values[:, None] / (values[:, None] ** 2 + ridge) * projected for ridge in _RIDGES]
    coefficients = [(right.T @ part) / unit[:, None] for part in shrunk]
    top = factor[:1]
    return [
        np.concatenate([(top[:, 1 + q :] - top[:, 1 : 1 + q] @ part) / top[0, 0], part])
        for part in coefficients
    ]


def _monomials(p: int, degree: int) -> NDArray[np.intp]:
    """Return the exponents of all monomials up to a degree, without the constant."""
    chosen = [
        np.bincount(factors, minlength=p)
        for total in range(1, degree + 1)
        for factors in combinations_with_replacement(range(p), total)
    ]
    return np.array(chosen, dtype=np.intp)


def _powers_of(column: Matrix, exponents: NDArray[np.intp]) -> Matrix:
    powers = np.ones((exponents.max(initial=0) + 1, len(column)))
    for exponent in range(1, len(powers)):
        powers[exponent] = powers[exponent - 1] * column
    return powers[exponents].T
