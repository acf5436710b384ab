"""The evidence of a whole structure: encoder, graph and the shapes of all mechanisms.

Latents are z = H y for whitened rows y; rows of H have length one, so that latents have variance
one. The negative log evidence of H and a graph is

    -N log|det H| + sum_j (that of latent j given its parents),

see `crlearn.likelihood._mechanisms`. It is minimised over H and all shapes at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from crlearn.likelihood._graph_search import Graph
from crlearn.likelihood._mechanisms import (
    Regression,
    Shape,
    bounds,
    occam,
    refit,
    regress,
    slope,
    step_sizes,
)

Matrix = NDArray[np.floating]

_MEMORY = 30  # of the quasi-Newton method
_ENCODER_STEP = 3.0  # in standard errors of an entry, about
_STEPS_WITHOUT_UNITS = 30


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
    n, n_rows = len(structure.H), len(y)
    parts = [shape.flat() for shape in structure.shapes]
    ends = np.cumsum([n * n, *map(len, parts)])
    unbounded = np.full(n * n, np.inf)
    limits = [bounds(shape) for shape in structure.shapes]
    low = np.concatenate([-unbounded, *(least for least, _ in limits)])
    high = np.concatenate([unbounded, *(most for _, most in limits)])
    steps = [step_sizes(shape) for shape in structure.shapes]
    scale = np.concatenate([np.full(n * n, _ENCODER_STEP / np.sqrt(n_rows)), *steps])

    def at(x: Matrix) -> tuple[Structure, Matrix]:
        H = x[: n * n].reshape(n, n)
        length = np.linalg.norm(H, axis=1, keepdims=True)
        shapes = tuple(
            shape.filled(x[start:end])
            for shape, start, end in zip(structure.shapes, ends[:-1], ends[1:], strict=True)
        )
        return Structure(H / length, structure.graph, shapes), length

    def objective(x: Matrix) -> tuple[float, Matrix]:
        here, length = at(x * scale)
        value, by_H, by_shapes = _slope(here, y)
        across = by_H - (by_H * here.H).sum(axis=1, keepdims=True) * here.H
        return value, np.concatenate([(across / length).ravel(), *by_shapes]) * scale

    start = np.concatenate([structure.H.ravel(), *parts]) / scale
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
