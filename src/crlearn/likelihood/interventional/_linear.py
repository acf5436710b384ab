"""Encoder and graph of linear latents, from covariances: no order first, then orders, then edges.

For single-node interventions on every latent. Environment 0 is observational.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.graph import closest_dag, topological_order
from crlearn.likelihood.core._moments import Moments, Pools
from crlearn.likelihood.core._tests import Linearised, overall_weights
from crlearn.likelihood.nodes._linear import (
    alternatives,
    expand,
    latent_costs,
    minimise,
    objective,
    predicted,
)
from crlearn.result import GoodnessOfFit

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

# Search ends when the fit cannot be told from the saturated model; these bound it otherwise.
_GOOD_P_VALUE = 0.01
_RANDOM_STARTS = 60
_SWEPT_STARTS = 8
_ANGLES = 12
_RANDOM_ORDERS = 12
_MANY = 10  # latents; not all orders, and no starts quite at random, beyond
_TRIES = 6
_TRIED_MOVES = 3
_MORE_ATTEMPTS = 2
_HOPELESS = 4  # beyond so many times its expectation, a ratio is no local optimum's
_PREDICTED_MOVES = 20
_CLEAR = 200.0  # a statistic beyond any doubt
_NEEDLESS = 0.25  # of what an edge costs; edges that would lose less go together
_WORST_START = 1e8


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A graph with its best encoder.

    Attributes
    ----------
    H
        Encoder; for soft interventions its rows give the noises, not the latents.
    adjacency
        ``adjacency[i, j]`` is True if i is a parent of j in the model.
    value
        F.
    """

    H: Matrix
    adjacency: BoolMatrix
    value: float


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """What is fitted.

    Attributes
    ----------
    moments
        Of the environments, in whitened coordinates.
    pool
        ``pool[j, e]`` is 0 where environment e leaves latent j alone.
    hard
        Whether interventions cut a latent off its parents.
    """

    moments: Moments
    pool: NDArray[np.intp]
    hard: bool

    @cached_property
    def pools(self) -> Pools:
        """Covariances of the pools."""
        return Pools.of(self.moments, self.pool)

    @property
    def n(self) -> int:
        """Number of latents."""
        return len(self.pool)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return self.moments.n_samples

    @property
    def covered(self) -> NDArray[np.bool_]:
        """The latents that some environment intervenes on."""
        return np.asarray(self.pool.any(axis=1))

    def masks(self, adjacency: BoolMatrix) -> Matrix:
        """Return the masks of a graph: parents matter where the intervention leaves them."""
        return self.masks_of(adjacency.T)

    def masks_of(self, parents: BoolMatrix) -> Matrix:
        """Return the masks ``(..., P, n)`` of latents with these parents ``(..., n)``."""
        masks = np.zeros((*parents.shape[:-1], self.pools.n_pools, self.n))
        if self.hard:
            masks[..., 0, :] = parents
        else:
            masks[..., 1:, :] = parents[..., None, :]
        return masks

    def masks_without_order(self) -> Matrix:
        """Return the masks of the model in which every latent may depend on all others."""
        masks = np.zeros((self.n, self.pools.n_pools, self.n))
        masks[:, 1:] = 1 - np.eye(self.n)[:, None, :]
        return masks

    @property
    def edge_cost(self) -> float:
        """What an edge must gain in nats: BIC, extended by the number of pairs it is chosen from.

        Plain BIC takes one edge in a thousand where there is none, which is too many for a graph.
        """
        return float(0.5 * np.log(self.n_samples) + np.log(max(1, self.n * (self.n - 1) // 2)))

    def linearised(self, H: Matrix, masks: Matrix) -> Linearised:
        """Return the model around its best encoder."""
        return Linearised.at(H, self.moments, self.pools, self.pool, masks)

    def goodness_of_fit(
        self, value: float, masks: Matrix, H: Matrix | None = None
    ) -> GoodnessOfFit:
        """Compare a fit with the saturated model, a Gaussian of its own for every environment.

        Without the fitted encoder the ratio is calibrated by what all moments have in common:
        cheap, and good enough for a search.
        """
        freedom = self._freedom(masks)
        weights = (
            overall_weights(self.moments)
            if H is None
            else self.linearised(H, masks).weights_of_fit()
        )
        ratio = weights.calibrated(self._ratio(value), freedom)
        return GoodnessOfFit(ratio, freedom, float(chi2.sf(ratio, max(freedom, 1))), weights.mean)

    def is_good(self, value: float, masks: Matrix, n_tries: int) -> bool:
        """Whether nothing better is to be expected after so many tries.

        If noise is not Gaussian, only large differences show in the fit: one try is not enough.
        """
        freedom = self._freedom(masks)
        if chi2.sf(self._ratio(value), max(freedom, 1)) > _GOOD_P_VALUE:
            return True
        return n_tries >= _TRIES and self.goodness_of_fit(value, masks).p_value > _GOOD_P_VALUE

    def _ratio(self, value: float) -> float:
        """Return the likelihood ratio to the saturated model as it is."""
        return max(0.0, 2 * self.n_samples * (value - self.moments.saturated))

    def _freedom(self, masks: Matrix) -> int:
        """Return the parameters that the saturated model has more."""
        n, n_environments = self.n, len(self.moments.sizes)
        used = self.pools.shares > 0
        saturated = n_environments * (n + n * (n + 1) // 2)
        regressions = int((masks.sum(axis=-1) * used).sum())
        return saturated - (n * (n - 1) + 2 * int(used.sum()) + regressions)


def fit_linear(problem: LinearProblem, rng: np.random.Generator) -> LinearFit:
    """Find encoder and graph: without order, then the best order, then without needless edges."""
    best = _fit_orders(problem, rng)
    for _ in range(_MORE_ATTEMPTS):
        masks = problem.masks(best.adjacency)
        fit = problem.goodness_of_fit(best.value, masks)
        # A fit that is bad, though not hopelessly, may be a local optimum.
        if fit.p_value > _GOOD_P_VALUE or fit.ratio > _HOPELESS * fit.freedom:
            break
        best = min(best, _fit_orders(problem, rng), key=lambda found: found.value)
    return prune(problem, best)


def _fit_orders(problem: LinearProblem, rng: np.random.Generator) -> LinearFit:
    """Return the best fit from several orders, every latent a function of all before it."""
    start = fit_without_order(problem, rng)
    best: LinearFit | None = None
    tried: set[tuple[int, ...]] = set()
    for n_tries, order in enumerate(_first_orders(problem, start, rng), start=1):
        if tuple(order) in tried:
            continue
        tried.add(tuple(order))
        found = search_orders(problem, start, order)
        if best is None or found.value < best.value:
            best = found
        if problem.is_good(best.value, problem.masks(best.adjacency), n_tries):
            break
    assert best is not None
    return best


def fit_without_order(problem: LinearProblem, rng: np.random.Generator) -> Matrix:
    """Return the encoder of the model without order; it has local optima, so many starts."""
    masks = problem.masks_without_order()
    rows, lowest = np.eye(problem.n), np.inf
    for n_tries, H in enumerate(_starts(problem, rng), start=1):
        if np.linalg.cond(H) > _WORST_START:
            continue
        found, value = minimise(H, problem.pools, masks)
        if value < lowest:
            rows, lowest = found, value
        if problem.is_good(lowest, masks, n_tries):
            break
    return _intervened_rows(problem, rows) if problem.hard else rows


def search_orders(problem: LinearProblem, H: Matrix, order: Sequence[int]) -> LinearFit:
    """Move one latent at a time to another place in the order while F falls."""
    now = list(order)
    best = _fitted(problem, H, _complete(now))
    seen = {tuple(now)}
    while True:
        candidates = [move for move in _promising(problem, best, now) if tuple(move) not in seen]
        candidates = candidates[:_PREDICTED_MOVES]
        values = [
            predicted(best.H, problem.pools, problem.masks(_complete(move))) for move in candidates
        ]
        for k in np.argsort(values, kind="stable")[:_TRIED_MOVES]:
            seen.add(tuple(candidates[k]))
            found = _fitted(problem, best.H, _complete(candidates[k]), max_steps=20)
            if found.value < best.value - 1 / problem.n_samples:
                best, now = found, candidates[k]
                break
        else:
            return best


def prune(problem: LinearProblem, fit: LinearFit) -> LinearFit:
    """Remove edges while that lowers BIC (with `edge_cost`); the encoder is fitted anew after each.

    What an edge gains is divided by what it would gain for nothing if noise is not Gaussian.
    """
    best, masks = fit, problem.masks(fit.adjacency)
    weights = _edge_weights(problem.linearised(fit.H, masks), fit.adjacency)
    while best.adjacency.any():
        losses = _losses(problem, best) / weights
        needless = losses < _NEEDLESS * problem.edge_cost
        if needless.sum() > 1:
            found = _fitted(problem, best.H, best.adjacency & ~needless, max_steps=20)
            # Edges that can stand in for each other lose more together than one by one.
            expected = (losses * weights)[needless].sum() + problem.edge_cost / 2
            if (found.value - best.value) * problem.n_samples < expected:
                best = found
                continue
        weakest = np.unravel_index(losses.argmin(), losses.shape)
        found = _fitted(problem, best.H, _without(best.adjacency, weakest), max_steps=20)
        if (found.value - best.value) * problem.n_samples > problem.edge_cost * weights[weakest]:
            break
        best = found
    return _fitted(problem, best.H, best.adjacency)


def edge_p_values(problem: LinearProblem, fit: LinearFit) -> Matrix:
    """Return the p-value of each edge: the calibrated likelihood ratio of the model without it.

    Where the ratio is large beyond doubt it is not computed but predicted.
    """
    p_values = np.ones(fit.adjacency.shape)
    around = problem.linearised(fit.H, problem.masks(fit.adjacency))
    weights = _edge_weights(around, fit.adjacency)
    statistics = 2 * _losses(problem, fit) / weights
    for edge in map(tuple, np.argwhere(fit.adjacency)):
        if statistics[edge] < _CLEAR:
            without = _fitted(problem, fit.H, _without(fit.adjacency, edge), max_steps=20)
            ratio = 2 * problem.n_samples * max(0.0, without.value - fit.value)
            statistics[edge] = ratio / weights[edge]
        p_values[edge] = chi2.sf(statistics[edge], around.coefficients_of_edge(edge))
    return p_values


def _edge_weights(around: Linearised, adjacency: BoolMatrix) -> Matrix:
    """Return the weight of each edge in its likelihood ratio, 1 where there is none."""
    weights = np.ones(adjacency.shape)
    for edge in map(tuple, np.argwhere(adjacency)):
        weights[edge] = around.weight_of_edge(edge)
    return weights


def _losses(problem: LinearProblem, fit: LinearFit) -> Matrix:
    """Return the nats that the model would lose with each edge, infinity where there is none.

    Let F rise by a at the fixed encoder, and a Newton step with the present Hessian take g of that.
    The Hessian without the edge is larger, as one coefficient less adapts to the encoder: the loss
    is a / (1 + g / a), half the square of the Wald statistic.
    """
    losses = np.full(fit.adjacency.shape, np.inf)
    parents, children = np.nonzero(fit.adjacency)
    masks = problem.masks(fit.adjacency)
    point = expand(fit.H, problem.pools, masks)
    now, gradients = alternatives(fit.H, problem.pools, np.arange(problem.n), masks)
    without = masks[children]
    without[np.arange(len(parents)), :, parents] = 0
    then, changed = alternatives(fit.H, problem.pools, children, without)
    off = ~np.eye(problem.n, dtype=bool)
    slopes = point.gradient + (changed - gradients[children])[:, off]
    rise = np.maximum(then - now[children], 1e-300)
    losses[parents, children] = problem.n_samples * rise / (1 + point.gains(slopes) / rise)
    return losses


def standard_errors(problem: LinearProblem, fit: LinearFit) -> Matrix:
    """Return the standard error of what each row of the encoder has of the other latents."""
    n, masks = problem.n, problem.masks(fit.adjacency)
    hessian = expand(fit.H, problem.pools, masks).hessian
    covariance = np.linalg.pinv(problem.n_samples * hessian, hermitian=True)
    variances = np.maximum(np.diag(covariance), 0)
    variances = variances * problem.linearised(fit.H, masks).weights_of_encoder()
    errors = np.zeros(n * n)
    errors[~np.eye(n, dtype=bool).ravel()] = np.sqrt(variances)
    return errors.reshape(n, n)


def rows_inside(problem: LinearProblem, fit: LinearFit) -> Matrix:
    """Return, for soft interventions, the noise of each latent as its intervention leaves it.

    An intervention replaces the row r of a latent's noise by a row q. By the theory every
    combination of the two is as good as any other. In the paper's worlds q is close to the latent
    itself whether the variance falls or rises (MCC 0.97 and 0.96); r is not (0.77), and the
    direction in which the precision matrix changes most, the paper's choice, is better if it falls
    (0.98) and worse if it rises (0.70).
    """
    rows = fit.H.copy()
    for j in range(problem.n):
        parents = np.flatnonzero(fit.adjacency[:, j])
        if len(parents) == 0 or not problem.covered[j]:
            continue
        covariance = fit.H @ problem.pools.covariances[j, 1] @ fit.H.T
        inside = covariance[np.ix_(parents, parents)]
        rows[j] -= np.linalg.solve(inside, covariance[parents, j]) @ fit.H[parents]
    return rows


def _starts(problem: LinearProblem, rng: np.random.Generator) -> Iterator[Matrix]:
    """Yield encoders whose rows lie where the precision matrices change.

    An intervention changes the precision matrix in two directions at most, and the row that is
    looked for is a combination of them: of the one that changes most, then of both at random. For
    many latents the combinations are improved one by one.
    """
    n, moments = problem.n, problem.moments
    precisions = np.linalg.inv(moments.covariances)
    root = np.linalg.cholesky(moments.covariances[0])
    changed = problem.pool.argmax(axis=1)  # some environment that intervenes on the latent
    values, vectors = np.linalg.eigh(root.T @ (precisions[0] - precisions[changed]) @ root)
    strongest = np.argsort(-np.abs(values), axis=1)
    first, second = (
        np.linalg.solve(root.T, vectors[np.arange(n), :, strongest[:, k]].T).T
        for k in (0, min(1, n - 1))
    )
    many = n > _MANY
    for attempt in range(_SWEPT_STARTS if many else _RANDOM_STARTS):
        angle = rng.uniform(0, np.pi, n) if attempt else np.zeros(n)
        rows = np.cos(angle)[:, None] * first + np.sin(angle)[:, None] * second
        rows = np.where(problem.covered[:, None], rows, rng.standard_normal((n, n)))
        yield _swept(problem, rows, first, second) if many else rows


def _swept(problem: LinearProblem, rows: Matrix, first: Matrix, second: Matrix) -> Matrix:
    """Turn one row at a time to its best angle, while F falls.

    Among many latents some row is nearly always wrong if all angles are drawn at once.
    """
    masks = problem.masks_without_order()
    angles = np.arange(_ANGLES)[:, None] * np.pi / _ANGLES
    first, second = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (first, second))

    def value_of(rows: Matrix) -> float:
        try:
            return float(objective(rows, problem.pools, masks))
        except np.linalg.LinAlgError:  # two rows are the same
            return np.inf

    best, lowest, improved = rows, value_of(rows), True
    while improved:
        improved = False
        for j in np.flatnonzero(problem.covered):
            for row in np.cos(angles) * first[j] + np.sin(angles) * second[j]:
                turned = best.copy()
                turned[j] = row
                value = value_of(turned)
                if value < lowest - 1 / problem.n_samples:
                    best, lowest, improved = turned, value, True
    return best


def _intervened_rows(problem: LinearProblem, rows: Matrix) -> Matrix:
    """Return the rows as they are inside each latent's own intervention."""
    columns = np.linalg.inv(rows)
    inside = np.linalg.inv(problem.pools.covariances[:, 1])
    changed = np.einsum("jab,bj->ja", inside, columns)
    return np.where(problem.covered[:, None], changed, rows)


def _first_orders(
    problem: LinearProblem, H: Matrix, rng: np.random.Generator
) -> Iterator[list[int]]:
    """Yield the orders that the regressions among all latents suggest, and random ones."""
    precision = np.linalg.inv(H @ problem.pools.covariances[:, 0 if problem.hard else 1] @ H.T)
    j = np.arange(problem.n)
    scale = np.sqrt(precision[j, j, j])
    partial = precision[j, j] / scale[:, None] / np.sqrt(np.einsum("jii->ji", precision))
    effect = (partial**2).T
    np.fill_diagonal(effect, 0)
    few = problem.n <= _MANY
    if few:
        yield best_order_at(problem, H)
    for weights in (effect, np.log1p(problem.n_samples * effect)):
        order = [int(node) for node in topological_order(closest_dag(weights))]
        yield order if few else better_order_at(problem, H, order)
    for _ in range(_RANDOM_ORDERS):
        order = rng.permutation(problem.n).tolist()
        yield order if few else better_order_at(problem, H, order)


def best_order_at(problem: LinearProblem, H: Matrix) -> list[int]:
    """Return the best order for a fixed encoder, by dynamic programming over sets of latents."""
    n = problem.n
    sets = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    graphs = np.broadcast_to(sets[:, :, None], (2**n, n, n)) * (1 - np.eye(n, dtype=int))
    costs = latent_costs(H, problem.pools, np.stack([problem.masks(g > 0) for g in graphs]))
    best, last = np.zeros(2**n), np.zeros(2**n, dtype=np.intp)
    for members in range(1, 2**n):
        inside = np.flatnonzero(sets[members])
        before = members ^ (1 << inside)
        totals = best[before] + costs[before, inside]
        best[members], last[members] = totals.min(), inside[totals.argmin()]
    order, members = [], 2**n - 1
    while members:
        order.append(int(last[members]))
        members ^= 1 << order[-1]
    return order[::-1]


def better_order_at(problem: LinearProblem, H: Matrix, order: list[int]) -> list[int]:
    """Return an order that no move of one latent makes better for a fixed encoder."""
    while True:
        values, _ = _changes(problem, H, order)
        start, end = np.unravel_index(values.argmin(), values.shape)
        if values[start, end] > -1 / problem.n_samples:
            return order
        order = _inserted(order, int(start), int(end))


def _fitted(
    problem: LinearProblem, H: Matrix, adjacency: BoolMatrix, max_steps: int = 100
) -> LinearFit:
    H, value = minimise(H, problem.pools, problem.masks(adjacency), max_steps=max_steps)
    return LinearFit(H, adjacency, value)


def _complete(order: Sequence[int]) -> BoolMatrix:
    """Return the graph in which every latent has all predecessors as parents."""
    adjacency = np.zeros((len(order), len(order)), dtype=bool)
    for place, j in enumerate(order):
        adjacency[list(order[:place]), j] = True
    return adjacency


def _promising(problem: LinearProblem, fit: LinearFit, order: list[int]) -> list[list[int]]:
    """Return the orders in which one latent stands elsewhere, the most promising first.

    What a move changes at the fixed encoder is exact; what the encoder adds to that is guessed by a
    Newton step with the Hessian of the present order.
    """
    n, off = problem.n, ~np.eye(problem.n, dtype=bool)
    moves = [
        (start, end) for start in range(n) for end in range(n) if end not in (start, start + 1)
    ]
    orders = [_inserted(order, *move) for move in moves]
    if len(moves) <= _PREDICTED_MOVES:
        return orders
    values, gradients = _changes(problem, fit.H, order)
    point = expand(fit.H, problem.pools, problem.masks(fit.adjacency))
    change = np.array([values[move] for move in moves])
    gain = point.gains(point.gradient + np.stack([gradients[move][off] for move in moves]))
    return [orders[k] for k in np.argsort(change - gain, kind="stable")]


def _changes(problem: LinearProblem, H: Matrix, order: list[int]) -> tuple[Matrix, Matrix]:
    """Return what F and its gradient change at the fixed encoder, by first and last place.

    The latent that moves has other parents, and all that it passes lose or gain it.
    """
    n, place = problem.n, np.argsort(order)
    places, latents = np.arange(n), np.array(order)
    itself = np.eye(n, dtype=bool)
    before = places < places[:, None]
    passed = before[:, None] ^ itself  # [b, a]: before b with or without a
    rank = places - (places > places[:, None])
    placed = (rank[:, None] < places[:, None]) & ~itself[:, None]  # [a, k]: before a as k-th of all
    sets = np.concatenate([before, passed.reshape(-1, n), placed.reshape(-1, n)])[:, place]
    who = np.concatenate([latents, np.repeat(latents, n), np.repeat(latents, n)])
    found = alternatives(H, problem.pools, who, problem.masks_of(sets))

    def summed(costs: Matrix) -> Matrix:
        now, shape = costs[:n], (n, n, *costs.shape[1:])
        passing = np.swapaxes(costs[n : n + n * n].reshape(shape) - now[:, None], 0, 1)  # [a, b]
        later, earlier = passing.copy(), passing.copy()
        later[before | itself] = 0
        earlier[~before] = 0
        earlier = earlier[:, ::-1].cumsum(axis=1)[:, ::-1]
        return costs[n + n * n :].reshape(shape) - now[:, None] + later.cumsum(axis=1) + earlier

    return summed(found[0]), summed(found[1])


def _inserted(order: list[int], start: int, end: int) -> list[int]:
    """Return the order with the latent from one place at another one."""
    move = order.copy()
    move.insert(end, move.pop(start))
    return move


def _without(adjacency: BoolMatrix, edge: tuple[Any, ...]) -> BoolMatrix:
    reduced = adjacency.copy()
    reduced[edge] = False
    return reduced
