"""Structures to start from: rotations that suit cubic mechanisms, then complete graphs.

The cost of the rotations does not depend on the number of rows (`nodes._polynomial`). From each of
them encoder and mechanisms of all latents before are fitted by evidence; what is not needed fades.
Mechanisms are sums with products of pairs; if hidden units of several parents help, which is tried
from the best starts, they have these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import complete_graph
from crlearn.likelihood._fit import Fit
from crlearn.likelihood.nodes._polynomial import PolynomialModel
from crlearn.likelihood.observational._model import RelevanceModel
from crlearn.likelihood.search._local import CLEAR, LEAST_GAIN

Matrix = NDArray[np.floating]
Run = Callable[..., list]  # applies a function to all items


class Start(NamedTuple):
    """A rotation and the log-likelihood of cubic mechanisms there, in nats."""

    rotation: Matrix
    score: float


Scored = TypeVar("Scored", Start, Fit)

_RANDOM_ROTATIONS = 40  # cheap: their cost does not depend on the number of rows


def starting_rotations(
    y: Matrix, rng: np.random.Generator, n_starts: int, run: Run
) -> list[Matrix]:
    """Return distinct rotations at which cubic mechanisms fit best."""
    n = y.shape[1]
    model = PolynomialModel(y)
    random = [np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(_RANDOM_ROTATIONS)]
    reached = [Start(Q, -value * len(y)) for Q, value in run(model.minimise, random)]
    return [start.rotation for start in distinct(reached)[:n_starts]]


def complete_structures(
    model: RelevanceModel, starts: Sequence[Matrix], run: Run, n_followed: int
) -> list[Fit]:
    """Fit complete graphs from all starts; return them, the best first.

    Hidden units, which take longer, are tried from those starts where fits without are the best.
    """
    graph = complete_graph(range(model.n))

    def fitted(H: Matrix, *, hidden_units: bool) -> Fit:
        start = model.shaped(model.start(H, graph, hidden_units=hidden_units))
        fit = model.fitted(start)  # for a ranking: those that are followed are fitted again
        return replace(fit, log_likelihood=-model.objective(fit))

    fits = run(partial(fitted, hidden_units=False), starts)
    ranked = np.argsort([-fit.score for fit in fits], kind="stable")
    promising = [starts[k] for k in ranked[:n_followed]]
    plain = distinct(fits)
    richer = distinct(run(partial(fitted, hidden_units=True), promising))
    return richer if richer[0].score > plain[0].score + CLEAR else plain


def distinct(candidates: Iterable[Scored]) -> list[Scored]:
    """Return candidates, the best first, without those that are another's equal."""
    kept: list[Scored] = []
    for candidate in sorted(candidates, key=lambda candidate: -candidate.score):
        if not kept or kept[-1].score - candidate.score > LEAST_GAIN:
            kept.append(candidate)
    return kept
