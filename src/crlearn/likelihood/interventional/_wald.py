"""Which edges are needed: Wald statistics of all edges from one expansion, and pruning by them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.likelihood.interventional._linear import LinearFit, LinearProblem
from crlearn.likelihood.nodes._linear import expand, minimise

Matrix = NDArray[np.floating]

_SURELY_NEEDLESS = 2.0
_CLEAR = 100.0
_SMALLEST_CURVATURE = 1e-12


@dataclass(frozen=True, eq=False)
class Pruned:
    """A fit without needless edges.

    Attributes
    ----------
    fit
        The fit.
    p_values
        ``p_values[i, j]`` is that of i -> j being absent: of edges that were dropped, when they
        were dropped; 1 where there never was an edge.
    """

    fit: LinearFit
    p_values: Matrix


def wald_statistics(problem: LinearProblem, fit: LinearFit) -> Matrix:
    """Return the estimate of each edge over its standard error, zero where there is no edge.

    For hard interventions: the coefficient in pool 0. The uncertainty of the encoder is part of
    the standard error: with b(H) the regression at a fixed encoder, the variance of an estimate is
    that of the regression plus db' V db, V being the covariance of the encoder. All of it is as for
    Gaussian noise, times the weight that `core._tests` has for the edge.
    """
    n, n_samples = problem.n, problem.n_samples
    hessian = expand(fit.H, problem.pools, problem.masks(fit.adjacency)).hessian
    curvature, axes = np.linalg.eigh(hessian)
    root = axes / np.sqrt(np.maximum(curvature, _SMALLEST_CURVATURE))
    off = ~np.eye(n, dtype=bool)
    weights = edge_weights(problem, fit)
    statistics = np.zeros((n, n))
    for j in range(n):
        parents = np.flatnonzero(fit.adjacency[:, j])
        covariance = fit.H @ problem.pools.covariances[j, 0] @ fit.H.T
        precision = np.linalg.inv(covariance[np.ix_(parents, parents)])
        regression = precision @ covariance[parents]
        b = regression[:, j]
        residual = covariance[j] - b @ covariance[parents]
        # How b changes with D in (I + D) H: through j itself, and through its parents.
        change = np.zeros((len(parents), n, n))
        change[:, j] = regression
        change[:, parents] += precision[:, :, None] * residual
        change[:, parents] -= b[:, None] * regression[:, None, :]
        fixed = np.diag(precision) * residual[j] / problem.pools.shares[j, 0]
        moving = ((change[:, off] @ root) ** 2).sum(axis=1)
        variance = weights[parents, j] * (fixed + moving) / n_samples
        statistics[parents, j] = b / np.sqrt(variance)
    return statistics


def edge_weights(problem: LinearProblem, fit: LinearFit) -> Matrix:
    """Return the weight of each edge in its likelihood ratio; 1 for Gaussian noise."""
    weights = np.ones(fit.adjacency.shape)
    around = problem.linearised(fit.H, problem.masks(fit.adjacency))
    for edge in np.argwhere(fit.adjacency):
        weights[tuple(edge)] = around.weight_of_edge(edge)
    return weights


def prune_by_wald(problem: LinearProblem, fit: LinearFit) -> Pruned:
    """Drop the weakest edges while BIC allows; the encoder is fitted anew each time.

    An edge costs twice what it costs in BIC, as the order was chosen by the data, too.
    """
    cut = 2 * np.log(problem.n_samples)
    p_values = np.ones(fit.adjacency.shape)
    statistics = wald_statistics(problem, fit)
    while fit.adjacency.any():
        size = np.where(fit.adjacency, np.abs(statistics), np.inf)
        if size.min() ** 2 >= cut:
            break
        dropped = size <= max(size.min(), min(_SURELY_NEEDLESS, np.sqrt(cut)))
        p_values[dropped] = chi2.sf(size[dropped] ** 2, 1)
        fit = _without(problem, fit, dropped)
        statistics = wald_statistics(problem, fit)
    weights = edge_weights(problem, fit)
    for edge in map(tuple, np.argwhere(fit.adjacency)):
        p_values[edge] = _p_value(problem, fit, edge, statistics[edge].item(), weights[edge].item())
    return Pruned(fit, p_values)


def _p_value(
    problem: LinearProblem, fit: LinearFit, edge: tuple[int, int], wald: float, weight: float
) -> float:
    """Return the p-value of an edge: by likelihood ratio, unless there is no doubt."""
    statistic = wald**2
    if statistic < _CLEAR:
        dropped = np.zeros(fit.adjacency.shape, dtype=bool)
        dropped[edge] = True
        value = _without(problem, fit, dropped).value
        statistic = 2 * problem.n_samples * max(0.0, value - fit.value) / weight
    return float(chi2.sf(statistic, 1))


def _without(problem: LinearProblem, fit: LinearFit, dropped: NDArray[np.bool_]) -> LinearFit:
    adjacency = fit.adjacency & ~dropped
    H, value = minimise(fit.H, problem.pools, problem.masks(adjacency))
    return LinearFit(H, adjacency, value)
