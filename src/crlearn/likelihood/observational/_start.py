"""Structures to start from: rotations that suit polynomial mechanisms, then complete graphs.

The cost of the rotations does not depend on the number of rows (`nodes._polynomial`). From each of
them encoder and mechanisms of all latents before are fitted by evidence; what is not needed fades.
Mechanisms are sums with products of pairs; if hidden units of several parents help, they have
these, too.
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

Matrix = NDArray[np.floating]
Run = Callable[..., list]  # applies a function to all items


class Start(NamedTuple):
    """A rotation and the log-likelihood of polynomial mechanisms there, in nats."""

    rotation: Matrix
    score: float


Scored = TypeVar("Scored", Start, Fit)

_RANDOM_ROTATIONS = 40
_DEGREE = 2
_STEPS_OF_A_ROTATION = 100
_STEPS_OF_A_START, _STEPS_OF_A_LEADER, _STEPS_WITH_HIDDEN_UNITS = 30, 40, 70
_HIDDEN_UNITS_HELP = 20.0  # nats by which the best must be better with them
SAME_OPTIMUM = 0.3  # nats


def starting_rotations(
    y: Matrix, rng: np.random.Generator, n_starts: int, run: Run
) -> list[Matrix]:
    """Return distinct rotations at which quadratic mechanisms fit best."""
    n = y.shape[1]
    model = PolynomialModel.of(y, _DEGREE)
    random = [np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(_RANDOM_ROTATIONS)]
    descend = partial(model.minimise, max_steps=_STEPS_OF_A_ROTATION)
    reached = [Start(Q, -value * len(y)) for Q, value in run(descend, random)]
    return [start.rotation for start in distinct(reached)[:n_starts]]


def complete_structures(model: RelevanceModel, starts: Sequence[Matrix], run: Run) -> list[Fit]:
    """Fit complete graphs from all starts; return them, the best first."""
    graph = complete_graph(range(model.n))

    def fitted(H: Matrix, *, hidden_units: bool) -> Fit:
        start = model.shaped(model.start(H, graph, hidden_units=hidden_units))
        return settled(start, _STEPS_WITH_HIDDEN_UNITS if hidden_units else _STEPS_OF_A_START)

    def settled(fit: Fit, max_steps: int = _STEPS_OF_A_LEADER) -> Fit:
        fit = model.fitted(fit, max_steps)
        return replace(fit, log_likelihood=-model.objective(fit))

    additive = run(partial(fitted, hidden_units=False), starts)
    leaders = run(settled, additive)
    richer = run(partial(fitted, hidden_units=True), starts)
    gain = max(fit.score for fit in richer) - max(fit.score for fit in leaders)
    return distinct(richer if gain > _HIDDEN_UNITS_HELP else leaders)


def distinct(candidates: Iterable[Scored]) -> list[Scored]:
    """Return candidates, the best first, without those that are another's equal."""
    kept: list[Scored] = []
    for candidate in sorted(candidates, key=lambda candidate: -candidate.score):
        if not kept or kept[-1].score - candidate.score > SAME_OPTIMUM:
            kept.append(candidate)
    return kept
