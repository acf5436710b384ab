"""Encoder, mechanisms and layers from one environment, by evidence.

1. *Starts*: rotations at which polynomial mechanisms fit best (`nodes._polynomial`),
   from many random ones; their cost does not depend on the number of rows.
2. *Complete graphs*: from each start, encoder and mechanisms of all latents before, by evidence
   (`observational._model`); what is not needed fades. Mechanisms are additive with
   products; if units of several parents help, they have units, too.
3. *Sparse graphs*: the best of them lose the edges that they do not need
   (`observational._edges`). In the best of these, with many latents in two, pairs
   of latents are turned into each other (`observational._rotations`) and edges dropped and
   added, until neither gains.
4. More rows decide again: pairs are turned, without units only if the graph, filled up and made
   sparse again, is better. Leaves that hide in it are looked for
   (`observational._leaves`); the others are its rivals.

Searches see some thousand rows at most, those far out among them; the last fit sees all. Time
grows as n^2 x rows of the search x (functions of a latent)^2, and with the number of edges to
decide on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from crlearn.graph import layers as layers_of
from crlearn.likelihood.nodes._polynomial import PolynomialModel
from crlearn.likelihood.nodes._relevance import Shape, functions_of
from crlearn.likelihood.observational._edges import (
    LEAST_GAIN,
    Candidate,
    StructureSearch,
    telling_rows,
)
from crlearn.likelihood.observational._leaves import with_hidden_leaves
from crlearn.likelihood.observational._model import Structure, complete
from crlearn.likelihood.observational._rotations import with_turned_pairs
from crlearn.likelihood.search._edges import Graph, adjacency_of
from crlearn.progress import progress_bar
from crlearn.tags import stored

Matrix = NDArray[np.floating]
Layers = tuple[tuple[int, ...], ...]
T = TypeVar("T")
U = TypeVar("U")
Priced = TypeVar("Priced", "Start", Candidate)

_ROWS_OF_THE_SEARCH, _ROWS_OF_DECISIONS, _ROWS_WORTH_A_THREAD = 2500, 10000, 2000
_ROTATIONS = 40
_FEW_LATENTS, _NOT_YET_MANY = 5, 8
_SAME_OPTIMUM = 0.3  # nats
_STEPS_OF_A_ROTATION = {2: 100, 3: 30}
_STEPS_OF_A_START, _STEPS_OF_A_LEADER = 30, 40
_STEPS_WITH_UNITS, _STEPS_OF_THE_LAST = 70, 200
_LEADERS = 6
_UNITS_HELP = 20.0  # nats by which the best must be better with units
_ORDERS = 2  # in which a graph is filled up
_FOLLOWED_WITH_MORE_ROWS = 2  # turns of pairs
_REFITTED, _MOST_RIVALS = 4, 20
_STAGES = 6  # that progress is shown of
_WORTH_A_ROUND = 0.001  # nats for each row that a round must gain where rows are many
_EDGE_COST = 3.0  # nats, plus the log of the number of latents


class Start(NamedTuple):
    """A rotation and the negative log-likelihood of polynomial mechanisms there, in nats."""

    rotation: Matrix
    cost: float


class Effort(NamedTuple):
    """How many are followed.

    Starts of a degree, complete graphs that lose edges, sparse ones whose pairs are turned, and
    turns of each.
    """

    starts: int
    sparsified: int
    turned: int
    followed: int


@stored("noise/mechanism")
@dataclass(frozen=True, eq=False)
class Mechanism:
    """What a latent's parents predict.

    Attributes
    ----------
    parents
        Which latents.
    directions, thresholds
        Of its units.
    coefficients, means
        Of its functions (`nodes._relevance`).
    """

    parents: tuple[int, ...]
    directions: Matrix
    thresholds: Matrix
    coefficients: Matrix
    means: Matrix

    def __call__(self, Z: Matrix) -> Matrix:
        """Return the prediction for each row of latents."""
        if not self.parents:
            return np.zeros(len(Z))
        units = (self.directions, self.thresholds)
        shape = Shape(*Shape.start(len(self.parents)).precisions(), *units)
        functions = functions_of(Z[:, list(self.parents)], shape).values
        return (functions - self.means) @ self.coefficients


@stored("noise/mechanisms")
@dataclass(frozen=True, eq=False)
class Mechanisms:
    """What is predicted of each latent, as a function of all latents of a row."""

    each: tuple[Mechanism, ...]

    def __call__(self, Z: Matrix) -> Matrix:
        """Return the predictions, ``(N, n)``."""
        return np.column_stack([mechanism(Z) for mechanism in self.each])


@dataclass(frozen=True, eq=False)
class Rival:
    """Another structure.

    Attributes
    ----------
    H, graph, layers
        As those of the fit.
    evidence_gap
        Nats by which it is worse than the best.
    agreement
        Of its noises with those of the best, layer by layer; 1 if the answer is the same.
    """

    H: Matrix
    graph: Graph
    layers: Layers
    evidence_gap: float
    agreement: float


@dataclass(frozen=True, eq=False)
class ObservationalFit:
    """What one environment tells.

    Attributes
    ----------
    H
        Encoder of whitened rows; latents causes first.
    graph
        Parents of each latent.
    layers
        Latents of each layer, roots first.
    mechanisms
        Predictions of the latents.
    evidence
        Negative log evidence with the price of the edges, in nats.
    gain
        Nats by which it is better than a Gaussian.
    rivals
        Other structures, the best first.
    """

    H: Matrix
    graph: Graph
    layers: Layers
    mechanisms: Mechanisms
    evidence: float
    gain: float
    rivals: tuple[Rival, ...]


def fit_observational(
    y: Matrix, *, rng: np.random.Generator, starts: Sequence[Matrix] | None = None
) -> ObservationalFit:
    """Fit whitened rows; `starts` are encoders to begin with in place of a search for them."""
    n = y.shape[1]
    edge_cost, effort = _EDGE_COST + np.log(n), _effort(n)
    few, more = telling_rows(y, _ROWS_OF_THE_SEARCH), telling_rows(y, _ROWS_OF_DECISIONS)
    with (
        threadpool_limits(1),
        _Workers(len(few)) as workers,
        progress_bar("Observational fit", _STAGES) as advance,
    ):
        if starts is None:
            starts = starting_rotations(y, rng, effort.starts, workers.map)
        advance("complete graphs")
        search = StructureSearch(few, edge_cost)
        dense = _dense_structures(starts, few, workers.map)
        advance("edges are dropped")
        sparse = distinct(workers.map(search.sparsified, dense[: effort.sparsified]))
        advance("pairs are turned")
        goes_on = len(more) > len(few)
        enough = _WORTH_A_ROUND * len(few) if goes_on else LEAST_GAIN
        turned = [
            _turned_and_improved(search, start, workers.map, effort.followed, enough)
            for start in sparse[: effort.turned]
        ]
        best = min(turned, key=lambda candidate: candidate.cost)
        others = [other for other in (*turned, *sparse, *search.not_taken) if other is not best]
        advance("more rows decide")
        if goes_on:
            kept = distinct([best, *others])[:_REFITTED]
            search = StructureSearch(more, edge_cost)
            best, *others = distinct(workers.map(search.refitted, kept))
            best = decided_again(search, best, rng, workers.map)
            others += search.not_taken
        advance("leaves, and the last fit")
        best = with_hidden_leaves(search, best)
        structure = best.structure.fitted(y, max_steps=_STEPS_OF_THE_LAST)
    structure = causes_first(structure, y)
    cost = StructureSearch(y, edge_cost).priced(structure).cost
    return ObservationalFit(
        structure.H,
        structure.graph,
        layers_roots_first(structure.graph),
        mechanisms_of(structure, y),
        cost,
        -cost,
        _rivals(best, others, few),
    )


def _effort(n: int) -> Effort:
    """Fits of few latents are quick; with many latents a search may end in a wrong structure."""
    if n <= _FEW_LATENTS:
        return Effort(starts=6, sparsified=6, turned=1, followed=6)
    if n <= _NOT_YET_MANY:
        return Effort(starts=3, sparsified=4, turned=1, followed=4)
    return Effort(starts=6, sparsified=6, turned=2, followed=4)


def starting_rotations(
    y: Matrix,
    rng: np.random.Generator,
    n_per_degree: int = 6,
    run: Callable[..., list] | None = None,
) -> list[Matrix]:
    """Return distinct rotations at which polynomial mechanisms fit best, quadratic and cubic."""
    run = run or (lambda function, items: [function(item) for item in items])
    n = y.shape[1]
    found: list[Matrix] = []
    for degree in (2, 3) if n <= _NOT_YET_MANY else (2,):
        model = PolynomialModel.of(y, degree)
        random = [np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(_ROTATIONS)]
        descend = partial(model.minimise, max_steps=_STEPS_OF_A_ROTATION[degree])
        reached = [Start(Q, value * len(y)) for Q, value in run(descend, random)]
        found += [start.rotation for start in distinct(reached)[:n_per_degree]]
    return found


def distinct(candidates: Iterable[Priced]) -> list[Priced]:
    """Return candidates, the best first, without those that are another's equal."""
    kept: list[Priced] = []
    for candidate in sorted(candidates, key=lambda candidate: candidate.cost):
        if not kept or candidate.cost - kept[-1].cost > _SAME_OPTIMUM:
            kept.append(candidate)
    return kept


def causes_first(structure: Structure, y: Matrix) -> Structure:
    """Put latents into the order of their layers; in a layer those that are explained best first.

    A latent without effects is in the last layer, whatever its causes; one without causes, too, is
    the very last.
    """
    height = np.empty(len(structure.H), dtype=int)
    for k, layer in enumerate(layers_of(adjacency_of(structure.graph))):
        height[layer] = k
    left = structure.noises(y).var(axis=0)
    order = np.lexsort((left, -height))
    place = np.argsort(order)
    graph, shapes = [], []
    for j in order:
        parents = structure.graph[j]
        among = np.argsort(place[list(parents)]) if parents else np.zeros(0, dtype=int)
        graph.append(tuple(int(place[parents[k]]) for k in among))
        shapes.append(structure.shapes[j].reordered(among))
    return Structure(structure.H[order], tuple(graph), tuple(shapes))


def layers_roots_first(graph: Graph) -> Layers:
    """Return the latents of each layer."""
    return tuple(tuple(layer.tolist()) for layer in layers_of(adjacency_of(graph))[::-1])


def mechanisms_of(structure: Structure, y: Matrix) -> Mechanisms:
    """Return the predictions of the latents."""
    return Mechanisms(
        tuple(
            Mechanism(parents, shape.directions, shape.thresholds, fit.coefficients, fit.means)
            for parents, shape, fit in zip(
                structure.graph, structure.shapes, structure.regressions(y), strict=True
            )
        )
    )


def agreement(noise: Matrix, layers: Layers, other: Matrix, other_layers: Layers) -> float:
    """Return how much of each noise the other answer has in the same layer, counted from below."""
    noise, other = noise - noise.mean(axis=0), other - other.mean(axis=0)
    explained = np.zeros(noise.shape[1])
    for own, their in zip(layers[::-1], other_layers[::-1], strict=False):
        target, basis = noise[:, list(own)], other[:, list(their)]
        fitted = basis @ np.linalg.lstsq(basis, target, rcond=None)[0]
        explained[list(own)] = (fitted**2).sum(axis=0) / (target**2).sum(axis=0)
    return float(np.sqrt(explained).mean())


def _dense_structures(
    starts: Sequence[Matrix], y: Matrix, run: Callable[..., list]
) -> list[Structure]:
    """Fit complete graphs from all starts; return them, the best first."""
    graph = complete(y.shape[1])

    def fitted(H: Matrix, *, units: bool) -> Candidate:
        structure = Structure.start(H, graph, units=units).shaped(y)
        return settled(structure, _STEPS_WITH_UNITS if units else _STEPS_OF_A_START)

    def settled(structure: Structure, max_steps: int = _STEPS_OF_A_LEADER) -> Candidate:
        structure = structure.fitted(y, max_steps=max_steps)
        return Candidate(structure, structure.objective(y))

    additive, with_units = partial(fitted, units=False), partial(fitted, units=True)
    sums = run(additive, starts)
    order = np.argsort([fit.cost for fit in sums])
    leaders = run(settled, [sums[k].structure for k in order[:_LEADERS]])
    richer = run(with_units, [starts[k] for k in order[:_LEADERS]])
    gain = min(fit.cost for fit in leaders) - min(fit.cost for fit in richer)
    if gain < _UNITS_HELP:
        found = [*leaders, *(sums[k] for k in order[_LEADERS:])]
    else:
        found = richer + run(with_units, [starts[k] for k in order[_LEADERS:]])
    return [fit.structure for fit in distinct(found)]


def _turned_and_improved(
    search: StructureSearch,
    best: Candidate,
    run: Callable[..., list],
    n_followed: int,
    enough: float,
) -> Candidate:
    """Turn pairs of latents and move edges in turn, until neither gains enough."""
    first: Sequence[str] | None = ("add",)
    while True:
        turned = with_turned_pairs(search, best, run, n_followed, enough)
        best = search.polished(search.improved(turned, first=first))
        if best.cost > turned.cost - enough:
            return best
        first = None


def decided_again(
    search: StructureSearch,
    best: Candidate,
    rng: np.random.Generator,
    run: Callable[..., list],
) -> Candidate:
    """Search on with more rows.

    With units in the graph pairs are turned. Without, it is filled up first, and pairs are turned
    if that gained: to fill up is quick there; with units it takes long, and led to nothing that
    turns do not find.
    """
    enough = _WORTH_A_ROUND * len(search.y)
    if not best.structure.has_units:
        filled = _filled_up_and_sparsified(search, best, rng, run)
        if filled.cost > best.cost - enough:
            best = min(filled, best, key=lambda candidate: candidate.cost)
            return search.polished(search.improved(best))
        best = filled
    return _turned_and_improved(search, best, run, _FOLLOWED_WITH_MORE_ROWS, enough)


def _filled_up_and_sparsified(
    search: StructureSearch,
    best: Candidate,
    rng: np.random.Generator,
    run: Callable[..., list],
) -> Candidate:
    """Give each latent all causes that some order allows, without units, and drop edges again."""

    def sparsified(order: list[int]) -> Candidate:
        dense = Structure.start(best.structure.H[order], complete(len(order))).shaped(search.y)
        return search.sparsified(dense.fitted(search.y, max_steps=_STEPS_OF_A_LEADER))

    orders = [random_order(best.structure.graph, rng) for _ in range(_ORDERS)]
    return min(run(sparsified, orders), key=lambda candidate: candidate.cost)


def random_order(graph: Graph, rng: np.random.Generator) -> list[int]:
    """Return the latents in an order in which causes come before their effects."""
    order: list[int] = []
    while len(order) < len(graph):
        ready = [
            j for j, parents in enumerate(graph) if j not in order and set(parents) <= set(order)
        ]
        order.append(int(rng.choice(ready)))
    return order


def _rivals(best: Candidate, others: Iterable[Candidate], y: Matrix) -> tuple[Rival, ...]:
    noise, layers = best.structure.noises(y), layers_roots_first(best.structure.graph)
    rivals = []
    for other in distinct(others)[:_MOST_RIVALS]:
        structure = causes_first(other.structure, y)
        theirs = layers_roots_first(structure.graph)
        rivals.append(
            Rival(
                structure.H,
                structure.graph,
                theirs,
                max(float(other.cost - best.cost), 0.0),
                agreement(noise, layers, structure.noises(y), theirs),
            )
        )
    return tuple(sorted(rivals, key=lambda rival: rival.evidence_gap))


class _Workers:
    """Threads for fits that do not depend on each other; results keep their order.

    With few rows the fits are short calls that would only wait for each other.
    """

    def __init__(self, n_rows: int) -> None:
        self._n_threads = cpu_count() if n_rows >= _ROWS_WORTH_A_THREAD else 1

    def __enter__(self) -> _Workers:
        self._threads = ThreadPoolExecutor(self._n_threads)
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def map(self, function: Callable[[T], U], items: Iterable[T]) -> list[U]:
        """Apply a function to all items."""
        return list(self._threads.map(function, items))
