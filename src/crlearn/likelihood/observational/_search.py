"""Encoder, mechanisms and layers from one environment, by evidence.

1. *Starts*: complete graphs from rotations that suit cubic mechanisms
   (`observational._start`).
2. *Sparse graphs*: the best of them lose the edges that they do not need
   (`observational._edges`).
3. In the best of these, pairs of latents are rotated into each other (`observational._rotations`)
   and edges dropped and added, until neither gains.
4. The best structures are fitted to more rows, which decide between them, and the last one to all.
   The others are its alternatives.

Time grows as n^2 x rows of the search x (functions of a latent)^2, and with the number of edges to
decide on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from crlearn.graph import graph_of
from crlearn.likelihood._fit import Fit
from crlearn.likelihood.core._subsample import some_rows
from crlearn.likelihood.nodes._relevance import STEPS
from crlearn.likelihood.observational._edges import EdgeSearch
from crlearn.likelihood.observational._model import RelevanceModel
from crlearn.likelihood.observational._rotations import with_rotations
from crlearn.likelihood.observational._start import Run, complete_structures, starting_rotations
from crlearn.likelihood.search._local import LEAST_GAIN
from crlearn.progress import progress_bar
from crlearn.result import SAME_ANSWER

Matrix = NDArray[np.floating]
T = TypeVar("T")
U = TypeVar("U")

# Four times as many decide. With fewer, fits are short calls: threads would wait for each other.
_ROWS_OF_THE_SEARCH = 2500
_MOST_ALTERNATIVES = 20  # that a result keeps
_STAGES = 4  # that progress is shown of


def fit_observational(
    y: Matrix,
    *,
    rng: np.random.Generator,
    starts: Sequence[Matrix] | None = None,
    n_starts: int = 6,
) -> Fit:
    """Fit whitened rows.

    Parameters
    ----------
    y
        Rows, whitened.
    rng
        For the rotations to start from.
    starts
        Encoders to begin with in place of a search for them.
    n_starts
        How much is searched: the number of starts, and with it those of complete graphs that lose
        edges and of rotations that are followed.

    Returns
    -------
    fit
        Latents are in the order of their layers, those of the last layer first.
    """
    few, more = some_rows(y, _ROWS_OF_THE_SEARCH), some_rows(y, 4 * _ROWS_OF_THE_SEARCH)
    n_followed = n_starts // 2 + 1
    search = EdgeSearch(RelevanceModel(few))
    n_threads = 1 if len(few) < _ROWS_OF_THE_SEARCH else cpu_count()
    with (
        threadpool_limits(1),
        ThreadPoolExecutor(n_threads) as threads,
        progress_bar("Observational fit", _STAGES) as advance,
    ):

        def run(function: Callable[[T], U], items: Iterable[T]) -> list[U]:
            return list(threads.map(function, items))

        if starts is None:
            starts = starting_rotations(more, rng, n_starts, run)
        advance("complete graphs")
        dense = complete_structures(search.model, starts, run)
        advance("edges are dropped")
        sparse = run(search.sparsified, dense[:n_followed])
        advance("pairs are rotated")
        first = max(sparse, key=lambda fit: fit.score)
        best = _rotated_and_improved(search, first, run, n_followed)
        competing = _competing([best, *sparse, *search.not_taken], few)
        if len(more) > len(few):
            again = EdgeSearch(RelevanceModel(more))
            competing = _competing(run(again.refitted, competing[:n_starts]), few)
        best, *others = competing
        advance("all rows")
        model = RelevanceModel(y)
        with threadpool_limits(n_threads):  # there is one fit left for all of them
            fit = model.scored(model.fitted(best, 8 * STEPS))  # it ends by itself, as a rule
    return replace(
        in_order_of_layers(fit, model),
        alternatives=tuple(
            # The other rows that they were compared on tell how far they are behind.
            replace(
                in_order_of_layers(other, search.model),
                log_likelihood=fit.score - best.score + other.score,
                price=0.0,
            )
            for other in others[:_MOST_ALTERNATIVES]
        ),
    )


def in_order_of_layers(fit: Fit, model: RelevanceModel) -> Fit:
    """Put latents into the order of their layers; in a layer those that are explained best first.

    A childless latent is in the last layer, whatever its causes; one without causes, too, is the
    very last.
    """
    left = model.residuals(fit).var(axis=0)
    order = [j for layer in fit.layers[::-1] for j in sorted(layer, key=lambda j: left[j])]
    place = np.argsort(order)
    shapes = tuple(
        fit.parameters[j].reordered(np.argsort(place[np.array(fit.graph[j], dtype=int)]))
        for j in order
    )
    graph = graph_of(fit.adjacency[np.ix_(order, order)])
    return replace(fit, H=fit.H[order], graph=graph, parameters=shapes)


def agreement(one: Fit, other: Fit, y: Matrix) -> float:
    """Return how much of each noise the other structure has in the same layer, from below."""
    model = RelevanceModel(y)
    noise, theirs = model.residuals(one), model.residuals(other)
    noise, theirs = noise - noise.mean(axis=0), theirs - theirs.mean(axis=0)
    explained = np.zeros(noise.shape[1])
    for own, same in zip(one.layers, other.layers, strict=False):
        target, basis = noise[:, list(own)], theirs[:, list(same)]
        fitted = basis @ np.linalg.lstsq(basis, target, rcond=None)[0]
        explained[list(own)] = (fitted**2).sum(axis=0) / (target**2).sum(axis=0)
    return float(np.sqrt(explained).mean())


def _competing(fits: Iterable[Fit], y: Matrix) -> list[Fit]:
    """Return the structures, the best first, without those that say the same equally well.

    A structure that is as good and says something else is what a user must hear of.
    """
    kept: list[Fit] = []
    for fit in sorted(fits, key=lambda fit: -fit.score):
        equals = (other for other in kept if other.score - fit.score <= LEAST_GAIN)
        if not any(agreement(other, fit, y) >= SAME_ANSWER for other in equals):
            kept.append(fit)
    return kept


def _rotated_and_improved(search: EdgeSearch, best: Fit, run: Run, n_followed: int) -> Fit:
    """Rotate pairs of latents and move edges by turns, until neither gains."""
    while True:
        rotated = with_rotations(search, best, run, n_followed)
        best = search.refined(search.improved(rotated))
        if best.score < rotated.score + LEAST_GAIN:
            return best
