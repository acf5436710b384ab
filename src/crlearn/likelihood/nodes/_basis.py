"""Features of the parents: what a mechanism may look like.

A mechanism is a linear combination of a constant, the parents, their products, smoothed hinges
sqrt((a't - c)^2 + w^2) along each parent and in random directions, and the root of a quadratic form
that is fitted to the data first. Hinges bend wherever the data ask for it; the root is a cone,
which sums of hinges fit badly. Parents are given in standard units. A linear mechanism has the
constant and the parents alone (`LinearBasis`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]

# Parents are in standard units, so these need no scale; they were chosen without a study.
_KNOTS = (-1.6, -0.8, 0.0, 0.8, 1.6)
_WIDTH = 0.3
_HINGES_PER_PAIR = 10
_SMALLEST_ROOT = 0.05
RIDGE = 1e-6  # of the mean square of a feature
BLOCK = 2048  # rows whose features stay in the cache
ROWS_FOR_THE_FORM = 64 * BLOCK  # of a pool: their features are kept while it is fitted
# Turns gain less than the last one did, by five times or more where there is a root. One that gains
# less than this (nats) is not taken: where no root is needed it is rounding that decides.
_TURNS_OF_THE_FORM, _LEAST_GAIN_OF_A_FORM = 5, 0.1


@dataclass(frozen=True, eq=False)
class Selection:
    """Some of the features.

    Attributes
    ----------
    kept
        Their positions.
    brought
        How many numbers each parent brings beside its linear effect that those before it do not.
    """

    kept: NDArray[np.intp]
    brought: tuple[int, ...]

    @property
    def n_parameters(self) -> int:
        """How many numbers are fitted, the constant among them."""
        return 1 + len(self.brought) + sum(self.brought)


@dataclass(frozen=True, eq=False)
class Basis:
    """Features of p parents, with their derivatives.

    Attributes
    ----------
    directions, knots
        Of the hinges, ``(K, p)`` and ``(K,)``.
    form
        The quadratic form under the root, as a symmetric matrix for (1, t), ``(p + 1, p + 1)``.
    n_axes
        How many of the hinges are along parents; they come first.
    """

    directions: Matrix
    knots: Matrix
    form: Matrix
    n_axes: int

    @classmethod
    def plain(cls, n_parents: int) -> Self:
        """Return hinges with knots along each parent, and a form that is yet to be fitted."""
        directions, places = _hinges(n_parents)
        form = np.eye(n_parents + 1, dtype=np.float32)
        return cls(directions, places, form, n_parents * len(_KNOTS))

    @property
    def n_parents(self) -> int:
        """Number of parents."""
        return self.directions.shape[1]

    @property
    def size(self) -> int:
        """Number of features."""
        return self.first_hinge + len(self.knots) + 1

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Factors of the products."""
        return np.triu_indices(self.n_parents)

    @property
    def first_hinge(self) -> int:
        """Position of the first hinge: after the constant, the parents and the products."""
        return 1 + self.n_parents + len(self.pairs[0])

    def selections(self) -> list[Selection]:
        """Return sets of features that a mechanism may consist of."""
        every = np.arange(self.size)
        linear = every[: 1 + self.n_parents]
        quadratic = every[: self.first_hinge]
        with_root = np.append(linear, self.size - 1)
        along_parents = np.append(linear, every[self.first_hinge : self.first_hinge + self.n_axes])
        return [
            self._selection(linear, lambda p: 0),
            self._selection(quadratic, _n_products),
            # The form has no scale: that is the root's coefficient.
            self._selection(with_root, lambda p: _n_products(p + 1)),
            self._selection(along_parents, lambda p: p * len(_KNOTS)),
            self.everything(),
        ]

    def everything(self) -> Selection:
        """Return all features."""
        return self._selection(
            np.arange(self.size),
            lambda p: _n_products(p) + len(_hinges(p)[1]) + _n_products(p + 1),
        )

    def _selection(self, kept: NDArray[np.intp], fitted: Callable[[int], int]) -> Selection:
        """Return a selection; `fitted` counts the numbers that so many parents bring, if any."""
        numbers = [0, *(fitted(p) for p in range(1, self.n_parents + 1))]
        return Selection(kept, tuple(np.diff(numbers).tolist()))

    def reduced_to(self, kept: NDArray[np.intp]) -> tuple[Self, NDArray[np.intp]]:
        """Return the basis without hinges where none is kept, and what is kept by its positions."""
        root = self.size - 1
        if ((kept >= self.first_hinge) & (kept < root)).any():
            return self, kept
        bare = replace(self, directions=self.directions[:0], knots=self.knots[:0], n_axes=0)
        return bare, np.where(kept == root, bare.size - 1, kept)

    def fitted_to(self, rows: Iterable[tuple[Matrix, Matrix]]) -> Self:
        """Fit the form to blocks of parents and children (`FormFit`)."""
        return FormFit.of(self, rows).basis  # type: ignore[return-value]

    def fitted_to_squares(self, parents: Matrix, child: Matrix) -> Self:
        """Fit the form to the squares of the child: E[z^2 | t] = f(t)^2 + noise variance.

        The child is counted from its own origin. One linear regression, which moves smoothly with
        the rows, as fits need that draw rows anew; the noise stays in the form, and a line beside
        the root does harm.
        """
        upper = np.triu_indices(self.n_parents + 1)
        with_one = _with_one(parents)
        products = with_one[:, upper[0]] * with_one[:, upper[1]]
        gram = products.T @ products
        gram = gram + RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram))
        form = np.zeros((self.n_parents + 1,) * 2)
        form[upper] = np.linalg.solve(gram, products.T @ child**2)
        return replace(self, form=((form + form.T) / 2).astype(np.float32))

    def root(self, products: Matrix) -> Matrix:
        """Return the root of the form, from products of one and the parents."""
        weights = 2 * self.form - np.diag(np.diag(self.form))
        under = products @ weights[np.triu_indices(self.n_parents + 1)]
        return np.sqrt(np.maximum(under, 0) + np.float32(_SMALLEST_ROOT**2))

    def __call__(self, parents: Matrix) -> Features:
        """Return the features of each row, in single precision."""
        parents = parents.astype(np.float32, copy=False)
        p, (a, b) = self.n_parents, self.pairs
        values = np.empty((len(parents), self.size), parents.dtype)
        values[:, 0] = 1
        values[:, 1 : 1 + p] = parents
        np.multiply(parents[:, a], parents[:, b], out=values[:, 1 + p : self.first_hinge])
        distance = parents @ self.directions.T
        distance -= self.knots
        squares = distance * distance
        squares += np.float32(_WIDTH**2)
        np.sqrt(squares, out=values[:, self.first_hinge : -1])
        inner = values[:, : 1 + p] @ self.form
        under = np.einsum("ij,ij->i", inner, values[:, : 1 + p])
        values[:, -1] = np.sqrt(np.maximum(under, 0) + np.float32(_SMALLEST_ROOT**2))
        return Features(values, distance, inner[:, 1:], under > 0, self)


@dataclass(frozen=True, eq=False)
class FormFit:
    """A regression of a child on features of its parents, while their form is fitted.

    Where a mechanism m is the root of a form Q beside a linear function l, (m - l)^2 = Q, so that
    m^2 is linear in l m and in the products of parents. What the features with the last form
    explain of the child stands for m: linear functions of the parents in the child change nothing
    then, as they must not where a latent may be mixed with its parents, and no noise is taken for a
    part of the form, which would round its tip.

    Attributes
    ----------
    basis
        The features, with the form.
    blocks
        Of rows: values of the features but for the root, products of one and the parents, the
        child, and the root.
    gram
        Sums of products of features and, last, the child.
    """

    basis: Basis
    blocks: Sequence[tuple[Matrix, Matrix, Matrix, Matrix]]
    gram: Matrix

    @classmethod
    def of(cls, basis: Basis, rows: Iterable[tuple[Matrix, Matrix]]) -> Self:
        """Fit the form of a basis to blocks of parents and children."""
        fit = cls._of_form(basis, rows)
        for _ in range(_TURNS_OF_THE_FORM):
            turned = fit._turned()
            gain = 0.5 * fit.n_rows * np.log(fit.variance / turned.variance)
            if gain < _LEAST_GAIN_OF_A_FORM:
                break
            fit = turned
        return fit

    @classmethod
    def _of_form(cls, basis: Basis, rows: Iterable[tuple[Matrix, Matrix]]) -> Self:
        upper = np.triu_indices(basis.n_parents + 1)
        blocks, gram = [], np.zeros((basis.size + 1,) * 2)
        for parents, child in rows:
            columns = np.column_stack([basis(parents).values, child])
            gram += columns.T @ columns
            with_one = columns[:, : 1 + basis.n_parents]
            products = with_one[:, upper[0]] * with_one[:, upper[1]]
            blocks.append((columns[:, :-2], products, columns[:, -1], columns[:, -2]))
        return cls(basis, blocks, gram)

    @cached_property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(len(child) for _, _, child, _ in self.blocks)

    @cached_property
    def beta(self) -> Matrix:
        """Coefficients of the regression."""
        return solved(self.gram[:-1, :-1], self.gram[:-1, -1])

    @cached_property
    def variance(self) -> float:
        """What the regression leaves of the child."""
        left = self.gram[-1, -1] - self.beta @ self.gram[:-1, -1]
        smallest = np.finfo(np.float32).eps * self.gram[-1, -1]
        return float(max(left, smallest)) / self.n_rows

    def _turned(self) -> Self:
        """Fit the form to what is explained, and the regression to the root of the new form."""
        k = self.basis.n_parents + 1
        upper = np.triu_indices(k)
        gram, beta = np.zeros((k + len(upper[0]) + 1,) * 2), self.beta.astype(np.float32)
        for values, products, _, root in self.blocks:
            m = values @ beta[:-1] + beta[-1] * root
            columns = np.column_stack([m[:, None] * values[:, :k], products, m * m])
            gram += columns.T @ columns
        coefficients = solved(gram[:-1, :-1], gram[:-1, -1])
        line, form = coefficients[:k] / 2, np.zeros((k, k))
        form[upper] = coefficients[k:]
        form = (form + form.T) / 2 + np.outer(line, line)
        return self._with(replace(self.basis, form=form.astype(np.float32)))

    def _with(self, basis: Basis) -> Self:
        """Return the regression with the root of another form."""
        gram, blocks = self.gram.copy(), []
        gram[-2] = 0
        for values, products, child, _ in self.blocks:
            root = basis.root(products)
            gram[-2, :-2] += values.T @ root
            gram[-2, -2:] += root @ root, root @ child
            blocks.append((values, products, child, root))
        gram[:, -2] = gram[-2]
        return type(self)(basis, blocks, gram)


@dataclass(frozen=True, eq=False)
class Features:
    """Features of some rows, and what their derivatives are made of.

    Attributes
    ----------
    values
        The features, ``(N, size)``.
    distance
        From the knot of each hinge.
    inner, outside
        Half the gradient of the quadratic form, and whether the form is positive.
    basis
        Whose features they are.
    """

    values: Matrix
    distance: Matrix
    inner: Matrix
    outside: NDArray[np.bool_]
    basis: Basis

    @cached_property
    def slope_of_hinges(self) -> Matrix:
        """Derivative of each hinge along its direction."""
        return self.distance / self.values[:, self.basis.first_hinge : -1]

    @cached_property
    def slope_of_root(self) -> Matrix:
        """Derivative of the root by each parent."""
        return np.where(self.outside[:, None], self.inner, 0) / self.values[:, -1:]

    def slope(self, coefficients: Matrix) -> Matrix:
        """Return the derivative of the mechanism by each parent, ``(N, p)``."""
        p, first = self.basis.n_parents, self.basis.first_hinge
        of_products = self.values[:, 1 : 1 + p] @ self._bend(coefficients)
        of_hinges = (self.slope_of_hinges * coefficients[first:-1]) @ self.basis.directions
        of_root = coefficients[-1] * self.slope_of_root
        return coefficients[1 : 1 + p] + of_products + of_hinges + of_root

    def _bend(self, coefficients: Matrix) -> Matrix:
        """Return the second derivatives of the products' part of the mechanism, ``(p, p)``."""
        p, (a, b) = self.basis.n_parents, self.basis.pairs
        bend = np.zeros((p, p), coefficients.dtype)
        bend[a, b] = coefficients[1 + p : self.basis.first_hinge]
        return bend + bend.T

    def moments_of_slopes(self, weights: Matrix) -> Matrix:
        """Return the sums over rows of (derivative of feature k by parent q) times weight l.

        The shape is ``(size, p, n_weights)``.
        """
        basis, p = self.basis, self.basis.n_parents
        sums = np.zeros((basis.size, p, weights.shape[1]))
        sums[np.arange(1, 1 + p), np.arange(p)] = weights.sum(axis=0)
        with_parents, (a, b) = self.values[:, 1 : 1 + p].T @ weights, basis.pairs
        products = np.arange(1 + p, basis.first_hinge)
        sums[products, a] += with_parents[b]
        sums[products, b] += with_parents[a]
        of_hinges = self.slope_of_hinges.T @ weights
        sums[basis.first_hinge : -1] = basis.directions[:, :, None] * of_hinges[:, None, :]
        sums[-1] = self.slope_of_root.T @ weights
        return sums

    def curvature(self, coefficients: Matrix) -> Matrix:
        """Return the second derivatives of the mechanism without the root, ``(N, p, p)``."""
        p, first = self.basis.n_parents, self.basis.first_hinge
        hinges = self.values[:, first:-1]
        bends = np.float32(_WIDTH**2) * coefficients[first:-1] / (hinges * hinges * hinges)
        directions = self.basis.directions
        pairs = (directions[:, :, None] * directions[:, None, :]).reshape(-1, p * p)
        return (bends @ pairs).reshape(-1, p, p) + self._bend(coefficients)


@dataclass(frozen=True)
class LinearBasis:
    """The constant and the parents alone, with the interface of `Basis`."""

    n_parents: int

    @property
    def size(self) -> int:
        """Number of features."""
        return 1 + self.n_parents

    def __call__(self, parents: Matrix) -> LinearFeatures:
        """Return the features of each row."""
        return LinearFeatures(_with_one(parents))


@dataclass(frozen=True, eq=False)
class LinearFeatures:
    """Features of some rows, the constant first."""

    values: Matrix

    def slope(self, coefficients: Matrix) -> Matrix:
        """Return the derivative of the mechanism by each parent, alike in all rows."""
        return coefficients[None, 1:]


@cache
def _hinges(n_parents: int) -> tuple[Matrix, Matrix]:
    """Hinges along each parent, and in directions that are drawn once and for all."""
    rng = np.random.default_rng(n_parents)
    axes = np.repeat(np.eye(n_parents), len(_KNOTS), axis=0)
    others = rng.standard_normal((_HINGES_PER_PAIR * (n_parents - 1), n_parents))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    places = rng.uniform(_KNOTS[0], _KNOTS[-1], len(others))
    places[1::2] = 0.0
    directions = np.concatenate([axes, others]).astype(np.float32)
    return directions, np.concatenate([np.tile(_KNOTS, n_parents), places]).astype(np.float32)


def _n_products(n_factors: int) -> int:
    """Return the number of products of two, squares among them."""
    return n_factors * (n_factors + 1) // 2


def solved(gram: Matrix, right: Matrix) -> Matrix:
    """Solve normal equations with a small ridge."""
    return np.linalg.solve(gram + np.diag(RIDGE * np.diag(gram)), right)


def _with_one(parents: Matrix) -> Matrix:
    return np.concatenate([np.ones((len(parents), 1), parents.dtype), parents], axis=1)
