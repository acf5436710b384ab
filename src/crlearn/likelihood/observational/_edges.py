"""Which graph: edges are dropped and added while the evidence gains; the encoder follows.

Whether an edge is needed cannot be seen at a fixed encoder: what a parent does linearly can be part
of the latent itself, and where noise is small the slightest error of a row calls for edges. So
moves are only ranked there, and judged after encoder and shapes were fitted again. A trial ends
early if it is hopeless. What was tried and not taken is kept: the rivals of the best are among it.

An edge must gain `edge_cost` nats, the price of having looked at many.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.graph import Graph, adjacency_of, ancestors, is_acyclic
from crlearn.likelihood.nodes._relevance import (
    Shape,
    functions_of,
    linear_effects,
    loss_without,
    refit,
)
from crlearn.likelihood.observational._childless import best_combination
from crlearn.likelihood.observational._model import Structure, unit_rows

Matrix = NDArray[np.floating]

KINDS = ("drop", "add")
_STEPS_OF_A_TRIAL = (4, 8, 12, 25)
# Nats for each row behind which a trial goes on only if it catches up.
_BEHIND = 0.006
# Nats for each row by which a move fails that is not tried again.
_FAR_BEHIND = 0.02
LEAST_GAIN = 0.3
_STEPS_OF_A_REFIT, _STEPS_OF_A_POLISH = 60, 30
_STEPS_TO_RANK_A_GAIN = 25
_HOPEFUL = 2.0  # nats that an edge may seem worth when several are dropped at once
# Nats for each row that an edge seems worth and is; with units what seems so is less certain.
_HOPELESS, _HOPELESS_WITH_UNITS = 0.02, 0.1
_MOST_ADDITIONS = 4
_ROWS_TO_RANK_A_GAIN = 5000
_MOST_FAR_OUT = 0.02  # share of a sample that is taken for being far out
_EXPECTED_OF_A_GAUSSIAN = 0.1  # rows beyond what counts as far out


@dataclass(frozen=True, eq=False)
class Candidate:
    """A structure and what it costs: negative log evidence plus the price of its edges."""

    structure: Structure
    cost: float


@dataclass(frozen=True)
class Move:
    """A change of one edge: dropped or added.

    If the cause has no effects, it may change with the edge: `taken` are its own causes and the
    multiples of them that are added to it (`observational._childless`).
    """

    kind: str
    cause: int
    effect: int
    taken: tuple[tuple[int, float], ...] = field(default=(), compare=False)

    def apply(self, structure: Structure) -> Structure | None:
        """Return the changed structure; None if the move does not apply, or closes a cycle."""
        is_edge = self.cause in structure.graph[self.effect]
        if is_edge == (self.kind == "add") or self.effect in structure.graph[self.cause]:
            return None
        if self.taken and not self._still_takes(structure.graph):
            return None
        if self.kind == "add":
            changed = _with_edge(structure, self.cause, self.effect)
            changed = _counted_with(changed, self.cause, self.taken)
        else:
            changed = _without_edge(structure, self.cause, self.effect)
        return changed if is_acyclic(changed.graph) else None

    def _still_takes(self, graph: Graph) -> bool:
        """Whether the cause has the causes that it had when the move was found, and no effects."""
        has_effects = any(self.cause in parents for parents in graph)
        return not has_effects and graph[self.cause] == tuple(other for other, _ in self.taken)


class StructureSearch:
    """Search over graphs, for some whitened rows.

    Attributes
    ----------
    y, edge_cost
        The rows, and the price of an edge in nats.
    not_taken
        What was tried and was not the best.
    """

    def __init__(self, y: Matrix, edge_cost: float) -> None:
        self.y, self.edge_cost = y, edge_cost
        self.not_taken: list[Candidate] = []

    def priced(self, structure: Structure) -> Candidate:
        """Return the structure with its cost."""
        return Candidate(structure, structure.evidence(self.y) + self.edge_cost * structure.n_edges)

    def settled(self, structure: Structure, max_steps: int) -> Candidate:
        """Fit, leave out useless units, fit again."""
        fitted = structure.fitted(self.y, max_steps=max_steps).only_useful_units(self.y)
        return self.priced(fitted.fitted(self.y, max_steps=max_steps))

    def refitted(self, candidate: Candidate) -> Candidate:
        """Fit what was found with other rows."""
        return self.polished(self.settled(candidate.structure, _STEPS_OF_A_REFIT))

    def polished(self, candidate: Candidate) -> Candidate:
        """Try other starts of the units, so that structures are compared at good optima."""
        structure = candidate.structure.with_better_units(self.y)
        if all(map(operator.is_, structure.shapes, candidate.structure.shapes)):
            return candidate
        found = self.priced(structure.fitted(self.y, max_steps=_STEPS_OF_A_POLISH))
        return min(found, candidate, key=lambda candidate: candidate.cost)

    def sparsified(self, structure: Structure, max_steps: int = 30) -> Candidate:
        """Drop edges from a dense graph: many at once while that works, then one by one."""
        best = self.settled(structure, max_steps)
        while True:
            ranked = self.ranked_losses(best.structure)
            batch = [move for gain, move in ranked if gain < _HOPEFUL]
            found = self._drop_together(best, batch, max_steps)
            if found is None:
                return self.polished(self.improved(best, kinds=("drop",)))
            best = found

    def improved(
        self, best: Candidate, kinds: Sequence[str] = KINDS, first: Sequence[str] | None = None
    ) -> Candidate:
        """Try moves of single edges until none gains; `first` are the kinds of the first round."""
        now, hopeless = kinds if first is None else first, set[tuple[Move, bool]]()
        while True:
            before = best.cost
            for move in self._moves(best.structure, now):
                way = (move, bool(move.taken))
                found = None if way in hopeless else self._tried(best, move)
                if found is None:
                    continue
                if found.cost > best.cost + _FAR_BEHIND * len(self.y):
                    hopeless.add(way)
                    continue
                if found.cost < best.cost - LEAST_GAIN:
                    self.not_taken.append(best)
                    best = found
                elif move.kind == "drop":  # what has an edge too many is no other explanation
                    self.not_taken.append(found)
            if best.cost > before - LEAST_GAIN:
                return best
            now = kinds

    def ranked_losses(self, structure: Structure) -> list[tuple[float, Move]]:
        """Return what dropping each edge seems to cost beyond its price, the least first."""
        Z = structure.latents(self.y)
        ranked = []
        for effect, (parents, shape, fit) in enumerate(
            zip(structure.graph, structure.shapes, structure.regressions(self.y), strict=True)
        ):
            for k, cause in enumerate(parents):
                loss = loss_without(fit, Z[:, list(parents)], shape, k) - self.edge_cost
                ranked.append((loss, Move("drop", cause, effect)))
        return sorted(ranked, key=lambda pair: pair[0])

    def _moves(self, structure: Structure, kinds: Sequence[str]) -> list[Move]:
        """Return moves, the most promising first."""
        ranked = []
        if "drop" in kinds:
            hopeless = _HOPELESS_WITH_UNITS if structure.has_units else _HOPELESS
            limit = hopeless * len(self.y)
            ranked += [pair for pair in self.ranked_losses(structure) if pair[0] < limit]
        if "add" in kinds:
            added: dict[Move, tuple[float, Move]] = {}  # of the ways to add an edge the best
            for pair in chain(self._ranked_gains(structure), self._gains_of_sinks(structure)):
                added[pair[1]] = min(pair, added.get(pair[1], pair), key=lambda pair: pair[0])
            ranked += sorted(added.values(), key=lambda pair: pair[0])[:_MOST_ADDITIONS]
        return [move for _, move in sorted(ranked, key=lambda pair: pair[0])]

    def _ranked_gains(self, structure: Structure) -> Iterator[tuple[float, Move]]:
        """Yield what each further cause of a latent seems to gain."""
        y = telling_rows(self.y, _ROWS_TO_RANK_A_GAIN)
        Z, costs = structure.latents(y), structure.costs(y)
        for cause, effect in _possible_edges(structure.graph):
            more = tuple(sorted((*structure.graph[effect], cause)))
            shape = _richer(structure, effect, more.index(cause))
            cost, _ = refit(Z[:, effect], Z[:, list(more)], shape, max_steps=_STEPS_TO_RANK_A_GAIN)
            yield cost - costs[effect] + self.edge_cost, Move("add", cause, effect)

    def _gains_of_sinks(self, structure: Structure) -> Iterator[tuple[float, Move]]:
        """Yield what latents with causes and no effects seem to gain as causes themselves.

        They are counted as is best for it; the gain is beyond that of their causes.
        """
        y = telling_rows(self.y, _ROWS_TO_RANK_A_GAIN)
        Z, noises = structure.latents(y), structure.noises(y)
        adjacency = adjacency_of(structure.graph)
        has_causes, has_effects = np.any(adjacency, axis=0), np.any(adjacency, axis=1)
        sinks = set(np.flatnonzero(has_causes & ~has_effects).tolist())
        for cause, effect in _possible_edges(structure.graph):
            if cause in sinks:
                own = structure.graph[cause]
                found = best_combination(noises[:, effect], Z[:, cause], Z[:, list(own)])
                if found is not None:
                    taken = tuple(zip(own, found.taken.tolist(), strict=True))
                    yield found.gain + self.edge_cost, Move("add", cause, effect, taken)

    def _tried(self, best: Candidate, move: Move) -> Candidate | None:
        """Return what a move leads to, as far as it is followed; None if it does not apply."""
        changed = move.apply(best.structure)
        if changed is None:
            return None
        if move.taken:
            changed = changed.shaped(self.y, [move.cause])
        return self._followed(_absorbing(changed, best.structure.graph, self.y), best.cost)

    def _followed(self, structure: Structure, goal: float) -> Candidate:
        """Fit; stop early if it is behind the goal and does not catch up."""
        behind = np.inf
        for max_steps in _STEPS_OF_A_TRIAL:
            structure = structure.fitted(self.y, max_steps=max_steps)
            now = self.priced(structure)
            before, behind = behind, now.cost - goal
            if behind > _BEHIND * len(self.y) and 2 * (before - behind) < behind:
                return now
        return self.priced(structure.only_useful_units(self.y))

    def _drop_together(
        self, best: Candidate, batch: list[Move], max_steps: int
    ) -> Candidate | None:
        """Drop as many of the edges as the evidence allows: all, half of them, a quarter, ..."""
        while batch:
            structure = best.structure
            for move in batch:
                structure = _without_edge(structure, move.cause, move.effect)
            structure = _absorbing(structure, best.structure.graph, self.y)
            fitted = structure.fitted(self.y, max_steps=max_steps).only_useful_units(self.y)
            found = self.priced(fitted)
            if found.cost < best.cost:
                return found
            batch = batch[: len(batch) // 2]
        return None


def telling_rows(y: Matrix, most: int) -> Matrix:
    """Return at most so many rows: some that are far out, and others, spread evenly.

    Products of latents have long tails, and where noise is small a few rows in them determine the
    encoder: a fit without those would not hold for all rows.
    """
    n_rows, n = y.shape
    if n_rows <= most:
        return y
    squared = np.einsum("ij,ij->i", y, y)
    unheard_of = chi2.isf(_EXPECTED_OF_A_GAUSSIAN / n_rows, n)
    n_far = min(int(_MOST_FAR_OUT * most), int((squared > unheard_of).sum()))
    by_distance = np.argsort(squared, kind="stable")
    near, far = np.sort(by_distance[: n_rows - n_far]), by_distance[n_rows - n_far :]
    spread = near[np.linspace(0, len(near) - 1, most - n_far).astype(int)]
    return y[np.sort(np.concatenate([spread, far]))]


def _possible_edges(graph: Graph) -> Iterator[tuple[int, int]]:
    """Yield causes and effects that are no edge, and as one would close no cycle."""
    adjacency = adjacency_of(graph)
    for cause in range(len(graph)):
        above = {cause, *ancestors(adjacency, cause)}
        for effect in range(len(graph)):
            if effect not in above and cause not in graph[effect]:
                yield cause, effect


def _counted_with(
    structure: Structure, latent: int, taken: Iterable[tuple[int, float]]
) -> Structure:
    """Add multiples of others to a latent."""
    H = structure.H.copy()
    for other, multiple in taken:
        H[latent] += multiple * structure.H[other]
    return replace(structure, H=unit_rows(H))


def _absorbing(structure: Structure, old: Graph, y: Matrix) -> Structure:
    """Take what lost parents did linearly, beside the others, out of the latents themselves."""
    Z, H = structure.latents(y), structure.H.copy()
    changed = [j for j, parents in enumerate(structure.graph) if parents != old[j]]
    for j in changed:
        parents = structure.graph[j]
        lost = [i for i in old[j] if i not in parents]
        if lost:
            functions = functions_of(Z[:, list(parents)], structure.shapes[j]).values
            H[j] -= linear_effects(Z[:, j], Z[:, lost], functions) @ structure.H[lost]
    return replace(structure, H=unit_rows(H)).shaped(y, changed)


def _without_edge(structure: Structure, cause: int, effect: int) -> Structure:
    parents = structure.graph[effect]
    shape = structure.shapes[effect].without(parents.index(cause))
    return _changed(structure, effect, tuple(i for i in parents if i != cause), shape)


def _with_edge(structure: Structure, cause: int, effect: int) -> Structure:
    parents = tuple(sorted((*structure.graph[effect], cause)))
    shape = _richer(structure, effect, parents.index(cause))
    return _changed(structure, effect, parents, shape)


def _richer(structure: Structure, effect: int, k: int) -> Shape:
    """Return the shape of a latent's mechanism with one parent more, at place k."""
    return structure.shapes[effect].with_parent(k).with_units()


def _changed(structure: Structure, j: int, parents: tuple[int, ...], shape: Shape) -> Structure:
    graph, shapes = list(structure.graph), list(structure.shapes)
    graph[j], shapes[j] = parents, shape
    return replace(structure, graph=tuple(graph), shapes=tuple(shapes))
