"""Leading principal components of wide data, without an eigenproblem in all features.

Halko, Martinsson and Tropp: Finding structure with randomness, SIAM Review 2011. A few random
directions are multiplied by the second moment again and again (X' X Q, so that no d x d matrix is
made), with an eigenproblem among them alone, until the leading ones stand still. Where that would
take longer than the whole eigenproblem, None is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]
Product = Callable[[Matrix], Matrix]

# Up to this many rows or columns the whole eigenproblem takes about a second, and is solved.
LARGEST_EXACT = 1000
# Singular values below this share of the largest one count as zero.
RANK_TOLERANCE = 1e-6
# Directions beside those asked for: they carry off what is nearly as large.
_SPARE = 10
_FIRST_GUESS, _GROWTH = 32, 4
# Components stand still if they may be off by this angle, and the variance next to them by this
# share. Rounding leaves residuals of the last size.
_ANGLE, _SHARE, _ROUNDING = 1e-8, 1e-3, 1e-14
# Below this many products it is not worth to begin.
_FEWEST_PRODUCTS = 4


class Components(NamedTuple):
    """Variances in descending order, and directions in the columns, orthonormal."""

    variances: NDArray[np.floating]
    directions: Matrix


def is_wide(shape: tuple[int, ...]) -> bool:
    """Whether an eigenproblem among the rows or the columns would take too long."""
    return min(shape) > LARGEST_EXACT


def leading_components(
    product: Product, shape: tuple[int, int], n_components: int | None
) -> Components | None:
    """Return the leading components and some more that are less precise.

    Parameters
    ----------
    product
        Multiplies a matrix by the second moment of the data.
    shape
        Of the data.
    n_components
        Number of those that are asked for; None: all that are not zero.
    """
    start = _start(product, shape, n_components)
    if start is None:
        return None
    n = min(n_components or shape[1], rank_of(start.variances))
    return _refined(product, shape, start, n)


def rough_variances(
    product: Product, shape: tuple[int, int], enough: int | None
) -> NDArray[np.floating] | None:
    """Return the leading variances or values below them, as many as `enough` and some more.

    None are left out if fewer are returned than were asked for: then the others are zero.
    """
    start = _start(product, shape, enough)
    return None if start is None else start.variances


def rank_of(variances: NDArray[np.floating]) -> int:
    """Return the number of variances that are not zero up to rounding."""
    singular_values = np.sqrt(np.maximum(variances, 0.0))
    return int((singular_values > RANK_TOLERANCE * singular_values.max(initial=0.0)).sum())


def _start(product: Product, shape: tuple[int, int], n: int | None) -> Components | None:
    """Return components of a random range: of all there is, if `n` is None."""
    size = _FIRST_GUESS if n is None else n + _SPARE
    while _affordable_products(shape, size) >= _FEWEST_PRODUCTS:
        random = np.random.default_rng(0).standard_normal((shape[1], size))
        found = _ritz(product, np.linalg.qr(product(random))[0])[0]
        if n is not None or rank_of(found.variances) < size:
            return found
        size *= _GROWTH
    return None


def _refined(
    product: Product, shape: tuple[int, int], start: Components, n: int
) -> Components | None:
    """Multiply until the first `n` components stand still."""
    found, before = start, np.inf
    for _ in range(_affordable_products(shape, len(start.variances))):
        found, image = _ritz(product, found.directions)
        beside = found.variances[n] if n < len(found.variances) else 0.0
        residual = np.linalg.norm(image[:, :n] - found.directions[:, :n] * found.variances[:n])
        largest, gap = found.variances[0], found.variances[n - 1] - beside
        stands_still = residual <= max(_ANGLE * gap, _ROUNDING * n * largest)
        if stands_still and abs(beside - before) <= _SHARE * beside + _ROUNDING * largest:
            return found
        before = beside
        found = found._replace(directions=np.linalg.qr(image)[0])
    return None


def _ritz(product: Product, basis: Matrix) -> tuple[Components, Matrix]:
    """Solve the eigenproblem inside the span of a basis; return the directions' images as well."""
    image = product(basis)
    inside = basis.T @ image
    variances, turn = np.linalg.eigh((inside + inside.T) / 2)
    variances, turn = np.maximum(variances[::-1], 0.0), turn[:, ::-1]
    return Components(variances, basis @ turn), image @ turn


def _affordable_products(shape: tuple[int, int], size: int) -> int:
    """Products that take as long as the whole eigenproblem: 2 N d m and 9 m^3, and 4 N d size."""
    smaller, larger = sorted(shape)
    return int((smaller / 2 + 9 * smaller**2 / (4 * larger)) / size)
