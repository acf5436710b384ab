"""Randomness: what a `random_state` may be, and the draws that several files share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
