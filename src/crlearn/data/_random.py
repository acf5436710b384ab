"""Randomness: what a `random_state` may be, and the draws that several files share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_MOST_DRAWS = 1000

RandomState = int | np.random.Generator | np.random.RandomState | None


def independent_seeds(random_state: RandomState, n: int) -> list[int]:
    """Split a source of randomness, so that what one part draws does not change the others."""
    return np.random.default_rng(random_state).integers(2**63, size=n).tolist()


def signed_uniform(
    rng: np.random.Generator, low: float, high: float, size: int | tuple[int, ...]
) -> NDArray[np.floating]:
    """Draw magnitudes uniform in ``[low, high]``, with random signs."""
    return rng.uniform(low, high, size) * rng.choice([-1.0, 1.0], size)


def haar_orthonormal(rng: np.random.Generator, n_rows: int, n_columns: int) -> NDArray[np.floating]:
    """Draw orthonormal columns, uniformly over all such matrices."""
    q, r = np.linalg.qr(rng.standard_normal((n_rows, n_columns)))
    return q * np.sign(np.diag(r))


def invertible_uniform(
    rng: np.random.Generator, bound: float, n: int, smallest: Callable[[float], float]
) -> NDArray[np.floating]:
    """Draw a square matrix uniform in ``[-bound, bound]`` whose singular values are not too small.

    Matrices are drawn until the smallest singular value is at least ``smallest(largest)``. Large
    matrices practically never are: after some draws the small singular values are raised instead.
    """
    for _ in range(_MOST_DRAWS):
        matrix = rng.uniform(-bound, bound, (n, n))
        values = np.linalg.svd(matrix, compute_uv=False)
        if values[-1] >= smallest(values[0]):
            return matrix
    left, values, right = np.linalg.svd(rng.uniform(-bound, bound, (n, n)))
    return left * np.maximum(values, smallest(values[0])) @ right
