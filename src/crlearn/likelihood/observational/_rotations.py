"""Two latents at a time: turned into each other, with all edges that this may call for.

Moves of single edges cannot leave a structure in which two latents are mixtures of the right ones.
So two latents between which there is no path, or an edge alone, are replaced by two combinations of
them. All they depended on, and all that depended on them, may depend on either; then edges are
dropped again. A quarter turn of two latents with an edge between them is that edge reversed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import Graph, adjacency_of, ancestors
from crlearn.likelihood.nodes._relevance import Shape
from crlearn.likelihood.observational._edges import (
    LEAST_GAIN,
    Candidate,
    StructureSearch,
    telling_rows,
)
from crlearn.likelihood.observational._model import Structure, unit_rows

Matrix = NDArray[np.floating]

_EIGHTH, _QUARTER = np.pi / 4, np.pi / 2  # of a whole turn
_ROWS_TO_RANK = 2500
_BEHIND = 0.03  # nats for each row that a turn may cost before edges are dropped
_STEPS_OF_A_TRIAL = 15
_AT_A_TIME = 2  # whatever the number of threads, so that the answer does not depend on it


@dataclass(frozen=True)
class Turn:
    """Two latents, the first not an effect of the second, and an angle."""

    first: int
    second: int
    angle: float

    def apply(self, structure: Structure, noise_sd: Matrix) -> tuple[Structure, list[int]]:
        """Return the structure with the pair turned, and the latents whose shapes are new."""
        pair = [self.first, self.second]
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        H = structure.H.copy()
        H[pair] = np.array([[cos, sin], [-sin, cos]]) @ (H[pair] / noise_sd[pair, None])
        parents = [set(own) for own in structure.graph]
        causes = (parents[self.first] | parents[self.second]) - {*pair}
        effects = [j for j, own in enumerate(parents) if own & {*pair} and j not in pair]
        for j in effects:
            parents[j] |= {*pair}
        parents[self.first], parents[self.second] = causes, causes | {self.first}
        graph = tuple(tuple(sorted(own)) for own in parents)
        shapes, changed = list(structure.shapes), [*pair, *effects]
        for j in changed:
            shapes[j] = Shape.start(len(graph[j]), units=structure.has_units)
        return replace(structure, H=unit_rows(H), graph=graph, shapes=tuple(shapes)), changed


def with_turned_pairs(
    search: StructureSearch,
    best: Candidate,
    run: Callable[..., list],
    n_followed: int,
    least_gain: float = LEAST_GAIN,
) -> Candidate:
    """Turn pairs while the evidence gains; `run` maps a function over items.

    The most promising turns are followed until all needless edges are gone again.
    """
    while True:
        found = _better_turn(search, best, run, n_followed, least_gain)
        if found.cost > best.cost - least_gain:
            return min(found, best, key=lambda candidate: candidate.cost)
        best = found


def turns_of(graph: Graph) -> Iterator[Turn]:
    """Yield the turns of all pairs without an indirect path."""
    above = [set(ancestors(adjacency_of(graph), j)) for j in range(len(graph))]
    for a, b in combinations(range(len(graph)), 2):
        first, second = (b, a) if b in above[a] else (a, b)
        if any(first in above[between] for between in above[second]):
            continue
        angles = [_EIGHTH, -_EIGHTH]
        if first in above[second]:
            angles.append(_QUARTER)
        for angle in angles:
            yield Turn(first, second, angle)


def _better_turn(
    search: StructureSearch,
    best: Candidate,
    run: Callable[..., list],
    n_followed: int,
    least_gain: float,
) -> Candidate:
    """Follow the most promising turns, some at a time, until one gains."""

    def followed(turn: Turn) -> Candidate:
        return search.sparsified(_fitted(turn, best.structure, search.y))

    rows = telling_rows(search.y, _ROWS_TO_RANK)
    promising = _promising_turns(best.structure, rows, run)[:n_followed]
    found = best
    for k in range(0, len(promising), _AT_A_TIME):
        reached = run(followed, promising[k : k + _AT_A_TIME])
        now = min([found, *reached], key=lambda candidate: candidate.cost)
        search.not_taken += [other for other in (found, *reached) if other is not now]
        found = now
        if found.cost < best.cost - least_gain:
            break
    return found


def _promising_turns(structure: Structure, y: Matrix, run: Callable[..., list]) -> list[Turn]:
    """Return the turns that cost little before edges are dropped, the best first.

    What few rows say of a turn is a hint, and no start for a fit of all of them: that can end in
    another optimum.
    """
    structure = structure.fitted(y)

    def cost(turn: Turn) -> float:
        return _fitted(turn, structure, y).evidence(y)

    turns = list(turns_of(structure.graph))
    limit = structure.evidence(y) + _BEHIND * len(y)
    ranked = sorted(zip(run(cost, turns), turns, strict=True), key=lambda pair: pair[0])
    return [turn for value, turn in ranked if value < limit]


def _fitted(turn: Turn, structure: Structure, y: Matrix) -> Structure:
    turned, changed = turn.apply(structure, structure.noises(y).std(axis=0))
    return turned.shaped(y, changed).fitted(y, max_steps=_STEPS_OF_A_TRIAL)
