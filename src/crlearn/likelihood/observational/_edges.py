"""Which edges: they are dropped and added while the score rises; the encoder follows.

Whether an edge is needed cannot be seen at a fixed encoder: what a parent does linearly can be part
of the latent itself, and where noise is small the slightest error of a row calls for edges. So
moves are only ranked there, and judged after encoder and shapes were fitted again. A trial ends
early if it is hopeless. What was tried and not taken is kept: competing structures are among it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import Graph, adjacency_of, ancestors, is_acyclic, with_parents
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

KINDS = ("drop", "add")
# Nats that a short fit or a ranking at a fixed encoder is not wrong by.
HOPELESS = 60.0


@dataclass(frozen=True)
class Move:
    """A change of one edge: dropped or added."""

    kind: str
    cause: int
    effect: int

    def apply(self, fit: Fit) -> Fit | None:
        """Return the changed structure; None if the move does not apply, or closes a cycle."""
        is_edge = self.cause in fit.graph[self.effect]
        if is_edge == (self.kind == "add") or self.effect in fit.graph[self.cause]:
            return None
        change = _with_edge if self.kind == "add" else _without_edge
        changed = change(fit, self.cause, self.effect)
        return changed if is_acyclic(changed.graph) else None


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
            batch = [move for gain, move in self._ranked_losses(best) if gain < 0]
            found = self._drop_together(best, batch)
            if found is None:
                return self.refined(self.improved(best, kinds=("drop",)))
            best = found

    def improved(self, best: Fit, kinds: Sequence[str] = KINDS) -> Fit:
        """Try moves of single edges until none gains."""
        hopeless = set[Move]()
        while True:
            before = best.score
            for move in self._moves(best, kinds):
                changed = None if move in hopeless else move.apply(best)
                if changed is None:
                    continue
                found = self._followed(self._absorbing(changed, best.graph), best.score)
                if found.score > best.score + LEAST_GAIN:
                    self.not_taken.append(best)
                    best = found
                elif found.score < best.score - HOPELESS:
                    hopeless.add(move)
                elif move.kind == "drop":  # what has an edge too many is no other explanation
                    self.not_taken.append(found)
            if best.score < before + LEAST_GAIN:
                return best

    def _settled(self, fit: Fit, max_steps: int = STEPS) -> Fit:
        """Fit, leave out useless hidden units, fit again."""
        model = self.model
        fitted = model.only_useful_hidden_units(model.fitted(fit, max_steps))
        return model.scored(model.fitted(fitted, max_steps))

    def _ranked_losses(self, fit: Fit) -> list[tuple[float, Move]]:
        """Return what dropping each edge seems to cost beyond its price, the least first."""
        Z, price = self.model.latents(fit), relevance_edge_price(self.model.n)
        ranked = []
        for effect, (parents, shape, found) in enumerate(
            zip(fit.graph, fit.parameters, self.model.regressions(fit), strict=True)
        ):
            for k, cause in enumerate(parents):
                loss = loss_without(found, Z[:, list(parents)], shape, k) - price
                ranked.append((loss, Move("drop", cause, effect)))
        return _in_order(ranked)

    def _moves(self, fit: Fit, kinds: Sequence[str]) -> list[Move]:
        """Return moves, the most promising first."""
        ranked = []
        if "drop" in kinds:
            ranked += [pair for pair in self._ranked_losses(fit) if pair[0] < HOPELESS]
        if "add" in kinds:
            ranked += _in_order(self._ranked_gains(fit))[: self.model.n]
        return [move for _, move in _in_order(ranked)]

    def _ranked_gains(self, fit: Fit) -> Iterator[tuple[float, Move]]:
        """Yield minus what each further cause of a latent seems to gain."""
        Z, costs = self.model.latents(fit), self.model.costs(fit)
        price = relevance_edge_price(self.model.n)
        for cause, effect in _possible_edges(fit.graph):
            more = tuple(sorted((*fit.graph[effect], cause)))
            shape = _richer(fit.parameters[effect], more.index(cause))
            cost, _ = refit(Z[:, effect], Z[:, list(more)], shape)
            yield cost - costs[effect] + price, Move("add", cause, effect)

    def _followed(self, fit: Fit, goal: float) -> Fit:
        """Fit; stop early if it is behind the goal and does not catch up."""
        behind = np.inf
        for part in (8, 4, 2, 1):
            fit = self.model.scored(self.model.fitted(fit, STEPS // part))
            before, behind = behind, goal - fit.score
            if behind > CLEAR and 2 * (before - behind) < behind:
                return fit
        return self.model.scored(self.model.only_useful_hidden_units(fit))

    def _drop_together(self, best: Fit, batch: list[Move]) -> Fit | None:
        """Drop as many of the edges as the score allows: all, half of them, a quarter, ..."""
        model = self.model
        while batch:
            fit = best
            for move in batch:
                fit = _without_edge(fit, move.cause, move.effect)
            fitted = model.fitted(self._absorbing(fit, best.graph))
            found = model.scored(model.only_useful_hidden_units(fitted))
            if found.score > best.score:
                return found
            batch = batch[: len(batch) // 2]
        return None

    def _absorbing(self, fit: Fit, old: Graph) -> Fit:
        """Take what lost parents did linearly, beside the others, out of the latents themselves."""
        Z, H = self.model.latents(fit), fit.H.copy()
        changed = [j for j, parents in enumerate(fit.graph) if parents != old[j]]
        for j in changed:
            parents = fit.graph[j]
            lost = [i for i in old[j] if i not in parents]
            if lost:
                functions = functions_of(Z[:, list(parents)], fit.parameters[j]).values
                H[j] -= linear_effects(Z[:, j], Z[:, lost], functions) @ fit.H[lost]
        return self.model.shaped(replace(fit, H=unit_rows(H)), changed)


def _in_order(ranked: Iterable[tuple[float, Move]]) -> list[tuple[float, Move]]:
    return sorted(ranked, key=lambda pair: pair[0])


def _possible_edges(graph: Graph) -> Iterator[tuple[int, int]]:
    """Yield causes and effects that are no edge, and as one would close no cycle."""
    adjacency = adjacency_of(graph)
    for cause in range(len(graph)):
        above = {cause, *ancestors(adjacency, cause)}
        for effect in range(len(graph)):
            if effect not in above and cause not in graph[effect]:
                yield cause, effect


def _without_edge(fit: Fit, cause: int, effect: int) -> Fit:
    parents = fit.graph[effect]
    shape = fit.parameters[effect].without(parents.index(cause))
    return _changed(fit, effect, {*parents} - {cause}, shape)


def _with_edge(fit: Fit, cause: int, effect: int) -> Fit:
    parents = tuple(sorted((*fit.graph[effect], cause)))
    shape = _richer(fit.parameters[effect], parents.index(cause))
    return _changed(fit, effect, {*parents}, shape)


def _richer(shape: Shape, k: int) -> Shape:
    """Return the shape of a mechanism with one parent more, at place k."""
    wider = shape.with_parent(k)
    return wider if wider.n_hidden else wider.with_hidden_units()


def _changed(fit: Fit, j: int, parents: set[int], shape: Shape) -> Fit:
    shapes = (*fit.parameters[:j], shape, *fit.parameters[j + 1 :])
    return replace(fit, graph=with_parents(fit.graph, j, parents), parameters=shapes)
