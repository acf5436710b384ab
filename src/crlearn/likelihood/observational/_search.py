"""Encoder, mechanisms and layers from one environment, by evidence.

1. *Starts*: rotations that suit cubic mechanisms (`observational._start`).
2. *Densities of the noises* (`observational._any_noise`): complete graphs, then graphs without the
   edges that are not needed, if densities gain more than they cost.
3. *Gaussian noise*, unless it is far behind from the encoder of these: complete graphs; the best of
   them lose the edges that they do not need (`observational._edges`); in the best of these, pairs
   of latents are rotated into each other (`observational._rotations`) and edges dropped and added,
   until neither gains. If densities are the better fit, pairs are rotated with them instead.
4. Behind measurement noise these are fitted to rows without it, and lose edges that the noise alone
   called for (`observational._noise`).
5. The best structures are fitted to more rows, which decide between them, and the last one to all.
   The others are its alternatives.
6. Each mechanism is tested for bends along every direction of its parents (`_nonlinearity`).

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

from crlearn.graph import graph_of, topological_order
from crlearn.likelihood._fit import FITS, Fit
from crlearn.likelihood._nonlinearity import straight_p_values
from crlearn.likelihood.core._subsample import some_rows
from crlearn.likelihood.core._tests import gaussian_p_values
from crlearn.likelihood.nodes._relevance import STEPS
from crlearn.likelihood.observational._any_noise import (
    improved_structures,
    local_optima,
    with_rotations,
    without_needless_edges,
)
from crlearn.likelihood.observational._edges import HOPELESS, EdgeSearch
from crlearn.likelihood.observational._mechanisms import any_noise_model, is_gaussian, noises_of
from crlearn.likelihood.observational._model import RelevanceModel
from crlearn.likelihood.observational._noise import NoisySearch, without_noise
from crlearn.likelihood.observational._rotations import with_rotations as with_gaussian_rotations
from crlearn.likelihood.observational._start import (
    Run,
    complete_structures,
    starting_rotations,
)
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
    noise: Matrix | None = None,
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
    noise
        Covariance of the measurement noise; the rows are white without it. None: there is none.

    Returns
    -------
    fit
        Latents are in the order of their layers, those of the last layer first.
    """
    few, more = some_rows(y, _ROWS_OF_THE_SEARCH), some_rows(y, 4 * _ROWS_OF_THE_SEARCH)
    # With densities, following four in place of two found nothing else in two worlds.
    n_followed, n_with_densities = n_starts // 2 + 1, max(1, n_starts // 3)
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
        with_densities = local_optima(few, starts, run, n_followed)
        advance("edges are dropped")
        competing = []
        if with_densities[0].any_noise:
            competing = improved_structures(few, with_densities, run, n_with_densities)
        advance("pairs are rotated")
        if not competing or not _is_far_ahead(competing[0], search.model, run):
            dense = complete_structures(search.model, starts, run, n_followed)
            if not competing or competing[0].score < dense[0].score:
                gaussian = _gaussian_structures(search, dense, run, n_followed)
                # Evidence and BIC do not see the same functions: where noises speak clearly, they
                # decide.
                if not competing or gaussian_p_values(noises_of(gaussian[0], few)).min() >= FITS:
                    competing = gaussian
        if not is_gaussian(competing[0]):
            competing += with_rotations(few, competing[0], n_with_densities)
            competing = without_needless_edges(competing, len(few))
        competing = _competing(competing, few)
        if noise is not None:
            seed = int(rng.integers(2**31))
            found = without_noise(few, noise, competing[:n_starts], seed)
            competing = _competing(found, few)
            refitted, last = (NoisySearch(rows, noise, seed).fitted for rows in (more, y))
        else:
            refitted, last = _refit_to(more), _last_fit_to(y)
        if len(more) > len(few):
            competing = _competing(run(refitted, competing[:n_starts]), few)
        best, *others = competing
        advance("all rows")
        with threadpool_limits(n_threads):  # there is one fit left for all of them
            fit = best if noise is not None and len(y) == len(more) else last(best)
    fit = in_order_of_layers(fit, y)
    return replace(
        fit,
        # Of rows without noise that were drawn from a fit its bends could only be confirmed.
        straight_p_values=straight_p_values([y], fit) if noise is None else None,
        alternatives=tuple(
            # The other rows that they were compared on tell how far they are behind.
            replace(
                in_order_of_layers(other, few),
                log_likelihood=fit.score - best.score + other.score,
                price=0.0,
            )
            for other in others[:_MOST_ALTERNATIVES]
        ),
    )


def _refit_to(more: Matrix) -> Callable[[Fit], Fit]:
    """Return a function that fits what was found to more rows."""

    def refitted(fit: Fit) -> Fit:
        if is_gaussian(fit):
            return EdgeSearch(RelevanceModel(more)).refitted(fit)
        return any_noise_model(more).fitted(fit.H, fit.graph)

    return refitted


def _last_fit_to(y: Matrix) -> Callable[[Fit], Fit]:
    """Return a function that fits a structure to all rows."""

    def fitted(best: Fit) -> Fit:
        if not is_gaussian(best):
            return any_noise_model(y).fitted(best.H, best.graph)
        model = RelevanceModel(y)
        return model.scored(model.fitted(best, 8 * STEPS))  # it ends by itself, as a rule

    return fitted


def in_order_of_layers(fit: Fit, y: Matrix) -> Fit:
    """Put latents into the order of their layers; in a layer those that are explained best first.

    A childless latent is in the last layer, whatever its causes; one without causes, too, is the
    very last.
    """
    left = noises_of(fit, y if fit.completed is None else fit.completed).var(axis=0)
    order = [j for layer in fit.layers[::-1] for j in sorted(layer, key=lambda j: left[j])]
    place = np.argsort(order)
    if is_gaussian(fit):
        parameters = tuple(
            fit.parameters[j].reordered(np.argsort(place[np.array(fit.graph[j], dtype=int)]))
            for j in order
        )
    else:
        parameters = {
            (int(place[j]), p): replace(
                mechanism, parents=tuple(int(place[i]) for i in mechanism.parents)
            )
            for (j, p), mechanism in fit.parameters.items()
        }
    graph = graph_of(fit.adjacency[np.ix_(order, order)])
    return replace(fit, H=fit.H[order], graph=graph, parameters=parameters)


def agreement(one: Fit, other: Fit, y: Matrix) -> float:
    """Return how much of each noise the other structure has in the same layer, from below.

    Gaussian noises of a layer may be mixed, others are compared one by one.
    """
    noise, theirs = noises_of(one, y), noises_of(other, y)
    noise, theirs = noise - noise.mean(axis=0), theirs - theirs.mean(axis=0)
    explained = np.zeros(noise.shape[1])
    for own, same in zip(one.layers, other.layers, strict=False):
        target, basis = noise[:, list(own)], theirs[:, list(same)]
        if is_gaussian(one):
            fitted = basis @ np.linalg.lstsq(basis, target, rcond=None)[0]
            explained[list(own)] = (fitted**2).sum(axis=0) / (target**2).sum(axis=0)
        else:
            unit, of_theirs = (each / np.linalg.norm(each, axis=0) for each in (target, basis))
            explained[list(own)] = ((unit.T @ of_theirs) ** 2).max(axis=1)
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


def _is_far_ahead(fit: Fit, model: RelevanceModel, run: Run) -> bool:
    """Whether Gaussian noise explains the data so much worse at this encoder that it is no rival.

    A complete graph has no price there, and functions that the densities' mechanisms have not.
    """
    start = fit.H[topological_order(fit.adjacency)]
    return fit.score > complete_structures(model, [start], run, 1)[0].score + HOPELESS


def _gaussian_structures(
    search: EdgeSearch, dense: Sequence[Fit], run: Run, n_followed: int
) -> list[Fit]:
    """Drop edges and rotate pairs; return the best structure first, and all that was tried."""
    sparse = run(search.sparsified, dense[:n_followed])
    first = max(sparse, key=lambda fit: fit.score)
    best = _rotated_and_improved(search, first, run, n_followed)
    return [best, *sparse, *search.not_taken]


def _rotated_and_improved(search: EdgeSearch, best: Fit, run: Run, n_followed: int) -> Fit:
    """Rotate pairs of latents and move edges by turns, until neither gains."""
    while True:
        rotated = with_gaussian_rotations(search, best, run, n_followed)
        best = search.refined(search.improved(rotated))
        if best.score < rotated.score + LEAST_GAIN:
            return best
