"""Orders of the latents: the best one at a fixed encoder, and moves of one latent at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import Graph, best_order, complete_graph, topological_order
from crlearn.likelihood._fit import Fit
from crlearn.likelihood.core._encoder import off_diagonal
from crlearn.likelihood.core._newton import STEPS_OF_A_CHANGE
from crlearn.likelihood.nodes._linear import LinearModel, alternatives, expand, predicted
from crlearn.likelihood.nodes._protocol import NodeModel
from crlearn.likelihood.search._local import CLEAR, LEAST_GAIN

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

_MOST_PARENTS = 3  # of a latent, where all sets of parents are looked at
_PREDICTED_MOVES = 100  # all of 11 latents
_FITTED_MOVES = 3


def best_order_at(model: NodeModel, H: Matrix) -> list[int]:
    """Return the best order for a fixed encoder, every latent a function of all before it."""
    n = model.n
    wanted = [
        (j, parents)
        for size in range(n)
        for parents in combinations(range(n), size)
        for j in range(n)
        if j not in parents
    ]
    costs = np.full((2**n, n), np.inf)
    for (j, parents), value in zip(wanted, model.values(H, wanted), strict=True):
        costs[sum(1 << i for i in parents), j] = value
    return best_order(costs).tolist()


def best_graph_at(model: NodeModel, H: Matrix) -> Graph:
    """Return the best graph for a fixed encoder, with at most three parents for each latent."""
    n = model.n
    wanted = [
        (j, parents)
        for j in range(n)
        for size in range(min(n, _MOST_PARENTS + 1))
        for parents in combinations([i for i in range(n) if i != j], size)
    ]
    costs = np.full((2**n, n), np.inf)
    chosen: dict[tuple[int, int], tuple[int, ...]] = {}
    for (j, parents), value in zip(wanted, model.values(H, wanted), strict=True):
        members = sum(1 << i for i in parents)
        costs[members, j], chosen[members, j] = value, parents
    for members in range(2**n):  # what a set allows, a larger one allows, too
        for i in range(n):
            smaller = members & ~(1 << i)
            for j in np.flatnonzero(costs[smaller] < costs[members]):
                if not members >> int(j) & 1:
                    costs[members, j] = costs[smaller, j]
                    chosen[members, int(j)] = chosen[smaller, int(j)]
    graph: list[tuple[int, ...]] = [()] * n
    members = 0
    for j in best_order(costs).tolist():
        graph[j] = chosen[members, j]
        members |= 1 << j
    return tuple(graph)


def search_orders(model: LinearModel, H: Matrix, order: Sequence[int]) -> Fit:
    """Move one latent at a time to another place in the order while the likelihood rises.

    Orders that were fitted and not taken are alternatives.
    """
    now = list(order)
    best = model.fitted(H, complete_graph(now))
    seen, others = {tuple(now)}, list[Fit]()
    while True:
        candidates = [move for move in _promising(model, best, now) if tuple(move) not in seen]
        candidates = candidates[:_PREDICTED_MOVES]
        values = [
            predicted(best.H, model.pools, model.masks(complete_graph(move))) for move in candidates
        ]
        for k in np.argsort(values, kind="stable")[:_FITTED_MOVES]:
            seen.add(tuple(candidates[k]))
            found = model.fitted(best.H, complete_graph(candidates[k]), STEPS_OF_A_CHANGE)
            if found.score > best.score + LEAST_GAIN:
                others.append(best)
                best, now = found, candidates[k]
                break
            others.append(found)
        else:
            return replace(best, alternatives=tuple(others))


def nearby_orders(model: LinearModel, fit: Fit, edges: BoolMatrix) -> list[Fit]:
    """Fit the orders in which one latent stands elsewhere, but for those that are clearly worse.

    Parameters
    ----------
    model, fit
        Every latent a function of all before it.
    edges
        Of which at least one is turned around.
    """
    now = [int(j) for j in topological_order(fit.adjacency)]
    graphs = [
        complete_graph(move)
        for move in _promising(model, fit, now)
        if np.tril(edges[np.ix_(move, move)]).any()
    ]
    near = fit.log_likelihood - CLEAR
    if len(graphs) > _PREDICTED_MOVES:
        graphs = [
            graph
            for graph in graphs[:_PREDICTED_MOVES]
            if -model.n_rows * predicted(fit.H, model.pools, model.masks(graph)) > near
        ]
    # Where the encoder has far to go, one step predicts hundreds of nats too little.
    found = [model.fitted(fit.H, graph, STEPS_OF_A_CHANGE, least=near) for graph in graphs]
    return [each for each in found if each.log_likelihood > near]


def better_order_at(model: LinearModel, H: Matrix, order: list[int]) -> list[int]:
    """Return an order that no move of one latent makes better for a fixed encoder."""
    while True:
        values, _ = _changes(model, H, order)
        start, end = np.unravel_index(values.argmin(), values.shape)
        if values[start, end] > -1 / model.n_rows:
            return order
        order = _inserted(order, int(start), int(end))


def _promising(model: LinearModel, fit: Fit, order: list[int]) -> list[list[int]]:
    """Return the orders in which one latent stands elsewhere, the most promising first.

    What a move changes at the fixed encoder is exact; what the encoder adds to that is guessed by a
    Newton step with the Hessian of the present order.
    """
    n, off = model.n, off_diagonal(model.n)
    moves = [
        (start, end) for start in range(n) for end in range(n) if end not in (start, start + 1)
    ]
    orders = [_inserted(order, *move) for move in moves]
    if len(moves) <= _PREDICTED_MOVES:
        return orders
    values, gradients = _changes(model, fit.H, order)
    point = expand(fit.H, model.pools, model.masks(fit.graph))
    change = np.array([values[move] for move in moves])
    gain = point.gains(point.gradient + np.stack([gradients[move][off] for move in moves]))
    return [orders[k] for k in np.argsort(change - gain, kind="stable")]


def _changes(model: LinearModel, H: Matrix, order: list[int]) -> tuple[Matrix, Matrix]:
    """Return what F and its gradient change at the fixed encoder, by first and last place.

    The latent that moves has other parents, and all that it passes lose or gain it.
    """
    n, place = model.n, np.argsort(order)
    places, latents = np.arange(n), np.array(order)
    itself = np.eye(n, dtype=bool)
    before = places < places[:, None]
    passed = before[:, None] ^ itself  # [b, a]: before b with or without a
    rank = places - (places > places[:, None])
    placed = (rank[:, None] < places[:, None]) & ~itself[:, None]  # [a, k]: before a as k-th of all
    sets = np.concatenate([before, passed.reshape(-1, n), placed.reshape(-1, n)])[:, place]
    who = np.concatenate([latents, np.repeat(latents, n), np.repeat(latents, n)])
    found = alternatives(H, model.pools, who, model.masks_of(sets))

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
