"""Latents that no environment intervenes on: linear effects on them go into the latents.

With z_k = s z_i + f(others) + noise, z_k - s z_i has no effect of z_i, and what z_k does is done by
the two together. No data tell the one from the other if nothing intervenes on latent k: a linear
effect on it is an effect on its children, and makes no layer of its own (Welch et al., 2024, who
rule it out). Scores hardly do either: which of the two has an edge less, or a mechanism that fewer
features describe, is an accident. So edges into such latents stand for effects that are bent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ortho_group

from crlearn.graph import Graph, with_parents
from crlearn.likelihood._fit import FITS, Fit
from crlearn.likelihood._nonlinearity import straight_p_values, straightest_parent
from crlearn.likelihood.nodes._selected import SelectedModel
from crlearn.likelihood.search._local import LEAST_GAIN

Matrix = NDArray[np.floating]

_TURNS = 4


def turned(fit: Fit) -> Iterator[Matrix]:
    """Yield encoders in which latents that nothing intervenes on are rotated into each other.

    Interventions show where the others are. What is left is a search as in observational data.
    """
    assert fit.pool is not None
    free = np.flatnonzero(~fit.pool.any(axis=1))
    if len(free) < 2:
        return
    rng = np.random.default_rng(0)  # the same rotations in every fit
    for _ in range(_TURNS):
        H = fit.H.copy()
        H[free] = ortho_group.rvs(len(free), random_state=rng) @ H[free]
        yield H


def absorbed(model: SelectedModel, rows: Sequence[Matrix], fit: Fit) -> Fit:
    """Take linear effects on latents that nothing intervenes on into the latents.

    Parameters
    ----------
    model, rows
        The same rows.
    fit
        Of these.
    """
    seen = {fit.graph}
    while True:
        edges = _straight_edges(model, rows, fit)
        if not edges:
            return fit
        _, i, j, slope = max(edges)
        fit = _absorbed(model, fit, i, j, slope)
        if fit.graph in seen:
            return fit
        seen.add(fit.graph)


def without_stand_ins(model: SelectedModel, rows: Sequence[Matrix], fit: Fit) -> Fit:
    """Drop edges into latents that nothing intervenes on if other parents, combined, do as well.

    With z_k + s z_i in place of z_k, an effect of z_k is one of both, straight along a direction of
    the two. The encoder has farther to go back than a search follows it.
    """
    crowded = [j for j, own in enumerate(fit.graph) if len(own) > 1 and not model.pool[j].any()]
    if not crowded:
        return fit
    p_values = straight_p_values(rows, fit, outside=True)
    best = fit
    for j in crowded:
        for i in fit.graph[j] if p_values[j] >= FITS else ():
            found = model.fitted(fit.H, _without(fit.graph, i, j))
            if found.score > best.score + LEAST_GAIN:
                best = found
    if best is fit:
        return fit
    best = replace(absorbed(model, rows, best), alternatives=fit.alternatives)
    return without_stand_ins(model, rows, best)


def _straight_edges(
    model: SelectedModel, rows: Sequence[Matrix], fit: Fit
) -> list[tuple[float, int, int, float]]:
    """Return p-value, cause, effect and slope of edges that are not seen to be bent."""
    found = []
    for j in np.flatnonzero(~model.pool.any(axis=1)):
        if fit.graph[j]:
            i, p_value, slope = straightest_parent(rows, fit, int(j))
            if p_value >= FITS:
                found.append((p_value, i, int(j), slope))
    return found


def _absorbed(model: SelectedModel, fit: Fit, i: int, j: int, slope: float) -> Fit:
    """Take the linear effect of i on j into j; what j does is done by both, as far as it pays."""
    H = fit.H.copy()
    H[j] -= slope * H[i]
    graph = with_parents(fit.graph, j, {*fit.graph[j]} - {i})
    children = [k for k, parents in enumerate(graph) if j in parents and i not in parents]
    for k in children:
        graph = with_parents(graph, k, {*graph[k], i})
    best = model.fitted(H, graph)
    for k in children:
        found = model.refitted(best, _without(best.graph, i, k))
        if found.score > best.score:
            best = found
    return best


def _without(graph: Graph, i: int, j: int) -> Graph:
    return with_parents(graph, j, {*graph[j]} - {i})
