"""What speaks against a fit: residuals that depend on other latents, and rows that stand far out.

With the right latents and graph, what a mechanism leaves of a latent is independent of all latents
that are not its descendants, in every environment that leaves the mechanism alone, and has the same
variance there. Where a hard intervention cuts the latent off, the latent itself is. Mechanisms are
regressed anew on one half of the rows, and judged on the other half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.graph import transitive_closure
from crlearn.likelihood._fit import FITS, Dependence, Fit, compared
from crlearn.likelihood.core._subsample import part_of_each
from crlearn.likelihood.nodes._basis import Basis, solved
from crlearn.result import SAME_ANSWER

Matrix = NDArray[np.floating]

_ROWS = 10_000  # of an environment: enough to see 1% of a residual's variance
_LEVEL = 0.01  # that Gaussian rows have one far out in an environment
_ROUNDS = 5  # in which rows far out are found; they end by themselves, as a rule


def far_out(rows: Matrix) -> NDArray[np.bool_]:
    """Return which rows stand farther out than any of so many Gaussian ones should.

    Mean and covariance are those of the rows that do not, so that rows far out do not hide each
    other, and the median of all distances is that of Gaussian ones. None does where the others have
    no density: latents that are zero in most rows, or too few rows.
    """
    n_rows, n = rows.shape
    none = far = np.zeros(n_rows, dtype=bool)
    limit = chi2.isf(_LEVEL / n_rows, n)
    for _ in range(_ROUNDS):
        near = rows[~far]
        if not _have_density(near):
            return none
        covariance = np.cov(near.T).reshape(n, n)
        centred = rows - near.mean(axis=0)
        distance = np.einsum("ij,ij->i", centred @ np.linalg.pinv(covariance), centred)
        now = distance * (chi2.median(n) / np.median(distance)) > limit
        if (now == far).all():
            return far
        far = now
    return far if _have_density(rows[~far]) else none


def _have_density(rows: Matrix) -> bool:
    n = rows.shape[1]
    return len(rows) > 2 * n and np.linalg.matrix_rank(rows - rows.mean(axis=0)) == n


def same_answer(one: Fit, other: Fit) -> bool:
    """Whether two fits to rows in the same coordinates have the same latents and ancestors."""
    agreement, adjacency = compared(one, other)
    same = transitive_closure(one.adjacency) == transitive_closure(adjacency)
    return agreement >= SAME_ANSWER and bool(same.all())


def worst_dependence(rows: Sequence[Matrix], fit: Fit, *, hard: bool) -> Dependence:
    """Return where residuals clearly depend most on what they should not depend on.

    P-values are those of all tests together. Where every dependence may well be chance it is that
    which is least likely to be.
    """
    assert fit.pool is not None
    latents = [each @ fit.H.T for each in part_of_each(rows, _ROWS)]
    found = [
        dependence
        for j in range(len(fit.H))
        for dependence in _dependences(latents, fit, j, hard=hard)
    ]
    clear = [each for each in found if each.p_value * len(found) < FITS]
    if clear:
        worst = max(clear, key=lambda each: each.share)
    else:
        worst = min(found, key=lambda each: each.p_value)
    return replace(worst, p_value=min(worst.p_value * len(found), 1.0))


def p_value_of_squares(rows: Sequence[Matrix], fit: Fit, *, hard: bool) -> float:
    """Return the p-value of linear mechanisms beside squares of what is not below a latent.

    Rows are centred in each environment, so that means do not matter, and so are the squares. All
    environments in which the latent has one mechanism are taken together.
    """
    assert fit.pool is not None
    latents = [each @ fit.H.T for each in part_of_each(rows, _ROWS)]
    squares = [each**2 - (each**2).mean(axis=0) for each in latents]
    below = transitive_closure(fit.adjacency)
    p_values = [1.0]
    for j, own in enumerate(fit.pool):
        others = np.flatnonzero(~below[j] & (np.arange(len(below)) != j))
        for p in np.unique(own) if len(others) else ():
            inside = np.flatnonzero(own == p)
            z = np.concatenate([latents[e] for e in inside])
            given = z[:, [] if hard and p else others]
            bent = np.concatenate([squares[e] for e in inside])[:, others]
            left = _residual(z[:, j], given)
            share = 1 - (_residual(left, np.hstack([given, bent])) ** 2).mean() / (left**2).mean()
            p_values.append(float(chi2.sf(len(z) * share, len(others))))
    return min(min(p_values) * len(p_values), 1.0)


def _residual(values: Matrix, given: Matrix) -> Matrix:
    return values - given @ np.linalg.lstsq(given, values, rcond=None)[0]


def _dependences(
    latents: Sequence[Matrix], fit: Fit, j: int, *, hard: bool
) -> Iterator[Dependence]:
    """Yield what is left of a latent in each environment, regressed on its non-descendants."""
    assert fit.pool is not None
    below = transitive_closure(fit.adjacency)[j]
    others = np.flatnonzero(~below & (np.arange(len(below)) != j))
    for p in np.unique(fit.pool[j]):
        inside = np.flatnonzero(fit.pool[j] == p)
        parents = [] if hard and p else list(fit.graph[j])
        first = np.concatenate([latents[e][::2] for e in inside.tolist()])
        regression = Regression.of(first[:, parents], first[:, j])
        left = [latents[e][1::2] for e in inside.tolist()]
        residuals = [each[:, j] - regression(each[:, parents]) for each in left]
        total = np.concatenate(residuals).var()
        for e, given, residual in zip(inside, left, residuals, strict=True):
            # What the regression misses scatters as much as what is tested, row for row.
            inflation = 1 + len(residual) / len(first)
            share, p_value = _explained(residual, given[:, others], total, inflation)
            yield Dependence(j, int(e), share, p_value)


def _explained(
    residual: Matrix, given: Matrix, variance: float, inflation: float
) -> tuple[float, float]:
    """Return the share of the variance that others explain, and the p-value of independence.

    What explains it is a constant, the others and their squares, and, as another variance than in
    the other environments is no noise of theirs either, the environment. `inflation` is that of
    the statistic of means under independence.
    """
    n_rows = len(residual)
    basis = np.column_stack([np.ones(n_rows), given, given**2])
    basis /= np.linalg.norm(basis, axis=0)
    left = residual - basis @ np.linalg.lstsq(basis, residual, rcond=None)[0]
    freedom = basis.shape[1]
    of_means = float(1 - (left**2).mean() / (residual**2).mean())
    squares = left**2 / variance - 1
    of_variance = float(abs(squares.mean()))
    p_of_means = float(chi2.sf(n_rows * of_means / inflation, freedom))
    p_of_variance = float(chi2.sf(n_rows * of_variance**2 / squares.var(), 1))
    if p_of_means < p_of_variance:
        return of_means, p_of_means
    return of_variance, p_of_variance


@dataclass(frozen=True, eq=False)
class Regression:
    """A smooth function of the parents, in their standard units."""

    basis: Basis | None
    mean: Matrix
    scale: Matrix
    coefficients: Matrix

    @classmethod
    def of(cls, parents: Matrix, child: Matrix) -> Regression:
        if not parents.shape[1]:
            return cls(None, np.zeros(0), np.zeros(0), child.mean(keepdims=True))
        mean, scale = parents.mean(axis=0), parents.std(axis=0)
        standard = (parents - mean) / scale
        basis = Basis.plain(parents.shape[1]).fitted_to([(standard, child)])
        features = basis(standard).values.astype(float)
        return cls(basis, mean, scale, solved(features.T @ features, features.T @ child))

    def __call__(self, parents: Matrix) -> Matrix:
        if self.basis is None:
            return np.full(len(parents), self.coefficients[0])
        return self.basis((parents - self.mean) / self.scale).values @ self.coefficients
