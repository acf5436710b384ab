"""The log evidence of a whole structure: encoder, graph and the shapes of all mechanisms.

Latents are z = H y for whitened rows y; rows of H have length one, so that latents have variance
one. The log evidence of H and a graph is

    N log|det H| - sum_j (node of latent j given its parents),

see `nodes._relevance`. It is maximised over H and all shapes at once, by L-BFGS in coordinates in
which the curvature is about one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from crlearn.graph import Graph
from crlearn.likelihood._fit import Fit
from crlearn.likelihood._price import relevance_edge_price
from crlearn.likelihood.core._encoder import unit_rows
from crlearn.likelihood.nodes._relevance import (
    LEAST_CURVATURE,
    STEPS,
    Regression,
    Shape,
    bounds,
    by_weights,
    curvature_along,
    gradient,
    minimised,
    occam,
    prior_precisions_of_weights,
    refit,
    regress,
    slope,
    steps_of_unit_curvature,
)

Matrix = NDArray[np.floating]
Shapes = tuple[Shape, ...]


class RelevanceModel:
    """Structures for some whitened rows; the shapes of the mechanisms are a fit's parameters."""

    def __init__(self, y: Matrix) -> None:
        self.y = y
        self.n_rows, self.n = y.shape

    def start(self, H: Matrix, graph: Graph, *, hidden_units: bool = False) -> Fit:
        """Return a structure whose shapes are at their start."""
        shapes = tuple(Shape.start(len(own), hidden_units=hidden_units) for own in graph)
        return self.unscored(unit_rows(H), graph, shapes)

    def unscored(self, H: Matrix, graph: Graph, shapes: Shapes) -> Fit:
        """Return a structure that is yet to be scored."""
        return Fit(H, graph, -np.inf, mechanisms="nonlinear", parameters=shapes)

    def scored(self, fit: Fit) -> Fit:
        """Return the structure with its log evidence and the price of its edges.

        A Gaussian without structure has about 0 nats.
        """
        log_volume = self.n_rows * np.linalg.slogdet(fit.H)[1]
        price = relevance_edge_price(self.n) * fit.n_edges
        log_evidence = float(log_volume - self.costs(fit).sum())
        return replace(fit, log_likelihood=log_evidence, price=price)

    def latents(self, fit: Fit) -> Matrix:
        """Return the latents of the rows."""
        return (fit.H @ self.y.T).T

    def regressions(self, fit: Fit) -> list[Regression]:
        """Regress each latent on its parents."""
        Z = self.latents(fit)
        return [
            regress(Z[:, j], Z[:, list(parents)], shape)
            for j, (parents, shape) in enumerate(zip(fit.graph, fit.parameters, strict=True))
        ]

    def residuals(self, fit: Fit) -> Matrix:
        """Return what the mechanisms leave: the noises."""
        return np.column_stack([found.residual for found in self.regressions(fit)])

    def costs(self, fit: Fit) -> Matrix:
        """Return the negative log evidence of each latent."""
        Z = self.latents(fit)
        return np.array(
            [
                found.value + occam(found, Z[:, list(parents)], shape)
                for found, parents, shape in zip(
                    self.regressions(fit), fit.graph, fit.parameters, strict=True
                )
            ]
        )

    def objective(self, fit: Fit) -> float:
        """Return what `fitted` minimises: the negative log evidence without `occam`."""
        return self._slope(fit)[0]

    def fitted(self, fit: Fit, max_steps: int = STEPS) -> Fit:
        """Fit encoder and shapes; the metric of the steps is taken anew at times."""
        while max_steps > 0:
            coordinates = _Coordinates(self, fit)
            x, n_steps = minimised(
                coordinates.slope, coordinates.start, coordinates.bounds, min(max_steps, STEPS)
            )
            fit = coordinates.structure(x)[0]
            if n_steps < STEPS:
                break
            max_steps -= n_steps
        return fit

    def shaped(self, fit: Fit, latents: Iterable[int] | None = None) -> Fit:
        """Fit the shapes (of some latents) at this encoder.

        A good encoder with poor shapes would be left at once, and hardly found again where noise is
        small.
        """
        Z, shapes = self.latents(fit), list(fit.parameters)
        for j in range(len(shapes)) if latents is None else latents:
            parents = Z[:, list(fit.graph[j])]
            shapes[j] = refit(Z[:, j], parents, shapes[j], STEPS // 2)[1]
        return replace(fit, parameters=tuple(shapes))

    def only_useful_hidden_units(self, fit: Fit) -> Fit:
        """Leave out the hidden units of mechanisms that do better without."""
        return self._reshaped(fit, lambda shape: [shape.without_hidden_units()], STEPS)

    def with_better_hidden_units(self, fit: Fit) -> Fit:
        """Take hidden units from other starts where these fit better.

        The evidence of hidden units has many optima, some tens of nats apart.
        """
        return self._reshaped(fit, Shape.with_other_hidden_units, 2 * STEPS)

    def _reshaped(
        self, fit: Fit, starts: Callable[[Shape], Iterable[Shape]], max_steps: int
    ) -> Fit:
        """Fit mechanisms that have hidden units from other shapes; keep what is better."""
        Z, costs, shapes = self.latents(fit), self.costs(fit), list(fit.parameters)
        for j, (parents, shape) in enumerate(zip(fit.graph, fit.parameters, strict=True)):
            if not shape.n_hidden:
                continue
            for start in starts(shape):
                cost, found = refit(Z[:, j], Z[:, list(parents)], start, max_steps)
                if cost < costs[j]:
                    costs[j], shapes[j] = cost, found
        return replace(fit, parameters=tuple(shapes))

    def _slope(self, fit: Fit) -> tuple[float, Matrix, list[Matrix]]:
        """Return the negative log evidence without `occam`, and its derivatives by H and shapes."""
        H, Z = fit.H, self.latents(fit)
        value = -self.n_rows * np.linalg.slogdet(H)[1]
        by_latents = np.zeros(Z.T.shape)
        by_shapes = []
        for j, (parents, shape) in enumerate(zip(fit.graph, fit.parameters, strict=True)):
            causes = list(parents)
            point = slope(Z[:, j], Z[:, causes], shape)
            value += point.value
            by_latents[j] += point.by_child
            by_latents[causes] += point.by_parents.T
            by_shapes.append(point.by_shape)
        return float(value), by_latents @ self.y - self.n_rows * np.linalg.inv(H).T, by_shapes


def has_hidden_units(fit: Fit) -> bool:
    """Whether some mechanism has hidden units of several parents."""
    return any(shape.n_hidden for shape in fit.parameters)


class _Coordinates:
    """Numbers for encoder and shapes, in which the curvature of the evidence is about one.

    The encoder and the weights of hidden units move along `_unit_steps`; precisions are as they
    are.
    """

    def __init__(self, model: RelevanceModel, fit: Fit) -> None:
        self._model, self._at = model, fit
        n = model.n
        parts = [fit.H.ravel(), *(shape.flat() for shape in fit.parameters)]
        self._flat, self._ends = np.concatenate(parts), np.cumsum([len(part) for part in parts])
        unbounded = np.full(n * n, np.inf)
        limits = [bounds(shape) for shape in fit.parameters]
        low = np.concatenate([-unbounded, *(least for least, _ in limits)])
        high = np.concatenate([unbounded, *(most for _, most in limits)])
        self.bounds = low, high
        self._free = np.flatnonzero(np.isinf(high))
        self._steps = _unit_steps(model, fit)
        self.start = self._flat.copy()
        self.start[self._free] = 0

    def slope(self, x: Matrix) -> tuple[float, Matrix]:
        """Return what is minimised, and its derivatives."""
        here, length = self.structure(x)
        value, by_H, by_shapes = self._model._slope(here)
        across = (by_H - (by_H * here.H).sum(axis=1, keepdims=True) * here.H) / length
        by_x = np.concatenate([across.ravel(), *by_shapes])
        by_x[self._free] = self._steps.T @ by_x[self._free]
        return value, by_x

    def structure(self, x: Matrix) -> tuple[Fit, Matrix]:
        """Return the structure that numbers stand for, and by what its rows were divided."""
        flat = x.copy()
        flat[self._free] = self._flat[self._free] + self._steps @ x[self._free]
        H, *shapes = np.split(flat, self._ends[:-1])
        H = H.reshape(self._at.H.shape)
        length = np.linalg.norm(H, axis=1, keepdims=True)
        filled = tuple(
            shape.filled(part) for shape, part in zip(self._at.parameters, shapes, strict=True)
        )
        return self._model.unscored(H / length, self._at.graph, filled), length


def _unit_steps(model: RelevanceModel, fit: Fit) -> Matrix:
    """Return steps of encoder and weights, one a column, along which the curvature is about one.

    It is that of the Gauss-Newton matrix, coefficients following. Where noise is small, it spans
    many orders of magnitude.
    """
    n, n_rows, y, Z = model.n, model.n_rows, model.y, model.latents(fit)
    n_weights = [shape.n_weights for shape in fit.parameters]
    ends = n * n + np.cumsum(n_weights)
    curvature = np.zeros((ends[-1], ends[-1]))
    for j, (parents, shape, found) in enumerate(
        zip(fit.graph, fit.parameters, model.regressions(fit), strict=True)
    ):
        causes, rows, slopes = Z[:, list(parents)], [j, *parents], np.ones((n_rows, 1))
        if parents:
            slopes = np.column_stack([slopes, -gradient(found, causes, shape)])
        moved = (slopes.T[:, None] * y.T).reshape(-1, n_rows).T
        places = (np.array(rows)[:, None] * n + np.arange(n)).ravel()
        if shape.n_hidden:
            moved = np.column_stack([moved, -by_weights(found, causes, shape)])
            own = np.arange(ends[j] - n_weights[j], ends[j])
            places = np.concatenate([places, own])
            curvature[own, own] += prior_precisions_of_weights(shape)
        curvature[np.ix_(places, places)] += curvature_along(moved, found)
    across = np.asarray(block_diag(*(np.eye(n) - np.outer(row, row) for row in fit.H)))
    curvature[: n * n] = across @ curvature[: n * n]
    curvature[:, : n * n] = curvature[:, : n * n] @ across
    curvature[np.diag_indices_from(curvature)] += LEAST_CURVATURE * n_rows
    return steps_of_unit_curvature(curvature)
