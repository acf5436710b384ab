"""Functions of predecessors: what a flow leaves open, and the mechanisms of each segment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crlearn.flows import MechanismKind, functions_of_one
from crlearn.tags import stored

Matrix = NDArray[np.floating]


@stored("features/predecessors")
@dataclass(frozen=True, eq=False)
class Basis:
    """Features of the latents before each one; latents come in their causal order.

    Attributes
    ----------
    kind
        Of mechanisms: nonlinear, polynomial or linear.
    projections, thresholds
        Directions in which steps (or powers) are taken, ``(latents, features, predecessors)``.
    """

    kind: MechanismKind
    projections: NDArray[np.floating]
    thresholds: Matrix

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return len(self.projections)

    @property
    def width(self) -> int:
        """Features of the latent that has the most of them."""
        return self(np.zeros((1, self.n_latents)), self.n_latents - 1).shape[1]

    def __call__(self, z: Matrix, latent: int) -> Matrix:
        """Return the features of the latents before one of them."""
        before = z[:, :latent]
        of_one = functions_of_one(before, self.kind).reshape(len(z), -1)
        if self.kind == "linear" or not latent:
            return of_one
        inputs = before @ self.projections[latent, :, :latent].T + self.thresholds[latent]
        bent = [inputs**2, inputs**3] if self.kind == "polynomial" else [np.tanh(inputs)]
        return np.concatenate([of_one, *bent], axis=1)


@stored("encoder/triangular")
@dataclass(frozen=True, eq=False)
class Triangular:
    """Latents without a function of those before them: ``(e_j - h_j(e_<j) - mean) / scale``.

    Attributes
    ----------
    basis
        Features on which h stands.
    coefficients
        Of h, for each latent; those of features that there are not are 0.
    mean, scale
        Of what is left.
    """

    basis: Basis
    coefficients: Matrix
    mean: Matrix
    scale: Matrix

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return len(self.mean)

    def __call__(self, e: Matrix) -> Matrix:
        """Return the latents of each row."""
        h = [self._function(e, j) for j in range(self.n_latents)]
        return (e - np.stack(h, axis=1) - self.mean) / self.scale

    def _function(self, e: Matrix, latent: int) -> Matrix:
        features = self.basis(e, latent)
        return features @ self.coefficients[latent, : features.shape[1]]


@stored("decoder/triangular")
@dataclass(frozen=True, eq=False)
class TriangularInverse:
    """The inverse of a `Triangular` map, latent after latent."""

    encoder: Triangular

    def __call__(self, Z: Matrix) -> Matrix:
        """Return what has these latents."""
        encoder = self.encoder
        e = np.asarray(Z, dtype=float) * encoder.scale + encoder.mean
        for j in range(encoder.n_latents):
            e[:, j] += encoder._function(e, j)
        return e


@stored("mechanisms/segments")
@dataclass(frozen=True, eq=False)
class SegmentMechanisms:
    """How each latent follows from its parents in each segment; latents in their causal order.

    Attributes
    ----------
    basis
        Features of parents.
    adjacency
        The graph.
    coefficients
        ``(segments, latents, features)``; 0 where a mechanism vanishes.
    offsets
        ``(segments, latents)``.
    slopes
        On covariates, ``(segments, latents, covariates)``.
    auxiliary
        Tells segments and covariates from y.
    """

    basis: Basis
    adjacency: NDArray[np.bool_]
    coefficients: NDArray[np.floating]
    offsets: Matrix
    slopes: NDArray[np.floating]
    auxiliary: Any

    def expected(
        self, Z: Matrix, latent: int, segments: NDArray[np.intp], covariates: Matrix
    ) -> Matrix:
        """Return what parents and segment make of a latent, without its noise."""
        features = self.basis(Z * self.adjacency[:, latent], latent)
        effects = self.coefficients[segments, latent, : features.shape[1]]
        along = (self.slopes[segments, latent] * covariates).sum(axis=1)
        return self.offsets[segments, latent] + along + (features * effects).sum(axis=1)

    def noises(self, Z: Matrix, y: NDArray[Any]) -> Matrix:
        """Return the noise of each latent in each row."""
        segments, covariates = self.auxiliary(y)
        n = Z.shape[1]
        return Z - np.stack([self.expected(Z, j, segments, covariates) for j in range(n)], axis=1)

    def intervened(self, Z: Matrix, y: NDArray[Any], values: Mapping[int, Any]) -> Matrix:
        """Return the latents with some set to values, their effects with them, noises as before."""
        segments, covariates = self.auxiliary(y)
        noises = self.noises(Z, y)
        after = np.array(Z, dtype=float)
        for j in range(Z.shape[1]):
            if j in values:
                after[:, j] = values[j]
            else:
                after[:, j] = self.expected(after, j, segments, covariates) + noises[:, j]
        return after
