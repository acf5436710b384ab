"""The evidence of a whole structure: encoder, graph and the shapes of all mechanisms.

Latents are z = H y for whitened rows y; rows of H have length one, so that latents have variance
one. The negative log evidence of H and a graph is

    -N log|det H| + sum_j (that of latent j given its parents),

see `nodes._relevance`. It is minimised over H and all shapes at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.optimize import minimize

from crlearn.graph import Graph
from crlearn.likelihood.nodes._relevance import (
    Regression,
    Shape,
    bounds,
    by_weights,
    curvature_along,
    damped_precisions,
    gradient,
    occam,
    refit,
    regress,
    slope,
    steps_of_unit_curvature,
)

Matrix = NDArray[np.floating]

_MEMORY = 30  # of the quasi-Newton method
_STEPS_IN_A_METRIC = 40
_LEAST_CURVATURE = 1 / 9  # for each row, of an encoder's entry
_STEPS_WITHOUT_UNITS = 30
_STEPS_OF_SHAPES = 15
_STEPS_OF_OTHER_UNITS = 60


@dataclass(frozen=True, eq=False)
class Structure:
    """An encoder, a graph and the shapes of its mechanisms.

    Attributes
    ----------
    H
        Encoder, rows of length one.
    graph
        Parents of each latent.
    shapes
        Of each latent's mechanism.
    """

    H: Matrix
    graph: Graph
    shapes: tuple[Shape, ...]

    @classmethod
    def start(cls, H: Matrix, graph: Graph, *, units: bool = False) -> Self:
        """Return a structure whose shapes are at their start."""
        shapes = tuple(Shape.start(len(parents), units=units) for parents in graph)
        return cls(unit_rows(H), graph, shapes)

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return sum(map(len, self.graph))

    @property
    def has_units(self) -> bool:
        """Whether some mechanism has units of several parents."""
        return any(shape.n_units for shape in self.shapes)

    def latents(self, y: Matrix) -> Matrix:
        """Return the latents of whitened rows."""
        return (self.H @ y.T).T

    def regressions(self, y: Matrix) -> list[Regression]:
        """Regress each latent on its parents."""
        Z = self.latents(y)
        return [
            regress(Z[:, j], Z[:, list(parents)], shape)
            for j, (parents, shape) in enumerate(zip(self.graph, self.shapes, strict=True))
        ]

    def noises(self, y: Matrix) -> Matrix:
        """Return what the mechanisms leave."""
        return np.column_stack([fit.residual for fit in self.regressions(y)])

    def costs(self, y: Matrix) -> Matrix:
        """Return the negative log evidence of each latent."""
        Z = self.latents(y)
        return np.array(
            [
                fit.value + occam(fit, Z[:, list(parents)], shape)
                for fit, parents, shape in zip(
                    self.regressions(y), self.graph, self.shapes, strict=True
                )
            ]
        )

    def evidence(self, y: Matrix) -> float:
        """Return the negative log evidence in nats; a Gaussian without structure has about 0."""
        n_rows = len(y)
        log_det = np.linalg.slogdet(self.H)[1]
        return float(self.costs(y).sum() - n_rows * log_det)

    def objective(self, y: Matrix) -> float:
        """Return what `fitted` minimises: the negative log evidence without `occam`."""
        return _slope(self, y)[0]

    def fitted(self, y: Matrix, *, max_steps: int = 60, tolerance: float = 1e-3) -> Structure:
        """Return the structure with the encoder and the shapes that fit best."""
        return _fit(self, y, max_steps, tolerance)

    def shaped(self, y: Matrix, latents: Iterable[int] | None = None) -> Structure:
        """Return the structure with the shapes (of some latents) that fit best at this encoder.

        A good encoder with poor shapes would be left at once, and hardly found again where noise is
        small.
        """
        Z, shapes = self.latents(y), list(self.shapes)
        for j in range(len(shapes)) if latents is None else latents:
            parents = Z[:, list(self.graph[j])]
            shapes[j] = refit(Z[:, j], parents, shapes[j], max_steps=_STEPS_OF_SHAPES)[1]
        return replace(self, shapes=tuple(shapes))

    def only_useful_units(self, y: Matrix) -> Structure:
        """Return the structure without the units of mechanisms that do better without."""
        Z, costs, shapes = self.latents(y), self.costs(y), list(self.shapes)
        for j, (parents, shape) in enumerate(zip(self.graph, self.shapes, strict=True)):
            if shape.n_units:
                cost, additive = refit(
                    Z[:, j],
                    Z[:, list(parents)],
                    shape.without_units(),
                    max_steps=_STEPS_WITHOUT_UNITS,
                )
                if cost < costs[j]:
                    shapes[j] = additive
        return replace(self, shapes=tuple(shapes))

    def with_better_units(self, y: Matrix) -> Structure:
        """Return the structure with units from other starts where these fit better.

        The evidence of units has many optima, some tens of nats apart.
        """
        Z, costs, shapes = self.latents(y), self.costs(y), list(self.shapes)
        for j, (parents, shape) in enumerate(zip(self.graph, self.shapes, strict=True)):
            if not shape.n_units:
                continue
            for start in shape.with_units_elsewhere():
                cost, found = refit(
                    Z[:, j], Z[:, list(parents)], start, max_steps=_STEPS_OF_OTHER_UNITS
                )
                if cost < costs[j]:
                    costs[j], shapes[j] = cost, found
        return replace(self, shapes=tuple(shapes))


def unit_rows(H: Matrix) -> Matrix:
    """Return the encoder with rows of length one."""
    return H / np.linalg.norm(H, axis=1, keepdims=True)


def complete(n: int) -> Graph:
    """Return the graph in which each latent depends on all before it."""
    return tuple(tuple(range(j)) for j in range(n))


def _fit(structure: Structure, y: Matrix, max_steps: int, tolerance: float) -> Structure:
    """Minimise by L-BFGS; steps are counted in the metric of the curvature, anew at times."""
    while max_steps > 0:
        coordinates = _Coordinates(structure, y)
        size = abs(coordinates.slope(coordinates.start)[0]) + 1
        found = minimize(
            coordinates.slope,
            coordinates.start,
            jac=True,
            method="L-BFGS-B",
            bounds=coordinates.bounds,
            options={
                "maxiter": min(max_steps, _STEPS_IN_A_METRIC),
                "maxcor": _MEMORY,
                "ftol": tolerance / size,
            },
        )
        structure = coordinates.structure(found.x)
        if found.nit < _STEPS_IN_A_METRIC:
            break
        max_steps -= found.nit
    return structure


class _Coordinates:
    """Numbers for encoder and shapes, in which the curvature of the evidence is about one.

    The encoder and the weights of units move along `_unit_steps`; precisions are as they are.
    """

    def __init__(self, structure: Structure, y: Matrix) -> None:
        self._at, self._y = structure, y
        n = len(structure.H)
        parts = [structure.H.ravel(), *(shape.flat() for shape in structure.shapes)]
        self._flat, self._ends = np.concatenate(parts), np.cumsum([len(part) for part in parts])
        unbounded = np.full(n * n, np.inf)
        limits = [bounds(shape) for shape in structure.shapes]
        low = np.concatenate([-unbounded, *(least for least, _ in limits)])
        high = np.concatenate([unbounded, *(most for _, most in limits)])
        self.bounds = np.column_stack([low, high])
        self._free = np.flatnonzero(np.isinf(high))
        self._steps = _unit_steps(structure, y)
        self.start = self._flat.copy()
        self.start[self._free] = 0

    def structure(self, x: Matrix) -> Structure:
        """Return the structure that numbers stand for."""
        return self._structure(x)[0]

    def slope(self, x: Matrix) -> tuple[float, Matrix]:
        """Return what is minimised, and its derivatives."""
        here, length = self._structure(x)
        value, by_H, by_shapes = _slope(here, self._y)
        across = (by_H - (by_H * here.H).sum(axis=1, keepdims=True) * here.H) / length
        by_x = np.concatenate([across.ravel(), *by_shapes])
        by_x[self._free] = self._steps.T @ by_x[self._free]
        return value, by_x

    def _structure(self, x: Matrix) -> tuple[Structure, Matrix]:
        flat = x.copy()
        flat[self._free] = self._flat[self._free] + self._steps @ x[self._free]
        H, *shapes = np.split(flat, self._ends[:-1])
        H = H.reshape(self._at.H.shape)
        length = np.linalg.norm(H, axis=1, keepdims=True)
        filled = tuple(
            shape.filled(part) for shape, part in zip(self._at.shapes, shapes, strict=True)
        )
        return Structure(H / length, self._at.graph, filled), length


def _unit_steps(structure: Structure, y: Matrix) -> Matrix:
    """Return steps of encoder and weights, one a column, along which the curvature is about one.

    It is that of the Gauss-Newton matrix, coefficients following. Where noise is small, it spans
    many orders of magnitude.
    """
    n, n_rows, Z = len(structure.H), len(y), structure.latents(y)
    n_weights = [shape.n_weights for shape in structure.shapes]
    ends = n * n + np.cumsum(n_weights)
    curvature = np.zeros((ends[-1], ends[-1]))
    for j, (parents, shape, fit) in enumerate(
        zip(structure.graph, structure.shapes, structure.regressions(y), strict=True)
    ):
        causes, rows, slopes = Z[:, list(parents)], [j, *parents], np.ones((n_rows, 1))
        if parents:
            slopes = np.column_stack([slopes, -gradient(fit, causes, shape)])
        moved = (slopes.T[:, None] * y.T).reshape(-1, n_rows).T
        places = (np.array(rows)[:, None] * n + np.arange(n)).ravel()
        if shape.n_units:
            moved = np.column_stack([moved, -by_weights(fit, causes, shape)])
            own = np.arange(ends[j] - n_weights[j], ends[j])
            places = np.concatenate([places, own])
            curvature[own, own] += damped_precisions(shape)
        curvature[np.ix_(places, places)] += curvature_along(moved, fit)
    across = np.asarray(block_diag(*(np.eye(n) - np.outer(row, row) for row in structure.H)))
    curvature[: n * n] = across @ curvature[: n * n]
    curvature[:, : n * n] = curvature[:, : n * n] @ across
    curvature[range(n * n), range(n * n)] += _LEAST_CURVATURE * n_rows
    return steps_of_unit_curvature(curvature)


def _slope(structure: Structure, y: Matrix) -> tuple[float, Matrix, list[Matrix]]:
    """Return the negative log evidence without `occam`, and its derivatives by H and shapes."""
    n_rows = len(y)
    H, Z = structure.H, structure.latents(y)
    value = -n_rows * np.linalg.slogdet(H)[1]
    by_latents = np.zeros(Z.T.shape)
    by_shapes = []
    for j, (parents, shape) in enumerate(zip(structure.graph, structure.shapes, strict=True)):
        causes = list(parents)
        point = slope(Z[:, j], Z[:, causes], shape)
        value += point.value
        by_latents[j] += point.by_child - point.by_child.mean()
        by_latents[causes] += point.by_parents.T
        by_shapes.append(point.by_shape)
    return float(value), by_latents @ y - n_rows * np.linalg.inv(H).T, by_shapes
