"""The normal equations of score matching: features phi and their slopes along one latent.

The loss of a score phi(y)'theta is the mean of (phi'theta)^2 / 2 + slope'theta, so that theta =
-(Phi'Phi / w + penalty)^-1 (sum of slopes) / w, with w the weight of all rows.

Few features have a dense Gram matrix. Products of splines of three and more latents have thousands
(10,000 for four latents with ten splines each, as in Wu et al., 2026), of which 4^latents are not
zero in a row: their design is a sparse matrix, of which the Gram matrix is never formed, and
conjugate gradients solve the equations. Memory is O(rows 4^latents), whatever the number of
features; the ridge bounds the condition number, so that some dozen products are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import csr_array, eye_array, kron, vstack
from scipy.sparse.linalg import LinearOperator, cg

from crlearn.exceptions import DivergenceError

Matrix = NDArray[np.floating]

# Norm of the residual of conjugate gradients, relative to the right-hand side; the solution then
# agrees with that of a Cholesky factor to about eight digits.
_RESIDUAL = 1e-10
_MOST_PRODUCTS = 10_000
# Entries of a sparse design that are not zero: 0.6 GB.
_MOST_ENTRIES = 50_000_000


@dataclass(frozen=True, eq=False)
class DenseEquations:
    """Gram matrix of the features, sum of their slopes, and weight of the rows."""

    gram: Matrix
    slopes: NDArray[np.floating]
    weight: float

    def __add__(self, other: DenseEquations) -> DenseEquations:
        return DenseEquations(
            self.gram + other.gram, self.slopes + other.slopes, self.weight + other.weight
        )

    def solve(self, penalty: Matrix) -> NDArray[np.floating]:
        """Return the coefficients under a penalty on them."""
        matrix, right = self.gram / self.weight + penalty, self.slopes / self.weight
        try:
            return -cho_solve(cho_factor(matrix, check_finite=False), right, check_finite=False)
        except LinAlgError:  # a ridge below rounding
            return -np.linalg.lstsq(matrix, right, rcond=None)[0]

    def loss(self, theta: NDArray[np.floating]) -> float:
        """Return the score-matching loss, summed over the rows."""
        return float(0.5 * theta @ self.gram @ theta + theta @ self.slopes)


@dataclass(frozen=True, eq=False)
class SparseEquations:
    """The same with the design, whose rows are multiplied by the roots of their weights."""

    design: csr_array
    slopes: NDArray[np.floating]
    weight: float

    def __add__(self, other: SparseEquations) -> SparseEquations:
        design: Any = vstack([self.design, other.design], format="csr")
        return SparseEquations(design, self.slopes + other.slopes, self.weight + other.weight)

    def solve(self, penalty: csr_array) -> NDArray[np.floating]:
        """Return the coefficients under a penalty on them, by conjugate gradients."""
        size = len(self.slopes)
        design, transposed = self.design, self.design.T.tocsr()
        operator: Any = LinearOperator  # its types are not known to type checkers
        left = operator(
            shape=(size, size),
            matvec=lambda theta: transposed @ (design @ theta) / self.weight + penalty @ theta,
            dtype=np.float64,
        )
        right = -self.slopes / self.weight
        theta, failed = cg(left, right, rtol=_RESIDUAL, maxiter=_MOST_PRODUCTS)
        if failed:
            raise DivergenceError(
                f"Score matching with {size:,} features did not converge in {_MOST_PRODUCTS:,} "
                "steps of conjugate gradients. Use a larger ridge."
            )
        return theta

    def loss(self, theta: NDArray[np.floating]) -> float:
        """Return the score-matching loss, summed over the rows."""
        return float(0.5 * np.square(self.design @ theta).sum() + theta @ self.slopes)


Equations = DenseEquations | SparseEquations


def tensor_design(
    places: Sequence[NDArray[np.intp]], values: Sequence[Matrix], n_basis: int
) -> csr_array:
    """Return all products of splines of some latents, one row a sample.

    Parameters
    ----------
    places, values
        For each latent, which splines are not zero in each row, and their values there.
    n_basis
        Number of splines of each latent.
    """
    index = np.zeros((len(values[0]), 1), dtype=np.int32)
    entries = np.ones(index.shape)
    for place, value in zip(places, values, strict=True):
        index = (index[:, :, None] * n_basis + place[:, None, :]).reshape(len(index), -1)
        index = index.astype(np.int32)  # half the memory, and faster products
        entries = (entries[:, :, None] * value[:, None, :]).reshape(len(index), -1)
    ends = np.arange(len(index) + 1) * index.shape[1]
    shape = (len(index), n_basis ** len(values))
    return csr_array((entries.ravel(), index.ravel(), ends), shape=shape)


def refuse_large_design(n_rows: int, n_latents: int, n_basis: int, latent: int) -> None:
    """Say that products of so many splines do not fit into memory."""
    size = max(n_rows * 4**n_latents, n_basis**n_latents)
    if size > _MOST_ENTRIES:
        raise ValueError(
            f"The score of latent {latent} would multiply {n_basis} splines of each of {n_latents} "
            f"latents: {size:,} numbers, more than {_MOST_ENTRIES:,}. Use a graph with fewer "
            "parents, or EmpiricalBayesCRL, whose scores have products of two latents only."
        )


def curvature_penalty(size: int, n_axes: int) -> Any:
    """Return the penalty on second differences of coefficients, along each axis of a tensor."""
    bends = csr_array(np.diff(np.eye(size), n=2, axis=0))
    bent, unit = bends.T @ bends, eye_array(size)
    return sum(
        reduce(kron, [bent if axis == k else unit for k in range(n_axes)]) for axis in range(n_axes)
    )
