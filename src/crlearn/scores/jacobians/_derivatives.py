"""Scores and Jacobians of trained networks, block by block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from crlearn.nets import apply_in_blocks
from crlearn.scores._base import Rows, Whitening

_ROWS_PER_BLOCK = 2048


def in_blocks(
    compiled: Callable[[Any, Any], tuple[Any, Any]], parameters: Any, X: Rows, whitening: Whitening
) -> tuple[Rows, Rows]:
    """Return scores and Jacobians in the coordinates of X, from those in whitened coordinates."""
    values = apply_in_blocks(partial(compiled, parameters), whitening(X), _ROWS_PER_BLOCK)
    scores, jacobians = (value.astype(np.float64) for value in values)
    jacobians = (jacobians + np.swapaxes(jacobians, 1, 2)) / 2
    matrix = whitening.matrix
    return scores @ matrix, matrix.T @ jacobians @ matrix
