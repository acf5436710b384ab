"""Candidates for the next latent: directions of x with the environments that intervene on them.

A latent whose causes are known has two marks, once its causes are held constant. The square of its
direction lies in the span of the differences of the precisions of the environments
(`targets._directions`). And its conditional distribution takes two values over the
environments, one where it is a target and one where it is not. The score of a direction and a set
of targets measures both: the defect, and minus twice the log-likelihood ratio of two conditionals
against one for each environment. Noise alone gives about the number of equations.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood.core._encoder import unit_rows
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.core._newton import STEPS_OF_A_CHANGE, descend_all
from crlearn.likelihood.targets._directions import (
    RankOne,
    rank_one_directions,
    tangent,
)

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]
Sizes = NDArray[np.intp]

# As the score is a chi-square statistic, differences are in units that do not depend on the data.
_ARRIVED = 0.1  # of a score, that a step must still gain
_MARGIN = 10  # how far a candidate may be behind the best one, in scores that noise gives
_STARTS_PER_DIMENSION = 10
_ROUNDING = 1e-6  # of zeros and ones
_MOST_FOR_ALL_SETS = 10  # environments beside the reference


@dataclass(frozen=True, eq=False)
class View:
    """The data where the latents found so far are held constant.

    Attributes
    ----------
    basis
        Directions of x that are free, one a row, ``(q, n)``. In these coordinates the mean
        precision is the identity.
    span
        Of the differences of the precisions of the free directions, the found ones held constant.
    sums
        Sums of squares and products of (1, found, free), ``(E, 1 + n, 1 + n)``.
    sizes
        Rows of each environment.
    frame
        The found rows and the basis, ``(n, n)``.
    """

    basis: Matrix
    span: RankOne
    sums: Matrix
    sizes: Sizes
    frame: Matrix

    @classmethod
    def of(cls, moments: Moments, found: Matrix) -> View:
        """Hold the found rows ``(k, n)`` constant."""
        free = np.linalg.svd(found)[2][len(found) :] if len(found) else np.eye(found.shape[1])
        inside = free @ np.linalg.inv(moments.covariances) @ free.T
        scale, axes = np.linalg.eigh(np.average(inside, axis=0, weights=moments.sizes))
        inside = (axes / np.sqrt(scale)).T @ inside @ (axes / np.sqrt(scale))
        basis = (axes * np.sqrt(scale)).T @ free
        frame = np.vstack([found, basis])
        sums = sums_of_products(moments.transformed(frame))
        return cls(basis, RankOne.of(inside, moments.sizes), sums, moments.sizes, frame)

    @property
    def n_given(self) -> int:
        """Number of variables that are held constant, the 1 among them."""
        return self.sums.shape[-1] - len(self.basis)

    @property
    def usual_score(self) -> float:
        """Score that noise alone gives: the number of equations."""
        q = len(self.basis)
        return (len(self.sizes) - 2) * (self.n_given + 1) + q * (q + 1) / 2

    def coordinates(self, rows: Matrix) -> Matrix:
        """Return the free part of rows of an encoder, with unit length."""
        x = np.linalg.solve(self.frame.T, rows.T).T[:, -len(self.basis) :]
        x[~x.any(axis=1), 0] = 1.0  # nothing is left of a row that was found: any will do
        return unit_rows(x)

    def along(self, directions: Matrix) -> Matrix:
        """Return the sums of (1, found, direction), ``(C, E, g + 1, g + 1)``."""
        g = self.n_given
        reduced = np.zeros((len(directions), g + 1, self.sums.shape[-1]))
        reduced[:, :g, :g] = np.eye(g)
        reduced[:, g, g:] = directions
        return reduced[:, None] @ self.sums @ reduced.transpose(0, 2, 1)[:, None]

    def residuals(self, sums: Matrix) -> Matrix:
        """Return the sums of squares and products of the free directions given the others."""
        g = self.n_given
        given, cross = sums[..., :g, :g], sums[..., :g, g:]
        return sums[..., g:, g:] - cross.swapaxes(-1, -2) @ np.linalg.solve(given, cross)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Directions that may be the next latent.

    Attributes
    ----------
    directions
        Unit vectors in the coordinates of the view, ``(C, q)``.
    targets
        1 where an environment intervenes on the candidate, ``(C, E)``.
    scores
        Small for the truth, ``(C,)``.
    """

    directions: Matrix
    targets: IntMatrix
    scores: Matrix

    def __getitem__(self, chosen: NDArray[np.intp] | NDArray[np.bool_]) -> Candidates:
        return Candidates(self.directions[chosen], self.targets[chosen], self.scores[chosen])

    def joined(self, others: Candidates) -> Candidates:
        """Return both sets of candidates."""
        return Candidates(
            np.vstack([self.directions, others.directions]),
            np.vstack([self.targets, others.targets]),
            np.append(self.scores, others.scores),
        )

    def best(self, n_kept: int | None, margin: float = np.inf) -> Candidates:
        """Return the best candidates with different targets, none too far behind the best one."""
        order = np.argsort(self.scores, kind="stable")
        order = order[self.scores[order] <= self.scores.min(initial=np.inf) + margin]
        _, first = np.unique(self.targets[order], axis=0, return_index=True)
        return self[order[np.sort(first)[:n_kept]]]


def candidates(
    view: View, taken: IntMatrix, known: Candidates, rng: np.random.Generator, n_kept: int
) -> Candidates:
    """Return candidates for the next latent, the best first.

    Parameters
    ----------
    view
        The data, given the latents found so far.
    taken
        Targets of the latents found so far ``(k, E)``, on which those of the next do not depend.
    known
        Candidates from an earlier view: what was a latent then still is one.
    rng
        For the starts.
    n_kept
        Number of candidates.
    """
    q = len(view.basis)
    if q == 1:
        return _with_best_targets(view, np.ones((1, 1)), taken, 2 * len(view.sizes)).best(n_kept)
    margin = _MARGIN * view.usual_score
    starts = rank_one_directions(view.span, rng, _STARTS_PER_DIMENSION * q)
    crude = _with_best_targets(view, starts, taken, 2).best(n_kept)
    crude = crude.joined(known[_is_independent(known.targets, taken)])
    if not len(crude.scores):
        return crude
    return _refined(view, crude, margin).best(n_kept, margin)


def _with_best_targets(view: View, directions: Matrix, taken: IntMatrix, n_rows: int) -> Candidates:
    """Return each direction with the free targets that suit it best, `n_rows` times at most."""
    sums = view.along(directions)
    rows = target_splits(sums, view.sizes)
    scores = target_scores(sums, view.sizes, rows) + view.span.defect(directions)[:, None]
    scores[~_is_independent(rows, taken)] = np.inf
    order = np.argsort(scores, axis=1, kind="stable")
    scores = np.take_along_axis(scores, order, axis=1)
    # Both orders may give the same targets, and with them the same score.
    same = np.isclose(scores[:, 1:], scores[:, :-1], rtol=1e-9, atol=0)
    new = np.isfinite(scores) & np.insert(~same, 0, True, axis=1)
    rank = np.where(new, np.cumsum(new, axis=1), n_rows + 1)
    which, place = np.nonzero(rank <= n_rows)
    return Candidates(directions[which], rows[which, order[which, place]], scores[which, place])


def _is_independent(rows: IntMatrix, taken: IntMatrix) -> NDArray[np.bool_]:
    """Whether targets ``(..., E)`` are no linear combination of others ``(k, E)``."""
    left = rows - rows @ np.linalg.pinv(taken) @ taken
    return np.abs(left).max(axis=-1) > _ROUNDING


def sums_of_products(moments: Moments) -> Matrix:
    """Return the sums of squares and products of (1, x), ``(E, 1 + n, 1 + n)``."""
    means = np.insert(moments.means, 0, 1.0, axis=1)
    second = means[:, :, None] * means[:, None, :]
    second[:, 1:, 1:] += moments.covariances
    return second * moments.sizes[:, None, None]


def target_splits(sums: Matrix, sizes: Sizes) -> IntMatrix:
    """Return candidate targets of a variable, the last one, given the others.

    Environments are sorted by how far the conditional distribution is from that in environment 0,
    or by its variance; the splits of these orders are the candidates.

    Parameters
    ----------
    sums
        Sums of squares and products, the constant 1 among the others, ``(C, E, g + 1, g + 1)``.
    sizes
        Rows of each environment.

    Returns
    -------
    rows
        1 for environments on the other side of the split than environment 0, ``(C, 2 E - 2, E)``.
    """
    n_environments = len(sizes)
    alone = _deviance(sums, sizes)
    distance = _deviance(sums + sums[:, :1], sizes + sizes[0]) - alone - alone[:, :1]
    distance[:, 0] = -np.inf
    place = np.argsort(np.argsort([distance, alone / sizes], axis=-1, kind="stable"), axis=-1)
    beyond = place[:, :, None, :] > np.arange(n_environments - 1)[:, None]
    return np.concatenate(list((beyond != beyond[..., :1]).astype(np.intp)), axis=1)


def possible_rows(row: IntMatrix) -> IntMatrix:
    """Return other targets of a latent: all, or those that differ in one or two environments.

    If the reference changes sides, all others do relative to it.
    """
    m = len(row) - 1
    if m <= _MOST_FOR_ALL_SETS:
        rows = np.insert(list(product((0, 1), repeat=m)), 0, 0, axis=1).astype(np.intp)
    else:
        flips = np.vstack([np.ones(m + 1), np.zeros(m + 1), np.eye(m + 1)[1:]]).astype(np.intp)
        flips[:, 0] = 0
        first, second = np.triu_indices(m + 2, k=1)
        rows = row ^ flips[first] ^ flips[second]
    return rows[rows.any(axis=1) & (rows != row).any(axis=1)]


def target_scores(sums: Matrix, sizes: Sizes, rows: IntMatrix) -> Matrix:
    """Return the scores of targets ``(C, R, E)``, none of them empty, of the last variable.

    Minus twice the log-likelihood ratio of two conditionals, one in the targeted environments and
    one in the others, against one for each environment.
    """
    n_far = rows @ sizes
    flat = sums.reshape(*sums.shape[:2], -1)
    far = (rows.astype(float) @ flat).reshape(*rows.shape[:2], *sums.shape[2:])
    near = sums.sum(axis=1, keepdims=True) - far
    alone = _deviance(sums, sizes).sum(axis=1, keepdims=True)
    return _deviance(far, n_far) + _deviance(near, sizes.sum() - n_far) - alone


def _deviance(sums: Matrix, sizes: Sizes) -> Matrix:
    """Return N log(rss / N) of the last variable given the others."""
    last = np.linalg.cholesky(sums)[..., -1, -1]
    return np.asarray(sizes * (2 * np.log(last) - np.log(sizes)), dtype=float)


def _refined(view: View, found: Candidates, margin: float) -> Candidates:
    """Minimise the scores over the directions, by a damped Newton method.

    It ends when all candidates that are close to the best one have arrived.
    """
    forms, weights, constant = _log_forms(view, found.targets)

    def score(x: Matrix) -> Matrix:
        sizes = ((forms @ x[:, None, :, None])[..., 0] * x[:, None]).sum(axis=-1)
        return constant + (weights * np.log(sizes)).sum(axis=1) + view.span.defect(x)

    def expand(x: Matrix) -> tuple[Matrix, Matrix]:
        gradient, hessian = _expanded(x, forms, weights)
        of_defect = view.span.expand(x)
        return gradient + of_defect[0], hessian + of_defect[1]

    x, value = descend_all(
        found.directions,
        expand,
        score,
        _on_the_sphere,
        max_steps=STEPS_OF_A_CHANGE,
        tolerance=_ARRIVED,
        margin=margin,
    )
    return Candidates(x, found.targets, value)


def _on_the_sphere(x: Matrix, steps: Matrix) -> Matrix:
    new = x + tangent(steps, x)
    return new / np.linalg.norm(new, axis=1, keepdims=True)


def _log_forms(view: View, targets: IntMatrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return Q, w and c for which the likelihood ratios are sum_t w_t log x' Q_t x + c."""
    far = np.tensordot(targets.astype(float), view.sums, 1)
    pools = view.residuals(np.stack([view.sums.sum(axis=0) - far, far], axis=1))
    alone = view.residuals(view.sums)
    forms = np.concatenate([pools, np.broadcast_to(alone, (len(targets), *alone.shape))], axis=1)
    weights = np.empty(forms.shape[:2])
    weights[:, 1] = targets @ view.sizes
    weights[:, 0] = view.sizes.sum() - weights[:, 1]
    weights[:, 2:] = -view.sizes
    return forms, weights, -(weights * np.log(np.abs(weights))).sum(axis=1)


def _expanded(x: Matrix, forms: Matrix, weights: Matrix) -> tuple[Matrix, Matrix]:
    """Return gradient and Hessian of sum_t w_t log x' Q_t x."""
    images = (forms @ x[:, None, :, None])[..., 0]
    sizes = (images * x[:, None]).sum(axis=-1)
    relative = images / sizes[..., None]
    gradient = 2 * (weights[..., None] * relative).sum(axis=1)
    hessian = 2 * ((weights / sizes)[..., None, None] * forms).sum(axis=1)
    hessian -= 4 * (weights[..., None] * relative).swapaxes(1, 2) @ relative
    return gradient, hessian
