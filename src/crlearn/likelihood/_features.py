"""Features of the parents: what a mechanism may look like.

A mechanism is a linear combination of a constant, the parents, smooth ramps sqrt((a't - c)^2 + w^2)
along each parent and in random directions, and the root of a quadratic form that is fitted to the
data first. The ramps bend wherever the data ask for it; the root is a cone, which sums of ramps fit
badly. Parents are given in standard units.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

Single = NDArray[np.floating]  # float32, for speed
Matrix = NDArray[np.floating]

_KNOTS = (-1.6, -0.8, 0.0, 0.8, 1.6)
_WIDTH = 0.3
_RAMPS_PER_PAIR = 10
_FARTHEST = 1.5
_SMALLEST_ROOT = 0.05
_RIDGE = 1e-6


@dataclass(frozen=True, eq=False)
class Basis:
    """Features of p parents, with their derivatives.

    Attributes
    ----------
    directions, knots
        Of the ramps, ``(K, p)`` and ``(K,)``.
    form
        The quadratic form under the root, as a symmetric matrix for (1, t), ``(p + 1, p + 1)``.
    """

    directions: Single
    knots: Single
    form: Single

    @classmethod
    def plain(cls, n_parents: int) -> Self:
        """Return the ramps, with a form that is yet to be fitted."""
        directions, knots = _ramps(n_parents)
        return cls(directions, knots, np.eye(n_parents + 1, dtype=np.float32))

    @property
    def n_parents(self) -> int:
        """Number of parents."""
        return self.directions.shape[1]

    @property
    def size(self) -> int:
        """Number of features."""
        return n_features(self.n_parents)

    def selections(self) -> list[NDArray[np.intp]]:
        """Return sets of features that a mechanism may consist of, by their positions."""
        p, last = self.n_parents, self.size - 1
        every = np.arange(self.size)
        linear = every[: 1 + p]
        with_root = np.append(linear, last)
        along_parents = every[: 1 + p + p * len(_KNOTS)]
        return [linear, with_root, along_parents, every]

    def fitted_to(self, rows: Iterable[tuple[Single, Single]]) -> Self:
        """Fit the form to the squares of the child: E[z^2 | t] = f(t)^2 + noise variance.

        `rows` are blocks of parents and children; the child is counted from its own origin.
        """
        upper = np.triu_indices(self.n_parents + 1)
        gram = np.zeros((len(upper[0]) + 1,) * 2)
        for parents, child in rows:
            one_and_parents = _with_one(parents)
            products = one_and_parents[:, upper[0]] * one_and_parents[:, upper[1]]
            columns = np.column_stack([products, child**2])
            gram += columns.T @ columns
        inside = gram[:-1, :-1]
        inside = inside + _RIDGE * np.trace(inside) / len(inside) * np.eye(len(inside))
        coefficients = np.linalg.solve(inside, gram[:-1, -1])
        form = np.zeros((self.n_parents + 1,) * 2)
        form[upper] = coefficients
        return type(self)(self.directions, self.knots, ((form + form.T) / 2).astype(np.float32))

    def __call__(self, parents: Single) -> Features:
        """Return the features of each row."""
        p = self.n_parents
        values = np.empty((len(parents), self.size), parents.dtype)
        values[:, 0] = 1
        values[:, 1 : 1 + p] = parents
        distance = parents @ self.directions.T
        distance -= self.knots
        squares = distance * distance
        squares += np.float32(_WIDTH**2)
        np.sqrt(squares, out=values[:, 1 + p : -1])
        inner = values[:, : 1 + p] @ self.form
        under = np.einsum("ij,ij->i", inner, values[:, : 1 + p])
        values[:, -1] = np.sqrt(np.maximum(under, 0) + np.float32(_SMALLEST_ROOT**2))
        return Features(values, distance, inner[:, 1:], under > 0, self)


@dataclass(frozen=True, eq=False)
class Features:
    """Features of some rows, and what their derivatives are made of.

    Attributes
    ----------
    values
        The features, ``(N, size)``.
    distance
        From the knot of each ramp.
    inner, outside
        Half the gradient of the quadratic form, and whether the form is positive.
    basis
        Whose features they are.
    """

    values: Single
    distance: Single
    inner: Single
    outside: NDArray[np.bool_]
    basis: Basis

    @cached_property
    def slope_of_ramps(self) -> Single:
        """Derivative of each ramp along its direction."""
        return self.distance / self.values[:, 1 + self.basis.n_parents : -1]

    @cached_property
    def slope_of_root(self) -> Single:
        """Derivative of the root by each parent."""
        return np.where(self.outside[:, None], self.inner, 0) / self.values[:, -1:]

    def slope(self, coefficients: Single) -> Single:
        """Return the derivative of the mechanism by each parent, ``(N, p)``."""
        p = self.basis.n_parents
        of_ramps = (self.slope_of_ramps * coefficients[1 + p : -1]) @ self.basis.directions
        return coefficients[1 : 1 + p] + of_ramps + coefficients[-1] * self.slope_of_root

    def moments_of_slopes(self, weights: Single) -> Matrix:
        """Return the sums over rows of (derivative of feature k by parent q) times weight l.

        The shape is ``(size, p, n_weights)``.
        """
        basis, p = self.basis, self.basis.n_parents
        sums = np.zeros((basis.size, p, weights.shape[1]))
        sums[np.arange(1, 1 + p), np.arange(p)] = weights.sum(axis=0)
        of_ramps = self.slope_of_ramps.T @ weights
        sums[1 + p : -1] = basis.directions[:, :, None] * of_ramps[:, None, :]
        sums[-1] = self.slope_of_root.T @ weights
        return sums

    def curvature(self, coefficients: Single) -> Single:
        """Return the second derivatives of the ramps' part of the mechanism, ``(N, p, p)``."""
        p = self.basis.n_parents
        ramps = self.values[:, 1 + p : -1]
        bends = np.float32(_WIDTH**2) * coefficients[1 + p : -1] / ramps**3
        directions = self.basis.directions
        pairs = (directions[:, :, None] * directions[:, None, :]).reshape(-1, p * p)
        return (bends @ pairs).reshape(-1, p, p)


def n_features(n_parents: int) -> int:
    """Return the number of features of so many parents."""
    if n_parents == 0:
        return 1
    return 2 + n_parents + len(_ramps(n_parents)[1])


@cache
def _ramps(n_parents: int) -> tuple[Single, Single]:
    """Ramps along each parent, and in directions that are drawn once and for all."""
    rng = np.random.default_rng(n_parents)
    axes = np.repeat(np.eye(n_parents), len(_KNOTS), axis=0)
    others = rng.standard_normal((_RAMPS_PER_PAIR * (n_parents - 1), n_parents))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    places = rng.uniform(-_FARTHEST, _FARTHEST, len(others))
    places[1::2] = 0.0
    directions = np.concatenate([axes, others]).astype(np.float32)
    return directions, np.concatenate([np.tile(_KNOTS, n_parents), places]).astype(np.float32)


def _with_one(parents: Single) -> Single:
    return np.concatenate([np.ones((len(parents), 1), np.float32), parents], axis=1)
