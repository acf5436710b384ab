"""Which graph: moves of single edges, ranked by what one Newton step would reach, judged by BIC.

The encoder follows every move, so that its uncertainty does not turn into edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood.core._newton import Expansion
from crlearn.likelihood.nodes._selected import AdditiveModel, Parents, Piece

Matrix = NDArray[np.floating]
Graph = tuple[Parents, ...]  # the parents of each latent

_MOST_PARENTS_AT_ONCE = 3
_LARGEST_FOR_ALL_GRAPHS = 6
_HOPELESS = 30.0  # nats that a move's prediction may lie above the present graph
_LEAST_GAIN = 0.5
_STEPS_TO_CONVERGE = 20


@dataclass(frozen=True, eq=False)
class Found:
    """A graph with its best encoder.

    Attributes
    ----------
    H
        Encoder.
    graph
        Parents of each latent.
    bic
        Negative log-likelihood with the cost of the features, in nats.
    """

    H: Matrix
    graph: Graph
    bic: float


def climb(
    model: AdditiveModel, H: Matrix, graph: Graph, *, max_steps: int = 6, n_tried: int = 3
) -> Found:
    """Add, remove and turn edges while BIC falls."""
    best = _fitted(model, H, graph, max_steps)
    seen = {best.graph}
    while True:
        found = _best_neighbour(model, best, seen, max_steps, n_tried)
        if found is None:
            return _fitted(model, best.H, best.graph, _STEPS_TO_CONVERGE)
        best = found


def best_graph_at(model: AdditiveModel, H: Matrix) -> Graph:
    """Return the graph with the lowest BIC for a fixed encoder.

    Exact for few latents: dynamic programming over sets of predecessors, at most three parents
    each. With more than six latents it is the graph without edges, from which `climb` goes on.
    """
    H = model.scaled(H)
    if model.n > _LARGEST_FOR_ALL_GRAPHS:
        return ((),) * model.n
    costs = _costs(model, H)
    best: dict[frozenset[int], tuple[float, dict[int, Parents]]] = {frozenset(): (0.0, {})}
    for size in range(1, model.n + 1):
        for members in map(frozenset, combinations(range(model.n), size)):
            best[members] = min(
                (_with_last(best, costs, members, last) for last in members),
                key=lambda candidate: candidate[0],
            )
    parents = best[frozenset(range(model.n))][1]
    return tuple(parents[j] for j in range(model.n))


def is_acyclic(graph: Sequence[Parents]) -> bool:
    """Whether the latents can be ordered such that parents come first."""
    placed: set[int] = set()
    while len(placed) < len(graph):
        free = [j for j in range(len(graph)) if j not in placed and placed.issuperset(graph[j])]
        if not free:
            return False
        placed.update(free)
    return True


def neighbours(graph: Graph) -> Iterator[Graph]:
    """Yield the acyclic graphs that differ by one edge: removed, turned or added."""
    for j in range(len(graph)):
        for i in range(len(graph)):
            if i == j:
                continue
            if i in graph[j]:
                without = _changed(graph, j, set(graph[j]) - {i})
                yield without
                turned = _changed(without, i, {*graph[i], j})
                if is_acyclic(turned):
                    yield turned
            elif j not in graph[i]:
                added = _changed(graph, j, {*graph[j], i})
                if is_acyclic(added):
                    yield added


def graph_of(adjacency: NDArray[np.bool_]) -> Graph:
    """Return the parents of each latent; ``adjacency[i, j]`` says that i causes j."""
    return tuple(tuple(np.flatnonzero(column).tolist()) for column in np.asarray(adjacency).T)


def adjacency_of(graph: Graph) -> NDArray[np.bool_]:
    """Return the adjacency matrix of parents."""
    adjacency = np.zeros((len(graph), len(graph)), dtype=bool)
    for j, parents in enumerate(graph):
        adjacency[list(parents), j] = True
    return adjacency


def _fitted(model: AdditiveModel, H: Matrix, graph: Graph, max_steps: int) -> Found:
    H, value = model.minimise(H, graph, max_steps=max_steps)
    return Found(H, graph, model.bic(value))


def _best_neighbour(
    model: AdditiveModel, now: Found, seen: set[Graph], max_steps: int, n_tried: int
) -> Found | None:
    """Return a neighbour that is better, or None; those that were fitted are remembered."""
    H = model.scaled(now.H)
    candidates = [graph for graph in neighbours(now.graph) if graph not in seen]
    wanted = sorted({(j, parents) for graph in candidates for j, parents in enumerate(graph)})
    pieces = model.pieces(H, wanted)
    points = [_assembled(model, H, graph, pieces) for graph in candidates]
    predictions = [model.bic(point.after(point.step())) for point in points]
    for k in np.argsort(predictions, kind="stable")[:n_tried]:
        if predictions[k] > now.bic + _HOPELESS:
            return None
        seen.add(candidates[k])
        fitted, value = model.minimise(H, candidates[k], max_steps=max_steps, start=points[k])
        if model.bic(value) < now.bic - _LEAST_GAIN:
            return Found(fitted, candidates[k], model.bic(value))
    return None


def _assembled(
    model: AdditiveModel, H: Matrix, graph: Graph, pieces: Mapping[tuple[int, Parents], Piece]
) -> Expansion:
    return model.assemble(H, [pieces[key] for key in enumerate(graph)])


def _costs(model: AdditiveModel, H: Matrix) -> dict[tuple[int, Parents], float]:
    """Return what each latent costs with each set of parents, features included."""
    wanted = [
        (j, parents)
        for j in range(model.n)
        for size in range(min(model.n, _MOST_PARENTS_AT_ONCE + 1))
        for parents in combinations([i for i in range(model.n) if i != j], size)
    ]
    pieces = model.pieces(H, wanted, derivatives=False)
    return {key: model.bic(piece.value) for key, piece in pieces.items()}


def _with_last(
    best: dict[frozenset[int], tuple[float, dict[int, Parents]]],
    costs: dict[tuple[int, Parents], float],
    members: frozenset[int],
    last: int,
) -> tuple[float, dict[int, Parents]]:
    """Return the best graph over `members` in which `last` has no children."""
    others = members - {last}
    choices = [
        parents
        for size in range(min(len(others), _MOST_PARENTS_AT_ONCE) + 1)
        for parents in combinations(sorted(others), size)
    ]
    parents = min(choices, key=lambda choice: costs[last, choice])
    cost, graph = best[others]
    return cost + costs[last, parents], {**graph, last: parents}


def _changed(graph: Graph, j: int, parents: set[int]) -> Graph:
    return (*graph[:j], tuple(sorted(parents)), *graph[j + 1 :])
