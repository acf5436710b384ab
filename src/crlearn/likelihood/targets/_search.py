"""Unknown targets: encoder, targets and graph where environments intervene on several latents.

Peeling finds the targets and a start; the joint likelihood of all environments improves the start
and judges it against the saturated model. While the judgement is bad, single changes of the targets
and of the order are tried, and a more thorough peeling. Edges that are not needed are dropped.

For soft interventions the same model serves: the row of a latent is that of its noise inside the
interventions on it, and the mechanism outside them is a regression on the rows of its ancestors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crlearn.exceptions import IdentifiabilityError
from crlearn.graph import transitive_closure
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.interventional._linear import (
    GoodnessOfFit,
    LinearFit,
    LinearProblem,
    better_order_at,
    search_orders,
    standard_errors,
)
from crlearn.likelihood.interventional._wald import prune_by_wald
from crlearn.likelihood.nodes._linear import minimise, objective, predicted
from crlearn.likelihood.targets._candidates import (
    Effort,
    neighbours,
    sums_of_products,
    target_scores,
    target_splits,
)
from crlearn.likelihood.targets._lattice import lattice_targets
from crlearn.likelihood.targets._start import Peeling, peel

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]
BoolMatrix = NDArray[np.bool_]

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
_LEAST_GAIN = 5.0  # in units of the likelihood ratio

_Change = tuple[IntMatrix, Matrix]  # targets, and rows to start from, both causes first


@dataclass(frozen=True, eq=False)
class TargetFit:
    """Encoder, targets and graph.

    Latents are in causal order; where the graph leaves the order open, the latent that an earlier
    environment intervenes on comes first.

    Attributes
    ----------
    encoder
        One row for each latent, in the coordinates of the moments; for soft interventions it
        is the latent's noise as its interventions leave it. In environment 0 every latent
        has variance 1; the largest entry of a row is positive.
    targets
        ``targets[e, j]`` is True if environment e intervenes on latent j, ``(E, n)``; nothing is a
        target in environment 0.
    adjacency
        ``adjacency[i, j]`` is True if i is a parent of j, for soft interventions if i is an
        ancestor of j.
    parents
        The graph of the fitted model; for hard interventions the same as `adjacency`.
    edge_p_values
        ``edge_p_values[i, j]`` is the p-value of i -> j in `parents`: likelihood ratio of the model
        without the edge, or Wald's test where there is no doubt. Edges that were dropped have the
        value that they had then; 1 where the order excludes an edge.
    standard_errors
        Of what each row of the fitted model has of the other latents, ``(n, n)``.
    value
        Mean negative log-likelihood, up to a constant.
    goodness_of_fit
        Likelihood ratio to the saturated model, a Gaussian of its own for every environment.
    """

    encoder: Matrix
    targets: BoolMatrix
    adjacency: BoolMatrix
    parents: BoolMatrix
    edge_p_values: Matrix
    standard_errors: Matrix
    value: float
    goodness_of_fit: GoodnessOfFit


def find_targets(
    moments: Moments, *, rng: np.random.Generator, hard: bool = True, max_sweeps: int = 8
) -> TargetFit:
    """Find encoder, targets and graph of linear latents under unknown interventions.

    Parameters
    ----------
    moments
        Of the data, reduced to as many dimensions as there are latents, and whitened. Environment
        0 is observational.
    rng
        For the starts of the search.
    hard
        Whether interventions cut a latent off its parents.
    max_sweeps
        Number of times that single changes are tried, for each answer whose fit is bad. If the
        latents are not linear, the fit is bad whatever is tried.

    Notes
    -----
    The cost does not depend on the number of samples. It grows about as E n^4 in the number of
    environments and latents if the first, quick search succeeds.
    """
    _check(moments)
    best = _searched(moments, rng, max_sweeps)
    problem = best.problem
    pruned = prune_by_wald(problem, best.fit)
    fit = pruned.fit
    order = _causal_order(fit.adjacency, problem.pool)
    among = np.ix_(order, order)
    parents = fit.adjacency[among]
    return TargetFit(
        encoder=_normalised(fit.H[order], moments.covariances[0]),
        targets=problem.pool[order].T.astype(bool),
        adjacency=parents if hard else transitive_closure(parents),
        parents=parents,
        edge_p_values=pruned.p_values[among],
        standard_errors=standard_errors(problem, fit)[among],
        value=fit.value,
        goodness_of_fit=problem.goodness_of_fit(fit.value, problem.masks(fit.adjacency)),
    )


@dataclass(frozen=True, eq=False)
class _Answer:
    """Targets and rows, causes first, every latent a function of all before it."""

    problem: LinearProblem
    fit: LinearFit

    @classmethod
    def fitted(
        cls, moments: Moments, targets: IntMatrix, H: Matrix, max_steps: int = 100
    ) -> _Answer:
        problem = LinearProblem(moments, targets, hard=True)
        complete = _complete(len(H))
        H, value = minimise(H, problem.pools, problem.masks(complete), max_steps=max_steps)
        return cls(problem, LinearFit(H, complete, value))

    @property
    def goodness_of_fit(self) -> GoodnessOfFit:
        masks = self.problem.masks(self.fit.adjacency)
        return self.problem.goodness_of_fit(self.fit.value, masks)


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
                return _repaired(min(answers, key=lambda answer: answer.fit.value), max_sweeps)
        if effort is _QUICK:
            answers = [answer for answer in answers if not _is_hopeless(answer.goodness_of_fit)]
        for answer in sorted(answers, key=lambda answer: answer.fit.value):
            repaired = _repaired(answer, max_sweeps)
            if best is None or repaired.fit.value < best.fit.value:
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
    problem = LinearProblem(moments, targets, hard=True)
    # Causes come with small changes of the precision, more often than not.
    order = better_order_at(problem, H, np.argsort((added**2).sum(axis=(1, 2))).tolist())
    fit = search_orders(problem, H, order)
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
    moments, H = answer.problem.moments, answer.fit.H
    changes = [(targets, H) for targets in _other_targets(answer)]
    changes += [(answer.problem.pool[order], H[order]) for order in _insertions(len(H))]
    changes = [change for change in changes if change[0].tobytes() not in seen]
    changes = _lowest(moments, changes, objective, _PREDICTED_CHANGES)
    best: _Answer | None = None
    for targets, start in _lowest(moments, changes, predicted, _FITTED_CHANGES):
        seen.add(targets.tobytes())
        found = _Answer.fitted(moments, targets, start, _STEPS_OF_A_CHANGE)
        if best is None or found.fit.value < best.fit.value:
            best = found
    needed = answer.fit.value - 0.5 * _LEAST_GAIN / moments.n_samples
    return best if best is not None and best.fit.value < needed else None


def _lowest(
    moments: Moments, changes: list[_Change], judged_by: Callable[..., object], n_kept: int
) -> list[_Change]:
    """Return the changes with the lowest values."""
    values = []
    for targets, H in changes:
        problem = LinearProblem(moments, targets, hard=True)
        value = judged_by(H, problem.pools, problem.masks(_complete(len(H))))
        values.append(np.asarray(value).item())
    return [changes[k] for k in np.argsort(values, kind="stable")[:n_kept]]


def _other_targets(answer: _Answer) -> Iterator[IntMatrix]:
    """Yield the targets with those of one latent replaced by others that suit it."""
    moments, targets = answer.problem.moments, answer.problem.pool
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


def _complete(n: int) -> BoolMatrix:
    """Return the graph in which every latent has all earlier ones as parents."""
    return np.tri(n, k=-1, dtype=bool).T


def _causal_order(adjacency: BoolMatrix, targets: IntMatrix) -> list[int]:
    """Return an order with causes first that depends on the graph and the targets alone."""
    left = sorted(range(len(targets)), key=lambda j: targets[j].tolist(), reverse=True)
    order: list[int] = []
    while left:
        j = next(j for j in left if not adjacency[left, j].any())
        left.remove(j)
        order.append(j)
    return order


def _normalised(H: Matrix, covariance: Matrix) -> Matrix:
    """Scale the rows to variance 1; make their largest entries positive."""
    largest = H[np.arange(len(H)), np.abs(H).argmax(axis=1)]
    deviation = np.sqrt(np.einsum("ia,ab,ib->i", H, covariance, H))
    return H * (np.sign(largest) / deviation)[:, None]


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
