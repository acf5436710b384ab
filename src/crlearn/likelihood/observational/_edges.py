"""Which edges: they are dropped and added while the score rises; the encoder follows.

Whether an edge is needed cannot be seen at a fixed encoder: what a parent does linearly can be part
of the latent itself, and where noise is small the slightest error of a row calls for edges. So
moves are only ranked there, and judged after encoder and shapes were fitted again. A trial ends
early if it is hopeless. What was tried and not taken is kept: competing structures are among it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import Graph, is_acyclic, with_parents
from crlearn.likelihood._fit import Fit
from crlearn.likelihood._price import relevance_edge_price
from crlearn.likelihood.core._encoder import unit_rows
from crlearn.likelihood.nodes._relevance import (
    STEPS,
    Shape,
    functions_of,
    linear_effects,
    loss_without,
    refit,
)
from crlearn.likelihood.observational._model import RelevanceModel
from crlearn.likelihood.search._local import CLEAR, LEAST_GAIN

Matrix = NDArray[np.floating]

Edge = tuple[int, int]  # cause and effect

# Nats that a short fit or a ranking at a fixed encoder is not wrong by. On the worlds of four
# latents of the study observational-mechanisms, seeds 0 to 3, as good as limits from 40 to 200.
HOPELESS = 60.0


class EdgeSearch:
    """Search over edges, for some whitened rows.

    Attributes
    ----------
    model
        Of the rows.
    not_taken
        What was tried and was not the best.
    """

    def __init__(self, model: RelevanceModel) -> None:
        self.model = model
        self.not_taken: list[Fit] = []

    def refitted(self, fit: Fit) -> Fit:
        """Fit what was found with other rows."""
        return self.refined(self._settled(fit, 2 * STEPS))

    def refined(self, fit: Fit) -> Fit:
        """Try other starts of hidden units, so that structures are compared at good optima."""
        found = self.model.with_better_hidden_units(fit)
        if all(map(operator.is_, found.parameters, fit.parameters)):
            return fit
        found = self.model.scored(self.model.fitted(found))
        return max(found, fit, key=lambda fit: fit.score)

    def sparsified(self, fit: Fit) -> Fit:
        """Drop edges from a dense graph: many at once while that works, then one by one."""
        best = self._settled(fit)
        while True:
            needless = [edge for gain, edge in self._losses(best) if gain < 0]
            found = self._drop_together(best, needless)
            if found is None:
                return self.refined(self.improved(best, adding=False))
            best = found

    def improved(self, best: Fit, *, adding: bool = True) -> Fit:
        """Drop single edges, and add some, until neither gains."""
        hopeless = set[Edge]()
        while True:
            before = best.score
            for edge in self._promising(best, adding):
                graph = _with_or_without(best.graph, edge)
                if edge in hopeless or not is_acyclic(graph):
                    continue
                found = self._followed(self._moved(best, graph), best.score)
                if found.score > best.score + LEAST_GAIN:
                    self.not_taken.append(best)
                    best = found
                elif found.score < best.score - HOPELESS:
                    hopeless.add(edge)
                elif found.n_edges < best.n_edges:  # one too many is no other explanation
                    self.not_taken.append(found)
            if best.score < before + LEAST_GAIN:
                return best

    def dropped(self, fit: Fit) -> Iterator[Fit]:
        """Yield the fit without each of its edges, the least needed first, yet to be fitted."""
        for _, edge in self._losses(fit):
            yield self._moved(fit, _with_or_without(fit.graph, edge))

    def _settled(self, fit: Fit, max_steps: int = STEPS) -> Fit:
        """Fit, leave out useless hidden units, fit again."""
        model = self.model
        fitted = model.only_useful_hidden_units(model.fitted(fit, max_steps))
        return model.scored(model.fitted(fitted, max_steps))

    def _promising(self, fit: Fit, adding: bool) -> list[Edge]:
        """Return edges to drop and to add, the most promising first."""
        ranked = [pair for pair in self._losses(fit) if pair[0] < HOPELESS]
        if adding:
            ranked += self._gains(fit)[: self.model.n]
        return [edge for _, edge in sorted(ranked)]

    def _losses(self, fit: Fit) -> list[tuple[float, Edge]]:
        """Return what dropping each edge seems to cost beyond its price, the least first."""
        Z, price = self.model.latents(fit), relevance_edge_price(self.model.n)
        regressions = self.model.regressions(fit)
        return sorted(
            (loss_without(regressions[j], Z[:, list(own)], fit.parameters[j], k) - price, (i, j))
            for j, own in enumerate(fit.graph)
            for k, i in enumerate(own)
        )

    def _gains(self, fit: Fit) -> list[tuple[float, Edge]]:
        """Return minus what each further cause of a latent seems to gain, the best first."""
        Z, costs = self.model.latents(fit), self.model.costs(fit)
        ranked = []
        for i, j in permutations(range(self.model.n), 2):
            graph = _with_or_without(fit.graph, (i, j))
            if i not in fit.graph[j] and is_acyclic(graph):
                shape = restructured(fit, graph).parameters[j]
                cost, _ = refit(Z[:, j], Z[:, list(graph[j])], shape)
                ranked.append((cost - costs[j] + relevance_edge_price(self.model.n), (i, j)))
        return sorted(ranked)

    def _followed(self, fit: Fit, goal: float) -> Fit:
        """Fit; stop early if it is behind the goal and does not catch up."""
        behind = np.inf
        for part in (8, 4, 2, 1):
            fit = self.model.scored(self.model.fitted(fit, STEPS // part))
            before, behind = behind, goal - fit.score
            if behind > CLEAR and 2 * (before - behind) < behind:
                return fit
        return self.model.scored(self.model.only_useful_hidden_units(fit))

    def _drop_together(self, best: Fit, edges: list[Edge]) -> Fit | None:
        """Drop as many of the edges as the score allows: all, half of them, a quarter, ..."""
        while edges:
            fitted = self.model.fitted(
                self._moved(best, reduce(_with_or_without, edges, best.graph))
            )
            found = self.model.scored(self.model.only_useful_hidden_units(fitted))
            if found.score > best.score:
                return found
            edges = edges[: len(edges) // 2]
        return None

    def _moved(self, old: Fit, graph: Graph) -> Fit:
        """Change the graph; what lost parents did linearly goes into the latents themselves."""
        fit = restructured(old, graph)
        Z, H = self.model.latents(fit), fit.H.copy()
        changed = [j for j in range(self.model.n) if graph[j] != old.graph[j]]
        for j in changed:
            lost = [i for i in old.graph[j] if i not in graph[j]]
            if lost:
                functions = functions_of(Z[:, list(graph[j])], fit.parameters[j]).values
                H[j] -= linear_effects(Z[:, j], Z[:, lost], functions) @ fit.H[lost]
        return self.model.shaped(replace(fit, H=unit_rows(H)), changed)


def restructured(fit: Fit, graph: Graph) -> Fit:
    """Return the structure with another graph; further parents bring hidden units."""
    shapes = map(_with_other_parents, fit.parameters, fit.graph, graph)
    return replace(fit, graph=graph, parameters=tuple(shapes))


def _with_other_parents(shape: Shape, old: tuple[int, ...], new: tuple[int, ...]) -> Shape:
    for k in reversed(range(len(old))):
        if old[k] not in new:
            shape = shape.without(k)
    for k, cause in enumerate(new):
        if cause not in old:
            shape = shape.with_parent(k)
    is_richer = not {*new} <= {*old}
    return shape.with_hidden_units() if is_richer and not shape.n_hidden else shape


def _with_or_without(graph: Graph, edge: Edge) -> Graph:
    """Return the graph without an edge that it has, or with one that it has not."""
    cause, effect = edge
    return with_parents(graph, effect, {*graph[effect]} ^ {cause})
