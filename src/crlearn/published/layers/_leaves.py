"""The leaves of one density: directions in which the centred Jacobians of its score vanish.

Welch, Zhang, Uhler: Identifiability Guarantees for Causal Disentanglement from Purely Observational
Data, NeurIPS 2024: the step of Algorithm 1 that `crlearn.published.layers._estimator` repeats,
which says what differs from the paper. `leaf_directions` is equation (2) with the tolerance of
appendix C.2, `leaf_directions_by_test` is a calibrated test in its place.

Cost: that of the Jacobians, then that of `crlearn.published.layers._tolerance` for each direction,
or O(N k^4) time for k coordinates and the Jacobians once more for each half-sample; O(N k^2)
memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from crlearn.published.layers._tolerance import flattest_direction
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
_ROWS_TO_REPORT = 2000  # of which a result keeps the Jacobians
# Deviations of Jacobians from constant, where their mean is one, that count as none if a known
# density does not say it.
_ACCURACY = 1e-3
# Share of the Fisher information that is added in each direction, lest it be zero in any.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Evidence:
    """Centred Jacobians of what is left.

    Attributes
    ----------
    jacobians
        Centred, ``(N, k, k)``.
    units
        The map ``units @ u`` from the coordinates of the rows to those of the Jacobians.
    at, halves
        Jacobians at the rows of the tests, ``(M, k, k)``, and the same from fits on half-samples,
        ``(H, M, k, k)``, each counted from its own mean; None if there is no test.
    functions
        Orthonormal linear and quadratic functions at the rows of the tests, ``(M, q)``.
    accuracy
        Deviation from constant that counts as none if the density is known.
    first
        Jacobians of the first rows, as they came: not centred, the largest among them; None in
        tests.
    """

    jacobians: Matrix
    units: Matrix
    at: Matrix | None = None
    halves: Matrix | None = None
    functions: Matrix | None = None
    accuracy: float = 0.0
    first: Matrix | None = None


@dataclass(frozen=True, eq=False)
class Leaves:
    """The leaves of what is left: orthonormal directions, and how far they are from constant.

    Deviations are the largest curvature at any sample, in the units of x, or, of tests, the root
    mean square of curvatures whose mean is one.
    """

    directions: Matrix
    deviation: float
    p_value: float = np.nan
    next_deviation: float = np.nan
    next_p_value: float = np.nan


def is_known(jacobian: ScoreJacobian) -> bool:
    """Whether the density is known: it has exact marginals, and nothing is estimated."""
    return bool(getattr(jacobian, "original_coordinates", False))


# Algorithm 1, as printed


def observe(
    jacobian: ScoreJacobian, X: Matrix, encoder: Matrix, n_kept: int, prune_outliers: float
) -> Evidence:
    """Return the Jacobians of the first `n_kept` coordinates of ``encoder @ x``, as they are.

    Of estimated ones the largest are dropped.
    """
    if is_known(jacobian):
        jacobians = _marginal(jacobian, X, encoder, n_kept)[1]
        return Evidence(_centred(jacobians), np.eye(n_kept), first=jacobians[:_ROWS_TO_REPORT])
    rows = (X - X.mean(axis=0)) @ encoder[:n_kept].T
    jacobians = jacobian.fit(rows).evaluate(rows)[1]
    kept = _without_largest(_centred(jacobians), prune_outliers)
    return Evidence(kept, np.eye(n_kept), first=jacobians[:_ROWS_TO_REPORT])


def leaf_directions(evidence: Evidence, tolerance: float, rng: np.random.Generator) -> Leaves:
    """Return one direction after the other, each orthogonal to those before it, as equation (2).

    The first has the smallest t such that the curvature along it is at most t at every sample. The
    others are leaves as long as theirs is at most t plus the tolerance.
    """
    jacobians = evidence.jacobians
    first, smallest = flattest_direction(jacobians, rng)
    directions, deviation = first[:, None], smallest
    while directions.shape[1] < len(directions):
        outside = np.linalg.qr(directions, mode="complete")[0][:, directions.shape[1] :]
        new, reached = flattest_direction(outside.T @ jacobians @ outside, rng)
        if reached > smallest + tolerance:
            return Leaves(directions, deviation, next_deviation=reached)
        directions = np.column_stack([directions, outside @ new])
        deviation = max(deviation, reached)
    return Leaves(directions, deviation)


# The calibrated test


def observe_for_tests(
    jacobian: ScoreJacobian,
    X: Matrix,
    encoder: Matrix,
    n_kept: int,
    *,
    n_halves: int,
    prune_outliers: float,
    rng: np.random.Generator,
) -> Evidence:
    """Return the same in units of the Fisher information, and from half-samples.

    Neither units nor the choice of axes change it then. A known density needs no half-samples.
    """
    if is_known(jacobian):
        scores, jacobians = _marginal(jacobian, X, encoder, n_kept)
        units = _fisher_units(scores)
        accuracy = getattr(jacobian, "accuracy", _ACCURACY)
        return Evidence(_centred(_in_units(jacobians, units)), units, accuracy=accuracy)
    rows = (X - X.mean(axis=0)) @ encoder[:n_kept].T
    scores, jacobians = jacobian.fit(rows).evaluate(rows)
    units = _fisher_units(scores)
    jacobians = _in_units(jacobians, units)
    some = slice(None, None, ceil(len(rows) / _MOST_ROWS_OF_A_TEST))
    halves = [np.sort(rng.permutation(len(rows))[::2]) for _ in range(n_halves)]
    on_halves = [jacobian.fit(rows[half]).evaluate(rows[some])[1] for half in halves]
    return Evidence(
        _centred(_without_largest(_centred(jacobians), prune_outliers)),
        units,
        at=_centred(jacobians[some]),
        halves=np.array([_centred(_in_units(half, units)) for half in on_halves]),
        functions=_simple_functions(rows[some]),
    )


def leaf_directions_by_test(evidence: Evidence, level: float, rng: np.random.Generator) -> Leaves:
    """Return as many directions as can be leaves by the test, and one at the least.

    Distinct leaves have zero cross terms too, so that the whole layer is one isotropic subspace of
    the Jacobians.
    """
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


def _in_units(jacobians: Matrix, units: Matrix) -> Matrix:
    inverse = np.linalg.inv(units)
    return inverse.T @ jacobians @ inverse


def _centred(jacobians: Matrix) -> Matrix:
    return jacobians - jacobians.mean(axis=0)


def _without_largest(centred: Matrix, share: float) -> Matrix:
    """Drop a share of the matrices, those with the largest Frobenius norm."""
    n_kept = len(centred) - int(share * len(centred))
    return centred[np.sort(np.argsort(np.linalg.norm(centred, axis=(1, 2)))[:n_kept])]


def _marginal(
    jacobian: ScoreJacobian, X: Matrix, encoder: Matrix, n_kept: int
) -> tuple[Matrix, Matrix]:
    """Return scores and Jacobians of a known density without the layers found so far."""
    scores, jacobians = cast(Any, jacobian).marginal(X, encoder, n_kept)
    found = np.isfinite(jacobians).all(axis=(1, 2))
    if found.mean() < 0.5:
        raise ValueError(
            "The density that was given has no marginals: for most rows no point was found "
            "where it is largest along the leaves. Its noise may not be Gaussian."
        )
    return scores[found], jacobians[found]
