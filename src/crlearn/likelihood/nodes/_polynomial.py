"""The profile likelihood of a rotation with cubic mechanisms; its cost does not depend on N.

With z = Q y for whitened y and orthogonal Q, latent j is a cubic polynomial of the latents before
it plus Gaussian noise: quadratic ones do not see a sine or another odd function at all. All that
the likelihood needs of the data are the moments of the monomials of y, and under a rotation
monomials change linearly: the moments of the monomials of z are M = T G T' with T made of products
of entries of Q. Ordered as

    1, z_1, monomials of z_1, z_2, other monomials of z_1 and z_2, ...

the residual variance of latent j is the square of one diagonal entry of the Cholesky factor of M,
so that one factorisation gives F(Q) = sum_j log L_jj.

An orthogonal Q cannot be the true encoder, as row j of it is latent j less its linear regression on
the latents before it, but the space of functions is the same for a polynomial. This model is for
the search; the final fit has a free encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, combinations_with_replacement

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.sparse import csr_matrix

from crlearn.likelihood.core._encoder import LONGEST_STEP
from crlearn.likelihood.core._newton import Expansion, descend

Matrix = NDArray[np.floating]
Monomial = tuple[int, ...]  # its factors, sorted; () is the constant

_DEGREE = 3
_PRECISION = np.finfo(float).eps


@dataclass(frozen=True, eq=False)
class Monomials:
    """All monomials of n variables up to the third degree, by degree."""

    n: int

    @cached_property
    def all(self) -> list[Monomial]:
        """The monomials."""
        return [
            monomial
            for degree in range(_DEGREE + 1)
            for monomial in combinations_with_replacement(range(self.n), degree)
        ]

    @cached_property
    def place(self) -> dict[Monomial, int]:
        """Where each stands."""
        return {monomial: k for k, monomial in enumerate(self.all)}

    @cached_property
    def _first_and_rest(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        first = np.array([m[0] for m in self.all[1:]])
        return first, np.array([self.place[m[1:]] for m in self.all[1:]])

    def values(self, y: Matrix) -> Matrix:
        """Return the monomials of each row."""
        values = np.ones((len(y), len(self.all)))
        for k, (first, rest) in enumerate(zip(*self._first_and_rest, strict=True), start=1):
            np.multiply(y[:, first], values[:, rest], out=values[:, k])
        return values

    def moments(self, y: Matrix) -> Matrix:
        """Return the mean products of all pairs of monomials."""
        values = self.values(y)
        return values.T @ values / len(y)

    @cached_property
    def _gather(self) -> list[csr_matrix]:
        """For each degree from 2: which product of a variable and a monomial is which monomial."""
        gather = []
        for degree in range(2, _DEGREE + 1):
            lower, upper = self._of_degree(degree - 1), self._of_degree(degree)
            start = self.place[upper[0]]
            rows = [
                self.place[tuple(sorted((a, *monomial)))] - start
                for a in range(self.n)
                for monomial in lower
            ]
            ones = np.ones(len(rows))
            gather.append(csr_matrix((ones, (rows, range(len(rows)))), (len(upper), len(rows))))
        return gather

    def _of_degree(self, degree: int) -> list[Monomial]:
        return list(combinations_with_replacement(range(self.n), degree))

    def transforms(self, Q: Matrix) -> list[Matrix]:
        """Return, for each degree, the matrix that takes monomials of y to those of z = Q y."""
        found = [np.ones((1, 1)), Q]
        for degree, gather in enumerate(self._gather, start=2):
            monomials = self._of_degree(degree)
            lower = {m: k for k, m in enumerate(self._of_degree(degree - 1))}
            first = Q[[m[0] for m in monomials]]
            rest = found[-1][[lower[m[1:]] for m in monomials]]
            products = (first[:, :, None] * rest[:, None, :]).reshape(len(monomials), -1)
            found.append((gather @ products.T).T)
        return found


class PolynomialModel:
    """F and its derivatives for some whitened rows."""

    def __init__(self, y: Matrix) -> None:
        self.n = y.shape[1]
        self.monomials = monomials = Monomials(self.n)
        self.moments = monomials.moments(y)
        self.planes = list(combinations(range(self.n), 2))
        ordered: list[Monomial] = [()]
        targets: list[int] = []
        for j in range(self.n):
            targets.append(len(ordered))
            ordered.append((j,))
            ordered += [m for m in monomials.all if len(m) > 1 and max(m) == j]
        self._targets = np.array(targets)
        self._order = np.array([monomials.place[m] for m in ordered])
        # Above rounding, which heavy tails make large among the monomials of high degree.
        of_degree = np.array([len(m) for m in ordered])
        squares = np.diag(self.moments)[self._order]
        mean_squares = np.array([squares[of_degree == k].mean() for k in range(_DEGREE + 1)])
        self._ridge = np.sqrt(_PRECISION) + len(ordered) * _PRECISION * mean_squares[of_degree]
        self._rotate, self._rotate_back = self._derivations(ordered)

    def value(self, Q: Matrix) -> float:
        """Return F(Q)."""
        return float(np.log(np.diag(self._factor(self._rotated(Q)))[self._targets]).sum())

    def expand(self, Q: Matrix) -> Expansion:
        """Expand F to second order in the angles by which Q is rotated on."""
        M = self._rotated(Q)
        L = self._factor(M)
        coefficients = self._coefficients(L)
        size, n_planes = len(M), len(self.planes)
        moved = M @ coefficients
        V = (self._rotate_back @ coefficients).reshape(size, n_planes, self.n)
        W = (self._rotate @ moved).reshape(size, n_planes, self.n)
        gradient, hessian = np.zeros(n_planes), np.zeros((n_planes, n_planes))
        for j, target in enumerate(self._targets):
            variance = L[target, target] ** 2
            rotated = V[:, :, j]
            slope = rotated.T @ moved[:, j] / variance
            through = M @ rotated
            cross = rotated.T @ W[:, :, j]
            inside = solve_triangular(
                L[:target, :target], through[:target] + W[:target, :, j], lower=True
            )
            curved = rotated.T @ through + (cross + cross.T) / 2 - inside.T @ inside
            gradient += slope
            hessian += curved / variance - 2 * np.outer(slope, slope)
        value = float(np.log(np.diag(L)[self._targets]).sum())
        return Expansion(value, gradient, hessian, alike=True)

    def rotated(self, Q: Matrix, angles: Matrix) -> Matrix:
        """Rotate Q by small angles in all planes (Cayley's map)."""
        A = np.zeros((self.n, self.n))
        for (a, b), angle in zip(self.planes, angles, strict=True):
            A[a, b], A[b, a] = angle, -angle
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
        return _orthogonal(Q), value

    def _rotated(self, Q: Matrix) -> Matrix:
        """Return M, the moments of the monomials of z."""
        M = self.moments.copy()
        start = 0
        spans = []
        for T in self.monomials.transforms(Q):
            spans.append((slice(start, start + len(T)), T))
            start += len(T)
        for span, T in spans:
            M[span] = T @ M[span]
        for span, T in spans:
            M[:, span] = M[:, span] @ T.T
        return M[np.ix_(self._order, self._order)]

    def _factor(self, M: Matrix) -> Matrix:
        return np.linalg.cholesky(M + np.diag(self._ridge))

    def _coefficients(self, L: Matrix) -> Matrix:
        """Return, for each latent, the combination of monomials that is its residual."""
        ends = np.zeros((len(L), self.n))
        ends[self._targets, np.arange(self.n)] = np.diag(L)[self._targets]
        return solve_triangular(L, ends, lower=True, trans=1)

    def _derivations(self, ordered: list[Monomial]) -> tuple[csr_matrix, csr_matrix]:
        """Return how monomials change when a plane is rotated, and the transposed of it."""
        place = {monomial: k for k, monomial in enumerate(ordered)}
        size, n_planes = len(ordered), len(self.planes)
        entries: list[tuple[int, int, int, float]] = []
        for p, (a, b) in enumerate(self.planes):
            for k, monomial in enumerate(ordered):
                for old, new, sign in ((a, b, 1.0), (b, a, -1.0)):
                    count = monomial.count(old)
                    if count:
                        changed = list(monomial)
                        changed[changed.index(old)] = new
                        entries.append((k, p, place[tuple(sorted(changed))], sign * count))
        if not entries:
            empty = csr_matrix((size * n_planes, size))
            return empty, empty
        k, p, to, weight = (np.array(column) for column in zip(*entries, strict=True))
        shape = (size * n_planes, size)
        return (
            csr_matrix((weight, (k * n_planes + p, to)), shape),
            csr_matrix((weight, (to * n_planes + p, k)), shape),
        )


def _orthogonal(Q: Matrix) -> Matrix:
    """Remove rounding errors."""
    left, _, right = np.linalg.svd(Q)
    return left @ right
