"""Peeling: latents found one by one, causes first, each with the environments that intervene on it.

In environment e the precision matrix of x is a sum over the latents, K_e = sum_i v_ie v_ie', where
v_ie is one of two rows: that of the mechanism of latent i, or that of its intervention. Where the
causes of a latent are held constant, both are multiples of the same row, which makes it visible
(`targets._candidates`). A beam search keeps several answers, as noise may put a wrong
candidate ahead of a right one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood.core._encoder import LONGEST_STEP, unit_rows
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.core._newton import STEPS_OF_A_CHANGE, Expansion, descend
from crlearn.likelihood.nodes._linear import conditioned, crossed, kronecker
from crlearn.likelihood.targets._candidates import Candidates, View, candidates

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Peeling:
    """Latents found so far.

    Attributes
    ----------
    encoder
        One row for each latent, causes first, ``(k, n)``.
    targets
        ``targets[j, e]`` is 1 if environment e intervenes on latent j, ``(k, E)``.
    score
        Sum of the scores of the latents, small for the truth.
    usual_score
        Score that noise alone gives.
    others
        Rows that came into question beside the last one, and still do.
    others_targets
        Their targets.
    """

    encoder: Matrix
    targets: IntMatrix
    score: float
    usual_score: float
    others: Matrix
    others_targets: IntMatrix


def peel(moments: Moments, rng: np.random.Generator, n_answers: int) -> list[Peeling]:
    """Return complete answers, the best first; none if the data show too few latents.

    So many are kept side by side, and twice as many candidates for the next latent of each.
    """
    n, n_environments = moments.n_variables, len(moments.sizes)
    no_rows, no_targets = np.zeros((0, n)), np.zeros((0, n_environments), dtype=np.intp)
    beam = [Peeling(no_rows, no_targets, 0.0, 0.0, no_rows, no_targets)]
    root = View.of(moments, no_rows)
    for _ in range(n):
        longer = [new for answer in beam for new in _extended(moments, answer, rng, 2 * n_answers)]
        longer = [_refitted(moments, root, answer) for answer in _best(longer, 2 * n_answers)]
        beam = _best(longer, n_answers)
    return beam


def _extended(
    moments: Moments, answer: Peeling, rng: np.random.Generator, n_candidates: int
) -> Iterator[Peeling]:
    """Yield the answer with one more latent, in all ways that come into question."""
    view = View.of(moments, answer.encoder)
    others = view.coordinates(answer.others)
    known = Candidates(others, answer.others_targets, np.zeros(len(others)))
    found = candidates(view, answer.targets, known, rng, n_candidates)
    rows = unit_rows(found.directions @ view.basis)
    for j, score in enumerate(found.scores):
        yield Peeling(
            np.vstack([answer.encoder, rows[j]]),
            np.vstack([answer.targets, found.targets[j]]),
            answer.score + float(score),
            answer.usual_score + view.usual_score,
            np.delete(rows, j, axis=0),
            np.delete(found.targets, j, axis=0),
        )


def _best(answers: list[Peeling], n_kept: int) -> list[Peeling]:
    """Return the best answers that differ in the targets of some latent."""
    kept: dict[tuple[bytes, ...], Peeling] = {}
    for answer in sorted(answers, key=lambda answer: answer.score):
        kept.setdefault(tuple(sorted(row.tobytes() for row in answer.targets)), answer)
        if len(kept) == n_kept:
            break
    return list(kept.values())


def _refitted(moments: Moments, root: View, answer: Peeling) -> Peeling:
    """Fit all rows of a doubtful answer jointly, nothing being assumed of the other latents.

    What is minimised is the sum of the scores with the defect of the first row alone: it is the
    only one whose conditional distribution does not determine it.
    """
    if len(answer.encoder) == 1 or answer.score < answer.usual_score:
        return answer
    encoder, gain = _Partial.of(moments, root, answer.targets).minimised(answer.encoder)
    return replace(answer, encoder=encoder, score=answer.score - gain)


@dataclass(frozen=True, eq=False)
class _Partial:
    """The score of k rows as a function of all of them.

    It is a weighted sum of log-determinants, of the covariances of the first rows in pools and
    environments, plus the defect of the first row.
    """

    covariances: Matrix
    members: Matrix
    weights: Matrix
    root: View

    @classmethod
    def of(cls, moments: Moments, root: View, targets: IntMatrix) -> _Partial:
        k, n = len(targets), moments.n_variables
        sizes = np.stack([1 - targets, targets], axis=1).reshape(2 * k, -1) * moments.sizes
        pooled, n_rows = moments.pooled(sizes), sizes.sum(axis=1)
        upto = np.repeat(np.tri(k, n), 2, axis=0)
        before = np.repeat(np.tri(k, n, -1), 2, axis=0)
        found = np.tile(1.0 * (np.arange(n) < k), (len(moments.sizes), 1))
        return cls(
            np.concatenate([pooled, pooled, moments.covariances]),
            np.concatenate([upto, before, found]),
            np.concatenate([n_rows, -n_rows, -moments.sizes]).astype(float),
            root,
        )

    def minimised(self, encoder: Matrix) -> tuple[Matrix, float]:
        """Return better rows and the gain."""
        k, n = encoder.shape
        H = np.vstack([encoder, np.linalg.svd(encoder)[2][k:]])
        # Multiples of itself and of earlier rows make no difference to a row.
        free = np.zeros((n, n), dtype=bool)
        free[:k] = np.arange(n) > np.arange(k)[:, None]

        def moved(H: Matrix, step: Matrix) -> Matrix:
            D = np.zeros((n, n))
            D[free] = step
            return unit_rows(H + D @ H)

        start = self._value(H)
        H, value = descend(
            H,
            lambda H: self._expanded(H, free),
            self._value,
            moved,
            max_steps=STEPS_OF_A_CHANGE,
            tolerance=1.0,
            longest=LONGEST_STEP,
        )
        return H[:k], start - value

    def _value(self, H: Matrix) -> float:
        log_determinants = conditioned(H @ self.covariances @ H.T, self.members)[3]
        return float(self.weights @ log_determinants + self.root.span.defect(self._first(H))[0])

    def _first(self, H: Matrix) -> Matrix:
        x = np.linalg.solve(self.root.basis.T, H[0])
        return (x / np.linalg.norm(x))[None]

    def _expanded(self, H: Matrix, free: NDArray[np.bool_]) -> Expansion:
        """Expand in the free entries of D, for (I + D) H."""
        n = len(H)
        precision, regression, rest, _ = conditioned(H @ self.covariances @ H.T, self.members)
        gradient = 2 * np.tensordot(self.weights, regression, 1)
        hessian = 2 * kronecker(self.weights, precision, rest)
        hessian -= 2 * crossed(self.weights, regression)
        moves = np.linalg.solve(self.root.basis.T, H.T)
        moves /= np.linalg.norm(moves[:, 0])
        of_defect = self.root.span.expand(self._first(H))
        gradient[0] += moves.T @ of_defect[0][0]
        hessian[0, :, 0] += moves.T @ of_defect[1][0] @ moves
        inside = np.ix_(free.ravel(), free.ravel())
        among = hessian.reshape(n * n, n * n)[inside]
        return Expansion(self._value(H), gradient[free], among, alike=True)
