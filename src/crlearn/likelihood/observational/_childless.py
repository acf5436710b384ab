"""Latents without effects, as another latent might see them.

What such a latent, a sink, takes from its causes linearly is free: with any multiple of a cause
added to it, its mechanism has a linear part more and the evidence is about the same. An effect
would settle it. So whether a sink has an effect cannot be seen at the encoder as it is: of all
combinations of the sink and its causes, one may be what the other latent depends on. It is looked
for here, from starts spread evenly over the combinations.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import norm, qmc

from crlearn.likelihood.nodes._relevance import Shape, refit, slope

Matrix = NDArray[np.floating]

_STARTS_FOR_EACH_CAUSE, _MOST_STARTS = 12, 32
_DESCENDED = 2
_STEPS = 10
_MOST_TAKEN = 10.0  # of a cause, for one of the sink


class Combination(NamedTuple):
    """A sink with multiples of its causes, and nats that it costs beyond these alone.

    A gain is negative.
    """

    taken: Matrix
    gain: float


def best_combination(noise: Matrix, sink: Matrix, causes: Matrix) -> Combination | None:
    """Return the sink with what of its causes explains another latent's noise best.

    None if it hardly counts beside them at any optimum: then it is they that explain it.
    """
    basis = np.column_stack([sink, causes])
    shape = Shape.start(1)

    def objective(direction: Matrix) -> tuple[float, Matrix]:
        combined = basis @ direction
        length = np.sqrt(combined @ combined / len(combined))
        seen = combined / length
        point = slope(noise, seen[:, None], shape)
        by_seen = point.by_parents[:, 0]
        by_combined = (by_seen - (by_seen @ seen / len(seen)) * seen) / length
        return point.value, basis.T @ by_combined

    starts = sorted(_directions(basis.shape[1]), key=lambda start: objective(start)[0])
    reached = [
        minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
        for start in starts[:_DESCENDED]
    ]
    counting = [found for found in reached if _counts(found.x)]
    if not counting:
        return None
    direction = min(counting, key=lambda found: found.fun).x
    taken = direction[1:] / direction[0]
    seen = sink + causes @ taken
    together, _ = refit(noise, (seen / seen.std())[:, None], shape)
    alone, _ = refit(noise, causes, Shape.start(causes.shape[1]))
    return Combination(taken, float(together - alone))


def _counts(direction: Matrix) -> bool:
    """Whether the sink has some weight beside its causes."""
    return np.abs(direction[1:]).max() <= _MOST_TAKEN * np.abs(direction[0])


@cache
def _directions(n: int) -> Matrix:
    """Return directions that cover the half of a sphere where the sink counts."""
    if n == 2:
        angles = (np.arange(_STARTS_FOR_EACH_CAUSE) + 0.5) / _STARTS_FOR_EACH_CAUSE - 0.5
        return np.column_stack([np.cos(np.pi * angles), np.sin(np.pi * angles)])
    n_starts = min(_STARTS_FOR_EACH_CAUSE * (n - 1), _MOST_STARTS)
    points = norm.ppf(np.clip(qmc.Sobol(n, rng=0).random(_MOST_STARTS)[:n_starts], 0.01, 0.99))
    points[:, 0] = np.abs(points[:, 0])
    return points / np.linalg.norm(points, axis=1, keepdims=True)
