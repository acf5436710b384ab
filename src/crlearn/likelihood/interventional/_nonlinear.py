"""Nonlinear mechanisms: encoder, graph and, if they are unknown, targets by local search.

Graphs are searched on a part of the rows from several starts, revised on larger parts, and the
encoder is fitted to all rows at the end. If residuals speak against it, environments are moved to
where mechanisms have the same residuals in all of them (`interventional._offsets`), and have means
of their own if that mends it. Densities of the noises are fitted where they gain more than they
cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import Graph
from crlearn.likelihood._fit import FITS, Fit
from crlearn.likelihood._nonlinearity import straight_p_values
from crlearn.likelihood.core._subsample import shared_part
from crlearn.likelihood.interventional._absorption import absorbed, turned, without_stand_ins
from crlearn.likelihood.interventional._checks import worst_dependence
from crlearn.likelihood.interventional._offsets import moved_back
from crlearn.likelihood.nodes._any_noise import AnyNoiseModel
from crlearn.likelihood.nodes._selected import SelectedModel
from crlearn.likelihood.search._local import climb, good_graph_at
from crlearn.likelihood.search._orders import best_graph_at
from crlearn.likelihood.targets import revised_targets
from crlearn.progress import progress_bar

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]

# Rows of each environment, see `shared_part`.
ROWS_TO_SEARCH, ROWS_TO_REVISE = 5_000, 20_000
_ROWS_TO_START = 2_000
_LARGEST_FOR_ALL_GRAPHS = 6  # latents
_TURNS_OF_MEANS = 4  # in which encoder and means of environments are found


class Start(NamedTuple):
    """An encoder with its targets, and its graph or None for the best one there."""

    H: Matrix
    pool: IntMatrix
    graph: Graph | None = None


def nonlinear(
    rows: Sequence[Matrix],
    starts: Sequence[Start],
    linear: Fit,
    unknown_targets: bool,
    exact: bool,
    hard: bool,
) -> Fit:
    """Fit nonlinear mechanisms, with densities of the noise where they pay, and test them."""
    found = fit_nonlinear(rows, starts, hard=hard, unknown_targets=unknown_targets)
    assert found.pool is not None
    all_covered = bool(found.pool.any(axis=1).all())
    if hard and exact:  # soft ones leave mixtures open, which densities would close without meaning
        found = _nonlinear_with_any_noise(rows, found, linear) or found
    if exact and not (hard and all_covered):
        p_values = straight_p_values(rows, found, outside=not all_covered)
        found = replace(found, straight_p_values=p_values)
    return replace(found, dependence=worst_dependence(rows, found, hard=hard))


def with_free_means(
    rows: Sequence[Matrix], shared: Fit, linear: Fit, unknown_targets: bool, exact: bool, hard: bool
) -> Fit:
    """Give each environment a mean of its own, if shared ones do not fit and that mends it.

    Rows are centred first. Mechanisms that are curved move means of environments, too, so that
    the answer tells how far rows have to be moved from there: first on a part of the rows, and only
    where that comes to a fit on all. It is given up where all turns that are left, if each took as
    much of the dependence away as the last one, would leave some.
    """
    if shared.dependence is None or shared.dependence.p_value >= FITS:
        return shared
    assert shared.pool is not None
    found, means = shared, np.array([each.mean(axis=0) for each in rows])
    some = shared_part(rows, ROWS_TO_SEARCH)
    for part in (some, rows) if max(map(len, some)) < max(map(len, rows)) else (rows,):
        moved = [each - mean for each, mean in zip(part, means, strict=True)]
        share = shared.dependence.share
        for turns_left in reversed(range(_TURNS_OF_MEANS)):
            starts = [Start(found.H, shared.pool, found.graph), Start(found.H, shared.pool)]
            found = nonlinear(moved, starts, linear, unknown_targets, exact, hard)
            assert found.dependence is not None
            if found.dependence.p_value >= FITS:
                break
            taken, share = share - found.dependence.share, found.dependence.share
            if turns_left * taken < share:
                return shared
            moved = moved_back(moved, found)
        else:
            return shared
        means = np.array([(a - b).mean(axis=0) for a, b in zip(part, moved, strict=True)])
    return replace(found, free_means=True)


def fit_nonlinear(
    rows: Sequence[Matrix],
    starts: Sequence[Start],
    *,
    hard: bool,
    unknown_targets: bool = False,
) -> Fit:
    """Find encoder and graph with nonlinear mechanisms and Gaussian noise.

    Parameters
    ----------
    rows, hard
        As for `fit_interventional`.
    starts
        Where the search begins; with known targets, all have these.
    unknown_targets
        Whether those of the starts are guesses, which may be changed.
    """
    few, some = shared_part(rows, _ROWS_TO_START), shared_part(rows, ROWS_TO_SEARCH)
    sketch = SelectedModel(few, starts[0].pool, hard=hard)
    n_stages = len(starts) + 1 + unknown_targets + 2
    with progress_bar("Nonlinear mechanisms", n_stages) as advance:
        optima: list[Fit] = []
        for H, pool, graph in starts:
            with_targets = sketch.with_pool(pool)
            optima.append(_climbed(with_targets, H, graph, optima))
            advance(f"score {optima[-1].score:.0f}")
        optima = [absorbed(sketch, few, fit) for fit in optima]
        best = max(optima, key=lambda fit: fit.score)
        assert best.pool is not None
        model = SelectedModel(some, best.pool, hard=hard)
        best = absorbed(model, some, _climbed(model, best.H, best.graph))
        at_the_end = _graph_at(model, best.H)
        if at_the_end != best.graph:
            other = absorbed(model, some, _climbed(model, best.H, at_the_end, [best]))
            best = max(best, other, key=lambda fit: fit.score)
        advance(f"score {best.score:.0f}")
        if unknown_targets:
            model, best = revised_targets(model, best)
            advance(f"score {best.score:.0f}")
        if sum(map(len, rows)) > model.n_rows:
            some = shared_part(rows, ROWS_TO_REVISE)
            model = SelectedModel(some, model.pool, hard=hard)
            start = absorbed(model, some, model.refitted(best, best.graph))
            climbed = absorbed(model, some, climb(model, start, n_tried=5))
            best = max(climbed, start, key=lambda fit: fit.score)
        for H in turned(best):
            other = absorbed(model, some, _climbed(model, H, None, [best]))
            best = max(best, other, key=lambda fit: fit.score)
        best = without_stand_ins(model, some, best)
        advance("all rows")
        whole = SelectedModel(rows, model.pool, hard=hard, choose_features=False)
        H = whole.fitted(best.H, best.graph).H
        advance("")
    return replace(best, H=H)


def _graph_at(model: SelectedModel, H: Matrix) -> Graph:
    """Return the best graph at an encoder, or of many latents one that no edge makes better."""
    few = model.n <= _LARGEST_FOR_ALL_GRAPHS
    return (best_graph_at if few else good_graph_at)(model, model.scaled(H))


def _climbed(
    model: SelectedModel, H: Matrix, graph: Graph | None, optima: Sequence[Fit] = ()
) -> Fit:
    """Search from an encoder; without a graph, from the best one there.

    Of many latents no edge is the start: one by one they would be those of a wrong encoder.
    """
    if graph is None:
        no_edges: Graph = ((),) * model.n
        graph = _graph_at(model, H) if model.n <= _LARGEST_FOR_ALL_GRAPHS else no_edges
    start = Fit(H, graph, -np.inf)
    found = climb(model, model.refitted(start, graph), optima=optima)
    converged = model.fitted(found.H, found.graph)
    return replace(converged, alternatives=found.alternatives)


def _nonlinear_with_any_noise(rows: Sequence[Matrix], fit: Fit, linear: Fit) -> Fit | None:
    """Fit nonlinear mechanisms with densities of the noise; None if it may well be Gaussian.

    Least squares are biased if it is not. The linear fit needs covariances alone, so that the shape
    of the noise does no harm to it: it is the other start.
    """
    assert fit.pool is not None
    some = shared_part(rows, ROWS_TO_SEARCH)
    model = AnyNoiseModel(some, fit.pool, parents_in="first", linear=False)
    first = model.fitted_once(fit.H, fit.graph)
    if not first.any_noise:
        return None
    found = max(first, model.fitted_once(linear.H, linear.graph), key=lambda fit: fit.score)
    found = max(found, model.fitted(found.H, found.graph), key=lambda fit: fit.score)
    found = climb(model, found)
    whole = AnyNoiseModel(rows, fit.pool, parents_in="first", linear=False, choose_features=False)
    return replace(found, H=whole.finished(found.H, found.graph).H)
