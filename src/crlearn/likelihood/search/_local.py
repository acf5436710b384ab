"""Local search over graphs: propose, rank at the present encoder, refit the best, accept gains.

The encoder follows every move that is fitted, so that its uncertainty does not turn into edges.
What was fitted and not taken is kept: competing structures are among it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import Graph, neighbours
from crlearn.likelihood._fit import Fit
from crlearn.likelihood._price import edge_prior
from crlearn.likelihood.nodes._protocol import Key, NodeModel

LEAST_GAIN = 0.5  # nats: far below what an edge costs
# Nats beyond which a difference is no accident; unfinished fits of one graph were seen to differ
# by 2.4.
CLEAR = 20.0
# Where starts reach the best optimum so often, a better one to which as many lead would have been
# missed by chance once in 2^4 times. In 32 worlds of five and eight latents the best of 60 starts
# without an order was reached by 8 of them or more.
_ENOUGH_TIMES = 4


class SearchModel(Protocol):
    """What the search needs of a model."""

    @property
    def hopeless(self) -> float:
        """Nats by which a prediction may be behind the present score and still be tried."""
        ...

    def predicted(self, fit: Fit, graphs: Sequence[Graph]) -> NDArray[np.floating]:
        """Return about what score each graph would reach, from a fit of a similar one."""
        ...

    def refitted(self, fit: Fit, graph: Graph) -> Fit:
        """Fit a graph, from a fit of a similar one."""
        ...


def climb(model: SearchModel, start: Fit, *, n_tried: int = 3, optima: Sequence[Fit] = ()) -> Fit:
    """Add, remove and reverse single edges while the score rises; `n_tried` fits at a time.

    Where it comes to one of the `optima` that were found before, nothing better is near.
    """
    best, seen, others = start, {start.graph}, list(start.alternatives)
    while not any(_is_same(best, optimum) for optimum in optima):
        found = _better_neighbour(model, best, seen, others, n_tried)
        if found is None:
            break
        others.append(best)
        best = found
    others.sort(key=lambda fit: -fit.score)
    return replace(best, alternatives=tuple(replace(fit, alternatives=()) for fit in others))


def _is_same(one: Fit, other: Fit) -> bool:
    """Whether two fits have the same graph and, as far as the score tells, the same encoder."""
    return one.graph == other.graph and abs(one.score - other.score) < CLEAR


def _better_neighbour(
    model: SearchModel, now: Fit, seen: set[Graph], others: list[Fit], n_tried: int
) -> Fit | None:
    """Return a neighbour that is better, or None; those that were fitted are remembered."""
    candidates = [graph for graph in neighbours(now.graph) if graph not in seen]
    if not candidates:
        return None
    promised = model.predicted(now, candidates)
    for k in np.argsort(-promised, kind="stable")[:n_tried]:
        if promised[k] < now.score - model.hopeless:
            break
        seen.add(candidates[k])
        found = model.refitted(now, candidates[k])
        if found.score > now.score + LEAST_GAIN:
            # What the present graph would have gained by as many steps is not the edge's gain.
            now = now if found.score > now.score + CLEAR else model.refitted(now, now.graph)
            if found.score > now.score + LEAST_GAIN:
                return found
        others.append(found)
    return None


def is_settled(scores: Sequence[float]) -> bool:
    """Whether so many starts have led to the best of their scores that more are of no use."""
    return sum(score > max(scores) - LEAST_GAIN for score in scores) >= _ENOUGH_TIMES


def good_graph_at(model: NodeModel, H: NDArray[np.floating]) -> Graph:
    """Return a graph for a fixed encoder that no single edge makes better."""
    still = _Still(model, H)
    return climb(still, still.scored(((),) * model.n), n_tried=1).graph


class _Still:
    """Graphs at an encoder that does not follow: scores are sums of values of nodes."""

    hopeless = 0.0

    def __init__(self, model: NodeModel, H: NDArray[np.floating]) -> None:
        self._model, self._H = model, H
        self._known: dict[Key, float] = {}

    def scored(self, graph: Graph) -> Fit:
        """Return the graph with its score."""
        keys = list(enumerate(graph))
        self._look_up(keys)
        value = sum(self._known[key] for key in keys)
        price = edge_prior(self._model.n) * sum(map(len, graph))
        return Fit(self._H, graph, -self._model.n_rows * value, price)

    def predicted(self, fit: Fit, graphs: Sequence[Graph]) -> NDArray[np.floating]:
        """Return the scores."""
        self._look_up(sorted({key for graph in graphs for key in enumerate(graph)}))
        return np.array([self.scored(graph).score for graph in graphs])

    def refitted(self, fit: Fit, graph: Graph) -> Fit:
        """Return the graph with its score: nothing is left to fit."""
        return self.scored(graph)

    def _look_up(self, keys: Sequence[Key]) -> None:
        missing = [key for key in keys if key not in self._known]
        if missing:
            self._known.update(zip(missing, self._model.values(self._H, missing), strict=True))
