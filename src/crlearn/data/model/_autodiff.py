"""Derivatives of functions of one row, in float64: numpy in, numpy out.

A function here is any callable that takes a vector and returns a number and that JAX can trace.
If it is an equinox module (or a method of one), its arrays are arguments of the compiled program,
so that two functions that differ in numbers only share one compilation. Rows are fed in blocks of
fixed size, so that the number of rows does not matter to the compiler either, and memory stays
bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from numpy.typing import NDArray

RowFunction = Callable[[Any], Any]

_ROWS_PER_BLOCK = 4096


def values(function: RowFunction, rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Value at each row, ``(N,)``."""
    return _in_blocks(_values, function, rows)


def gradients(function: RowFunction, rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Gradient at each row, ``(N, k)``."""
    return _in_blocks(_gradients, function, rows)


def hessians(function: RowFunction, rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Hessian at each row, ``(N, k, k)``."""
    return _in_blocks(_hessians, function, rows)


def output_shape(function: RowFunction, length: int) -> tuple[int, ...]:
    """Shape of what the function returns for a vector of that length, without computing it."""
    with jax.enable_x64(True):
        return jax.eval_shape(function, jax.ShapeDtypeStruct((length,), float)).shape


@eqx.filter_jit
def _values(function: RowFunction, rows: jax.Array) -> jax.Array:
    return jax.vmap(lambda row: function(row))(rows)


@eqx.filter_jit
def _gradients(function: RowFunction, rows: jax.Array) -> jax.Array:
    return jax.vmap(jax.grad(lambda row: function(row)))(rows)


@eqx.filter_jit
def _hessians(function: RowFunction, rows: jax.Array) -> jax.Array:
    return jax.vmap(jax.hessian(lambda row: function(row)))(rows)


def _in_blocks(
    compiled: Callable[..., jax.Array], function: RowFunction, rows: NDArray[np.floating]
) -> NDArray[np.floating]:
    n_blocks = max(1, -(-len(rows) // _ROWS_PER_BLOCK))
    padded = np.zeros((n_blocks * _ROWS_PER_BLOCK, rows.shape[1]))
    padded[: len(rows)] = rows
    with jax.enable_x64(True):
        blocks = [np.asarray(compiled(function, block)) for block in np.split(padded, n_blocks)]
    return np.concatenate(blocks)[: len(rows)]
