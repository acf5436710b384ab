"""Other targets for a nonlinear model: which environments intervene on a latent.

With the encoder held fixed, what every set of environments would cost a latent follows from the
moments of each environment. The cheapest sets are tried with the encoder and the graph free.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood._fit import Fit
from crlearn.likelihood.nodes._selected import SelectedModel
from crlearn.likelihood.search._local import LEAST_GAIN, climb
from crlearn.likelihood.targets._candidates import possible_rows

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]

_TRIED = 4  # changes, before the targets are left as they are
_RIDGE = 1e-6  # of the mean square of a feature


def revised_targets(model: SelectedModel, found: Fit) -> tuple[SelectedModel, Fit]:
    """Change the targets of one latent at a time while the score rises."""
    while True:
        better = _better_targets(model, found)
        if better is None:
            return model, found
        model, found = better


def _better_targets(model: SelectedModel, found: Fit) -> tuple[SelectedModel, Fit] | None:
    """Return the first change that raises the score, the most promising ones tried first."""
    changes = sorted(_changes(model, found), key=lambda change: change[0])
    for cost, j, row in changes[:_TRIED]:
        if cost > model.hopeless:
            break
        pool = model.pool.copy()
        pool[j] = row
        if np.linalg.matrix_rank(pool) < len(pool):
            continue
        other = model.with_pool(pool)
        refitted = climb(other, other.refitted(found, found.graph))
        if refitted.score > found.score + LEAST_GAIN:
            return other, other.fitted(refitted.H, refitted.graph)
    return None


def _changes(model: SelectedModel, found: Fit) -> Iterator[tuple[float, int, IntMatrix]]:
    """Yield extra cost, latent and targets for the best other targets of each latent."""
    H = model.scaled(found.H)
    for j, parents in enumerate(found.graph):
        rows = possible_rows(model.pool[j])
        if not len(rows):  # there is one environment beside the reference
            continue
        costs = row_costs(
            model.products(H, j, parents), np.vstack([model.pool[j], rows]), model.hard
        )
        best = 1 + costs[1:].argmin()
        yield float(costs[best] - costs[0]), j, rows[best - 1]


def row_costs(products: Matrix, rows: IntMatrix, hard: bool) -> Matrix:
    """Return half the weighted log-variance of a latent outside and inside each set, in nats.

    Parameters
    ----------
    products
        Sums of products of the features (the first is constant) and, last, of the latent in each
        environment, ``(E, S + 1, S + 1)``.
    rows
        Sets of environments as 0/1 rows, ``(K, E)``.
    hard
        Whether there are no parents inside.
    """
    outside = np.tensordot(1.0 - rows, products, 1)
    inside = np.tensordot(rows.astype(float), products, 1)
    if hard:
        inside = inside[:, [[0], [-1]], [[0, -1]]]
    return _cost(outside) + _cost(inside)


def _cost(products: Matrix) -> Matrix:
    n_rows = products[:, 0, 0]
    among, with_latent = products[:, :-1, :-1], products[:, :-1, -1]
    size = among.shape[1]
    ridge = _RIDGE * np.trace(among, axis1=1, axis2=2) / size
    beta = np.linalg.solve(among + ridge[:, None, None] * np.eye(size), with_latent[..., None])
    explained = (with_latent * beta[..., 0]).sum(axis=1)
    return 0.5 * n_rows * np.log((products[:, -1, -1] - explained) / n_rows)
