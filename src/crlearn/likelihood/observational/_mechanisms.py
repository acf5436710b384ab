"""Fitted mechanisms, as functions of the latents."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood._fit import Fit
from crlearn.likelihood.nodes._relevance import Shape, functions_of
from crlearn.likelihood.observational._model import RelevanceModel
from crlearn.tags import stored

Matrix = NDArray[np.floating]


@stored("noise/mechanism")
@dataclass(frozen=True, eq=False)
class Mechanism:
    """What a latent's parents predict.

    Attributes
    ----------
    parents
        Which latents.
    directions, thresholds
        Of its hidden units.
    coefficients, means
        Of its functions (`nodes._relevance`).
    """

    parents: tuple[int, ...]
    directions: Matrix
    thresholds: Matrix
    coefficients: Matrix
    means: Matrix

    def __call__(self, Z: Matrix) -> Matrix:
        """Return the prediction for each row of latents."""
        if not self.parents:
            return np.zeros(len(Z))
        start = Shape.start(len(self.parents))
        shape = replace(start, directions=self.directions, thresholds=self.thresholds)
        functions = functions_of(Z[:, list(self.parents)], shape).values
        return (functions - self.means) @ self.coefficients


@stored("noise/mechanisms")
@dataclass(frozen=True, eq=False)
class Mechanisms:
    """What is predicted of each latent, as a function of all latents of a row."""

    each: tuple[Mechanism, ...]

    def __call__(self, Z: Matrix) -> Matrix:
        """Return the predictions, ``(N, n)``."""
        return np.column_stack([mechanism(Z) for mechanism in self.each])


def mechanisms_of(model: RelevanceModel, fit: Fit) -> Mechanisms:
    """Return the predictions of the latents."""
    return Mechanisms(
        tuple(
            Mechanism(parents, shape.directions, shape.thresholds, found.coefficients, found.means)
            for parents, shape, found in zip(
                fit.graph, fit.parameters, model.regressions(fit), strict=True
            )
        )
    )
