"""The density of noise of any shape: a smooth curve through the logarithm of a histogram.

The log-density is a cubic spline whose third derivative is penalised (Silverman 1982). Where the
penalty is strong, what is left is a quadratic: a Gaussian. How strong it is, BIC says, so that
Gaussian noise gets a Gaussian density. The histogram makes it a Poisson regression (Lindsey 1974),
which is convex and does not grow with the number of values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline
from scipy.linalg import get_lapack_funcs

from crlearn.tags import stored

Vector = NDArray[np.floating]
Matrix = NDArray[np.floating]

_factorised, _solved_by = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)

# Values are in standard deviations. Where not derived, numbers were chosen without a study.
_INTERVALS = 22  # between knots
_SMALLEST_INTERVAL = 0.12
_FARTHEST = 12.0  # end of the knots; a Gaussian's score there is the steepest of a tail
_BINS = 5  # in each interval
_PENALTIES = (3e1, 1e0, 3e-2, 1e-3)
_POINTS = 1001  # of the table
_MOST_VALUES = 20_000
_MOST_STEPS = 25
_ENOUGH = 1e-3  # nats that a step must promise
_DEGREE = 3
_RIDGE = 1e-7  # for weights that no value sees
GAUSSIAN_CONSTANT = 0.5 * np.log(2 * np.pi)


@stored("noise/density")
@dataclass(frozen=True, eq=False)
class Density:
    """The density of a centred variable.

    Attributes
    ----------
    ends
        Between them the log-density is tabled, in units of `scale`; beyond them it is linear.
    log_values, scores
        The log-density at points with equal distances, and minus its derivative.
    scale
        Standard deviation of the variable.
    freedom
        Number of parameters beyond those of a Gaussian; 0: it is Gaussian, and has no table.
    penalty
        Of the third derivative.
    grid, weights
        The splines and their weights, which a fit to similar values starts from.
    """

    ends: tuple[float, float]
    log_values: Vector
    scores: Vector
    scale: float
    freedom: float = 0.0
    penalty: float = np.inf
    grid: _Grid | None = None
    weights: Vector = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def gaussian(cls, scale: float) -> Density:
        """Return the Gaussian density."""
        return cls((0.0, 0.0), np.zeros(0), np.zeros(0), scale)

    def log_density(self, values: Vector) -> Vector:
        """Return the log-density."""
        x = values / self.scale
        if self.freedom == 0:
            return -0.5 * x**2 - GAUSSIAN_CONSTANT - np.log(self.scale)
        found = self._look_up(self.log_values, x)
        first, last = self.ends
        found += self.scores[0] * np.maximum(first - x, 0)
        found -= self.scores[-1] * np.maximum(x - last, 0)
        return found - np.log(self.scale)

    def score(self, values: Vector) -> Vector:
        """Return minus the derivative of the log-density."""
        x = values / self.scale
        return (x if self.freedom == 0 else self._look_up(self.scores, x)) / self.scale

    def _look_up(self, table: Vector, x: Vector) -> Vector:
        first, last = self.ends
        place = np.clip((x - first) * ((len(table) - 1) / (last - first)), 0, len(table) - 1)
        before = np.minimum(place.astype(np.intp), len(table) - 2)
        return table[before] + (place - before) * np.diff(table)[before]


def fit_density(values: Vector, like: Density | None = None) -> Density:
    """Fit the density of centred values.

    How smooth it is, BIC chooses; or it is as smooth as another one, of nearly the same values.
    """
    scale = float(values.std())
    if (like is not None and like.grid is None) or not scale > 0:
        return Density.gaussian(scale)
    x = _standardised(values, scale)
    if like is not None and like.grid is not None:
        weights, freedom = like.grid.regress(like.grid.counts(x), like.penalty, like.weights)
        return like.grid.density(weights, freedom, scale, like.penalty)
    grid = _Grid.of(x)
    best = grid.smoothest(grid.counts(x))
    if best.freedom == 0:
        return Density.gaussian(scale)
    return grid.density(best.weights, best.freedom, scale, best.penalty)


def _standardised(values: Vector, scale: float) -> Vector:
    """Return sorted values; the shape does not need more of them, however many there are."""
    return np.sort(values[:: -(-len(values) // _MOST_VALUES)]) / scale


class _Smoothed(NamedTuple):
    """Weights of the splines, how many parameters they are worth, and what they reach."""

    weights: Vector
    freedom: float
    penalty: float
    log_likelihood: float


@dataclass(frozen=True, eq=False)
class _Grid:
    """Bins, and the splines at their centres."""

    edges: Vector
    knots: Vector
    splines: Matrix
    roughness: Matrix

    @classmethod
    def of(cls, x: Vector) -> _Grid:
        """Return a grid for values, which are sorted."""
        breaks = _breaks(x)
        inner = np.linspace(0, 1, _BINS, endpoint=False)
        edges = (breaks[:-1, None] + np.diff(breaks)[:, None] * inner).ravel()
        edges = np.append(edges, breaks[-1])
        knots = np.concatenate([np.repeat(breaks[0], 3), breaks, np.repeat(breaks[-1], 3)])
        splines = BSpline.design_matrix((edges[1:] + edges[:-1]) / 2, knots, _DEGREE).toarray()
        # Short intervals are there where more can be seen, so the penalty is weaker there.
        bent = _third_derivatives(knots) * (np.diff(breaks) ** 3)[:, None]
        return cls(edges, knots, splines, bent.T @ bent)

    @property
    def centres(self) -> Vector:
        """Of the bins."""
        return (self.edges[1:] + self.edges[:-1]) / 2

    def counts(self, x: Vector) -> Vector:
        """Count sorted values in the bins; those beyond the ends are in the first and the last."""
        # A value on an edge belongs to both bins: a variable and its negative are alike.
        before = (
            np.searchsorted(x, self.edges, "left") + np.searchsorted(x, self.edges, "right")
        ) / 2
        before[0], before[-1] = 0, len(x)
        return np.diff(before)

    def gaussian(self) -> Vector:
        """Return the weights of the Gaussian: those of a square are mean products of knots."""
        a, b, c = (self.knots[k : len(self.knots) - 4 + k] for k in (1, 2, 3))
        return -(a * b + a * c + b * c) / 6 - GAUSSIAN_CONSTANT

    def smoothest(self, counts: Vector) -> _Smoothed:
        """Return the curve that BIC chooses; rougher ones are tried until they are worse."""
        weights, price = self.gaussian(), np.log(counts.sum()) / 2
        best = _Smoothed(weights, 0.0, np.inf, self._log_likelihood(counts, weights))
        for penalty in _PENALTIES:
            weights, freedom = self.regress(counts, penalty, weights)
            found = _Smoothed(weights, freedom, penalty, self._log_likelihood(counts, weights))
            if found.log_likelihood - price * freedom < best.log_likelihood - price * best.freedom:
                break
            best = found
        return best

    def _log_likelihood(self, counts: Vector, weights: Vector) -> float:
        return float(counts @ (self.splines @ weights))

    def regress(self, counts: Vector, penalty: float, start: Vector) -> tuple[Vector, float]:
        """Return the weights of the splines, and how many parameters they are worth."""
        total, splines = counts.sum(), self.splines
        fixed = penalty * total * self.roughness + _RIDGE * total * np.eye(splines.shape[1])
        offset, counted = np.log(np.diff(self.edges) * total), splines.T @ counts

        def at(weights: Vector) -> tuple[Vector, float]:
            with np.errstate(over="ignore"):  # a step that is too long
                rates = np.exp(splines @ weights + offset)
            return rates, float(rates.sum() - counted @ weights + 0.5 * weights @ fixed @ weights)

        # Newton's steps; `core._newton` would take longer over each than these small matrices do.
        weights, (rates, value), n_steps = start, at(start), 0
        while True:
            seen = (splines * rates[:, None]).T @ splines
            factor, failed = _factorised(seen + fixed, clean=False)
            if failed:
                raise np.linalg.LinAlgError("the splines of a density are too alike")
            gradient = splines.T @ rates - counted + fixed @ weights
            step = -_solved_by(factor, gradient)[0]
            if -gradient @ step < 2 * _ENOUGH or n_steps == _MOST_STEPS:
                break
            rates, reached = at(weights + step)
            while reached > value:
                step = step / 2
                rates, reached = at(weights + step)
            weights, value, n_steps = weights + step, reached, n_steps + 1
        effective = np.trace(_solved_by(factor, seen)[0])
        return weights, max(float(effective) - 3, 1.0)

    def density(self, weights: Vector, freedom: float, scale: float, penalty: float) -> Density:
        """Table the log-density, with tails that fall, and total mass one."""
        ends = float(self.knots[0]), float(self.knots[-1])
        points, curve = np.linspace(*ends, _POINTS), BSpline(self.knots, weights, _DEGREE)
        log_values, scores = curve(points), -curve.derivative()(points)
        # Tails fall no slower than those of an exponential variable.
        scores[0] = -np.clip(-scores[0], 1.0, _FARTHEST)
        scores[-1] = np.clip(scores[-1], 1.0, _FARTHEST)
        heights, step = np.exp(log_values), (ends[1] - ends[0]) / (_POINTS - 1)
        mass = step * (heights.sum() - (heights[0] + heights[-1]) / 2)
        mass += heights[0] / -scores[0] + heights[-1] / scores[-1]
        log_values -= np.log(mass)
        return Density(ends, log_values, scores, scale, freedom, penalty, self, weights)


def _third_derivatives(knots: Vector) -> Matrix:
    """Return the third derivative of each spline, a column, between each two knots (de Boor)."""
    weights = np.eye(len(knots) - _DEGREE - 1)
    for degree in range(_DEGREE, 0, -1):
        length = knots[degree + 1 : -1] - knots[1 : -degree - 1]
        weights = degree * np.diff(weights, axis=0) / length[:, None]
        knots = knots[1:-1]
    return weights


def _breaks(x: Vector) -> Vector:
    """Return the ends of the intervals, for sorted values: many where there are many values.

    From the median outwards, so that those of the negative values are the negative of these.
    """
    least = 3 / (len(x) + 6)
    logits = np.linspace(-1, 1, _INTERVALS + 1) * np.log((1 - least) / least)
    quantiles = np.quantile(x, 1 / (1 + np.exp(-logits)), method="hazen")
    middle = _INTERVALS // 2
    margin = 2 * _SMALLEST_INTERVAL
    above = _outwards(quantiles[middle:], min(float(x[-1]), _FARTHEST) + margin)
    below = _outwards(-quantiles[middle::-1], -max(float(x[0]), -_FARTHEST) + margin)
    return np.array([*(-each for each in reversed(below[1:])), *above])


def _outwards(quantiles: Vector, last: float) -> list[float]:
    """Return the first of ascending quantiles, those that are not too close, and the last end."""
    breaks = [float(quantiles[0])]
    for quantile in quantiles[1:]:
        if breaks[-1] + _SMALLEST_INTERVAL <= quantile <= last - _SMALLEST_INTERVAL:
            breaks.append(float(quantile))
    return [*breaks, last]
