"""Competing structures: what else would explain the data, and whether that is another answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import transitive_closure
from crlearn.likelihood import Fit, compared
from crlearn.result import CLOSE, SAME_ANSWER, Alternative, Check

BoolMatrix = NDArray[np.bool_]


def alternatives_of(fit: Fit) -> tuple[Alternative, ...]:
    """Return the competing structures of a fit to whitened rows, the best first."""
    found = []
    for other in fit.alternatives:
        agreement, adjacency = compared(fit, other)
        found.append(
            Alternative(
                adjacency=adjacency,
                layers=None,
                gap=max(fit.score - other.score, 0.0),
                agreement=agreement,
                is_reversed=contradicts(fit.adjacency, adjacency),
            )
        )
    return tuple(sorted(found, key=lambda other: other.gap))


def contradicts(one: BoolMatrix, other: BoolMatrix) -> bool:
    """Whether a latent is an ancestor of another one here, and a descendant of it there."""
    return bool((transitive_closure(one) & transitive_closure(other).T).any())


def determination_check(
    n_latents: int,
    alternatives: Sequence[Alternative],
    asked: float = CLOSE,
    subject: str = "structure",
) -> Check:
    """Check that no other answer is as close to the answer as the nats that are asked for."""
    name = f"{subject} is determined by the data"
    if n_latents == 1:
        return Check(name, True, f"a single latent has no competing {subject}")
    others = [other for other in alternatives if other.is_another_answer]
    if not alternatives:
        return Check(name, True, f"no competing {subject} was met")
    if not others:
        return Check(name, True, f"{len(alternatives)} competing {subject}s, all the same answer")
    best = min(others, key=lambda other: other.gap)
    differs = "its causes are in another order" if best.is_reversed else f"below {SAME_ANSWER}"
    detail = (
        f"the best competing {subject} with another answer (agreement {best.agreement:.2f}, "
        f"{differs}) is {best.gap:.1f} nats behind, and {asked:.0f} are asked for"
    )
    if best.gap < asked:
        return Check(name, False, f"{detail}; see result_.alternatives")
    return Check(name, True, detail)
