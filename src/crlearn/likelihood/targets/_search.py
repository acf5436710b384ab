"""Unknown targets: which environments intervene on which latents, and an encoder for them.

Peeling finds the targets and a start; the joint likelihood of all environments improves the start
and judges it against the saturated model. While the judgement is bad, single changes of the targets
and of the order are tried, and a more thorough peeling. Every latent is a function of all before
it: which edges are needed is decided later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crlearn.exceptions import IdentifiabilityError
from crlearn.graph import complete_graph
from crlearn.likelihood._fit import Fit
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.nodes._linear import LinearModel, objective, predicted
from crlearn.likelihood.search._orders import better_order_at, search_orders
from crlearn.likelihood.targets._candidates import (
    Effort,
    neighbours,
    sums_of_products,
    target_scores,
    target_splits,
)
from crlearn.likelihood.targets._lattice import lattice_targets
from crlearn.likelihood.targets._start import Peeling, peel
from crlearn.result import GoodnessOfFit

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]

_QUICK = Effort()
_THOROUGH = Effort(candidates=10, is_thorough=True)
_GOOD_P_VALUE = 0.01
_TOLERABLE_P_VALUE = 1e-4  # wrong answers are far below it, right ones almost never
_HOPELESS = 100  # beyond so many times its expectation, a ratio is not mended by single changes
_MANY = 12  # latents, beyond which a thorough peeling takes too long
_ROWS_PER_LATENT = 3
_PREDICTED_CHANGES = 24
_FITTED_CHANGES = 6
_STEPS_OF_A_CHANGE = 20
_LEAST_GAIN = 2.5  # nats

_Change = tuple[IntMatrix, Matrix]  # targets, and rows to start from, both causes first


def find_targets(
    moments: Moments, *, rng: np.random.Generator, max_sweeps: int = 8
) -> tuple[LinearModel, Fit]:
    """Find targets and encoder of linear latents under unknown interventions.

    Parameters
    ----------
    moments
        Of the data, reduced to as many dimensions as there are latents, and whitened. Environment
        0 is observational.
    rng
        For the starts of the search.
    max_sweeps
        Number of times that single changes are tried, for each answer whose fit is bad. If the
        latents are not linear, the fit is bad whatever is tried.

    Returns
    -------
    model, fit
        The model with the targets as pools, and its fit, causes first, with all edges that the
        order allows. For soft interventions rows are noises as the interventions leave them.

    Notes
    -----
    The cost does not depend on the number of samples. It grows about as E n^4 in the number of
    environments and latents if the first, quick search succeeds.
    """
    _check(moments)
    best = _searched(moments, rng, max_sweeps)
    return best.model, best.fit


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
    def fitted(
        cls, moments: Moments, targets: IntMatrix, H: Matrix, max_steps: int = 100
    ) -> _Answer:
        model = LinearModel(moments, targets, hard=True)
        return cls(model, model.fitted(H, complete_graph(range(len(H))), max_steps))

    @cached_property
    def goodness_of_fit(self) -> GoodnessOfFit:
        return self.model.goodness_of_fit(self.fit, quick=True)


def _searched(moments: Moments, rng: np.random.Generator, max_sweeps: int) -> _Answer:
    """Return the first answer whose fit is good, or else the best one."""
    best: _Answer | None = None
    for effort in (_QUICK, _THOROUGH):
        answers = []
        for peeling in peel(moments, rng, effort):
            answers.append(_Answer.fitted(moments, peeling.targets, _start(moments, peeling)))
            if answers[-1].goodness_of_fit.p_value > _GOOD_P_VALUE:
                return answers[-1]
        if effort is _QUICK and moments.n_variables > _MANY:
            proposed = _from_lattice(moments)
            answers += [] if proposed is None else [proposed]
            if answers:
                return _repaired(max(answers, key=lambda answer: answer.fit.score), max_sweeps)
        if effort is _QUICK:
            answers = [answer for answer in answers if not _is_hopeless(answer.goodness_of_fit)]
        for answer in sorted(answers, key=lambda answer: -answer.fit.score):
            repaired = _repaired(answer, max_sweeps)
            if best is None or repaired.fit.score > best.fit.score:
                best = repaired
            if best.goodness_of_fit.p_value > _TOLERABLE_P_VALUE:
                return best
    if best is None:
        raise IdentifiabilityError(
            f"No targets were found under which {moments.n_variables} latents can be told apart: "
            "each needs a set of environments of its own that intervene on it, and their 0/1 "
            "matrix needs full rank. Interventions may be too weak for this many samples, or there "
            "are fewer latents than assumed."
        )
    return best


def _from_lattice(moments: Moments) -> _Answer | None:
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
        return None
    solved = np.linalg.pinv(targets[:, 1:].T.astype(float))
    added = np.tensordot(solved, precisions[1:] - precisions[0], 1)
    values, vectors = np.linalg.eigh(added)
    H = vectors[np.arange(n), :, np.abs(values).argmax(axis=1)] @ basis
    model = LinearModel(moments, targets, hard=True)
    # Causes come with small changes of the precision, more often than not.
    order = better_order_at(model, H, np.argsort((added**2).sum(axis=(1, 2))).tolist())
    fit = search_orders(model, H, order)
    order = np.argsort(fit.adjacency.sum(axis=0), kind="stable")
    return _Answer.fitted(moments, targets[order], fit.H[order])


def _is_hopeless(fit: GoodnessOfFit) -> bool:
    return fit.ratio > _HOPELESS * fit.freedom


def _start(moments: Moments, peeling: Peeling) -> Matrix:
    """Return the rows as they are inside the interventions: free of the earlier latents."""
    inside = moments.pooled(peeling.targets * moments.sizes)
    H = peeling.encoder.copy()
    for j in range(1, len(H)):
        covariance = H[: j + 1] @ inside[j] @ H[: j + 1].T
        H[j] -= np.linalg.solve(covariance[:j, :j], covariance[:j, j]) @ H[:j]
    return H


def _repaired(answer: _Answer, max_sweeps: int) -> _Answer:
    """Change the targets of one latent, or its place in the order, while that helps."""
    seen: set[bytes] = set()
    for _ in range(max_sweeps):
        found = _best_change(answer, seen)
        if found is None:
            break
        answer = found
        if answer.goodness_of_fit.p_value > _GOOD_P_VALUE:
            break
    return answer


def _best_change(answer: _Answer, seen: set[bytes]) -> _Answer | None:
    """Return the best of the changes that were not tried before, or None if none helps."""
    moments, H = answer.model.moments, answer.fit.H
    changes = [(targets, H) for targets in _other_targets(answer)]
    changes += [(answer.model.pool[order], H[order]) for order in _insertions(len(H))]
    changes = [change for change in changes if change[0].tobytes() not in seen]
    changes = _lowest(moments, changes, objective, _PREDICTED_CHANGES)
    best: _Answer | None = None
    for targets, start in _lowest(moments, changes, predicted, _FITTED_CHANGES):
        seen.add(targets.tobytes())
        found = _Answer.fitted(moments, targets, start, _STEPS_OF_A_CHANGE)
        if best is None or found.fit.score > best.fit.score:
            best = found
    enough = best is not None and best.fit.score > answer.fit.score + _LEAST_GAIN
    return best if enough else None


def _lowest(
    moments: Moments, changes: list[_Change], judged_by: Callable[..., object], n_kept: int
) -> list[_Change]:
    """Return the changes with the lowest values."""
    values = []
    for targets, H in changes:
        model = LinearModel(moments, targets, hard=True)
        value = judged_by(H, model.pools, model.masks(complete_graph(range(len(H)))))
        values.append(np.asarray(value).item())
    return [changes[k] for k in np.argsort(values, kind="stable")[:n_kept]]


def _other_targets(answer: _Answer) -> Iterator[IntMatrix]:
    """Yield the targets with those of one latent replaced by others that suit it."""
    moments, targets = answer.model.moments, answer.model.pool
    sums = sums_of_products(moments.transformed(answer.fit.H))
    for j in range(len(targets)):
        given = sums[None, :, : j + 2, : j + 2]
        rows = np.concatenate([target_splits(given, moments.sizes), neighbours(targets[[j]])], 1)
        rows = np.unique(rows[0], axis=0)
        rows = rows[rows.any(axis=1) & (rows != targets[j]).any(axis=1)]
        scores = target_scores(given, moments.sizes, rows[None])[0]
        for k in np.argsort(scores, kind="stable")[:_ROWS_PER_LATENT]:
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
