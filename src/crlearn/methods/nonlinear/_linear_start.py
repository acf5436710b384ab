"""Linear unmixing of reduced rows or of a flow's outputs, as a start for flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crlearn.flows import Assignment, SmoothFlow
from crlearn.likelihood import (
    Fit,
    LinearModel,
    Moments,
    fit_interventional,
    fit_linear,
    grouped_targets,
    pools_of,
)
from crlearn.nets import evaluate

Matrix = NDArray[np.floating]


def unmixed(rows: Sequence[Matrix], assignment: Assignment, seed: int, *, quick: bool) -> Fit:
    """Find the linear map from mixtures to latents, and their structure.

    Parameters
    ----------
    rows
        Mixtures in each environment, the reference first.
    assignment
        What is known of the targets.
    seed
        Of the search.
    quick
        Whether one search with Gaussian noise is enough: nothing is tested.
    """
    everything = np.concatenate(rows)
    centre = everything.mean(axis=0)
    root = np.linalg.cholesky(np.linalg.inv(np.cov(everything.T).reshape(len(centre), -1)))
    white = [(part - centre) @ root for part in rows]
    n, rng = len(centre), np.random.default_rng(seed)
    moments = Moments.of(white)
    pool = pools_of(_grouped(assignment, moments, n, rng), n)
    if quick:
        fit = fit_linear(LinearModel(moments, pool, hard=True), rng, n_attempts=1)
    else:
        fit = fit_interventional(white, pool, hard=True, mechanisms="linear", rng=rng)
    return replace(fit, H=fit.H @ root.T)


def _grouped(
    assignment: Assignment, moments: Moments, n: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Return the latent of each environment but the first; those that are not known differ."""
    names: list[Any] = [
        f"unknown {place}" if known is None else known[0]
        for place, known in enumerate(assignment.known[1:])
    ]
    distinct = list(dict.fromkeys(names))
    latent = np.array([distinct.index(name) for name in names], dtype=np.intp)
    return latent if len(distinct) <= n else grouped_targets(latent, moments, n, rng)


def then_linear(flow: SmoothFlow, matrix: Matrix, offset: Matrix) -> SmoothFlow:
    """Return the flow followed by a linear map, which joins its last one."""
    last = np.asarray(flow.matrices[-1]) @ matrix
    end = np.asarray(flow.offsets[-1]) @ matrix + offset
    return replace(
        flow,
        matrices=np.concatenate([flow.matrices[:-1], last[None]]).astype(np.float32),
        offsets=np.concatenate([flow.offsets[:-1], end[None]]).astype(np.float32),
    )


def nearest(flow: SmoothFlow, rows: Matrix, latents: Matrix) -> SmoothFlow:
    """Return the flow whose last map brings its outputs closest to some latents."""
    outputs = np.asarray(evaluate(flow, rows), dtype=float)
    design = np.column_stack([outputs, np.ones(len(outputs))])
    solution: Any = np.linalg.lstsq(design, latents, rcond=None)[0]
    return then_linear(flow, solution[:-1], solution[-1])
