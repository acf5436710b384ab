"""Terms of structured scores: products of splines, their normal equations and their penalties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.sparse import eye_array

from crlearn.scores.structured._equations import DenseEquations, Equations, curvature_penalty
from crlearn.scores.structured._splines import Basis

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]
Penalty = Literal["curvature", "size"]

# What cross-validation chooses the ridge from.
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
# Beside a penalty on curvature, which leaves straight lines free.
_SMALL_RIDGE = 1e-4
_ROWS_AT_ONCE = 4096
# Products of splines of more latents than this are mostly zero.
_MOST_DENSE = 2


@dataclass(frozen=True)
class Term:
    """A product of splines of some latents; off where one of `unless` is intervened on.

    `only_if` is the opposite: off where one of these is *not* intervened on.
    """

    latents: tuple[int, ...]
    unless: tuple[int, ...] = ()
    only_if: tuple[int, ...] = ()

    def gate(self, intervened: BoolMatrix) -> NDArray[np.floating] | None:
        """Return 1 in the rows where the term is on, 0 where it is off; None if it is always on."""
        if not self.unless and not self.only_if:
            return None
        off = intervened[:, list(self.unless)].any(axis=1)
        return (~off & intervened[:, list(self.only_if)].all(axis=1)).astype(float)


def is_sparse(terms: Sequence[Term]) -> bool:
    return len(terms) == 1 and len(terms[0].latents) > _MOST_DENSE


def matched(
    equations: Sequence[Equations], penalties: Callable[[float], Any], ridge: float | None
) -> tuple[Matrix, float]:
    """Return the coefficients and their ridge, by cross-validation between halves if it is None."""
    if ridge is None:
        losses = [held_out_loss(equations, penalties(candidate)) for candidate in RIDGES]
        ridge = RIDGES[int(np.argmin(losses))]
    together = reduce(cast(Any, add), equations)
    return together.solve(penalties(ridge)), ridge


def normal_equations(
    terms: Sequence[Term],
    columns: tuple[int, ...],
    basis: Basis,
    slopes: Basis,
    intervened: BoolMatrix,
    weights: NDArray[np.floating],
    chosen: NDArray[np.intp],
) -> DenseEquations:
    """Return the features' Gram matrix, the sum of their slopes, and the rows' weight.

    `columns` of the basis move with the latent along which slopes are taken.
    """
    size = sum(basis.shape[2] ** len(term.latents) for term in terms)
    gram, slope = np.zeros((size, size)), np.zeros(size)
    for start in range(0, len(chosen), _ROWS_AT_ONCE):
        rows = chosen[start : start + _ROWS_AT_ONCE]
        weight = weights[rows]
        on = intervened[rows]
        values = those_of(terms, basis, rows)
        features = np.hstack([features_of(term, values, on) for term in terms])
        features *= np.sqrt(weight)[:, None]
        gram += features.T @ features
        steep = {k: slopes[k][rows] * weight[:, None] for k in columns}
        slope += np.concatenate([slope_sum(term, values, steep, on) for term in terms])
    return DenseEquations(gram, slope, float(weights[chosen].sum()))


def those_of(terms: Sequence[Term], basis: Basis, rows: NDArray[np.intp]) -> dict[int, Matrix]:
    """Return some rows of the basis of each latent in the terms."""
    return {k: basis[k][rows] for k in {k for term in terms for k in term.latents}}


def features_of(term: Term, basis: Mapping[int, Matrix], intervened: BoolMatrix) -> Matrix:
    factors = [basis[k] for k in term.latents]
    gate = term.gate(intervened)
    if gate is not None:
        factors[0] = factors[0] * gate[:, None]
    return reduce(row_products, factors)


def slope_sum(
    term: Term,
    basis: Mapping[int, Matrix],
    slopes: Mapping[int, Matrix],
    intervened: BoolMatrix,
) -> Matrix:
    """Return the sum over rows of the features' slopes along the first of their columns.

    There are none if it has no `slopes`: it does not move with the latent.
    """
    first = slopes.get(term.latents[0])
    if first is None:
        return np.zeros(basis[term.latents[0]].shape[1] ** len(term.latents))
    gate = term.gate(intervened)
    first = first if gate is None else first * gate[:, None]
    others = [basis[k] for k in term.latents[1:]]
    if not others:
        return first.sum(axis=0)
    return (first.T @ reduce(row_products, others)).ravel()


def product_of(
    term: Term, block: Matrix, basis: Mapping[int, Matrix], intervened: BoolMatrix
) -> NDArray[np.floating]:
    """Return the term at each row; with the slopes of one latent in `basis`, its slope."""
    factors = [basis[k] for k in term.latents]
    if len(factors) == 1:
        values = factors[0] @ block
    else:
        left = factors[0] @ block.reshape(len(block), -1)
        values = np.einsum("ij,ij->i", left, reduce(row_products, factors[1:]))
    gate = term.gate(intervened)
    return values if gate is None else values * gate


def row_products(left: Matrix, right: Matrix) -> Matrix:
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)


def penalties_of(terms: Sequence[Term], size: int, penalty: Penalty) -> Callable[[float], Any]:
    """Return the map from a ridge to the matrix that is added to the Gram matrix."""
    n_features = sum(size ** len(term.latents) for term in terms)
    sparse = is_sparse(terms)
    unit: Any = eye_array(n_features, format="csr") if sparse else np.eye(n_features)
    if penalty == "size":
        return lambda ridge: ridge * unit
    blocks = [curvature_penalty(size, len(term.latents)) for term in terms]
    curvature: Any = blocks[0] if sparse else block_diag(*(block.toarray() for block in blocks))
    return lambda ridge: ridge * curvature + _SMALL_RIDGE * unit


def held_out_loss(halves: Sequence[Equations], penalty: Any) -> float:
    """Return the score-matching loss of each half under the coefficients of the other."""
    if any(half.weight == 0 for half in halves):
        return np.inf
    one, other = halves
    return other.loss(one.solve(penalty)) + one.loss(other.solve(penalty))
