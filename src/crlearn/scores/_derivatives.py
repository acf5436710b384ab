"""Scores and Jacobians of trained networks, block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from crlearn.config import numerics
from crlearn.scores._base import Rows, Whitening

_ROWS_PER_BLOCK = 2048


def in_blocks(
    compiled: Callable[[Any, Any], tuple[Any, Any]], parameters: Any, X: Rows, whitening: Whitening
) -> tuple[Rows, Rows]:
    """Return scores and Jacobians in the coordinates of X, from those in whitened coordinates.

    Blocks have one size, whatever the number of rows, so that there is one compiled program.
    """
    rows = whitening(X)
    n_blocks = max(1, -(-len(rows) // _ROWS_PER_BLOCK))
    padded = np.zeros((n_blocks * _ROWS_PER_BLOCK, rows.shape[1]))
    padded[: len(rows)] = rows
    with numerics():
        values = [compiled(parameters, jnp.asarray(block)) for block in np.split(padded, n_blocks)]
    scores, jacobians = (
        np.concatenate([np.asarray(value[part], dtype=np.float64) for value in values])[: len(X)]
        for part in (0, 1)
    )
    jacobians = (jacobians + np.swapaxes(jacobians, 1, 2)) / 2
    matrix = whitening.matrix
    return scores @ matrix, matrix.T @ jacobians @ matrix
