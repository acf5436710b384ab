"""The profile likelihood of a rotation with quadratic mechanisms; its cost does not depend on N.

With z = Q y for whitened y and orthogonal Q, latent j is a quadratic function of the latents before
it plus Gaussian noise. All that the likelihood needs of the data are the moments of the monomials
of y, and under a rotation monomials change linearly: the moments of the monomials of z are
M = T G T' with T made of products of entries of Q. Ordered as

    1, z_1, z_1^2, z_2, z_1 z_2, z_2^2, z_3, ...

the residual variance of latent j is the square of one diagonal entry of the Cholesky factor of M,
so that one factorisation gives F(Q) = sum_j log L_jj.

An orthogonal Q cannot be the true encoder, as row j of it is latent j less its linear regression on
the latents before it, but the space of functions is the same. This model is for the search; the
final fit has a free encoder.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, solve_triangular
from scipy.sparse import csr_matrix, vstack

from crlearn.likelihood.core._encoder import LONGEST_STEP
from crlearn.likelihood.core._newton import Expansion, descend

Matrix = NDArray[np.floating]

_RIDGE = np.sqrt(np.finfo(float).eps)  # above rounding, below any noise


class QuadraticModel:
    """F and its derivatives for some whitened rows."""

    def __init__(self, y: Matrix) -> None:
        self.n = y.shape[1]
        self.planes = list(combinations(range(self.n), 2))
        self._pairs = np.triu_indices(self.n)
        first, second = self._pairs
        values = np.column_stack([np.ones(len(y)), y, y[:, first] * y[:, second]])
        self._moments = values.T @ values / len(y)
        # Monomials with their last variable; of those with the same one the variable itself first.
        last = np.concatenate([[-1], np.arange(self.n), second])
        self._order = np.argsort(last, kind="stable")
        self._targets = np.flatnonzero((self._order > 0) & (self._order <= self.n))
        eye, none = np.eye(self.n), csr_matrix((0, len(self._order)))
        turned = []
        for a, b in self.planes:
            A = np.outer(eye[a], eye[b]) - np.outer(eye[b], eye[a])
            of_pairs = self._of_pairs(A, eye) + self._of_pairs(eye, A)
            turned.append(csr_matrix(self._ordered(np.asarray(block_diag(0, A, of_pairs)))))
        self._rotate = vstack([none, *turned])
        self._rotate_back = vstack([none, *(change.T for change in turned)])

    def value(self, Q: Matrix) -> float:
        """Return F(Q)."""
        return float(np.log(np.diag(_factor(self._rotated(Q)))[self._targets]).sum())

    def expand(self, Q: Matrix) -> Expansion:
        """Expand F to second order in the angles by which Q is rotated on."""
        M = self._rotated(Q)
        L = _factor(M)
        # For each latent, the combination of monomials that is its residual.
        ends = np.zeros((len(L), self.n))
        ends[self._targets, np.arange(self.n)] = np.diag(L)[self._targets]
        coefficients = solve_triangular(L, ends, lower=True, trans=1)
        n_planes = len(self.planes)
        moved = M @ coefficients
        V = (self._rotate_back @ coefficients).reshape(n_planes, len(M), self.n)
        W = (self._rotate @ moved).reshape(n_planes, len(M), self.n)
        gradient, hessian = np.zeros(n_planes), np.zeros((n_planes, n_planes))
        for j, target in enumerate(self._targets):
            variance = L[target, target] ** 2
            rotated, turned = V[:, :, j], W[:, :, j]
            slope = rotated @ moved[:, j] / variance
            through = rotated @ M
            cross = rotated @ turned.T
            inside = solve_triangular(
                L[:target, :target], (through + turned)[:, :target].T, lower=True
            )
            curved = rotated @ through.T + (cross + cross.T) / 2 - inside.T @ inside
            gradient += slope
            hessian += curved / variance - 2 * np.outer(slope, slope)
        value = float(np.log(np.diag(L)[self._targets]).sum())
        return Expansion(value, gradient, hessian, alike=True)

    def rotated(self, Q: Matrix, angles: Matrix) -> Matrix:
        """Rotate Q by small angles in all planes (Cayley's map)."""
        A = np.zeros((self.n, self.n))
        A[np.triu_indices(self.n, 1)] = angles
        A -= A.T
        return np.linalg.solve(np.eye(self.n) - A / 2, np.eye(self.n) + A / 2) @ Q

    def minimise(self, Q: Matrix) -> tuple[Matrix, float]:
        """Minimise F from a start; return the rotation and the value."""
        Q, value = descend(
            Q,
            self.expand,
            self.value,
            self.rotated,
            max_steps=100,
            tolerance=1e-6,
            longest=LONGEST_STEP,
        )
        left, _, right = np.linalg.svd(Q)  # removes rounding errors
        return left @ right, value

    def _rotated(self, Q: Matrix) -> Matrix:
        """Return M, the moments of the monomials of z, in their order."""
        T = np.asarray(block_diag(1, Q, self._of_pairs(Q, Q)))
        return self._ordered(T @ self._moments @ T.T)

    def _ordered(self, matrix: Matrix) -> Matrix:
        return matrix[np.ix_(self._order, self._order)]

    def _of_pairs(self, P: Matrix, Q: Matrix) -> Matrix:
        """Return what takes products y_c y_d to (P y)_a (Q y)_b, for all pairs a, b and c, d."""
        a, b = (index[:, None] for index in self._pairs)
        c, d = self._pairs
        return P[a, c] * Q[b, d] + (c != d) * P[a, d] * Q[b, c]


def _factor(M: Matrix) -> Matrix:
    return np.linalg.cholesky(M + _RIDGE * np.eye(len(M)))
