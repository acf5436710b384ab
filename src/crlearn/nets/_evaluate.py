"""Compiled functions of many rows, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from crlearn.config import numerics

# A block has no more rows and no more numbers than this.
_MOST_ROWS, _MOST_NUMBERS = 2048, 2**22


def evaluate(network: Any, X: NDArray[Any]) -> NDArray[Any]:
    """Return a network's outputs at the rows of `X`.

    Networks of one form share a compiled program, whatever their weights: one for all large numbers
    of rows, and one for each power of two below.
    """
    numbers_per_row = max(1, int(np.prod(X.shape[1:])))
    most_rows = min(_MOST_ROWS, max(1, _MOST_NUMBERS // numbers_per_row))
    rows_per_block = min(most_rows, 2 ** max(len(X) - 1, 0).bit_length())
    return apply_in_blocks(partial(_outputs, network), X, rows_per_block)


def apply_in_blocks(
    compiled: Callable[[Any], Any], X: NDArray[Any], rows_per_block: int = _MOST_ROWS
) -> Any:
    """Return what a compiled function makes of the rows of `X`: arrays of numpy, in any nesting.

    Each row must stand for itself. Blocks have one size, whatever the number of rows (the last is
    filled up with zeros), so that there is one compiled program.
    """
    n_blocks = max(1, -(-len(X) // rows_per_block))
    with numerics():
        starts = range(0, n_blocks * rows_per_block, rows_per_block)
        values = [compiled(_block(X, start, rows_per_block)) for start in starts]
        join = lambda *parts: np.concatenate([np.asarray(p) for p in parts])[: len(X)]  # noqa: E731
        return jax.tree.map(join, *values)


def _block(X: NDArray[Any], start: int, n_rows: int) -> Any:
    rows = X[start : start + n_rows]
    missing = n_rows - len(rows)
    return jnp.asarray(np.pad(rows, [(0, missing), *[(0, 0)] * (X.ndim - 1)]))


@eqx.filter_jit
def _outputs(network: Any, block: Any) -> Any:
    return network(block)
