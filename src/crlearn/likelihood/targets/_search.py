"""Unknown targets: which environments intervene on which latents, and an encoder for them.

Peeling finds targets and a start; the joint likelihood of all environments improves the start,
single changes of the targets and of the order are tried while they help, and the answer is judged
against the saturated model. If it is rejected, all is done again from other starts and with more
answers side by side, before anybody blames the mechanisms. Every latent is a function of all before
it: which edges are needed is decided later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crlearn.exceptions import IdentifiabilityError
from crlearn.graph import complete_graph, topological_order
from crlearn.likelihood._fit import FITS, Fit
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.core._newton import STEPS_OF_A_CHANGE
from crlearn.likelihood.nodes._linear import LinearModel, predicted
from crlearn.likelihood.search._local import LEAST_GAIN
from crlearn.likelihood.search._orders import better_order_at, search_orders
from crlearn.likelihood.targets._candidates import (
    possible_rows,
    sums_of_products,
    target_scores,
    target_splits,
)
from crlearn.likelihood.targets._lattice import lattice_targets
from crlearn.likelihood.targets._start import peel
from crlearn.result import GoodnessOfFit

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]

_ATTEMPTS = 3  # before a linear fit is given up
_ANSWERS = 4  # side by side in the first attempt
_CONVINCING = 0.05  # p-value that ends an attempt; of right answers one in twenty is below
_FITTED_CHANGES = 6  # at a time; four times as many are predicted

_Change = tuple[IntMatrix, Matrix]  # targets, and rows to start from, both causes first


def find_targets(
    moments: Moments, *, rng: np.random.Generator, n_attempts: int = _ATTEMPTS
) -> tuple[LinearModel, Fit]:
    """Find targets and encoder of linear latents under unknown interventions.

    Parameters
    ----------
    moments
        Of the data, reduced to as many dimensions as there are latents, and whitened. Environment
        0 is observational.
    rng
        For the starts of the search.
    n_attempts
        How often a rejected answer is searched again, each time with twice as many side by side.

    Returns
    -------
    model, fit
        The model with the targets as pools, and its fit, causes first, with all edges that the
        order allows. For soft interventions rows are noises as the interventions leave them.

    Notes
    -----
    The cost does not depend on the number of samples. It grows about as E n^4 in the number of
    environments and latents if the first attempt succeeds.
    """
    _check(moments)
    found: list[_Answer] = []
    best: _Answer | None = None
    for attempt in range(n_attempts):
        starts = _peeled(moments, rng, _ANSWERS * 2**attempt)
        if attempt == 0 and not any(map(_is_convincing, starts)):
            starts += _from_lattice(moments)
        for start in sorted(starts, key=_badness)[:_ANSWERS]:
            found.append(_repaired(start))
            if _is_convincing(found[-1]):
                break
        best = min(found, key=_badness, default=None)
        if best is not None and best.goodness_of_fit.p_value >= FITS:
            return best.model, best.fit
    if best is None:
        raise IdentifiabilityError(
            f"No targets were found under which {moments.n_variables} latents can be told apart: "
            "each needs a set of environments of its own that intervene on it, and their 0/1 "
            "matrix needs full rank. Interventions may be too weak for this many samples, or there "
            "are fewer latents than assumed."
        )
    return best.model, best.fit


def competing_targets(model: LinearModel, fit: Fit) -> list[Fit]:
    """Return fits with other targets for one latent, the likeliest first."""
    order = topological_order(fit.adjacency)
    answer = _Answer.fitted(model.moments, model.pool[order], fit.H[order])
    H = answer.fit.H
    changes = [(targets, H) for targets in _other_targets(answer)]
    found = [each.fit for each in _fitted_changes(model.moments, changes)]
    return sorted(found, key=lambda fit: -fit.score)


def in_causal_order(fit: Fit) -> Fit:
    """Put causes first; where the graph leaves that open, targets of earlier environments first."""
    assert fit.pool is not None
    adjacency, pool = fit.adjacency, fit.pool
    left = sorted(range(len(pool)), key=lambda j: pool[j].tolist(), reverse=True)
    order: list[int] = []
    while left:
        j = next(j for j in left if not adjacency[left, j].any())
        left.remove(j)
        order.append(j)
    return fit.reordered(order)


@dataclass(frozen=True, eq=False)
class _Answer:
    """Targets and rows, causes first, every latent a function of all before it."""

    model: LinearModel
    fit: Fit

    @classmethod
    def fitted(cls, moments: Moments, targets: IntMatrix, H: Matrix, **options: int) -> _Answer:
        model = LinearModel(moments, targets, hard=True)
        return cls(model, model.fitted(H, complete_graph(range(len(H))), **options))

    @cached_property
    def goodness_of_fit(self) -> GoodnessOfFit:
        return self.model.goodness_of_fit(self.fit, quick=True)


def _badness(answer: _Answer) -> float:
    return -answer.fit.score


def _is_convincing(answer: _Answer) -> bool:
    return answer.goodness_of_fit.p_value >= _CONVINCING


def _peeled(moments: Moments, rng: np.random.Generator, n_answers: int) -> list[_Answer]:
    """Return the answers of a peeling, rows free of the earlier latents inside interventions."""
    answers = []
    for peeling in peel(moments, rng, n_answers):
        inside = moments.pooled(peeling.targets * moments.sizes)
        H = peeling.encoder.copy()
        for j in range(1, len(H)):
            covariance = H[: j + 1] @ inside[j] @ H[: j + 1].T
            H[j] -= np.linalg.solve(covariance[:j, :j], covariance[:j, j]) @ H[:j]
        answers.append(_Answer.fitted(moments, peeling.targets, H))
    return answers


def _from_lattice(moments: Moments) -> list[_Answer]:
    """Return the answer with the first proposals for the targets that have full rank, if any do.

    The precisions are solved for what each latent adds to them, where its row dominates.
    """
    n = moments.n_variables
    precisions = np.linalg.inv(moments.covariances)
    scale, axes = np.linalg.eigh(np.average(precisions, axis=0, weights=moments.sizes))
    basis = (axes * np.sqrt(scale)).T
    white = axes / np.sqrt(scale)
    precisions = white.T @ precisions @ white
    targets = np.zeros((0, len(moments.sizes)), dtype=np.intp)
    for row in lattice_targets(precisions):
        longer = np.vstack([targets, row])
        if len(targets) < n and np.linalg.matrix_rank(longer) == len(longer):
            targets = longer
    if len(targets) < n:
        return []
    solved = np.linalg.pinv(targets[:, 1:].T.astype(float))
    added = np.tensordot(solved, precisions[1:] - precisions[0], 1)
    values, vectors = np.linalg.eigh(added)
    H = vectors[np.arange(n), :, np.abs(values).argmax(axis=1)] @ basis
    if np.linalg.matrix_rank(H) < n:
        return []
    model = LinearModel(moments, targets, hard=True)
    # Causes come with small changes of the precision, more often than not.
    order = better_order_at(model, H, np.argsort((added**2).sum(axis=(1, 2))).tolist())
    fit = search_orders(model, H, order)
    order = np.argsort(fit.adjacency.sum(axis=0), kind="stable")
    return [_Answer.fitted(moments, targets[order], fit.H[order])]


def _repaired(answer: _Answer) -> _Answer:
    """Change the targets of one latent, or its place in the order, while that helps.

    What was fitted and not taken are alternatives.
    """
    moments, seen, others = answer.model.moments, set[bytes](), list[Fit]()
    while True:
        H = answer.fit.H
        changes = [(targets, H) for targets in _other_targets(answer)]
        changes += [(answer.model.pool[order], H[order]) for order in _insertions(len(H))]
        changes = [change for change in changes if change[0].tobytes() not in seen]
        found = _fitted_changes(moments, changes)
        seen.update(each.model.pool.tobytes() for each in found)
        best = min(found, key=_badness, default=answer)
        others += [each.fit for each in (answer, *found)]
        if best.fit.score <= answer.fit.score + LEAST_GAIN:
            kept = tuple(each for each in others if each is not answer.fit)
            return replace(answer, fit=replace(answer.fit, alternatives=kept))
        answer = best


def _fitted_changes(moments: Moments, changes: list[_Change]) -> list[_Answer]:
    """Fit the changes that promise most."""
    changes = _lowest(changes, _values(moments, changes), 4 * _FITTED_CHANGES)
    changes = _lowest(changes, _predicted(moments, changes), _FITTED_CHANGES)
    return [_Answer.fitted(moments, *change, max_steps=STEPS_OF_A_CHANGE) for change in changes]


def _lowest(changes: list[_Change], values: Matrix, n_kept: int) -> list[_Change]:
    """Return the changes with the lowest values."""
    return [changes[k] for k in np.argsort(values, kind="stable")[:n_kept]]


def _values(moments: Moments, changes: list[_Change]) -> Matrix:
    """Return F of each change at the encoder as it is, up to a constant.

    A latent given all before it has the square of an entry of a Cholesky factor as its variance.
    """
    if not changes:  # one latent has neither other targets nor another place
        return np.zeros(0)
    targets = np.array([targets for targets, _ in changes])  # (C, n, E)
    rows = np.array([H for _, H in changes])
    n = moments.n_variables
    weights = np.stack([1 - targets, targets], axis=2) * moments.shares  # (C, n, 2, E)
    pooled = moments.pooled(weights.reshape(-1, len(moments.sizes))).reshape(-1, n, 2, n, n)
    latents = rows[:, None, None] @ pooled @ rows.swapaxes(1, 2)[:, None, None]
    j = np.arange(n)
    given = np.linalg.cholesky(latents[:, :, 0])[:, j, j, j] ** 2
    variances = np.stack([given, latents[:, j, 1, j, j]], axis=-1)
    return (weights.sum(axis=-1) * np.log(variances)).sum(axis=(1, 2)) / 2


def _predicted(moments: Moments, changes: list[_Change]) -> Matrix:
    """Return F of each change after a step of the encoder."""
    values = []
    for targets, H in changes:
        model = LinearModel(moments, targets, hard=True)
        values.append(predicted(H, model.pools, model.masks(complete_graph(range(len(H))))))
    return np.array(values)


def _other_targets(answer: _Answer) -> Iterator[IntMatrix]:
    """Yield the targets with those of one latent replaced by others that suit it."""
    moments, targets = answer.model.moments, answer.model.pool
    sums = sums_of_products(moments.transformed(answer.fit.H))
    for j in range(len(targets)):
        given = sums[None, :, : j + 2, : j + 2]
        rows = np.vstack([possible_rows(targets[j]), target_splits(given, moments.sizes)[0]])
        rows = np.unique(rows[(rows != targets[j]).any(axis=1)], axis=0)
        scores = target_scores(given, moments.sizes, rows[None])[0]
        for k in np.argsort(scores, kind="stable")[:_FITTED_CHANGES]:
            changed = targets.copy()
            changed[j] = rows[k]
            if np.linalg.matrix_rank(changed) == len(changed):
                yield changed


def _insertions(n: int) -> Iterator[list[int]]:
    """Yield the orders in which one latent stands elsewhere."""
    for start in range(n):
        for end in range(n):
            if end not in (start, start + 1):
                order = [*range(start), *range(start + 1, n)]
                order.insert(end, start)
                yield order


def _check(moments: Moments) -> None:
    """Raise if targets cannot be found in principle."""
    n, n_environments = moments.n_variables, len(moments.sizes)
    if n_environments <= n:
        raise IdentifiabilityError(
            f"{n} latents need at least {n} interventional environments beside the observational "
            f"one, as many as the rank of their targets. Got {n_environments - 1}."
        )
    if (np.linalg.matrix_rank(moments.covariances, hermitian=True) < n).any():
        raise ValueError(
            f"In some environment the {n} variables are linearly dependent, so that it has no "
            "density. Give every environment more rows, or assume fewer latents."
        )
