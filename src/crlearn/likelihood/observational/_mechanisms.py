"""Fitted mechanisms, as functions of the latents, and the noises that they leave."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood._fit import Fit
from crlearn.likelihood.nodes._any_noise import AnyNoiseModel
from crlearn.likelihood.nodes._any_noise import Mechanism as FittedMechanism
from crlearn.likelihood.nodes._basis import Basis
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


@stored("noise/mechanism-of-any-noise")
@dataclass(frozen=True, eq=False)
class AnyNoiseMechanism:
    """What a latent's parents predict where noises have densities of their own.

    Attributes
    ----------
    parents
        Which latents.
    directions, knots, form, n_axes
        Of its features (`nodes._basis`).
    coefficients
        Of its features.
    """

    parents: tuple[int, ...]
    directions: Matrix
    knots: Matrix
    form: Matrix
    n_axes: int
    coefficients: Matrix

    @classmethod
    def of(cls, mechanism: FittedMechanism) -> AnyNoiseMechanism:
        """Return what is stored of a fitted mechanism."""
        basis = mechanism.basis if isinstance(mechanism.basis, Basis) else Basis.plain(1)
        form = mechanism.parents, basis.directions, basis.knots, basis.form, basis.n_axes
        return cls(*form, mechanism.coefficients)

    def __call__(self, Z: Matrix) -> Matrix:
        """Return the prediction for each row of latents."""
        if not self.parents:
            return np.full(len(Z), self.coefficients[0])
        basis = Basis(self.directions, self.knots, self.form, self.n_axes)
        return basis(Z[:, list(self.parents)]).values @ self.coefficients


@stored("noise/mechanisms")
@dataclass(frozen=True, eq=False)
class Mechanisms:
    """What is predicted of each latent, as a function of all latents of a row."""

    each: tuple[Mechanism | AnyNoiseMechanism, ...]

    def __call__(self, Z: Matrix) -> Matrix:
        """Return the predictions, ``(N, n)``."""
        return np.column_stack([mechanism(Z) for mechanism in self.each])


def any_noise_model(y: Matrix) -> AnyNoiseModel:
    """Return the model of one environment in which noises have densities of their own."""
    pool = np.zeros((y.shape[1], 1), dtype=np.intp)
    return AnyNoiseModel([y], pool, parents_in="all", linear=False)


def noises_of(fit: Fit, y: Matrix) -> Matrix:
    """Return what the mechanisms of a fit leave of some rows."""
    model = RelevanceModel(y) if is_gaussian(fit) else any_noise_model(y)
    return model.residuals(fit)


def is_gaussian(fit: Fit) -> bool:
    """Whether a fit is one by evidence, with Gaussian noise, and has shapes as parameters."""
    return isinstance(fit.parameters, tuple)


def mechanisms_of(fit: Fit, y: Matrix) -> Mechanisms:
    """Return the predictions of the latents, for the rows that were fitted."""
    if not is_gaussian(fit):
        each = (fit.parameters[j, 0] for j in range(len(fit.H)))
        return Mechanisms(tuple(map(AnyNoiseMechanism.of, each)))
    return Mechanisms(
        tuple(
            Mechanism(parents, shape.directions, shape.thresholds, found.coefficients, found.means)
            for parents, shape, found in zip(
                fit.graph, fit.parameters, RelevanceModel(y).regressions(fit), strict=True
            )
        )
    )
