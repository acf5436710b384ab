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
from crlearn.likelihood.core._newton import Expansion, descend
from crlearn.likelihood.nodes._linear import conditioned, crossed, kronecker
from crlearn.likelihood.targets._candidates import Candidates, Effort, View, candidates, doubtful

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]

_MOST_STEPS = 10


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
        Rows that might have been taken instead of the last one, and still may be taken.
    others_targets
        Their targets.
    """

    encoder: Matrix
    targets: IntMatrix
    score: float
    usual_score: float
    others: Matrix
    others_targets: IntMatrix

    @classmethod
    def start(cls, n_variables: int, n_environments: int) -> Peeling:
        """Return the answer that knows nothing."""
        no_rows = np.zeros((0, n_variables))
        no_targets = np.zeros((0, n_environments), dtype=np.intp)
        return cls(no_rows, no_targets, 0.0, 0.0, no_rows, no_targets)


def peel(moments: Moments, rng: np.random.Generator, effort: Effort) -> list[Peeling]:
    """Return complete answers, the best first; none if the data show too few latents."""
    beam = [Peeling.start(moments.n_variables, len(moments.sizes))]
    root = View.of(moments, beam[0].encoder)
    for n_found in range(moments.n_variables):
        wider = _wider_at_first(effort, n_found)
        longer = [new for answer in beam for new in _extended(moments, answer, rng, wider)]
        longer = [_refitted(moments, root, answer) for answer in _best(longer, 2 * wider.beam)]
        beam = _best(longer, wider.beam)
    return beam


def _wider_at_first(effort: Effort, n_found: int) -> Effort:
    """Return the effort for the next latent: the first ones are the hardest to tell."""
    if not effort.is_thorough or n_found > 1:
        return effort
    if n_found == 1:
        return replace(effort, beam=3 * effort.beam)
    return replace(effort, beam=4 * effort.beam, candidates=3 * effort.candidates)


def _extended(
    moments: Moments, answer: Peeling, rng: np.random.Generator, effort: Effort
) -> Iterator[Peeling]:
    """Yield the answer with one more latent, in all ways that come into question."""
    view = View.of(moments, answer.encoder)
    known = Candidates(
        view.coordinates(answer.others), answer.others_targets, np.zeros(len(answer.others))
    )
    found = candidates(view, known, rng, effort)
    rows = found.directions @ view.basis
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    good = found.scores < 2 * view.usual_score
    for j in range(len(rows)):
        targets = np.vstack([answer.targets, found.targets[j]])
        if np.linalg.matrix_rank(targets) == len(targets):
            others = good & (np.arange(len(rows)) != j)
            yield Peeling(
                np.vstack([answer.encoder, rows[j]]),
                targets,
                answer.score + float(found.scores[j]),
                answer.usual_score + view.usual_score,
                rows[others],
                found.targets[others],
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
    if len(answer.encoder) == 1 or answer.score < doubtful(answer.usual_score):
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
            max_steps=_MOST_STEPS,
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
