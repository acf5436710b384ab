"""The evidence of one latent given its parents, with a mechanism of unknown form.

A mechanism is a sum of functions that are linear in their coefficients: the parents, their products
in pairs, smoothed hinges along each parent, and sigmoid hidden units of several parents.
Coefficients have Gaussian priors, one precision for each group of functions; coefficients and noise
variance are integrated or profiled out, precisions are fitted (automatic relevance determination).
So a group that is not needed vanishes: the evidence with a parent that has no effect is the
evidence without it, and graphs of different sizes compare without counting parameters.

Directions and thresholds of the hidden units are fitted, too. All weights that a parent has in them
share a precision, integrated out, which makes a Student-t prior: parents that they do not need
leave them. What is not integrated while they are fitted, the volume of directions that fit as well,
is `occam`, by Laplace's method.

What depends on the rows are Gram matrices; time grows as rows x functions^2. All derivatives are
exact and come with the value.

MacKay, Bayesian interpolation, and A practical Bayesian framework for backpropagation networks,
Neural Computation, 1992, are where this comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs, solve_triangular
from scipy.optimize import minimize
from scipy.stats import norm, qmc

Matrix = NDArray[np.floating]

_cholesky, _inverse_of_factor = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)

STEPS = 30  # of a fit, all of them remembered; some take half or twice as many
_TOLERANCE = 1e-3  # nats: a step that gains less is the last one
N_HIDDEN = 12  # a limit: the prior takes out what they are not needed for
MOST_LOG_PRECISION = 12.0  # and minus the least: of coefficients that are none, or free
_FIRST_LOG_PRECISION = 2.0  # of curves, weak beside linear effects
# Of a parent alone, and of one among others: where hidden units are, hinges may be coarse. Knots
# and the widths of their bends are in standard deviations of the parent. Stored mechanisms need
# these numbers to be read.
_KNOTS_ALONE, _KNOTS_AMONG_OTHERS = 13, 5
_WIDTH_ALONE, _WIDTH_AMONG_OTHERS = 0.3, 0.45
_FARTHEST_KNOT = 2.0
_SD_OF_WEIGHTS = 2.5  # for parents of variance one
_SMALL_WEIGHT = 0.02  # mean square of weights that count as none
_FIRST_LENGTHS = (1.5, 0.4, 0.4, 1.0)  # of directions, from each of their starts
# For each row, as the curvature of latents is: steps stay short along what data hardly see.
LEAST_CURVATURE = 0.1
_EPS = np.finfo(float).eps


@dataclass(frozen=True, eq=False)
class Shape:
    """What is fitted of a mechanism beside its coefficients: log precisions, and hidden units.

    Attributes
    ----------
    linear, products, hinges
        Log precisions of the functions of each parent ``(p,)``, pair ``(p, p)`` and parent.
    hidden_units
        Log precision of the coefficients of hidden units.
    directions, thresholds
        Of the hidden units, ``(K, p)`` and ``(K,)``.
    """

    linear: Matrix
    products: Matrix
    hinges: Matrix
    hidden_units: float
    directions: Matrix
    thresholds: Matrix

    @classmethod
    def start(cls, n_parents: int, *, hidden_units: bool = False) -> Self:
        """Return a start: weak curves, and hidden units in directions that cover the sphere."""
        shape = cls(
            linear=np.zeros(n_parents),
            products=np.full((n_parents, n_parents), _FIRST_LOG_PRECISION),
            hinges=np.full(n_parents, _FIRST_LOG_PRECISION),
            hidden_units=_FIRST_LOG_PRECISION,
            directions=np.zeros((0, n_parents)),
            thresholds=np.zeros(0),
        )
        return shape.with_hidden_units() if hidden_units else shape

    @property
    def n_parents(self) -> int:
        """Number of parents."""
        return len(self.linear)

    @property
    def n_hidden(self) -> int:
        """Number of hidden units."""
        return len(self.thresholds)

    @property
    def n_precisions(self) -> int:
        """Number of precisions; they come first in `flat`."""
        p = self.n_parents
        return 2 * p + p * (p + 1) // 2 + (self.n_hidden > 0)

    @property
    def n_weights(self) -> int:
        """Number of directions' entries and thresholds."""
        return self.n_hidden * (self.n_parents + 1)

    def reordered(self, order: NDArray[np.intp]) -> Self:
        """Return the shape with the parents in another order."""
        return replace(
            self,
            linear=self.linear[order],
            products=self.products[np.ix_(order, order)],
            hinges=self.hinges[order],
            directions=self.directions[:, order],
        )

    def without_hidden_units(self) -> Self:
        """Return the shape of an additive mechanism with products."""
        return replace(self, directions=np.zeros((0, self.n_parents)), thresholds=np.zeros(0))

    def with_hidden_units(self, start: int = 0) -> Self:
        """Return the shape with hidden units at a start of theirs, if there are parents enough."""
        if self.n_parents < 2:
            return self
        directions, thresholds = _spread_hidden_units(self.n_parents, start)
        return replace(
            self,
            hidden_units=_FIRST_LOG_PRECISION,
            directions=directions,
            thresholds=thresholds,
        )

    def with_other_hidden_units(self) -> list[Self]:
        """Return the shape with its hidden units at each other start."""
        return [self.with_hidden_units(start) for start in range(1, len(_FIRST_LENGTHS))]

    def without(self, k: int) -> Self:
        """Return the shape without parent k."""
        shape = replace(
            self,
            linear=np.delete(self.linear, k),
            products=np.delete(np.delete(self.products, k, axis=0), k, axis=1),
            hinges=np.delete(self.hinges, k),
            directions=np.delete(self.directions, k, axis=1),
        )
        return shape if shape.n_parents > 1 else shape.without_hidden_units()

    def with_parent(self, k: int) -> Self:
        """Return the shape with one parent more, at place k."""
        weak = _FIRST_LOG_PRECISION
        weights = np.random.default_rng(0).standard_normal(self.n_hidden) * np.sqrt(_SMALL_WEIGHT)
        return replace(
            self,
            linear=np.insert(self.linear, k, 0.0),
            products=np.insert(np.insert(self.products, k, weak, axis=0), k, weak, axis=1),
            hinges=np.insert(self.hinges, k, weak),
            directions=np.insert(self.directions, k, weights, axis=1),
        )

    def flat(self) -> Matrix:
        """Return all parameters in one array, precisions first."""
        of_hidden = [[self.hidden_units], self.directions.ravel(), self.thresholds]
        products = self.products[_pairs(self.n_parents)]
        parts = [self.linear, products, self.hinges, *(of_hidden if self.n_hidden else [])]
        return np.concatenate(parts)

    def filled(self, flat: Matrix) -> Self:
        """Return the same shape with other parameters."""
        p, K, upper = self.n_parents, self.n_hidden, _pairs(self.n_parents)
        ends = np.cumsum([p, len(upper[0]), p, K > 0, K * p])
        linear, pairs, hinges, of_hidden, directions, thresholds = np.split(flat, ends)
        products = np.zeros((p, p))
        products[upper] = products.T[upper] = pairs
        return replace(
            self,
            linear=linear,
            products=products,
            hinges=hinges,
            hidden_units=float(of_hidden[0]) if K else self.hidden_units,
            directions=directions.reshape(K, p),
            thresholds=thresholds,
        )


@dataclass(frozen=True, eq=False)
class Functions:
    """Values of a mechanism's functions; slopes of hinges and hidden units along directions."""

    values: Matrix
    slopes: Matrix


@dataclass(frozen=True, eq=False)
class Regression:
    """The regression of a latent on the functions of its parents.

    Attributes
    ----------
    value
        Negative log evidence, without `occam`.
    residual
        What is left of the latent.
    coefficients, covariance
        Of the functions; the covariance is in units of the noise variance.
    precisions
        Of the prior of the coefficients, in the same units.
    spread
        Penalised sum of squares.
    functions, means
        Centred functions of the rows, and what was taken off.
    """

    value: float
    residual: Matrix
    coefficients: Matrix
    covariance: Matrix
    precisions: Matrix
    spread: float
    functions: Functions
    means: Matrix


@dataclass(frozen=True, eq=False)
class Slope:
    """The negative log evidence of a latent, with derivatives by all it depends on."""

    value: float
    by_child: Matrix
    by_parents: Matrix
    by_shape: Matrix


def functions_of(parents: Matrix, shape: Shape) -> Functions:
    """Return the functions of each row: parents, products, hinges by parent, hidden units."""
    p, n_pairs, knots, _, size = _layout(shape.n_parents, shape.n_hidden)
    n_curved = p + n_pairs
    n_hinges, causes = p * len(knots), np.ascontiguousarray(parents.T)
    # One function after the other in memory: work along rows is then work along memory.
    values, slopes = np.empty((size, len(parents))), np.empty((size - n_curved, len(parents)))
    values[:p] = causes
    for products, k in zip(_products(values, p), range(p), strict=True):
        np.multiply(causes[k], causes[k:], out=products)
    hinges, bends = values[n_curved : n_curved + n_hinges], slopes[:n_hinges]
    distance = bends.reshape(p, len(knots), len(parents))
    np.subtract(causes[:, None], knots[:, None], out=distance)
    np.multiply(bends, bends, out=hinges)
    hinges += (_WIDTH_ALONE if p == 1 else _WIDTH_AMONG_OTHERS) ** 2
    np.sqrt(hinges, out=hinges)
    bends /= hinges
    if shape.n_hidden:
        hidden, shrink = values[n_curved + n_hinges :], slopes[n_hinges:]
        np.matmul(shape.directions, causes, out=hidden)
        hidden -= shape.thresholds[:, None]
        np.multiply(hidden, hidden, out=shrink)
        shrink += 1
        np.reciprocal(np.sqrt(shrink, out=shrink), out=shrink)
        hidden *= shrink
        shrink *= shrink * shrink
    return Functions(values.T, slopes.T)


def regress(child: Matrix, parents: Matrix, shape: Shape) -> Regression:
    """Regress a latent on its parents."""
    n_rows = len(child)
    child = child - child.mean()
    if not shape.n_parents:
        spread = float(child @ child)
        nothing, none = Functions(np.zeros((n_rows, 0)), np.zeros((n_rows, 0))), np.zeros(0)
        value = 0.5 * n_rows * np.log(spread / n_rows)
        return Regression(value, child, none, np.zeros((0, 0)), none, spread, nothing, none)
    functions = functions_of(parents, shape)
    means = functions.values.mean(axis=0)
    Phi = functions.values
    Phi -= means
    precisions = _precisions(shape)
    gram = Phi.T @ Phi
    gram[np.diag_indices_from(gram)] += precisions
    factor = _factor(gram)
    log_volume = np.log(np.diag(factor)).sum()
    lower = np.tril(_inverse_of_factor(factor, lower=1)[0])
    covariance = lower + np.tril(lower, -1).T
    coefficients = covariance @ (Phi.T @ child)
    residual = child - Phi @ coefficients
    # Sums of squares left over from a difference would be rounding where noise is small.
    spread = float(residual @ residual + precisions @ coefficients**2)
    value = 0.5 * n_rows * np.log(spread / n_rows) + log_volume - 0.5 * np.log(precisions).sum()
    value += _prior_of_hidden_units(shape)[0]
    return Regression(
        value, residual, coefficients, covariance, precisions, spread, functions, means
    )


def slope(child: Matrix, parents: Matrix, shape: Shape) -> Slope:
    """Return the negative log evidence with its derivatives."""
    fit = regress(child, parents, shape)
    n_rows, p = len(child), shape.n_parents
    by_child = n_rows / fit.spread * fit.residual
    if not p:
        return Slope(fit.value, by_child, np.zeros((n_rows, 0)), np.zeros(0))
    _, n_pairs, knots, groups, _ = _layout(p, shape.n_hidden)
    Phi, b = fit.functions.values, fit.coefficients
    by_precision = _precisions(shape) * (n_rows / fit.spread * b**2 + np.diag(fit.covariance)) - 1
    by_shape: list[Matrix] = [np.bincount(groups, 0.5 * by_precision).astype(float)]

    causes = np.ascontiguousarray(parents.T)
    # Of centred functions: as these and residuals have mean zero, so have the derivatives.
    by_function = fit.covariance @ Phi.T
    by_function -= np.multiply.outer((n_rows / fit.spread) * b, fit.residual)
    by_causes = by_function[:p].copy()
    for by_products, k in zip(_products(by_function, p), range(p), strict=True):
        by_causes[k] += np.einsum("ij,ij->j", by_products, causes[k:])
        by_causes[k:] += by_products * causes[k]
    along = by_function[p + n_pairs :]
    along *= fit.functions.slopes.T
    n_hinges = p * len(knots)
    by_causes += along[:n_hinges].reshape(p, len(knots), len(parents)).sum(axis=1)
    if shape.n_hidden:
        through = along[n_hinges:]
        by_causes += shape.directions.T @ through
        of_prior = _prior_of_hidden_units(shape)[1]
        by_shape += [(through @ parents).ravel() + of_prior[0], of_prior[1] - through.sum(axis=1)]
    return Slope(fit.value, by_child, by_causes.T, np.concatenate(by_shape))


def gradient(fit: Regression, parents: Matrix, shape: Shape) -> Matrix:
    """Return the derivatives of the prediction by each parent, for each row."""
    p, n_pairs, knots, _, _ = _layout(shape.n_parents, shape.n_hidden)
    b, n_hinges = fit.coefficients, p * len(knots)
    curvature = np.zeros((p, p))
    curvature[_pairs(p)] = b[p : p + n_pairs]
    found = b[:p, None] + (curvature + curvature.T) @ parents.T
    along = fit.functions.slopes.T * b[p + n_pairs :, None]
    found += along[:n_hinges].reshape(p, len(knots), len(parents)).sum(axis=1)
    return (found + shape.directions.T @ along[n_hinges:]).T


def loss_without(fit: Regression, parents: Matrix, shape: Shape, k: int) -> float:
    """Return about how many nats nonlinear effects of parent k are worth if the encoder follows.

    What parent k does linearly can be part of the child. If the other parents were counted with a
    little of parent k in them, the child would change by that times the slopes along them; what
    looks like this is no loss, either.
    """
    others = np.delete(parents, k, axis=1)
    slopes = np.delete(gradient(fit, parents, shape), k, axis=1)
    functions = functions_of(others, shape.without(k)).values
    basis = np.column_stack([parents[:, k], slopes * parents[:, [k]], functions])
    basis -= basis.mean(axis=0)
    explained = fit.functions.values @ fit.coefficients
    left = explained - basis @ _coefficients(explained, basis)
    noise = fit.residual @ fit.residual
    return float(0.5 * len(parents) * np.log1p(left @ left / noise))


def linear_effects(child: Matrix, causes: Matrix, functions: Matrix) -> Matrix:
    """Return what causes do linearly to a child, beside functions of others."""
    return _coefficients(child, np.column_stack([causes, functions]))[: causes.shape[1]]


def occam(fit: Regression, parents: Matrix, shape: Shape) -> float:
    """Return what the fitted directions and thresholds of hidden units cost (Laplace's method)."""
    K = shape.n_hidden
    if not K:
        return 0.0
    curvature = curvature_along(by_weights(fit, parents, shape), fit)
    sd = 1 / np.sqrt(prior_precisions_of_weights(shape))
    gained = np.linalg.eigvalsh(curvature * sd[:, None] * sd)
    volume = 0.5 * np.log1p(np.maximum(gained, 0)).sum()
    energy, small = _energy(shape)
    return float(volume - K / 2 * np.log1p(energy / small).sum())


def by_weights(fit: Regression, parents: Matrix, shape: Shape) -> Matrix:
    """Return the derivatives of the prediction by directions and thresholds, for each row."""
    K = shape.n_hidden
    moved = fit.functions.slopes.T[-K:] * fit.coefficients[-K:, None]
    by_directions = (moved[:, None] * parents.T).reshape(-1, len(parents))
    return np.concatenate([by_directions, -moved]).T


def prior_precisions_of_weights(shape: Shape) -> Matrix:
    """Return the curvature of the prior of directions and thresholds at where they are."""
    K = shape.n_hidden
    energy, small = _energy(shape)
    of_directions = 1 / _SD_OF_WEIGHTS**2 + (K / 2 + 1) / (small + energy)
    return np.concatenate([np.tile(of_directions, K), np.full(K, 1 / _SD_OF_WEIGHTS**2)])


def curvature_along(moved: Matrix, fit: Regression) -> Matrix:
    """Return the Gauss-Newton curvature of the evidence if residuals move so, for each row.

    Coefficients follow. What they leave is computed for each row: as a difference of squares it is
    lost in rounding where noise is small.
    """
    moved = moved - moved.mean(axis=0)
    functions = fit.functions.values
    following = fit.covariance @ (functions.T @ moved)
    left = moved - functions @ following
    penalty = following.T @ (fit.precisions[:, None] * following)
    return (left.T @ left + penalty) * (len(moved) / fit.spread)


def minimised(
    objective: Callable[[Matrix], tuple[float, Matrix]],
    start: Matrix,
    limits: tuple[Matrix, Matrix],
    max_steps: int,
) -> tuple[Matrix, int]:
    """Minimise a number of nats by L-BFGS, which forgets no step; return where, and the steps."""
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack(limits),
        options={
            "maxiter": max_steps,
            "maxcor": STEPS,
            "ftol": _TOLERANCE / (1 + abs(objective(start)[0])),
        },
    )
    return found.x, found.nit


def refit(
    child: Matrix, parents: Matrix, shape: Shape, max_steps: int = STEPS
) -> tuple[float, Shape]:
    """Fit the shape at fixed latents; return the negative log evidence with `occam`, and it."""
    if shape.n_parents:
        n_precisions, start = shape.n_precisions, shape.flat()
        steps = _steps_of_weights(child, parents, shape)

        def at(x: Matrix) -> Shape:
            moved = steps @ x[n_precisions:]
            return shape.filled(np.concatenate([x[:n_precisions], start[n_precisions:] + moved]))

        def objective(x: Matrix) -> tuple[float, Matrix]:
            point = slope(child, parents, at(x))
            by_precisions, by_hidden = np.split(point.by_shape, [n_precisions])
            return point.value, np.concatenate([by_precisions, steps.T @ by_hidden])

        unmoved = np.concatenate([start[:n_precisions], np.zeros(len(steps))])
        shape = at(minimised(objective, unmoved, bounds(shape), max_steps)[0])
    fit = regress(child, parents, shape)
    return fit.value + occam(fit, parents, shape), shape


def steps_of_unit_curvature(curvature: Matrix) -> Matrix:
    """Return steps, one a column, along which a positive definite curvature is about one."""
    size = np.sqrt(np.diag(curvature))
    alike = curvature / size[:, None] / size
    alike[np.diag_indices_from(alike)] += np.sqrt(_EPS)
    factor = _factor(alike)
    steps = solve_triangular(factor, np.eye(len(factor)), lower=True, trans=1, check_finite=False)
    return steps / size[:, None]


def _steps_of_weights(child: Matrix, parents: Matrix, shape: Shape) -> Matrix:
    if not shape.n_hidden:
        return np.zeros((0, 0))
    fit = regress(child, parents, shape)
    curvature = curvature_along(by_weights(fit, parents, shape), fit)
    least = LEAST_CURVATURE * len(child)
    curvature[np.diag_indices_from(curvature)] += prior_precisions_of_weights(shape) + least
    return steps_of_unit_curvature(curvature)


def bounds(shape: Shape) -> tuple[Matrix, Matrix]:
    """Return the least and the largest value of each parameter."""
    most = np.repeat([MOST_LOG_PRECISION, np.inf], [shape.n_precisions, shape.n_weights])
    return -most, most


def _factor(matrix: Matrix) -> Matrix:
    """Return the lower Cholesky factor of a matrix that is positive definite but for rounding.

    Functions of latents that are nearly one another can be so alike that rounding shows; and the
    curvature of an encoder, where noises are small, is what is left of much larger numbers.
    """
    diagonal, share = np.diag_indices_from(matrix), _EPS
    while share < 1:
        factor, failed = _cholesky(matrix, lower=1, clean=0)
        if not failed:
            return factor
        share *= 100
        matrix[diagonal] *= 1 + share
    raise np.linalg.LinAlgError("functions of the latents are too alike to be told apart")


def _coefficients(child: Matrix, basis: Matrix) -> Matrix:
    """Regress on functions, some of which may be combinations of others."""
    basis = basis - basis.mean(axis=0)
    gram = basis.T @ basis
    gram[np.diag_indices_from(gram)] += np.sqrt(_EPS) * len(basis)
    return np.linalg.solve(gram, basis.T @ child)


def _energy(shape: Shape) -> tuple[Matrix, float]:
    """Return half the squared weights of each parent, and how much counts as none."""
    return (shape.directions**2).sum(axis=0) / 2, shape.n_hidden * _SMALL_WEIGHT


def _prior_of_hidden_units(shape: Shape) -> tuple[float, tuple[Matrix, Matrix]]:
    """Return the negative log prior of directions and thresholds, and its gradient."""
    K = shape.n_hidden
    if not K:
        return 0.0, (np.zeros(0), np.zeros(0))
    D, thresholds = shape.directions, shape.thresholds
    energy, small = _energy(shape)
    weight = K / 2 + 1
    value = 0.5 * ((D**2).sum() + (thresholds**2).sum()) / _SD_OF_WEIGHTS**2
    value += weight * np.log1p(energy / small).sum()
    by_directions = D * (1 / _SD_OF_WEIGHTS**2 + weight / (small + energy))
    return float(value), (by_directions.ravel(), thresholds / _SD_OF_WEIGHTS**2)


def _precisions(shape: Shape) -> Matrix:
    """Return the prior precision of each coefficient."""
    *_, groups, _ = _layout(shape.n_parents, shape.n_hidden)
    return np.exp(shape.flat()[: shape.n_precisions])[groups]


@cache
def _pairs(p: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.triu_indices(p)


def _products(functions: Matrix, p: int) -> Iterator[Matrix]:
    """Yield those of a list of functions that are products of parent k with itself and later."""
    end = p
    for k in range(p):
        start, end = end, end + p - k
        yield functions[start:end]


@cache
def _layout(p: int, n_hidden: int) -> tuple[int, int, Matrix, NDArray[np.intp], int]:
    """Return numbers of parents and pairs, knots, the group of each function, their number."""
    n_pairs = p * (p + 1) // 2
    n_knots = _KNOTS_ALONE if p == 1 else _KNOTS_AMONG_OTHERS
    knots = np.linspace(-_FARTHEST_KNOT, _FARTHEST_KNOT, n_knots)
    own_group = np.arange(p + n_pairs)
    by_parent = np.repeat(p + n_pairs + np.arange(p), n_knots)
    groups = np.concatenate([own_group, by_parent, np.full(n_hidden, 2 * p + n_pairs)])
    return p, n_pairs, knots, groups, len(groups)


@cache
def _spread_hidden_units(p: int, start: int) -> tuple[Matrix, Matrix]:
    """Directions and thresholds that cover the sphere, and most rows along them, evenly."""
    points = qmc.Sobol(p + 1, rng=start).random(16)[:N_HIDDEN]  # 16: powers of two are balanced
    directions = norm.ppf(np.clip(points[:, :p], 0.01, 0.99))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    thresholds = (2 * points[:, p] - 1) * _FARTHEST_KNOT
    return _FIRST_LENGTHS[start] * directions, _FIRST_LENGTHS[start] * thresholds
