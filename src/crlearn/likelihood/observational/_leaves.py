"""Leaves that hide in a sparse structure.

Two latents with independent noises and no path between them can be turned into each other: their
noises stay independent, and whatever depends on one of them depends on a mixture instead. Which
turn is right is not a matter of the evidence alone. If two latents have the same causes, the turn
that cancels a mechanism makes the graph sparser, at the price that a child depends on both, though
only through one combination of them. The density knows better: the other combination is a leaf,
and layers are made of leaves. So of structures that fit about equally, the one with more leaves is
taken.

A turn is proposed where all children of two latents see one combination of them. The other form of
the same thing is a latent whose effects are all linear: it can be counted from its effects instead,
and then it is a leaf that shares their other causes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import Graph, adjacency_of, ancestors, layers
from crlearn.likelihood.nodes._relevance import Shape, functions_of, gradient
from crlearn.likelihood.observational._edges import Candidate, StructureSearch
from crlearn.likelihood.observational._model import Structure, unit_rows

Matrix = NDArray[np.floating]

_ABOUT_EQUAL = 12.0  # nats
_ONE_COMBINATION = 0.1  # share of the other combination in the squared slopes of the children
_LEAST_ANGLE = np.deg2rad(8)  # between the combination and either latent
_NEARLY_LINEAR = 30.0  # nats that an effect is worth beyond its linear part
_STEPS = 60


def with_hidden_leaves(search: StructureSearch, best: Candidate) -> Candidate:
    """Turn pairs of latents while leaves appear and the evidence stays about the same."""
    limit = best.cost + _ABOUT_EQUAL
    while True:
        found = _first_turn(search, best, limit)
        if found is None:
            return best
        best = found


def _first_turn(search: StructureSearch, best: Candidate, limit: float) -> Candidate | None:
    depth = _depth(best.structure.graph)
    for turned in chain(_turns(best.structure, search.y), _reversals(search, best.structure)):
        candidate = search.priced(turned.shaped(search.y).fitted(search.y, max_steps=_STEPS))
        if candidate.cost > limit + _ABOUT_EQUAL:
            continue
        candidate = search.improved(candidate, kinds=("drop",))
        is_hidden = candidate.structure.n_edges >= best.structure.n_edges  # not an edge dropped
        if is_hidden and candidate.cost < limit and _depth(candidate.structure.graph) < depth:
            return candidate
    return None


def _depth(graph: Graph) -> int:
    """Return the sum over latents of the longest path to a leaf."""
    return sum(k * len(layer) for k, layer in enumerate(layers(adjacency_of(graph))))


def _turns(structure: Structure, y: Matrix) -> Iterator[Structure]:
    """Yield structures in which one of two latents became a leaf, the clearest first."""
    noise_sd = structure.noises(y).std(axis=0)
    proposals = []
    for a, b in _pairs_without_path(structure.graph):
        children = [j for j, parents in enumerate(structure.graph) if {a, b} & set(parents)]
        if not any({a, b} <= set(structure.graph[j]) for j in children):
            continue
        seen = sum(_squared_slopes(structure, y, j, a, b, noise_sd) for j in children)
        shares, directions = np.linalg.eigh(seen)
        angle = np.arctan2(*np.abs(directions[::-1, 1]))
        if (
            min(angle, np.pi / 2 - angle) > _LEAST_ANGLE
            and shares[0] < _ONE_COMBINATION * shares[1]
        ):
            proposals.append((shares[0] / shares[1], a, b, directions[:, 1]))
    for _, a, b, direction in sorted(proposals, key=lambda proposal: proposal[:3]):
        yield _turned(structure, a, b, direction, noise_sd)


def _reversals(search: StructureSearch, structure: Structure) -> Iterator[Structure]:
    """Yield structures in which a latent with linear effects alone became a leaf."""
    worst: dict[int, float] = {}
    for loss, edge in search.ranked_losses(structure):
        worst[edge.cause] = max(worst.get(edge.cause, -np.inf), loss)
    for latent in sorted(worst, key=worst.__getitem__):
        if worst[latent] < _NEARLY_LINEAR:
            yield _counted_from_its_effects(structure, latent, search.y)


def _counted_from_its_effects(structure: Structure, latent: int, y: Matrix) -> Structure:
    effects = [j for j, parents in enumerate(structure.graph) if latent in parents]
    graph, shapes = list(structure.graph), list(structure.shapes)
    causes = set(graph[latent])
    for j in effects:
        shapes[j] = shapes[j].without(graph[j].index(latent))
        graph[j] = tuple(i for i in graph[j] if i != latent)
        causes |= set(graph[j])
    graph[latent] = tuple(sorted(causes))
    shapes[latent] = Shape.start(len(causes), units=any(shapes[j].n_units for j in effects))
    Z = structure.latents(y)
    functions = [Z[:, effects], np.ones((len(y), 1))]
    if causes:
        functions.append(functions_of(Z[:, list(graph[latent])], shapes[latent]).values)
    coefficients = np.linalg.lstsq(np.column_stack(functions), Z[:, latent], rcond=None)[0]
    H = structure.H.copy()
    H[latent] -= coefficients[: len(effects)] @ H[effects]
    return replace(structure, H=unit_rows(H), graph=tuple(graph), shapes=tuple(shapes))


def _pairs_without_path(graph: Graph) -> Iterator[tuple[int, int]]:
    adjacency = adjacency_of(graph)
    for a, b in combinations(range(len(graph)), 2):
        if a not in ancestors(adjacency, b) and b not in ancestors(adjacency, a):
            yield a, b


def _squared_slopes(
    structure: Structure, y: Matrix, child: int, a: int, b: int, noise_sd: Matrix
) -> Matrix:
    """Return the mean outer product of a child's slopes by two latents, per sd of their noises.

    Relative to the noise of the child, so that children compare.
    """
    parents = structure.graph[child]
    Z = structure.latents(y)[:, list(parents)]
    fit = structure.regressions(y)[child]
    by_parent = gradient(fit, Z, structure.shapes[child])
    slopes = np.zeros((len(y), 2))
    for column, latent in enumerate((a, b)):
        if latent in parents:
            slopes[:, column] = by_parent[:, parents.index(latent)]
    slopes *= noise_sd[[a, b]] / noise_sd[child]
    return slopes.T @ slopes / len(y)


def _turned(structure: Structure, a: int, b: int, direction: Matrix, noise_sd: Matrix) -> Structure:
    """Return the structure in which b is the combination that children see, and a is a leaf."""
    H = structure.H.copy()
    unit_noise = H[[a, b]] / noise_sd[[a, b], None]
    H[b] = direction @ unit_noise
    H[a] = np.array([direction[1], -direction[0]]) @ unit_noise
    graph, shapes = list(structure.graph), list(structure.shapes)
    union = tuple(sorted({*graph[a], *graph[b]}))
    for j, parents in enumerate(structure.graph):
        if {a, b} & set(parents):
            graph[j] = tuple(sorted({*parents, b} - {a}))
            shapes[j] = Shape.start(len(graph[j]), units=shapes[j].n_units > 0)
    for j in (a, b):
        graph[j] = union
        shapes[j] = Shape.start(len(union), units=bool(shapes[j].n_units))
    return replace(structure, H=unit_rows(H), graph=tuple(graph), shapes=tuple(shapes))
