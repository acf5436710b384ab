"""Means of environments that no mechanism explains: how far each environment was moved.

A batch moves the latents of an environment by an offset of its own, z + c. Mechanisms are shared,
f(z), so that environments that leave a latent alone tell its offset and, where mechanisms are
curved, those of its parents. Offsets are found by least squares, with mechanisms regressed anew on
the moved rows, in turns. What nothing tells, such as the offset of a childless latent where it is
intervened on, stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood._fit import Fit
from crlearn.likelihood.core._subsample import part_of_each
from crlearn.likelihood.interventional._checks import Regression

Matrix = NDArray[np.floating]

_ROWS = 5_000  # of an environment
_TURNS, _STILL = 30, 1e-3  # largest change of an offset, in standard deviations
_STEP = 1e-3  # of a derivative, in standard deviations


def moved_back(rows: Sequence[Matrix], fit: Fit) -> list[Matrix]:
    """Return rows of environments without offsets; the first environment stays where it is."""
    latents = [each @ fit.H.T for each in part_of_each(rows, _ROWS)]
    scale = np.concatenate(latents).std(axis=0)
    latents = [each / scale for each in latents]
    offsets = np.zeros((len(rows), len(fit.H)))
    for _ in range(_TURNS):
        here = [each - offset for each, offset in zip(latents, offsets, strict=True)]
        steps = _steps(here, fit)
        offsets += steps
        if np.abs(steps).max() < _STILL:
            break
    back = np.linalg.inv(fit.H).T
    return [each - (c * scale) @ back for each, c in zip(rows, offsets, strict=True)]


def _steps(latents: Sequence[Matrix], fit: Fit) -> Matrix:
    """Return the Gauss-Newton steps of the offsets."""
    assert fit.pool is not None
    n = len(fit.H)
    normal, right_side = np.zeros((len(latents), n, n)), np.zeros((len(latents), n))
    for j, parents in enumerate(map(list, fit.graph)):
        inside = np.flatnonzero(fit.pool[j] == 0).tolist()
        together = np.concatenate([latents[e] for e in inside])
        regression = Regression.of(together[:, parents], together[:, j])
        precision = 1 / (together[:, j] - regression(together[:, parents])).var()
        for e in inside:
            given = latents[e][:, parents]
            residual = latents[e][:, j] - regression(given)
            slopes = np.zeros((len(residual), n))
            slopes[:, j] = 1.0
            for k, parent in enumerate(parents):
                ahead = given.copy()
                ahead[:, k] += _STEP
                slopes[:, parent] = (regression(given) - regression(ahead)) / _STEP
            normal[e] += precision * slopes.T @ slopes / len(residual)
            right_side[e] += precision * slopes.T @ residual / len(residual)
    steps = [
        np.linalg.pinv(each, 1e-6, hermitian=True) @ b
        for each, b in zip(normal[1:], right_side[1:], strict=True)
    ]
    return np.array([np.zeros(n), *steps])
