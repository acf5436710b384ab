"""Hyperplanes that hold many rows: the affine map after which latents are sparse.

A latent that is switched off sits at one value, so that rows in which it is off lie in a hyperplane
of any affine image of the latents. The normals of the n hyperplanes that hold the most rows are the
rows of the map back to the latents. The paper makes the code sparse by constrained optimisation of
its l1 norm; here hyperplanes are looked for one by one, from many starts at once:

1. A start is a hyperplane through a random row, with a random normal, or one of independent
   components. It climbs the mean of a Gaussian kernel of the distances of rows from it, whose width
   falls to a tenth of a standard deviation; each start has a first width of its own. Wide kernels
   lead to hyperplanes in the middle of the rows from anywhere, narrow ones also to those at the
   margin.
2. Of all that were found, as many as there are latents are chosen: the product of how far rows
   pile up on each, times the volume that their normals span, is to be large. New starts are
   orthogonal to some of those chosen, until this criterion has stayed the same.
3. Expectation maximisation makes each exact: a share of the rows lies in the hyperplane up to
   Gaussian noise, and the others are spread along its normal.

Cost: O(s K n) for a step of K starts on s rows, O(s n^3) for a step of the last part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning

Matrix = NDArray[np.floating]
Vector = NDArray[np.floating]

# Chosen with affine features of development seeds. Of 300 starts with first widths of 1, at
# most 4 of ten hyperplanes at the margin (off at three sds, seeds 0 to 2) were found, of 0.35 all;
# in the middle, with 40 latents, widths of 1 lead there from all starts, of 0.35 from 75% to 81%.
# Starts at random alone came to MCCs of 0.59 and 0.93 with 50 latents, one and three quarters on;
# with independent components, and directions orthogonal to the best, to 1. With 8,000 rows 100
# latents, three quarters on, came to 0.29; with 20,000 to 1. With sums of scores, not logs and the
# volume, 40 latents, one on, noise of a twentieth of the variance, came to 0.92 to 0.976 (the
# best map; seeds 0 to 4), rows behind ten layers (75% on, seed 2) to 0.79, with them to 0.976 and
# 0.92. With all new directions orthogonal to any of those chosen, one of 100 latents (three
# quarters on) was missed in 3 of 5 worlds, one of 40 (with noise) in 2 of 10; with all of them
# orthogonal to all but the last, in 0 of 5 and 1 of 5; with half and half two in 1 of 5 and none in
# 10. These two are found with three rounds without gain, not two. Other numbers here were not
# compared.
_MOST_ROWS, _ROWS_A_LATENT = 8000, 200  # the larger of the two
_FIRST_WIDTHS, _LAST_WIDTH = (0.3, 1.0), 0.1
_N_WIDTHS, _STEPS_A_WIDTH = 6, 12
_LONGEST_STEP = 0.5  # of a normal, in radians
_STARTS_AT_LEAST, _STARTS_A_LATENT = 100, 3
_MOST_ROUNDS, _ROUNDS_WITHOUT_GAIN, _GAIN = 20, 3, 0.01
_RISE = 1e-6  # of the criterion, for an exchange
_LEAST_PILE_UP = 1e-3
_SAME_DIRECTION = 0.99  # correlation
_NEW_DIRECTION = 0.1  # share of the length of a normal that is not in the span of others
_MOST_EM_STEPS, _EM_PRECISION = 50, 1e-6
_LEAST_NOISE = 1e-4  # standard deviations
_LEAST_WEIGHT = 1e-6


@dataclass(frozen=True, eq=False)
class Hyperplanes:
    """Hyperplanes ``normals @ x = offsets`` of rows with unit covariance.

    Attributes
    ----------
    normals
        One a row, of length one.
    offsets
        Where each hyperplane is along its normal.
    shares
        Share of the rows that lie in each.
    noises
        Standard deviation of the distances of these rows.
    means, spreads
        Of the signed distances of the others.
    """

    normals: Matrix
    offsets: Vector
    shares: Vector
    noises: Vector
    means: Vector
    spreads: Vector

    def __len__(self) -> int:
        return len(self.normals)


def find_hyperplanes(X: Matrix, seed: int, n_hyperplanes: int | None = None) -> Hyperplanes:
    """Return the hyperplanes that hold the most rows, no normal a combination of the others.

    Parameters
    ----------
    X
        Rows with unit covariance.
    seed
        Of starts, and of the rows that the search looks at.
    n_hyperplanes
        How many, one a column by default; fewer if no more new directions were found.
    """
    rng = np.random.default_rng(seed)
    n = X.shape[1]
    n_rows = max(_MOST_ROWS, _ROWS_A_LATENT * n)
    rows = X[rng.permutation(len(X))[:n_rows]].astype(np.float32)
    wanted = n if n_hyperplanes is None else n_hyperplanes
    n_starts = max(_STARTS_AT_LEAST, _STARTS_A_LATENT * n)
    normals, offsets, scores = np.zeros((0, n), np.float32), np.zeros(0), np.zeros(0)
    best, stalled = -np.inf, 0
    chosen: list[int] = []
    for _ in range(_MOST_ROUNDS):
        best_first = sorted(chosen, key=lambda i: -scores[i])
        directions = _new_normals(normals[best_first], n, n_starts, rng)
        if not chosen:
            directions = np.concatenate([directions, _independent_components(rows, seed)])
        found = _climb(rows, _unit(directions.astype(np.float32)), rng)
        normals, offsets = np.concatenate([normals, found[0]]), np.append(offsets, found[1])
        scores = np.append(scores, np.log(np.maximum(pile_up(rows, *found), _LEAST_PILE_UP)))
        kept = _distinct(normals, scores)
        normals, offsets, scores = normals[kept], offsets[kept], scores[kept]
        chosen, criterion = _best_together(normals, scores, wanted)
        stalled = stalled + 1 if criterion < best + _GAIN else 0
        best = max(best, criterion)
        if stalled == _ROUNDS_WITHOUT_GAIN:
            break
    exact = _all_refined(rows.astype(float), normals[chosen], offsets[chosen])
    return Hyperplanes(*(np.array(part) for part in zip(*exact, strict=True)))


def _new_normals(best: Matrix, n: int, n_starts: int, rng: np.random.Generator) -> Matrix:
    """Return random directions, each orthogonal to some of the best normals, which come first.

    Half of them are orthogonal to all but the last, of which there are few as often as many: late
    in a search few of those chosen are wrong, and hold fewer rows than others. The other half are
    orthogonal to any of them, as not all that was missed is near the first half.
    """
    if not len(best):
        return rng.standard_normal((n_starts, n))
    least, half = n - len(best) + 1, n_starts // 2
    few_or_many = np.exp(rng.uniform(np.log(least), np.log(n + 1), half)).astype(int)
    any_number = rng.integers(least, n + 1, size=n_starts - half)
    return np.concatenate(
        [
            _orthogonal_to_first(best, few_or_many, rng),
            _orthogonal_to_first(rng.permutation(best), any_number, rng),
        ]
    )


def _orthogonal_to_first(
    normals: Matrix, n_free: NDArray[np.integer], rng: np.random.Generator
) -> Matrix:
    """Return a random direction for each of `n_free`: all but so many dimensions are left out.

    Those left out are spanned by the first normals.
    """
    n = normals.shape[1]
    basis = np.linalg.qr(normals.T, mode="complete")[0]
    coefficients = rng.standard_normal((len(n_free), n))
    coefficients[np.arange(n) < n - n_free[:, None]] = 0.0
    return coefficients @ basis.T


def _independent_components(rows: Matrix, seed: int) -> Matrix:
    """Return the rows of an unmixing by FastICA: nearly the normals where few latents are on."""
    ica = FastICA(whiten=cast(Any, False), random_state=seed)
    with catch_warnings():
        simplefilter("ignore", ConvergenceWarning)
        return ica.fit(rows.astype(float)).components_


def _climb(rows: Matrix, normals: Matrix, rng: np.random.Generator) -> tuple[Matrix, Vector]:
    """Climb the mean kernel of the distances of rows, by Newton steps with one curvature each."""
    offsets = (normals * rows[rng.integers(len(rows), size=len(normals))]).sum(axis=1)
    narrowest, widest = np.log(_FIRST_WIDTHS)
    widths = np.exp(rng.uniform(narrowest, widest, len(normals)))
    for share in np.repeat(np.linspace(0, 1, _N_WIDTHS), _STEPS_A_WIDTH):
        h = (widths ** (1 - share) * _LAST_WIDTH**share).astype(rows.dtype)
        distances = (rows @ normals.T - offsets) / h
        kernel = np.exp(-0.5 * distances**2)
        total = kernel.sum(axis=0)
        centre = (kernel.T @ rows) / total[:, None]
        first = kernel * distances
        gradient = -((first.T @ rows) - first.sum(axis=0)[:, None] * centre)
        gradient -= (gradient * normals).sum(axis=1, keepdims=True) * normals
        curvature = np.abs((first * distances).sum(axis=0) - total) / h
        for_longest = np.linalg.norm(gradient, axis=1) / _LONGEST_STEP
        divisor = np.maximum(np.maximum(curvature, for_longest), np.finfo(rows.dtype).tiny)
        normals = _unit(normals + gradient / divisor[:, None])
        offsets = (normals * centre).sum(axis=1)
    return normals, offsets


def pile_up(rows: Matrix, normals: Matrix, offsets: Vector) -> Vector:
    """Return how far rows pile up on hyperplanes, beyond a density that is locally constant."""
    squares = (rows @ normals.T - offsets) ** 2
    near, far = (np.exp(-0.5 * squares / h**2).mean(axis=0) for h in (0.2, 0.4))
    return near - 0.5 * far


def _distinct(normals: Matrix, scores: Vector) -> list[int]:
    """Return which hyperplanes to keep: of those with one direction, the best."""
    kept: list[int] = []
    for i in np.argsort(-scores):
        if not kept or np.abs(normals[kept] @ normals[i]).max() < _SAME_DIRECTION:
            kept.append(int(i))
    return kept


def _best_together(normals: Matrix, scores: Vector, wanted: int) -> tuple[list[int], float]:
    """Return hyperplanes whose sum of scores and log volume is large, and this sum.

    A combination of two latents that are seldom on is off nearly as often as either of them: by
    scores alone it may be chosen in the place of a third latent. The best hyperplanes of new
    directions are the start; then single ones are exchanged as long as the sum rises.
    """
    chosen = _new_directions(normals, scores, wanted)
    if len(chosen) < normals.shape[1]:
        return chosen, float(scores[chosen].sum())
    while True:
        volumes = np.abs(normals @ np.linalg.inv(normals[chosen].astype(float)))
        rises = scores[:, None] - scores[chosen]
        rises += np.log(np.maximum(volumes, np.finfo(float).tiny))
        enters, leaves = np.unravel_index(np.argmax(rises), rises.shape)
        if rises[enters, leaves] < _RISE:
            break
        chosen[leaves] = int(enters)
    volume = np.linalg.slogdet(normals[chosen].astype(float))[1]
    return chosen, float(scores[chosen].sum() + volume)


def _new_directions(normals: Matrix, scores: Vector, wanted: int) -> list[int]:
    """Return the best hyperplanes, each with a normal outside the span of those before it."""
    chosen: list[int] = []
    basis = np.zeros((0, normals.shape[1]))
    for i in np.argsort(-scores):
        rest = normals[i] - basis.T @ (basis @ normals[i])
        length = np.linalg.norm(rest)
        if length > _NEW_DIRECTION:
            chosen.append(int(i))
            basis = np.vstack([basis, rest / length])
        if len(chosen) == wanted:
            break
    return chosen


def _all_refined(rows: Matrix, normals: Matrix, offsets: Vector) -> list[tuple[Any, ...]]:
    """Refine hyperplanes; one that comes to lie in the span of others is left as it was."""
    found: list[tuple[Any, ...]] = []
    for normal, offset in zip(normals, offsets, strict=True):
        exact = _refined(rows, normal, offset)
        before = np.array([plane[0] for plane in found])
        candidates = np.vstack([before, exact[0]]) if len(found) else exact[0][None]
        if np.linalg.svd(candidates)[1].min() < _NEW_DIRECTION**2:
            exact = _refined(rows, normal, offset, turns=False)
        found.append(exact)
    return found


def _refined(rows: Matrix, normal: Vector, offset: float, *, turns: bool = True) -> tuple[Any, ...]:
    """Return what `Hyperplanes` says of one hyperplane, by expectation maximisation.

    The normal has the least weighted variance. An inverse iteration finds it next to where it was,
    if there are several: latents that are always off together.
    """
    n = rows.shape[1]
    along = rows @ normal
    noise, share, mean, spread = _LAST_WIDTH, 0.5, along.mean(), along.std()
    for _ in range(_MOST_EM_STEPS):
        inside = share / noise * np.exp(-0.5 * ((along - offset) / noise) ** 2)
        outside = (1 - share) / spread * np.exp(-0.5 * ((along - mean) / spread) ** 2)
        weights = inside / np.maximum(inside + outside, np.finfo(float).tiny)
        changed = abs(weights.mean() - share)
        share = float(np.clip(weights.mean(), 1 / len(rows), 1 - 1 / len(rows)))
        centre = weights @ rows / weights.sum()
        counted = weights > _LEAST_WEIGHT
        centred = rows[counted] - centre
        scatter = (centred * weights[counted, None]).T @ centred / weights.sum()
        ridge = _LEAST_NOISE**2 * np.eye(n)
        turned = np.linalg.solve(scatter + ridge, normal) if turns else normal
        turned /= np.linalg.norm(turned)
        moved = 1 - abs(turned @ normal)
        normal, along = turned, rows @ turned
        offset = float(turned @ centre)
        noise = float(np.sqrt(turned @ scatter @ turned + _LEAST_NOISE**2))
        rest = 1 - weights
        mean = float(rest @ along / max(rest.sum(), _LEAST_NOISE))
        spread = float(np.sqrt(rest @ (along - mean) ** 2 / max(rest.sum(), _LEAST_NOISE)))
        spread = max(spread, _LEAST_NOISE)
        if max(moved, changed) < _EM_PRECISION:
            break
    return normal, offset, share, noise, mean - offset, spread


def _unit(rows: Matrix) -> Matrix:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
