"""Fit a flow to environments: restarts side by side, the best by held-out likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from crlearn.nets import evaluate
from crlearn.train import Objective, Settings, Training, compared, train

Matrix = NDArray[np.floating]

_HELD_OUT = 0.1
_MOST_HELD_OUT = 2000  # rows of an environment


def fit_flow(
    rows: Sequence[Matrix],
    objective: Objective,
    *,
    n_steps: int,
    batch_size: int,
    learning_rate: float,
    n_restarts: int,
    seed: int,
    start: Any = None,
    affine: bool = False,
    checkpoint: str | Path | None = None,
    description: str = "flow",
) -> Training:
    """Train restarts of a flow, and compare them: their agreement is a correlation of latents.

    Parameters
    ----------
    rows
        Of each environment, of about unit size.
    objective
        Its parameters have a `flow`, and a batch has rows of all environments side by side, with
        columns that the flow does not see last.
    n_steps, batch_size, learning_rate, n_restarts
        Of the training; `batch_size` counts rows of one environment.
    seed
        Of everything random.
    start
        Parameters to start from, or a list of some, one a restart; None: as the objective draws
        them.
    affine
        Whether the objective leaves an affine map open.
    checkpoint
        File from which an interrupted training goes on.
    description
        Beside the progress bar.
    """
    training, held_out = side_by_side(rows, np.random.default_rng(seed))
    batch_size = min(batch_size, len(training))
    settings = Settings(
        max_epochs=ceil(n_steps / (len(training) // batch_size)),
        batch_size=batch_size,
        learning_rate=learning_rate,
        patience=None,
        n_restarts=n_restarts,
        race=1.0,
    )
    found = train(
        objective,
        training,
        settings,
        seed=seed,
        held_out=held_out,
        start=start,
        checkpoint=checkpoint,
        description=description,
    )

    def agreement(one: Any, other: Any) -> float:
        some = held_out[..., : one.flow.n_variables].reshape(-1, one.flow.n_variables)
        return _agreement(evaluate(one.flow, some), evaluate(other.flow, some), affine=affine)

    return compared(found, agreement)


def side_by_side(
    rows: Sequence[Matrix], rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return training and held-out rows, ``(rows, environments, n)``.

    Small environments are repeated until they are as long as the largest one.
    """
    shuffled = [part[rng.permutation(len(part))] for part in rows]
    n_held_out = [min(ceil(_HELD_OUT * len(part)), _MOST_HELD_OUT) for part in rows]
    training = [part[n:] for part, n in zip(shuffled, n_held_out, strict=True)]
    held_out = [part[:n] for part, n in zip(shuffled, n_held_out, strict=True)]
    return _stacked(training), _stacked(held_out)


def _stacked(parts: Sequence[Matrix]) -> NDArray[np.float32]:
    length = max(map(len, parts))
    repeated = [np.resize(part, (length, part.shape[1])) for part in parts]
    return np.stack(repeated, axis=1).astype(np.float32)


def _agreement(one: Matrix, other: Matrix, *, affine: bool) -> float:
    """Return the mean correlation of latents that are matched one to one, or fitted."""
    n = one.shape[1]
    if affine:
        one, other = one - one.mean(axis=0), other - other.mean(axis=0)
        left = one - other @ np.linalg.lstsq(other, one, rcond=None)[0]
        return float(np.sqrt(np.clip(1 - left.var(axis=0) / one.var(axis=0), 0, 1)).mean())
    correlations = np.abs(np.corrcoef(one.T, other.T)[:n, n:])
    matched = linear_sum_assignment(-correlations)
    return float(correlations[matched].mean())
