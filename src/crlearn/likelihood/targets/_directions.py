"""Directions x whose square x x' lies in the span of differences of symmetric matrices.

The matrices are precisions of the environments, known up to noise. `RankOne` measures how far x x'
is from their span in units of the noise; `rank_one_directions` finds starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood.core._encoder import unit_rows

Matrix = NDArray[np.floating]

_MOST_ITERATIONS = 300
_SAME_DIRECTION = 1 - 1e-4
_SMALLEST_GAP = 1e-3
_TINY = np.finfo(float).tiny


@dataclass(frozen=True, eq=False)
class RankOne:
    """The span of the differences of matrices, and how far squares of directions are from it.

    The defect of x is half the smallest |M - s x x'|^2 over combinations M = sum_e c_e sqrt(N_e)
    (K_e - K) with |c| = 1, and s. If the mean K of the matrices is the identity, noise adds to it
    about as much as to a chi-square statistic, whatever the combination is.

    Attributes
    ----------
    components
        Principal components of the differences, with their size, ``(k, q * q)``. There are as many
        unknown latents as dimensions: more components than q would be noise.
    """

    components: Matrix

    @classmethod
    def of(cls, matrices: Matrix, sizes: NDArray[np.intp]) -> RankOne:
        """Form the span of matrices ``(E, q, q)``, each estimated from so many rows."""
        q = matrices.shape[-1]
        centred = matrices - np.average(matrices, axis=0, weights=sizes)
        weighted = np.sqrt(sizes)[:, None] * centred.reshape(len(matrices), -1)
        _, size, axes = np.linalg.svd(weighted, full_matrices=False)
        kept = min(q, len(matrices) - 1)
        return cls(size[:kept, None] * axes[:kept])

    def defect(self, x: Matrix) -> Matrix:
        """Return the defect of unit vectors, ``(C,)``."""
        return 0.5 * self._combinations(x)[1][:, 0]

    def expand(self, x: Matrix) -> tuple[Matrix, Matrix]:
        """Return gradient and Hessian of the defect on the sphere, ``(C, q)`` and ``(C, q, q)``."""
        q = x.shape[1]
        along, values, axes = self._combinations(x)
        along = (axes.swapaxes(1, 2) @ along[..., None])[..., 0]
        images = self.components.reshape(-1, q, q) @ x[:, None, :, None]
        images = tangent(axes.swapaxes(1, 2) @ images[..., 0], x[:, None])
        best = (axes[:, :, 0] @ self.components).reshape(-1, q, q)
        scale, image = along[:, :1], images[:, 0]
        # The defect is half the smallest eigenvalue of G - a a', a_k = x' B_k x.
        gradient = -2 * scale * image
        others = scale[..., None] * images[:, 1:] + along[:, 1:, None] * image[:, None]
        gaps = np.maximum(values[:, 1:] - values[:, :1], _SMALLEST_GAP)
        hessian = -2 * scale[..., None] * (best - scale[..., None] * np.eye(q))
        hessian -= 4 * image[:, :, None] * image[:, None, :]
        hessian -= 4 * others.swapaxes(1, 2) @ (others / gaps[..., None])
        return gradient, tangent(tangent(hessian, x[:, None]).swapaxes(1, 2), x[:, None])

    def _combinations(self, x: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        along = _squares(x) @ self.components.T
        total = np.diag((self.components**2).sum(axis=1))
        values, axes = np.linalg.eigh(total - along[:, :, None] * along[:, None, :])
        return along, values, axes


def tangent(vectors: Matrix, x: Matrix) -> Matrix:
    """Return the part of the vectors that is orthogonal to the unit vectors x."""
    return vectors - (vectors * x).sum(axis=-1, keepdims=True) * x


def rank_one_directions(span: RankOne, rng: np.random.Generator, n_starts: int) -> Matrix:
    """Return unit vectors x for which x x' is close to the span, closest first.

    Power method on the length of the projection of x x' onto the span, from random starts (the
    subspace power method of Kileel and Pereira).
    """
    length = np.linalg.norm(span.components, axis=1, keepdims=True)
    basis = span.components / np.maximum(length, _TINY)  # zero where environments are alike
    q = int(np.sqrt(basis.shape[1]))
    x = unit_rows(rng.standard_normal((n_starts, q)))
    for _ in range(_MOST_ITERATIONS):
        projection = (_squares(x) @ basis.T) @ basis
        new = unit_rows((projection.reshape(-1, q, q) @ x[:, :, None])[:, :, 0] + 0.5 * x)
        change = np.abs(new - x).max()
        x = new
        if change < 1e-8:
            break
    closeness = ((_squares(x) @ basis.T) ** 2).sum(axis=1)
    return distinct(x[np.argsort(-closeness, kind="stable")])


def distinct(x: Matrix) -> Matrix:
    """Return the rows that are not multiples of earlier ones; rows have unit length."""
    same = np.abs(x @ x.T) > _SAME_DIRECTION
    kept: list[int] = []
    for i in range(len(x)):
        if not same[i, kept].any():
            kept.append(i)
    return x[kept]


def _squares(x: Matrix) -> Matrix:
    return (x[:, :, None] * x[:, None, :]).reshape(len(x), x.shape[1] ** 2)
