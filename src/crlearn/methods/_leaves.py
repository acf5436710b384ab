"""The leaves of one density: directions in which the centred Jacobians of its score vanish.

Welch, Zhang, Uhler: Identifiability Guarantees for Causal Disentanglement from Purely Observational
Data, NeurIPS 2024: the step of Algorithm 1 that `crlearn.methods._score_layers` repeats, which says
what differs from the published code.

Cost: that of the Jacobians, then O(N k^4) time and O(N k^2) memory for k coordinates; the tests fit
the Jacobians once more for each half-sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from crlearn.scores import (
    ScoreJacobian,
    ZeroTest,
    isotropic_subspace,
    principal_matrices,
    zero_test,
)

Matrix = NDArray[np.floating]

# Rows at which tests evaluate Jacobians: what they ask for is the noise of the fit.
_MOST_ROWS_OF_A_TEST = 1000
# Deviations of Jacobians from constant, where their mean is one: what counts as none if a known
# density does not say it, and the tolerance of the published code (which has no such unit).
_ACCURACY, _PAPER_TOLERANCE = 1e-3, 1e-3
# Share of the Fisher information that is added in each direction, lest it be zero in any.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Evidence:
    """Centred Jacobians of what is left, in units of the Fisher information.

    Attributes
    ----------
    units
        The map ``units @ u`` from the coordinates of the rows to those of the Jacobians.
    jacobians
        Centred, ``(N, k, k)``.
    scores, mean
        Scores and mean Jacobian in the coordinates of the rows; None if they are estimated.
    at, halves
        Jacobians at the rows of the tests, ``(M, k, k)``, and the same from fits on half-samples,
        ``(H, M, k, k)``, each counted from its own mean; None if there is no test.
    functions
        Orthonormal linear and quadratic functions at the rows of the tests, ``(M, q)``.
    accuracy
        Deviation from constant that counts as none if the density is known.
    """

    units: Matrix
    jacobians: Matrix
    scores: Matrix | None = None
    mean: Matrix | None = None
    at: Matrix | None = None
    halves: Matrix | None = None
    functions: Matrix | None = None
    accuracy: float = 0.0

    def noise_along(self, leaves: Matrix) -> Matrix | None:
        """Return the noise of leaves ``leaves @ u`` (orthonormal rows) at each row, if it is known.

        The score along them is minus their noise over its variance, and its slope minus one over
        the variance.
        """
        if self.scores is None or self.mean is None:
            return None
        return np.linalg.solve(leaves @ self.mean @ leaves.T, leaves @ self.scores.T).T


@dataclass(frozen=True, eq=False)
class Leaves:
    """The leaves of what is left: orthonormal directions, and how well they meet the test."""

    directions: Matrix
    deviation: float
    p_value: float
    next_deviation: float = np.nan
    next_p_value: float = np.nan


def observe(
    jacobian: ScoreJacobian,
    X: Matrix,
    encoder: Matrix,
    n_kept: int,
    *,
    n_halves: int,
    prune_outliers: float,
    rng: np.random.Generator,
) -> Evidence:
    """Return the Jacobians of the first `n_kept` coordinates of ``encoder @ x``.

    Without half-samples there is nothing for tests.
    """
    if getattr(jacobian, "original_coordinates", False):
        scores, jacobians = cast(Any, jacobian).marginal(X, encoder, n_kept)
        found = np.isfinite(jacobians).all(axis=(1, 2))
        if found.mean() < 0.5:
            raise ValueError(
                "The density that was given has no marginals: for most rows no point was found "
                "where it is largest along the leaves. Its noise may not be Gaussian."
            )
        units, mean = _fisher_units(scores[found]), jacobians[found].mean(axis=0)
        jacobians = _centred(jacobians[found], units, prune_outliers)
        accuracy = getattr(jacobian, "accuracy", _ACCURACY)
        return Evidence(units, jacobians, scores, mean, accuracy=accuracy)
    rows = X @ encoder[:n_kept].T
    scores, jacobians = jacobian.fit(rows).evaluate(rows)
    units, pruned = _fisher_units(scores), partial(_centred, prune=prune_outliers)
    if n_halves == 0:
        return Evidence(units, pruned(jacobians, units))
    some = slice(None, None, ceil(len(rows) / _MOST_ROWS_OF_A_TEST))
    halves = [np.sort(rng.permutation(len(rows))[::2]) for _ in range(n_halves)]
    on_halves = [jacobian.fit(rows[half]).evaluate(rows[some])[1] for half in halves]
    return Evidence(
        units,
        pruned(jacobians, units),
        at=_centred(jacobians[some], units),
        halves=np.array([_centred(half, units) for half in on_halves]),
        functions=_simple_functions(rows[some]),
    )


def leaf_directions(evidence: Evidence, level: float, rng: np.random.Generator) -> Leaves:
    """Return as many directions as can be leaves by the test, and one at the least."""
    matrices = principal_matrices(evidence.jacobians)
    found: list[tuple[Matrix, float, float]] = []
    for size in range(1, matrices.shape[1] + 1):
        inside = found[-1][0] if found else None
        directions, objective = isotropic_subspace(matrices, size, rng, inside=inside)
        deviation = float(np.sqrt(objective)) / size
        if evidence.halves is None:
            p_value = float(deviation <= evidence.accuracy)
        else:
            p_value = leaf_test(evidence, directions).p_value
        if found and p_value < level:
            return Leaves(*found[-1], deviation, p_value)
        found.append((directions, deviation, p_value))
    return Leaves(*found[-1])


def published_leaf_directions(evidence: Evidence, rng: np.random.Generator) -> Leaves:
    """Return one direction after the other, each orthogonal to those before it, as equation (2).

    They are leaves as long as their deviation is within the tolerance of the published code.
    """
    matrices = principal_matrices(evidence.jacobians)
    directions, deviations = np.zeros((matrices.shape[1], 0)), []
    while directions.shape[1] < len(directions):
        outside = np.linalg.qr(directions, mode="complete")[0][:, directions.shape[1] :]
        new, objective = isotropic_subspace(outside.T @ matrices @ outside, 1, rng)
        deviation = float(np.sqrt(objective))
        least = 0.0 if evidence.scores is not None else min([*deviations, deviation])
        if deviations and deviation > least + _PAPER_TOLERANCE:
            return Leaves(directions, max(deviations), np.nan, deviation)
        directions = np.column_stack([directions, outside @ new])
        deviations.append(deviation)
    return Leaves(directions, max(deviations), np.nan)


def leaf_test(evidence: Evidence, directions: Matrix) -> ZeroTest:
    """Test whether the curvature along the directions has nothing to do with where one is.

    Rows count by how little noise their Jacobians have, and it is asked whether the curvature goes
    along with a linear or quadratic function of the coordinates: noise of single rows, which is far
    larger than what there is to be seen, averages out.
    """
    assert evidence.at is not None
    assert evidence.halves is not None
    assert evidence.functions is not None
    along = directions.T @ evidence.at @ directions
    on_halves = directions.T @ evidence.halves @ directions
    noise = np.sqrt(((on_halves - along) ** 2).mean(axis=(0, 2, 3)))
    weight = 1 / np.maximum(noise, max(float(np.median(noise)), np.finfo(float).tiny))
    weighted = evidence.functions * weight[:, None]
    # Functions and weights are centred together, so that a constant does not count.
    weighted = (weighted - weight[:, None] * weighted.sum(axis=0) / weight.sum()) / len(weight)
    return zero_test(
        np.einsum("rq,rij->qij", weighted, along), np.einsum("rq,hrij->hqij", weighted, on_halves)
    )


def _simple_functions(rows: Matrix) -> Matrix:
    """Return linear and quadratic functions, centred, uncorrelated and of variance one."""
    i, j = np.triu_indices(rows.shape[1])
    centred = rows - rows.mean(axis=0)
    values = np.column_stack([centred, centred[:, i] * centred[:, j]])
    return np.linalg.qr(values - values.mean(axis=0))[0] * np.sqrt(len(rows))


def _fisher_units(scores: Matrix) -> Matrix:
    """Return the triangular map to coordinates in which the scores have second moment one."""
    moments = scores.T @ scores / len(scores)
    smallest = _ROUNDING * np.trace(moments) * np.eye(len(moments))
    return np.linalg.cholesky(moments + smallest).T


def _centred(jacobians: Matrix, units: Matrix, prune: float = 0.0) -> Matrix:
    """Return Jacobians in these units, counted from their mean, without the largest."""
    inverse = np.linalg.inv(units)
    in_units = inverse.T @ jacobians @ inverse
    centred = in_units - in_units.mean(axis=0)
    n_pruned = int(prune * len(centred))
    if n_pruned:
        kept = np.sort(np.argsort(np.linalg.norm(centred, axis=(1, 2)))[: len(centred) - n_pruned])
        centred = in_units[kept] - in_units[kept].mean(axis=0)
    return centred
