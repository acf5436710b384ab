"""The profile likelihood of an encoder with nonlinear mechanisms, from the rows themselves.

With z = H x, latent j is f_j(parents) + Gaussian noise. Mechanisms are linear in the features of
`crlearn.likelihood._features`, so that they and the noise variances are profiled out in closed
form, and what is left is F(H) as in `crlearn.likelihood._gaussian`. F is a sum over latents; the
part of one latent given its parents is a `Piece`. Graphs that share a latent's parents share it.

The Hessian is the full one of a separable least-squares problem: with residual r, features Phi and
J = dr at fixed coefficients, second derivatives of the residual sum of squares are

    J'J - (Phi'J + dPhi'r)' (Phi'Phi)^-1 (Phi'J + dPhi'r) - r' d2Phi beta.

The terms with r must not be dropped as in a Gauss-Newton method: a latent's own residual is part of
the directions in which its parents move, and without them the method crawls.

Time grows as rows x (features + latents x parents)^2 for a piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import cpu_count

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import ThreadpoolController

from crlearn.likelihood._features import Basis, n_features
from crlearn.likelihood._newton import Expansion, descend
from crlearn.likelihood._pools import Moments, Pools

Matrix = NDArray[np.floating]
Parents = tuple[int, ...]

_BLOCK = 2048  # rows whose features stay in the cache
_BLOCKS_FOR_THE_FORM = 6
_RIDGE = 1e-6


@dataclass(frozen=True, eq=False)
class Piece:
    """The part of F that belongs to one latent, given its parents.

    Attributes
    ----------
    value
        The part itself.
    rows
        The rows of D that it depends on: the latent and its parents.
    gradient
        ``(len(rows), n)``.
    hessian
        ``(len(rows) n, len(rows) n)``.
    """

    value: float
    rows: tuple[int, ...]
    gradient: Matrix
    hessian: Matrix


class AdditiveModel:
    """F and its pieces for some rows.

    Parameters
    ----------
    environments
        Rows of each environment, reduced to as many dimensions as there are latents. They must not
        be centred if the mixing has no offset: then their origin is that of the latents.
    pool
        ``pool[j, e]`` is the number of the pool of environment e for latent j.
    hard
        Whether latents have parents in pool 0 only, or in every pool.
    """

    def __init__(
        self, environments: Sequence[Matrix], pool: NDArray[np.intp], *, hard: bool
    ) -> None:
        ends = np.cumsum([len(rows) for rows in environments])
        self.n = environments[0].shape[1]
        self.n_rows = int(ends[-1])
        self.hard = hard
        self._pool = pool
        self._rows = np.concatenate(environments).astype(np.float32)
        self._ranges = list(zip([0, *ends[:-1]], ends, strict=True))
        self._moments = Moments.of(environments)
        self._mean = self._moments.shares @ self._moments.means
        self._covariance = self._moments.pooled(self._moments.shares)
        self._pools = Pools.of(self._moments, pool)
        self._threads = ThreadPoolExecutor(cpu_count())
        self._libraries = ThreadpoolController()

    def scaled(self, H: Matrix) -> Matrix:
        """Give every latent unit variance over all rows: the features expect it."""
        variances = np.einsum("ja,ab,jb->j", H, self._covariance, H)
        return H / np.sqrt(variances)[:, None]

    def penalty(self, parents: Sequence[Parents]) -> float:
        """Half the logarithm of the number of rows for each coefficient, as in BIC."""
        return 0.5 * np.log(self.n_rows) * sum(n_features(len(each)) for each in parents)

    def bic(self, value: float, parents: Sequence[Parents]) -> float:
        """Return the negative log-likelihood with the penalty, in nats."""
        return value * self.n_rows + self.penalty(parents)

    def value(self, H: Matrix, parents: Sequence[Parents]) -> float:
        """Return F(H)."""
        wanted = list(enumerate(parents))
        pieces = self.pieces(H, wanted, derivatives=False)
        return -np.linalg.slogdet(H)[1] + sum(piece.value for piece in pieces.values())

    def expand(self, H: Matrix, parents: Sequence[Parents]) -> Expansion:
        """Expand F to second order."""
        return self.assemble(H, list(self.pieces(H, list(enumerate(parents))).values()))

    def pieces(
        self, H: Matrix, wanted: Sequence[tuple[int, Parents]], *, derivatives: bool = True
    ) -> Mapping[tuple[int, Parents], Piece]:
        """Return the pieces of latents with their parents, in parallel."""
        # The products are small: threads of their own inside each would only be in the way.
        with self._libraries.limit(limits=1, user_api="blas"):
            found = self._threads.map(
                lambda key: self.piece(H, *key, derivatives=derivatives), wanted
            )
            return dict(zip(wanted, found, strict=True))

    def piece(self, H: Matrix, j: int, parents: Parents, *, derivatives: bool = True) -> Piece:
        """Return the part of latent j."""
        rows = (j, *parents)
        size = len(rows) * self.n
        value, gradient, hessian = 0.0, np.zeros(size), np.zeros((size, size))
        for p in range(self._pools.n_pools):
            if self._pools.shares[j, p] == 0:
                continue
            with_parents = bool(parents) and (p == 0 or not self.hard)
            part = (
                self._regression(H, j, parents, p, derivatives)
                if with_parents
                else self._variance(H, j, p)
            )
            n_used = len(part.gradient)
            value += part.value
            gradient[:n_used] += part.gradient
            hessian[:n_used, :n_used] += part.hessian
        return Piece(value, rows, gradient.reshape(-1, self.n), hessian)

    def assemble(self, H: Matrix, pieces: Sequence[Piece]) -> Expansion:
        """Add pieces, one for each latent, and the log-determinant."""
        n = self.n
        value = -np.linalg.slogdet(H)[1]
        gradient = -np.eye(n)
        hessian = np.eye(n)[:, None, None, :] * np.eye(n)[None, :, :, None]
        for piece in pieces:
            value += piece.value
            gradient[list(piece.rows)] += piece.gradient
            block = piece.hessian.reshape(len(piece.rows), n, len(piece.rows), n)
            hessian[np.ix_(piece.rows, range(n), piece.rows, range(n))] += block
        off = ~np.eye(n, dtype=bool).ravel()
        flat = hessian.reshape(n * n, n * n)[np.ix_(off, off)]
        return Expansion(float(value), gradient.ravel()[off], flat)

    def minimise(
        self,
        H: Matrix,
        parents: Sequence[Parents],
        *,
        max_steps: int = 15,
        tolerance: float = 2e-7,
        start: Expansion | None = None,
    ) -> tuple[Matrix, float]:
        """Minimise F from a start, which may come with its expansion; return H and the value."""
        return descend(
            H,
            lambda H: self.expand(H, parents),
            lambda H: self.value(H, parents),
            self.scaled,
            max_steps=max_steps,
            tolerance=tolerance,
            start=start,
        )

    def _variance(self, H: Matrix, j: int, p: int) -> _Part:
        """Latent j has no parents: its variance in the pool is all that matters."""
        covariance = H @ self._pools.covariances[j, p] @ H.T
        share, variance = self._pools.shares[j, p], covariance[j, j]
        slope = covariance[j] / variance
        return _Part(
            0.5 * share * np.log(variance),
            share * slope,
            share * (covariance / variance - 2 * np.outer(slope, slope)),
        )

    def _regression(self, H: Matrix, j: int, parents: Parents, p: int, derivatives: bool) -> _Part:
        blocks = self._blocks(H, j, p)
        columns = list(parents)
        origin = (H @ self._mean).astype(np.float32)[j]  # the child, counted from its own origin
        some = self._blocks(H, j, p, at_most=_BLOCKS_FOR_THE_FORM)
        basis = Basis.plain(len(parents)).fitted_to(
            (z[:, columns], z[:, j] + origin) for z in some()
        )
        return _regress(blocks, j, columns, basis, self._pools.shares[j, p], derivatives)

    def _blocks(
        self, H: Matrix, j: int, p: int, at_most: int | None = None
    ) -> Callable[[], Iterator[Matrix]]:
        """Return a function that yields the latents of a pool's rows, block by block."""
        encoder, mean = H.T.astype(np.float32), (H @ self._mean).astype(np.float32)
        places = [
            slice(start, min(start + _BLOCK, last))
            for first, last in (self._ranges[e] for e in np.flatnonzero(self._pool[j] == p))
            for start in range(first, last, _BLOCK)
        ]
        every = 1 if at_most is None else -(-len(places) // at_most)

        def blocks() -> Iterator[Matrix]:
            for place in places[::every]:
                z = self._rows[place] @ encoder
                z -= mean
                yield z

        return blocks


@dataclass(frozen=True, eq=False)
class _Part:
    """What one pool adds to a piece."""

    value: float
    gradient: Matrix
    hessian: Matrix


def _regress(
    blocks: Callable[[], Iterator[Matrix]],
    j: int,
    parents: list[int],
    basis: Basis,
    share: float,
    derivatives: bool,
) -> _Part:
    """Regress latent j on features of its parents; differentiate the logarithm of the variance."""
    size = basis.size
    gram, n_rows = np.zeros((size + 1, size + 1)), 0
    for z in blocks():
        values, child = basis(z[:, parents]).values, z[:, j]
        gram[:size, :size] += values.T @ values
        gram[:size, size] += values.T @ child
        gram[size, size] += child @ child
        n_rows += len(z)
    gram /= n_rows
    inside, with_child = gram[:size, :size], gram[:size, size]
    ridge = _RIDGE * np.trace(inside) / size * np.eye(size)
    factor = cho_factor(inside + ridge, check_finite=False)
    beta = cho_solve(factor, with_child, check_finite=False)
    variance = gram[size, size] - 2 * beta @ with_child + beta @ inside @ beta
    value = 0.5 * share * float(np.log(variance))
    if not derivatives:
        return _Part(value, np.zeros(0), np.zeros((0, 0)))
    moments = _derivatives(blocks, j, parents, basis, beta.astype(np.float32), n_rows)
    slope = moments.with_residual / variance
    curved = moments.squares - moments.with_features.T @ cho_solve(
        factor, moments.with_features, check_finite=False
    )
    hessian = share * (curved / variance - 2 * np.outer(slope, slope))
    return _Part(value, share * slope, hessian)


@dataclass(frozen=True, eq=False)
class _Derivatives:
    """Moments of J, the derivative of the residual by the rows j and parents of D."""

    with_residual: Matrix
    with_features: Matrix
    squares: Matrix


def _derivatives(
    blocks: Callable[[], Iterator[Matrix]],
    j: int,
    parents: list[int],
    basis: Basis,
    beta: NDArray[np.float32],
    n_rows: int,
) -> _Derivatives:
    sums: _Derivatives | None = None
    for z in blocks():
        n_latents, p = z.shape[1], len(parents)
        features = basis(z[:, parents])
        residual = z[:, j] - features.values @ beta
        slope = features.slope(beta)
        moving = np.concatenate([z[:, None, :], -slope[:, :, None] * z[:, None, :]], axis=1)
        J = moving.reshape(len(z), -1)
        weighted = z * residual[:, None]
        with_features = features.values.T @ J
        with_features[:, n_latents:] += features.moments_of_slopes(weighted).reshape(basis.size, -1)
        squares = J.T @ J
        bends = features.curvature(beta)
        second = np.stack(
            [[(weighted * bends[:, a, [b]]).T @ z for b in range(p)] for a in range(p)]
        )
        squares[n_latents:, n_latents:] -= second.transpose(0, 2, 1, 3).reshape(
            2 * (p * n_latents,)
        )
        block = _Derivatives(J.T @ residual, with_features, squares)
        sums = block if sums is None else _sum(sums, block)
    assert sums is not None
    return _Derivatives(
        sums.with_residual / n_rows, sums.with_features / n_rows, sums.squares / n_rows
    )


def _sum(one: _Derivatives, other: _Derivatives) -> _Derivatives:
    return _Derivatives(
        one.with_residual.astype(float) + other.with_residual,
        one.with_features.astype(float) + other.with_features,
        one.squares.astype(float) + other.squares,
    )
