"""Rows that stand far out of their environment: robust distances, and which rows to leave out.

Distances are those of Mahalanobis, with means and covariances of the rows that lie close together
(the minimum covariance determinant, Rousseeuw and Van Driessen, Technometrics, 1999, from one
start), environment by environment, in the leading directions of X, and beside them what a row has
outside of these (Hubert, Rousseeuw and Vanden Branden, Technometrics, 2005).

How far is too far depends on the tails, which nonlinear mechanisms make heavy. Distances are taken
for a power of those of Gaussian rows. Median and upper quantile, which few rows far out hardly
move, say which power.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, rankdata

from crlearn.inputs._components import RANK_TOLERANCE, rank_of

Matrix = NDArray[np.floating]
Vector = NDArray[np.floating]
Codes = NDArray[np.intp]

_LEVEL = 0.01  # that a clean environment loses a row
_CLOSE = 0.75  # share of the rows that covariances are taken of
MOST_FAR_OUT = 0.05  # share of an environment's rows; the others say how heavy tails are
_ROUNDS, _MOST_STEPS = 3, 20  # of directions; of covariances in them
_ROWS_PER_DIRECTION = 10  # of a covariance
_FARTHEST = 1e50  # in units of a column; values farther out count as this: squares are finite


@dataclass(frozen=True, eq=False)
class Distances:
    """Squared distances of rows from the middle of their environment.

    Attributes
    ----------
    inside, outside
        In the leading directions, in units of the covariance there, and outside of them.
    n_inside, n_outside
        Numbers of these directions.
    groups
        Rows of each environment.
    """

    inside: Vector
    outside: Vector
    n_inside: int
    n_outside: int
    groups: Sequence[Codes]

    def weights(self) -> Vector:
        """Return 0 for rows that stand far out of their environment, and 1 for all others."""
        far = np.zeros(len(self.inside), dtype=bool)
        for own in self.groups:
            far[own] |= _too_far(self.inside[own], self.n_inside)
            far[own] |= _too_far(self.outside[own], self.n_outside)
        return np.where(far, 0.0, 1.0)

    def nearest(self, share: float) -> list[Codes]:
        """Return the share of each environment's rows that are nearest to its middle."""
        near = []
        for own in self.groups:
            ranks = (rankdata(each[own], method="min") for each in (self.inside, self.outside))
            order = np.argsort(np.maximum(*ranks), kind="stable")
            near.append(own[order[: math.ceil(share * len(own))]])
        return near


def robust_distances(X: Matrix, codes: Codes, n_latents: int | None = None) -> Distances:
    """Return how far rows stand out of their environments.

    Time is that of three principal component analyses, and of covariances in as many directions as
    there are latents.

    Parameters
    ----------
    X
        Rows.
    codes
        Number of each row's environment.
    n_latents
        Number of leading directions, as far as rows are enough for their covariance; None: all in
        which rows vary.
    """
    rows = _standardised(X, codes)
    groups = [np.flatnonzero(codes == e) for e in range(int(codes.max()) + 1)]
    most = max(1, min(map(len, groups)) // _ROWS_PER_DIRECTION)
    found = Distances((rows**2).sum(axis=1), np.zeros(len(rows)), 1, 1, groups)
    for _ in range(_ROUNDS):
        near = found.nearest(_CLOSE)
        for own, close in zip(groups, near, strict=True):
            rows[own] -= rows[close].mean(axis=0)
        axes, rank = _directions(rows[np.concatenate(near)])
        n_inside = min(most, rank, rank if n_latents is None else n_latents)
        along = rows @ axes[:, :n_inside]
        outside = _beside(rows, along)
        for _ in range(_MOST_STEPS):
            before = found.inside
            inside = _mahalanobis(along, groups, near)
            found = Distances(inside, outside, n_inside, max(rank - n_inside, 1), groups)
            near = found.nearest(_CLOSE)
            if np.array_equal(inside, before):
                break
    return found


def _standardised(X: Matrix, codes: Codes) -> Matrix:
    """Take medians of the environments off, and divide by the median size of what is left."""
    rows = np.array(X, dtype=float)
    for e in range(int(codes.max()) + 1):
        rows[codes == e] -= np.median(rows[codes == e], axis=0)
    size = np.abs(rows)
    scale = np.median(size, axis=0)
    # Half of the values of a column may be the same.
    scale = np.where(scale > 0, scale, size.mean(axis=0))
    return np.clip(rows / np.where(scale > 0, scale, 1.0), -_FARTHEST, _FARTHEST)


def _directions(rows: Matrix) -> tuple[Matrix, int]:
    """Return principal directions, the leading first, and in how many of them rows vary."""
    if rows.shape[1] > len(rows):
        _, sizes, axes = np.linalg.svd(rows, full_matrices=False)
        return axes.T, rank_of(sizes**2)
    variances, axes = np.linalg.eigh(rows.T @ rows)
    return axes[:, ::-1], rank_of(variances[::-1])


def _beside(rows: Matrix, along: Matrix) -> Vector:
    """Return the squared length of what rows have outside of directions; rounding is none."""
    total = (rows**2).sum(axis=1)
    outside = total - (along**2).sum(axis=1)
    return np.where(outside > RANK_TOLERANCE * np.maximum(total, np.median(total)), outside, 0.0)


def _mahalanobis(along: Matrix, groups: Sequence[Codes], near: Sequence[Codes]) -> Vector:
    """Return squared distances, with means and covariances of the near rows of environments."""
    distances = np.zeros(len(along))
    if not along.shape[1]:  # the near rows are all the same
        return distances
    for own, close in zip(groups, near, strict=True):
        centre = along[close].mean(axis=0)
        covariance = np.cov(along[close].T, bias=True).reshape(2 * (along.shape[1],))
        variances, axes = np.linalg.eigh(covariance)
        # In a direction in which others do not vary at all, every distance is large.
        sds = np.sqrt(np.maximum(variances, RANK_TOLERANCE**2 * variances[-1]))
        distances[own] = (((along[own] - centre) @ axes / sds) ** 2).sum(axis=1)
    return distances


def _too_far(distances: Vector, n_directions: int) -> NDArray[np.bool_]:
    """Return which squared distances are larger than any of so many should be."""
    median, upper = np.quantile(distances, [0.5, 1 - MOST_FAR_OUT])
    if median == 0:  # outside of directions in which all rows lie but few
        return (distances > 0) & (upper == 0)
    gaussian = chi2.ppf([0.5, 1 - MOST_FAR_OUT], n_directions)
    power = max(1.0, float(np.log(upper / median) / np.log(gaussian[1] / gaussian[0])))
    limit = chi2.isf(_LEVEL / len(distances), n_directions)
    return distances > median * (limit / gaussian[0]) ** power
