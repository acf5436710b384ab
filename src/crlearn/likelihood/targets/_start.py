"""Peeling: latents found one by one, causes first, each with the environments that intervene on it.

In environment e the precision matrix of x is a sum over the latents, K_e = sum_i v_ie v_ie', where
v_ie is one of two rows: that of the mechanism of latent i, or that of its intervention. Where the
causes of a latent are held constant, both are multiples of the same row, which makes it visible
(`targets._candidates`). A beam search keeps several answers, as noise may put a wrong
candidate ahead of a right one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood.core._encoder import unit_rows
from crlearn.likelihood.core._moments import Moments
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
    others
        Rows that came into question beside the last one, and still do.
    others_targets
        Their targets.
    """

    encoder: Matrix
    targets: IntMatrix
    score: float
    others: Matrix
    others_targets: IntMatrix


def peel(moments: Moments, rng: np.random.Generator, n_answers: int) -> list[Peeling]:
    """Return complete answers, the best first; none if the data show too few latents.

    So many are kept side by side, and twice as many candidates for the next latent of each.
    """
    n, n_environments = moments.n_variables, len(moments.sizes)
    no_rows, no_targets = np.zeros((0, n)), np.zeros((0, n_environments), dtype=np.intp)
    beam = [Peeling(no_rows, no_targets, 0.0, no_rows, no_targets)]
    for _ in range(n):
        longer = [new for answer in beam for new in _extended(moments, answer, rng, 2 * n_answers)]
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
