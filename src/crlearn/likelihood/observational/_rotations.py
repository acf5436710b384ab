"""Rotation moves: two latents become two combinations of them, with all edges this may call for.

Moves of single edges cannot leave a structure in which two latents are mixtures of the right ones.
So two latents between which there is no path, or an edge alone, are replaced by two combinations of
them. All they depended on, and all that depended on them, may depend on either; then edges are
dropped again. A quarter rotation of two latents with an edge between them is that edge reversed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import Graph, adjacency_of, ancestors
from crlearn.likelihood._fit import Fit
from crlearn.likelihood.core._encoder import unit_rows
from crlearn.likelihood.nodes._relevance import STEPS, Shape
from crlearn.likelihood.observational._edges import HOPELESS, EdgeSearch
from crlearn.likelihood.observational._model import RelevanceModel, has_hidden_units
from crlearn.likelihood.observational._start import Run
from crlearn.likelihood.search._local import LEAST_GAIN

Matrix = NDArray[np.floating]

_AT_A_TIME = 2  # whatever the number of threads, so that the answer does not depend on it


@dataclass(frozen=True)
class Rotation:
    """Two latents, the first not an effect of the second, and an angle."""

    first: int
    second: int
    angle: float

    def apply(self, model: RelevanceModel, fit: Fit) -> tuple[Fit, list[int]]:
        """Return the structure with the pair rotated, and the latents whose shapes are new."""
        pair = [self.first, self.second]
        noise_sd = model.residuals(fit).std(axis=0)
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        H = fit.H.copy()
        H[pair] = np.array([[cos, sin], [-sin, cos]]) @ (H[pair] / noise_sd[pair, None])
        parents = [set(own) for own in fit.graph]
        causes = (parents[self.first] | parents[self.second]) - {*pair}
        effects = [j for j, own in enumerate(parents) if own & {*pair} and j not in pair]
        for j in effects:
            parents[j] |= {*pair}
        parents[self.first], parents[self.second] = causes, causes | {self.first}
        graph = tuple(tuple(sorted(own)) for own in parents)
        shapes, changed = list(fit.parameters), [*pair, *effects]
        for j in changed:
            shapes[j] = Shape.start(len(graph[j]), hidden_units=has_hidden_units(fit))
        return model.unscored(unit_rows(H), graph, tuple(shapes)), changed


def with_rotations(search: EdgeSearch, best: Fit, run: Run, n_followed: int) -> Fit:
    """Rotate pairs while the score rises; `run` maps a function over items.

    The most promising rotations are followed, some at a time, until all needless edges are gone
    again.
    """
    while True:
        start = best
        follow = partial(_followed, search=search, fit=start)
        promising = _promising(search.model, start, run)[:n_followed]
        for k in range(0, len(promising), _AT_A_TIME):
            reached = [best, *run(follow, promising[k : k + _AT_A_TIME])]
            best = max(reached, key=lambda fit: fit.score)
            search.not_taken += [fit for fit in reached if fit is not best]
            if best.score > start.score + LEAST_GAIN:
                break
        else:
            return best


def rotations_of(graph: Graph) -> Iterator[Rotation]:
    """Yield the rotations of all pairs without an indirect path."""
    above = [set(ancestors(adjacency_of(graph), j)) for j in range(len(graph))]
    for a, b in combinations(range(len(graph)), 2):
        first, second = (b, a) if b in above[a] else (a, b)
        if any(first in above[between] for between in above[second]):
            continue
        yield Rotation(first, second, np.pi / 4)
        yield Rotation(first, second, -np.pi / 4)
        if first in above[second]:
            yield Rotation(first, second, np.pi / 2)


def _promising(model: RelevanceModel, fit: Fit, run: Run) -> list[Rotation]:
    """Return the rotations that cost little before edges are dropped, the best first."""
    fit = model.scored(model.fitted(fit, 2 * STEPS))

    def log_evidence(rotation: Rotation) -> float:
        return model.scored(_fitted(rotation, model, fit)).log_likelihood

    rotations = list(rotations_of(fit.graph))
    ranked = zip(run(log_evidence, rotations), rotations, strict=True)
    ranked = sorted(ranked, key=lambda pair: -pair[0])
    limit = fit.log_likelihood - HOPELESS
    return [rotation for value, rotation in ranked if value > limit]


def _fitted(rotation: Rotation, model: RelevanceModel, fit: Fit) -> Fit:
    rotated, changed = rotation.apply(model, fit)
    return model.fitted(model.shaped(rotated, changed), STEPS // 2)


def _followed(rotation: Rotation, search: EdgeSearch, fit: Fit) -> Fit:
    return search.sparsified(_fitted(rotation, search.model, fit))
