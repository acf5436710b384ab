"""The density of noise of any shape: a smooth curve through the logarithm of a histogram.

The log-density is a cubic spline whose third derivative is penalised (Silverman 1982). Where the
penalty is strong, what is left is a quadratic: a Gaussian. How strong it is, BIC says, so that
Gaussian noise gets a Gaussian density. The histogram makes it a Poisson regression (Lindsey 1974),
which is convex and does not grow with the number of values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline
from scipy.linalg import cho_factor, cho_solve

from crlearn.likelihood.core._newton import Expansion, descend

Vector = NDArray[np.floating]
Matrix = NDArray[np.floating]

# Values are in standard deviations. Where not derived, numbers were chosen without a study.
_INTERVALS = 22  # between knots
_SMALLEST_INTERVAL = 0.12
_FARTHEST = 12.0  # end of the knots; a Gaussian's score there is the steepest of a tail
_BINS = 5  # in each interval
_PENALTIES = (3e1, 1e0, 3e-2, 1e-3)
_POINTS = 2001  # of the table
_MOST_VALUES = 20_000
_MOST_STEPS = 25
_ENOUGH = 1e-3  # nats that a step must still gain
_RIDGE = 1e-7  # for weights that no value sees
GAUSSIAN_CONSTANT = 0.5 * np.log(2 * np.pi)


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
    """

    ends: tuple[float, float]
    log_values: Vector
    scores: Vector
    scale: float
    freedom: float = 0.0
    penalty: float = np.inf

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


def fit_density(values: Vector, penalty: float | None = None) -> Density:
    """Fit the density of centred values; BIC chooses the penalty if none is given."""
    scale = float(values.std())
    if penalty == np.inf or not scale > 0:
        return Density.gaussian(scale)
    # The shape does not need more values, however many there are.
    histogram = _Histogram.of(np.sort(values[:: -(-len(values) // _MOST_VALUES)]) / scale)
    if penalty is not None:
        return histogram.density(*histogram.regress(penalty, None), scale, penalty)
    lowest = -2 * histogram.log_likelihood(-0.5 * histogram.centres**2 - GAUSSIAN_CONSTANT)
    weights: Vector | None = None
    chosen: tuple[Vector, float, float] | None = None
    for each in _PENALTIES:
        weights, freedom = histogram.regress(each, weights)
        log_likelihood = histogram.log_likelihood(histogram.splines @ weights)
        bic = -2 * log_likelihood + freedom * np.log(histogram.counts.sum())
        if bic < lowest:
            chosen, lowest = (weights, freedom, each), bic
    if chosen is None:
        return Density.gaussian(scale)
    weights, freedom, each = chosen
    return histogram.density(weights, freedom, scale, each)


@dataclass(frozen=True, eq=False)
class _Histogram:
    """Counts in bins, and the splines at their centres."""

    counts: Vector
    centres: Vector
    widths: Vector
    knots: Vector
    splines: Matrix
    roughness: Matrix

    @classmethod
    def of(cls, x: Vector) -> _Histogram:
        """Count values, which are sorted."""
        breaks = _breaks(x)
        inner = np.linspace(0, 1, _BINS, endpoint=False)
        edges = (breaks[:-1, None] + np.diff(breaks)[:, None] * inner).ravel()
        edges = np.append(edges, breaks[-1])
        # A value on an edge belongs to both bins: a variable and its negative are alike.
        before = (np.searchsorted(x, edges, "left") + np.searchsorted(x, edges, "right")) / 2
        counts = np.diff(before)
        centres, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
        knots = np.concatenate([np.repeat(breaks[0], 3), breaks, np.repeat(breaks[-1], 3)])
        splines = BSpline.design_matrix(centres, knots, 3).toarray()
        third = BSpline(knots, np.eye(splines.shape[1]), 3).derivative(3)
        middle, length = (breaks[1:] + breaks[:-1]) / 2, np.diff(breaks)
        # Short intervals are there where more can be seen, so the penalty is weaker there.
        bent = third(middle) * np.sqrt(length * length**5)[:, None]
        return cls(counts, centres, widths, knots, splines, bent.T @ bent)

    def regress(self, penalty: float, start: Vector | None) -> tuple[Vector, float]:
        """Return the weights of the splines, and how many parameters they are worth."""
        total = self.counts.sum()
        fixed = penalty * total * self.roughness + _RIDGE * total * np.eye(self.splines.shape[1])
        offset, counted = np.log(self.widths * total), self.splines.T @ self.counts

        def rates(weights: Vector) -> Vector:
            with np.errstate(over="ignore"):  # a step that is too long
                return np.exp(self.splines @ weights + offset)

        def value(weights: Vector, expected: Vector | None = None) -> float:
            total = (rates(weights) if expected is None else expected).sum()
            return float(total - counted @ weights + 0.5 * weights @ fixed @ weights)

        def information(expected: Vector) -> Matrix:
            return (self.splines * expected[:, None]).T @ self.splines

        def expand(weights: Vector) -> Expansion:
            expected = rates(weights)
            gradient = self.splines.T @ expected - counted + fixed @ weights
            return Expansion(value(weights, expected), gradient, information(expected) + fixed)

        weights, _ = descend(
            self._first() if start is None else start,
            expand,
            value,
            lambda weights, step: weights + step,
            max_steps=_MOST_STEPS,
            tolerance=_ENOUGH,
            damping=0.0,
        )
        seen = information(rates(weights))
        effective = np.trace(cho_solve(cho_factor(seen + fixed), seen))
        return weights, max(float(effective) - 3, 1.0)

    def log_likelihood(self, log_density: Vector) -> float:
        """Return the log-likelihood of the values, given the log-density at the centres."""
        return float(self.counts @ log_density)

    def density(self, weights: Vector, freedom: float, scale: float, penalty: float) -> Density:
        """Table the log-density, with tails that fall, and total mass one."""
        curve = BSpline(self.knots, weights, 3)
        ends = float(self.knots[0]), float(self.knots[-1])
        points, step = np.linspace(*ends, _POINTS, retstep=True)
        log_values, scores = curve(points), -curve.derivative()(points)
        # Tails fall no slower than those of an exponential variable.
        scores[0] = -np.clip(-scores[0], 1.0, _FARTHEST)
        scores[-1] = np.clip(scores[-1], 1.0, _FARTHEST)
        heights = np.exp(log_values)
        mass = step * (heights.sum() - (heights[0] + heights[-1]) / 2)
        mass += heights[0] / -scores[0] + heights[-1] / scores[-1]
        return Density(ends, log_values - np.log(mass), scores, scale, freedom, penalty)

    def _first(self) -> Vector:
        """Return the weights of the Gaussian."""
        target = -0.5 * self.centres**2 - GAUSSIAN_CONSTANT
        return np.linalg.lstsq(self.splines, target, rcond=None)[0]


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
