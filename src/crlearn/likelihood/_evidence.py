"""The evidence of a whole structure: encoder, graph and the shapes of all mechanisms.

Latents are z = H y for whitened rows y; rows of H have length one, so that latents have variance
one. The negative log evidence of H and a graph is

    -N log|det H| + sum_j (that of latent j given its parents),

see `crlearn.likelihood._mechanisms`. It is minimised over H and all shapes at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.optimize import minimize

from crlearn.likelihood._graph_search import Graph
from crlearn.likelihood._mechanisms import (
    Regression,
    Shape,
    bounds,
    gradient,
    occam,
    refit,
    regress,
    slope,
    step_sizes,
)

Matrix = NDArray[np.floating]

_MEMORY = 30  # of the quasi-Newton method
_LEAST_CURVATURE = 1 / 9  # for each row, of an encoder's entry
_STEPS_WITHOUT_UNITS = 30
_STEPS_OF_SHAPES = 15


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

    def latents(self, y: Matrix) -> Matrix:
        """Return the latents of whitened rows."""
        return y @ self.H.T

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

    def with_units(self) -> Structure:
        """Return the structure with units in all mechanisms of several parents."""
        return replace(self, shapes=tuple(shape.with_units() for shape in self.shapes))


def unit_rows(H: Matrix) -> Matrix:
    """Return the encoder with rows of length one."""
    return H / np.linalg.norm(H, axis=1, keepdims=True)


def complete(n: int) -> Graph:
    """Return the graph in which each latent depends on all before it."""
    return tuple(tuple(range(j)) for j in range(n))


def _fit(structure: Structure, y: Matrix, max_steps: int, tolerance: float) -> Structure:
    """Minimise by L-BFGS; steps of the encoder are counted in the metric of its curvature."""
    n = len(structure.H)
    unit_steps = _unit_steps(structure, y)
    parts = [shape.flat() for shape in structure.shapes]
    ends = np.cumsum([n * n, *map(len, parts)])
    unbounded = np.full(n * n, np.inf)
    limits = [bounds(shape) for shape in structure.shapes]
    low = np.concatenate([-unbounded, *(least for least, _ in limits)])
    high = np.concatenate([unbounded, *(most for _, most in limits)])
    scale = np.concatenate([np.ones(n * n), *(step_sizes(shape) for shape in structure.shapes)])

    def at(x: Matrix) -> tuple[Structure, Matrix]:
        H = structure.H + (unit_steps @ x[: n * n]).reshape(n, n)
        length = np.linalg.norm(H, axis=1, keepdims=True)
        shapes = tuple(
            shape.filled(x[start:end])
            for shape, start, end in zip(structure.shapes, ends[:-1], ends[1:], strict=True)
        )
        return Structure(H / length, structure.graph, shapes), length

    def objective(x: Matrix) -> tuple[float, Matrix]:
        here, length = at(x * scale)
        value, by_H, by_shapes = _slope(here, y)
        across = (by_H - (by_H * here.H).sum(axis=1, keepdims=True) * here.H) / length
        return value, np.concatenate([unit_steps.T @ across.ravel(), *by_shapes]) * scale

    start = np.concatenate([np.zeros(n * n), *parts]) / scale
    size = abs(objective(start)[0]) + 1
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack([low / scale, high / scale]),
        options={"maxiter": max_steps, "maxcor": _MEMORY, "ftol": tolerance / size},
    )
    return at(found.x * scale)[0]


def _unit_steps(structure: Structure, y: Matrix) -> Matrix:
    """Return steps of the encoder's entries, one a column, along which the curvature is about one.

    It is that of the Gauss-Newton matrix, coefficients following. Where noise is small, it spans
    many orders of magnitude.
    """
    n, n_rows, Z = len(structure.H), len(y), structure.latents(y)
    curvature = np.zeros((n, n, n, n))
    for j, (parents, shape, fit) in enumerate(
        zip(structure.graph, structure.shapes, structure.regressions(y), strict=True)
    ):
        rows, slopes = [j, *parents], np.ones((n_rows, 1))
        if parents:
            slopes = np.column_stack([slopes, -gradient(fit, Z[:, list(parents)], shape)])
        moved = (slopes[:, :, None] * y[:, None, :]).reshape(n_rows, -1)
        moved -= moved.mean(axis=0)
        explained = fit.functions.values.T @ moved
        left = moved.T @ moved - explained.T @ fit.covariance @ explained
        left = left.reshape(len(rows), n, len(rows), n) * (n_rows / fit.spread)
        curvature[np.ix_(rows, range(n), rows, range(n))] += left
    across = np.asarray(block_diag(*(np.eye(n) - np.outer(row, row) for row in structure.H)))
    curved, directions = np.linalg.eigh(across @ curvature.reshape(n * n, n * n) @ across)
    return directions / np.sqrt(np.maximum(curved, 0) + _LEAST_CURVATURE * n_rows)


def _slope(structure: Structure, y: Matrix) -> tuple[float, Matrix, list[Matrix]]:
    """Return the negative log evidence without `occam`, and its derivatives by H and shapes."""
    n_rows = len(y)
    H, Z = structure.H, structure.latents(y)
    value = -n_rows * np.linalg.slogdet(H)[1]
    by_latents = np.zeros_like(Z)
    by_shapes = []
    for j, (parents, shape) in enumerate(zip(structure.graph, structure.shapes, strict=True)):
        causes = list(parents)
        point = slope(Z[:, j], Z[:, causes], shape)
        value += point.value
        by_latents[:, j] += point.by_child - point.by_child.mean()
        by_latents[:, causes] += point.by_parents
        by_shapes.append(point.by_shape)
    return float(value), by_latents.T @ y - n_rows * np.linalg.inv(H).T, by_shapes
