"""From a trained flow to latents in their causal order, and to their mechanisms."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crlearn.flows import (
    MechanismKind,
    SegmentParameters,
    SegmentRegressions,
    Vanishing,
    functions_of,
    vanishing,
)
from crlearn.methods._reduction import FlowMap
from crlearn.methods.additive._auxiliary import Auxiliary
from crlearn.methods.additive._mechanisms import Basis, SegmentMechanisms, Triangular
from crlearn.result import CLOSE

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

_RIDGE = 1e-3
_TINY = 1e-9
# Nats by which a function that segments have in common must be better than none, and than that of
# other segments: as elsewhere, five nats are clear.
_LEAST_EVIDENCE = CLOSE


@dataclass(frozen=True, eq=False)
class Segments:
    """Which rows belong to each segment, and what changes inside of it.

    Attributes
    ----------
    rows
        Row numbers of each segment.
    covariates
        Of each row.
    places
        Where segments lie that are cells of a continuous variable; None: they are labels.
    """

    rows: tuple[NDArray[np.intp], ...]
    covariates: Matrix
    places: Matrix | None = None

    @classmethod
    def of(cls, auxiliary: Auxiliary, y: NDArray[np.generic]) -> Segments:
        """Read the segments of `y`."""
        codes, covariates = auxiliary(y)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(auxiliary)))[:-1]
        return cls(tuple(np.split(order, ends)), covariates, auxiliary.places)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shares(self) -> Matrix:
        """Share of the rows that each segment has."""
        counts = np.array([len(rows) for rows in self.rows])
        return counts / counts.sum()

    @property
    def halves(self) -> tuple[Segments, Segments]:
        """Every other row of each segment, and the rest."""
        one, other = (tuple(rows[start::2] for rows in self.rows) for start in (0, 1))
        return replace(self, rows=one), replace(self, rows=other)

    def split(self, values: Matrix) -> list[Matrix]:
        """Return the rows of each segment."""
        return [values[rows] for rows in self.rows]

    def centred(self, values: Matrix) -> list[Matrix]:
        """Return the rows of each segment without its mean and what covariates explain."""
        return [
            part - part.mean(axis=0) - _explained(part, u - u.mean(axis=0))
            for part, u in zip(self.split(values), self.split(self.covariates), strict=True)
        ]


def _explained(values: Matrix, covariates: Matrix) -> Matrix:
    if not covariates.shape[1]:
        return np.zeros_like(values)
    return covariates @ np.linalg.lstsq(covariates, values, rcond=None)[0]


@dataclass(frozen=True, eq=False)
class Latents:
    """Latents in their causal order, of mean 0 and variance 1, and how they come from a flow.

    Attributes
    ----------
    Z
        One column each.
    flow, triangular
        The maps to them, one after the other.
    vanishing
        For each latent but the first, where its mechanism vanishes.
    """

    Z: Matrix
    flow: FlowMap
    triangular: Triangular
    vanishing: tuple[Vanishing, ...]

    @property
    def identified(self) -> NDArray[np.bool_]:
        """Whether the data tell each latent from it plus a function of its predecessors."""
        return np.array([True, *map(_is_clear, self.vanishing)])

    def vanishes(self, n_segments: int) -> Matrix:
        """Return how probable it is that a mechanism vanishes, ``(segments, latents)``."""
        return np.stack([np.ones(n_segments), *(v.probabilities for v in self.vanishing)], axis=1)


def latents_of(
    params: SegmentParameters, kind: MechanismKind, rows: Matrix, segments: Segments
) -> Latents:
    """Take from each output of a flow the function that segments without mechanism have.

    Outputs for which no such segments are clear stay as they are.
    """
    order = np.argsort(np.asarray(params.before).sum(axis=0), kind="stable")
    n = len(order)
    raw = FlowMap(params.flow, order, np.zeros(n), np.ones(n))(rows)
    flow = FlowMap(params.flow, order, raw.mean(axis=0), raw.std(axis=0))
    e = (raw - flow.mean) / flow.scale
    basis = _basis(params, kind, order)
    coefficients = np.zeros((n, basis.width))
    found = []
    for j in range(1, n):
        features = basis(e, j)
        functions = functions_of(segments.centred(features), segments.centred(e[:, j]))
        covariance = np.atleast_2d(np.cov(features.T))
        found.append(vanishing(functions, covariance, segments.places))
        if _is_clear(found[-1]):
            coefficients[j, : features.shape[1]] = found[-1].coefficients
    plain = Triangular(basis, coefficients, np.zeros(n), np.ones(n))(e)
    triangular = Triangular(basis, coefficients, plain.mean(axis=0), plain.std(axis=0))
    return Latents((plain - triangular.mean) / triangular.scale, flow, triangular, tuple(found))


def _is_clear(found: Vanishing) -> bool:
    return min(found.evidence, found.gap) >= _LEAST_EVIDENCE


def _basis(params: SegmentParameters, kind: MechanismKind, order: NDArray[np.intp]) -> Basis:
    """Return the features that training has found, for latents in an order."""
    projections = np.asarray(params.projections, dtype=float)[order][:, :, order]
    thresholds = np.asarray(params.thresholds, dtype=float)[:, order]
    return Basis(kind, np.ascontiguousarray(projections.transpose(2, 1, 0)), thresholds.T.copy())


def regressions_of(Z: Matrix, segments: Segments, kind: MechanismKind) -> SegmentRegressions:
    """Return the regressions of latents on each other."""
    return SegmentRegressions.of(
        segments.split(Z), segments.split(segments.covariates), segments.shares, kind
    )


def mechanisms_of(
    latents: Latents, adjacency: BoolMatrix, segments: Segments, auxiliary: Auxiliary
) -> SegmentMechanisms:
    """Regress each latent on its parents in every segment where its mechanism does not vanish."""
    Z, basis = latents.Z, latents.triangular.basis
    n, width = Z.shape[1], basis.width
    n_covariates = segments.covariates.shape[1]
    vanishes = latents.vanishes(len(segments)) > 0.5
    coefficients = np.zeros((len(segments), n, width))
    offsets, slopes = np.zeros((len(segments), n)), np.zeros((len(segments), n, n_covariates))
    for j in range(n):
        features = basis(Z * adjacency[:, j], j)
        n_features = features.shape[1] if adjacency[:, j].any() else 0
        for u, rows in enumerate(segments.rows):
            used = 0 if vanishes[u, j] else n_features
            columns = np.concatenate([features[rows, :used], segments.covariates[rows]], axis=1)
            solution, offsets[u, j] = _regression(columns, Z[rows, j])
            coefficients[u, j, :used], slopes[u, j] = solution[:used], solution[used:]
    return SegmentMechanisms(basis, adjacency, coefficients, offsets, slopes, auxiliary)


def _regression(columns: Matrix, values: Matrix) -> tuple[Matrix, float]:
    """Return coefficients and offset of a regression with a little ridge."""
    mean = columns.mean(axis=0)
    centred = columns - mean
    gram = centred.T @ centred
    gram += np.diag(_RIDGE * gram.diagonal() + _TINY)
    solution = np.linalg.solve(gram, centred.T @ (values - values.mean()))
    return solution, float(values.mean() - mean @ solution)
