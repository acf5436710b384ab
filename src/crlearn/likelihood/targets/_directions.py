"""Directions x whose square x x' lies in the span of differences of symmetric matrices.

The matrices are precisions of the environments, known up to noise. `RankOne` measures how far x x'
is from their span in units of the noise; `rank_one_directions` and `combined_directions` find
starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]

_MOST_COMBINATIONS = 4000
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
    x = _unit_rows(rng.standard_normal((n_starts, q)))
    for _ in range(_MOST_ITERATIONS):
        projection = (_squares(x) @ basis.T) @ basis
        new = _unit_rows((projection.reshape(-1, q, q) @ x[:, :, None])[:, :, 0] + 0.5 * x)
        change = np.abs(new - x).max()
        x = new
        if change < 1e-8:
            break
    closeness = ((_squares(x) @ basis.T) ** 2).sum(axis=1)
    return distinct(x[np.argsort(-closeness, kind="stable")])


def combined_directions(differences: Matrix, n_kept: int) -> Matrix:
    """Return directions of the small integer combinations that are closest to rank one.

    Targets are zeros and ones, so that the combination that isolates a latent has small integer
    weights more often than not.
    """
    weights = _integer_weights(len(differences))
    combined = np.tensordot(weights, differences, 1)
    squared = combined @ combined
    size = (combined**2).sum(axis=(1, 2))
    # The sum of lambda^4 over the square of the sum of lambda^2 is 1 for rank one, else smaller.
    closeness = (squared**2).sum(axis=(1, 2)) / np.maximum(size**2, _TINY)
    # Where nearly all has cancelled, noise is left.
    relative = np.sqrt(size) / np.linalg.norm(weights, axis=1)
    closeness[relative < 0.02 * np.median(relative)] = 0.0
    best = np.argsort(-closeness, kind="stable")[: 4 * n_kept]
    values, vectors = np.linalg.eigh(combined[best])
    leading = np.abs(values).argmax(axis=1)
    return distinct(vectors[np.arange(len(best)), :, leading])[:n_kept]


def distinct(x: Matrix) -> Matrix:
    """Return the rows that are not multiples of earlier ones; rows have unit length."""
    same = np.abs(x @ x.T) > _SAME_DIRECTION
    kept: list[int] = []
    for i in range(len(x)):
        if not same[i, kept].any():
            kept.append(i)
    return x[kept]


@lru_cache(maxsize=32)
def _integer_weights(m: int) -> Matrix:
    """Return small integer vectors of length m, one of each pair that differ in sign only."""
    for largest in (2, 1):
        if (2 * largest + 1) ** m <= _MOST_COMBINATIONS:
            vectors = np.array(list(product(range(-largest, largest + 1), repeat=m)))
            return vectors[len(vectors) // 2 + 1 :].astype(float)
    vectors = list(np.eye(m))
    for n_used in (2, 3):
        used = list(combinations(range(m), n_used))
        if len(vectors) + len(used) * 2 ** (n_used - 1) > _MOST_COMBINATIONS:
            break
        for positions in used:
            for signs in product((1, -1), repeat=n_used - 1):
                vector = np.zeros(m)
                vector[list(positions)] = (1, *signs)
                vectors.append(vector)
    return np.array(vectors)


def _squares(x: Matrix) -> Matrix:
    return (x[:, :, None] * x[:, None, :]).reshape(len(x), x.shape[1] ** 2)


def _unit_rows(x: Matrix) -> Matrix:
    return x / np.linalg.norm(x, axis=1, keepdims=True)
