"""Encoders to start from: rows that lie where the precision matrices of environments change.

An intervention on one latent changes the precision matrix in two directions at most. The model
without an order, in which every latent may depend on all others where it is intervened on, turns
them into an encoder whatever the graph is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from crlearn.graph import closest_dag, topological_order
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.core._newton import STEPS_OF_A_CHANGE
from crlearn.likelihood.nodes._linear import LinearModel, Masks, minimise, objective
from crlearn.likelihood.search._local import LEAST_GAIN, is_settled
from crlearn.likelihood.search._orders import best_order_at, better_order_at

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]

MANY = 10  # latents, beyond which not all orders are looked at, and no starts quite at random
_RANDOM_STARTS = 60
_RANDOM_ORDERS = 12
_SWEPT_STARTS = 8
_ANGLES = 12
_WORST_START = 1e8


def fit_without_order(model: LinearModel, rng: np.random.Generator) -> Matrix:
    """Return the encoder of the model without order."""
    return optima_without_order(model, rng)[0]


def optima_without_order(model: LinearModel, rng: np.random.Generator) -> list[Matrix]:
    """Return encoders of the model without order, the best first; it has local optima.

    There are many starts, until one leads to a good fit or they lead nowhere else.
    """
    masks = model.masks_without_order()
    optima: list[tuple[float, Matrix]] = []
    scores: list[float] = []
    for n_tries, H in enumerate(_starts(model, rng), start=1):
        if np.linalg.cond(H) > _WORST_START:
            continue
        rows, value = minimise(H, model.pools, masks)
        if all(abs(value - other) * model.n_rows > LEAST_GAIN for other, _ in optima):
            optima.append((value, rows))
        scores.append(-model.n_rows * value)
        lowest = min(value for value, _ in optima)
        if model.is_good(lowest, masks, n_tries) or is_settled(scores):
            break
    optima.sort(key=lambda optimum: optimum[0])
    found = [rows for _, rows in optima] or [np.eye(model.n)]
    return [intervened_rows(model, rows) for rows in found] if model.hard else found


def first_without_order(model: LinearModel, rng: np.random.Generator) -> tuple[float, Masks]:
    """Return the value of the model without order from its first start, and its masks."""
    masks = model.masks_without_order()
    H = next(_starts(model, rng))
    if np.linalg.cond(H) > _WORST_START:
        return np.inf, masks
    return minimise(H, model.pools, masks)[1], masks


def _starts(model: LinearModel, rng: np.random.Generator) -> Iterator[Matrix]:
    """Yield encoders whose rows lie where the precision matrices change.

    An intervention changes the precision matrix in two directions at most, and the row that is
    looked for is a combination of them: of the one that changes most, then of both at random. For
    many latents the combinations are improved one by one.
    """
    n, moments = model.n, model.moments
    precisions = np.linalg.inv(moments.covariances)
    root = np.linalg.cholesky(moments.covariances[0])
    changed = model.pool.argmax(axis=1)  # some environment that intervenes on the latent
    values, vectors = np.linalg.eigh(root.T @ (precisions[0] - precisions[changed]) @ root)
    strongest = np.argsort(-np.abs(values), axis=1)
    first, second = (
        np.linalg.solve(root.T, vectors[np.arange(n), :, strongest[:, k]].T).T
        for k in (0, min(1, n - 1))
    )
    many = n > MANY
    for attempt in range(_SWEPT_STARTS if many else _RANDOM_STARTS):
        angle = rng.uniform(0, np.pi, n) if attempt else np.zeros(n)
        rows = np.cos(angle)[:, None] * first + np.sin(angle)[:, None] * second
        rows = np.where(model.covered[:, None], rows, rng.standard_normal((n, n)))
        yield _swept(model, rows, first, second) if many else rows


def _swept(model: LinearModel, rows: Matrix, first: Matrix, second: Matrix) -> Matrix:
    """Turn one row at a time to its best angle, while F falls.

    Among many latents some row is nearly always wrong if all angles are drawn at once.
    """
    masks = model.masks_without_order()
    angles = np.arange(_ANGLES)[:, None] * np.pi / _ANGLES
    first, second = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (first, second))

    def value_of(rows: Matrix) -> float:
        try:
            return float(objective(rows, model.pools, masks))
        except np.linalg.LinAlgError:  # two rows are the same
            return np.inf

    best, lowest, improved = rows, value_of(rows), True
    while improved:
        improved = False
        for j in np.flatnonzero(model.covered):
            for row in np.cos(angles) * first[j] + np.sin(angles) * second[j]:
                turned = best.copy()
                turned[j] = row
                value = value_of(turned)
                if value < lowest - 1 / model.n_rows:
                    best, lowest, improved = turned, value, True
    return best


def intervened_rows(model: LinearModel, rows: Matrix) -> Matrix:
    """Return the rows as they are inside each latent's own intervention."""
    columns = np.linalg.inv(rows)
    inside = np.linalg.inv(model.pools.covariances[:, 1])
    changed = np.einsum("jab,bj->ja", inside, columns)
    return np.where(model.covered[:, None], changed, rows)


def first_orders(model: LinearModel, H: Matrix, rng: np.random.Generator) -> Iterator[list[int]]:
    """Yield the orders that the regressions among all latents suggest, and random ones."""
    precision = np.linalg.inv(H @ model.pools.covariances[:, 0 if model.hard else 1] @ H.T)
    j = np.arange(model.n)
    scale = np.sqrt(precision[j, j, j])
    partial = precision[j, j] / scale[:, None] / np.sqrt(np.einsum("jii->ji", precision))
    effect = (partial**2).T
    np.fill_diagonal(effect, 0)
    few = model.n <= MANY
    if few:
        yield best_order_at(model, H)
    for weights in (effect, np.log1p(model.n_rows * effect)):
        order = [int(node) for node in topological_order(closest_dag(weights))]
        yield order if few else better_order_at(model, H, order)
    for _ in range(_RANDOM_ORDERS):
        order = rng.permutation(model.n).tolist()
        yield order if few else better_order_at(model, H, order)


def grouped_targets(
    names: IntMatrix, moments: Moments, n_latents: int, rng: np.random.Generator
) -> IntMatrix:
    """Find out which environments intervene on the same latent, where nobody has said so.

    They change the precision matrix along similar directions: that gives a first grouping, and then
    environments change groups one by one while the likelihood of the model without order rises.

    Parameters
    ----------
    names
        A number for each environment but the first; those with the same number belong together.
    moments, n_latents
        Of all environments; there are fewer latents than names.
    rng
        For starts at random.

    Returns
    -------
    latent
        The latent that each environment but the first intervenes on.
    """
    latent = _similar_directions(names, moments, n_latents)
    model = LinearModel(moments, pools_of(latent, n_latents), hard=False)
    H, value = minimise(
        fit_without_order(model, rng),
        model.pools,
        model.masks_without_order(),
    )
    improved = True
    while improved:
        improved = False
        for name, j in product(np.unique(names), range(n_latents)):
            moved = np.where(names == name, j, latent)
            if len(np.unique(moved)) < n_latents or (moved == latent).all():
                continue
            model = LinearModel(moments, pools_of(moved, n_latents), hard=False)
            masks = model.masks_without_order()
            encoder, candidate = minimise(H, model.pools, masks, max_steps=STEPS_OF_A_CHANGE)
            if candidate < value - 1 / moments.n_samples:
                latent, H, value, improved = moved, encoder, candidate, True
    return latent


def pools_of(latent: IntMatrix, n_latents: int) -> IntMatrix:
    """Return the pools of each latent: every environment that intervenes on it has its own."""
    pool = np.zeros((n_latents, len(latent) + 1), dtype=np.intp)
    for place, j in enumerate(latent, start=1):
        pool[j, place] = pool[j].max() + 1
    return pool


def _similar_directions(names: IntMatrix, moments: Moments, n_latents: int) -> IntMatrix:
    precisions = np.linalg.inv(moments.covariances)
    root = np.linalg.cholesky(moments.covariances[0])
    values, vectors = np.linalg.eigh(root.T @ (precisions[1:] - precisions[0]) @ root)
    leading = vectors[np.arange(len(values)), :, np.abs(values).argmax(axis=1)]
    alike = np.abs(leading @ leading.T)
    tree = linkage(squareform(np.clip(1 - alike, 0, None), checks=False), "average")
    found = fcluster(tree, n_latents, "maxclust") - 1
    # Environments with one name stay together, and every latent has at least one.
    latent = np.array([found[names == name][0] for name in names])
    for j in sorted(set(range(n_latents)) - set(latent.tolist())):
        crowded = np.bincount(latent).argmax()
        latent[names == names[np.flatnonzero(latent == crowded)[-1]]] = j
    return latent
