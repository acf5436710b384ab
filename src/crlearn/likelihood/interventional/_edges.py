"""Which edges are needed: what each would lose, pruning by that, p-values and standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.graph import graph_of, is_acyclic, with_parents
from crlearn.likelihood._fit import Fit
from crlearn.likelihood.core._encoder import off_diagonal
from crlearn.likelihood.core._newton import STEPS_OF_A_CHANGE
from crlearn.likelihood.core._tests import Linearised, overall_weights
from crlearn.likelihood.nodes._linear import LinearModel, alternatives, expand, predicted
from crlearn.likelihood.search._local import CLEAR, LEAST_GAIN
from crlearn.likelihood.search._orders import nearby_orders

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

_CLEAR = 200.0  # a statistic beyond any doubt
# Orders at a time, each of which takes as long as the answer. In 60 development worlds 18 answers
# were wrong; with 2 one more of them was not told of, with 20 none less.
_MOST_PRUNED = 6
NEEDLESS = 0.25  # of what an edge costs; edges that would lose less go together


def prune(model: LinearModel, fit: Fit) -> Fit:
    """Remove edges while that raises the score; the encoder is fitted anew after each.

    What an edge gains is divided by what it would gain for nothing if noise is not Gaussian.
    """
    best = fit
    weights = edge_weights(model.linearised(fit), fit.adjacency)
    while best.n_edges:
        losses = losses_of_edges(model, best) / weights
        needless = losses < NEEDLESS * model.edge_price
        if needless.sum() > 1:
            found = _refitted(model, best, best.adjacency & ~needless)
            # Edges that can stand in for each other lose more together than one by one.
            expected = (losses * weights)[needless].sum() + model.edge_price.min() / 2
            if best.log_likelihood - found.log_likelihood < expected:
                best = found
                continue
        weakest = np.unravel_index(losses.argmin(), losses.shape)
        found = _refitted(model, best, _without(best.adjacency, weakest))
        lost = best.log_likelihood - found.log_likelihood
        if lost > model.edge_price[weakest] * weights[weakest]:
            break
        best = found
    return model.fitted(best.H, best.graph)


class Pruning(Protocol):
    """What the search for sparse orders needs; fits are those of orders but for pruned ones."""

    def pruned(self, fit: Fit) -> Fit:
        """Remove edges while that raises the score."""
        ...

    def promised(self, fit: Fit) -> float:
        """Return about what score the pruned fit has."""
        ...

    def near(self, fit: Fit, pruned: Fit) -> list[Fit]:
        """Return orders that are near, not clearly worse, and turn edges of the pruned fit."""
        ...


def search_sparse_orders(model: Pruning, start: Fit, others: Sequence[Fit] = ()) -> Fit:
    """Prune the best order, then others that are near: the best of what is left is the answer.

    Likelihoods of orders hardly differ where an edge can be reversed; what is left when needless
    edges are gone tells more. So orders are climbed once more, by the score of pruned fits
    (Teyssier and Koller, UAI 2005), the most promising ones at a time. What was pruned and is not
    the answer is an alternative.

    Parameters
    ----------
    model
        Of the fits.
    start, others
        Orders, the best one first, that may have other targets.
    """
    best, answer = start, model.pruned(start)
    found, candidates = [answer], [*others, *model.near(start, answer)]
    while True:
        before = answer
        for order in _promising(model, best, candidates, found):
            if _is_among(order, found):
                continue
            found.append(model.pruned(order))
            if found[-1].score > answer.score + LEAST_GAIN:
                best, answer = order, found[-1]
        if answer is before:
            break
        candidates = model.near(best, answer)
    found.sort(key=lambda fit: -fit.score)
    distinct = {(str(fit.pool), fit.graph): fit for fit in reversed(found)}
    kept = sorted(distinct.values(), key=lambda fit: -fit.score)
    return replace(answer, alternatives=tuple(fit for fit in kept if fit is not answer))


def _promising(model: Pruning, best: Fit, orders: Sequence[Fit], found: Sequence[Fit]) -> list[Fit]:
    """Return the orders that are new and promise most, but for those that are clearly worse."""
    least = model.promised(best) - CLEAR
    new = [order for order in orders if not _is_among(order, found)]
    promises = [(model.promised(order), order) for order in new]
    promises.sort(key=lambda pair: -pair[0])
    return [order for promise, order in promises[:_MOST_PRUNED] if promise > least]


def _is_among(order: Fit, found: Sequence[Fit]) -> bool:
    """Whether all edges of a pruned fit point forward in an order: it is no other structure."""
    return any(allows(order, pruned) for pruned in found)


@dataclass(frozen=True, eq=False)
class ExactPruning:
    """Pruning where rows have no measurement noise.

    Attributes
    ----------
    model
        Its targets are those of fits that have no others.
    """

    model: LinearModel

    def pruned(self, fit: Fit) -> Fit:
        """See `prune`."""
        return prune(self._model_of(fit), fit)

    def promised(self, fit: Fit) -> float:
        """Return about what score the pruned fit has."""
        return promised(self._model_of(fit), fit)

    def near(self, fit: Fit, pruned: Fit) -> list[Fit]:
        """See `nearby_orders`."""
        return nearby_orders(self._model_of(fit), fit, pruned.adjacency)

    def _model_of(self, fit: Fit) -> LinearModel:
        model = self.model
        if fit.pool is None or fit.pool is model.pool:
            return model
        return LinearModel(model.moments, fit.pool, model.hard)


def promised(model: LinearModel, fit: Fit) -> float:
    """Return about what score a fit has when its needless edges are gone."""
    weights = edge_weights(model.linearised(fit), fit.adjacency)
    costs = np.minimum(losses_of_edges(model, fit), model.edge_price * weights)
    return fit.log_likelihood - float(costs[fit.adjacency].sum())


def allows(other: Fit, pruned: Fit) -> bool:
    """Whether a fit with the same targets, in any order, has all edges of a sparse one."""
    assert other.pool is not None
    assert pruned.pool is not None
    rows, own = [[row.tobytes() for row in pool] for pool in (other.pool, pruned.pool)]
    if rows == own:
        place = list(range(len(own)))
    elif sorted(rows) == sorted(own):
        place = [rows.index(row) for row in own]
    else:
        return False
    return not (pruned.adjacency & ~other.adjacency[np.ix_(place, place)]).any()


def edge_p_values(model: LinearModel, fit: Fit) -> Matrix:
    """Return the p-value of each edge: the calibrated likelihood ratio of the model without it.

    Where the ratio is large beyond doubt it is not computed but predicted. A pair without an edge
    has the p-value of the model with one, predicted, if that is acyclic, and else 1.
    """
    adjacency = fit.adjacency
    p_values = np.ones(adjacency.shape)
    around = model.linearised(fit)
    weights = edge_weights(around, adjacency)
    statistics = 2 * losses_of_edges(model, fit) / weights
    for edge in map(tuple, np.argwhere(adjacency)):
        if statistics[edge] < _CLEAR:
            without = _refitted(model, fit, _without(adjacency, edge))
            ratio = 2 * max(0.0, fit.log_likelihood - without.log_likelihood)
            statistics[edge] = ratio / weights[edge]
        p_values[edge] = chi2.sf(statistics[edge], around.coefficients_of_edge(edge))
    n_coefficients = _coefficients_of_an_edge(model)
    for edge, gain in _gains(model, fit).items():
        if n_coefficients[edge[1]]:
            p_values[edge] = chi2.sf(2 * gain, n_coefficients[edge[1]])
    return p_values


def standard_errors(model: LinearModel, fit: Fit) -> Matrix:
    """Return the standard error of what each row of the encoder has of the other latents."""
    hessian = expand(fit.H, model.pools, model.masks(fit.graph)).hessian
    covariance = np.linalg.pinv(model.n_rows * hessian, hermitian=True)
    variances = np.maximum(np.diag(covariance), 0) * model.linearised(fit).weights_of_encoder()
    errors = np.zeros((model.n, model.n))
    errors[off_diagonal(model.n)] = np.sqrt(variances)
    return errors


def edge_weights(around: Linearised, adjacency: BoolMatrix) -> Matrix:
    """Return the weight of each edge in its likelihood ratio, 1 where there is none.

    Edges to a latent that no soft intervention is on have no coefficients, and the weight 1.
    """
    weights = np.ones(adjacency.shape)
    for edge in around.edges:
        weights[edge] = around.weight_of_edge(edge)
    return weights


def losses_of_edges(model: LinearModel, fit: Fit) -> Matrix:
    """Return the nats that the model would lose with each edge, infinity where there is none.

    Let F rise by a at the fixed encoder, and a Newton step with the present Hessian take g of that.
    The Hessian without the edge is larger, as one coefficient less adapts to the encoder: the loss
    is a / (1 + g / a), half the square of the Wald statistic.
    """
    adjacency = fit.adjacency
    losses = np.full(adjacency.shape, np.inf)
    parents, children = np.nonzero(adjacency)
    masks = model.masks(fit.graph)
    point = expand(fit.H, model.pools, masks)
    now, gradients = alternatives(fit.H, model.pools, np.arange(model.n), masks)
    without = masks[children]
    without[np.arange(len(parents)), :, parents] = 0
    then, changed = alternatives(fit.H, model.pools, children, without)
    slopes = point.gradient + (changed - gradients[children])[:, off_diagonal(model.n)]
    rise = np.maximum(then - now[children], 1e-300)
    losses[parents, children] = model.n_rows * rise / (1 + point.gains(slopes) / rise)
    return losses


def _gains(model: LinearModel, fit: Fit) -> dict[tuple[int, int], float]:
    """Return the nats that each further edge promises, by one Newton step of the encoder."""
    usual = overall_weights(model.moments).mean
    now = -fit.log_likelihood / model.n_rows
    gains = {}
    for i, j in map(tuple, np.argwhere(~fit.adjacency & ~np.eye(model.n, dtype=bool))):
        graph = with_parents(fit.graph, j, {*fit.graph[j], int(i)})
        if is_acyclic(graph):
            value = predicted(fit.H, model.pools, model.masks(graph))
            gains[int(i), int(j)] = max(model.n_rows * (now - value), 0.0) / usual
    return gains


def _coefficients_of_an_edge(model: LinearModel) -> NDArray[np.intp]:
    """Return how many coefficients an edge to each latent has, one for each pool it matters in."""
    everywhere = model.masks_of(np.ones((model.n, model.n), dtype=bool))[:, :, 0] > 0
    return (everywhere & (model.pools.shares > 0)).sum(axis=1)


def _refitted(model: LinearModel, fit: Fit, adjacency: BoolMatrix) -> Fit:
    return model.fitted(fit.H, graph_of(adjacency), STEPS_OF_A_CHANGE)


def _without(adjacency: BoolMatrix, edge: tuple[Any, ...]) -> BoolMatrix:
    reduced = adjacency.copy()
    reduced[edge] = False
    return reduced
