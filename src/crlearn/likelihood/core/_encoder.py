"""An encoder and its neighbours: (I + D) H for a small D with a zero diagonal.

The likelihood does not change when a row of H is rescaled, so that D has no diagonal; its n (n - 1)
other entries, row by row, are the parameters of an encoder in every model here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]

LONGEST_STEP = 0.5  # of an entry of D: what a quadratic expansion can be trusted for


def off_diagonal(n: int) -> NDArray[np.bool_]:
    """Return the mask of the entries of D that are free, ``(n, n)``."""
    return ~np.eye(n, dtype=bool)


def unit_rows(H: Matrix) -> Matrix:
    """Return the encoder with rows of length one."""
    return H / np.linalg.norm(H, axis=1, keepdims=True)


def moved(H: Matrix, step: Matrix) -> Matrix:
    """Return (I + D) H for a step in the off-diagonal entries of D."""
    D = np.zeros(H.shape)
    D[off_diagonal(len(H))] = step
    return H + D @ H


def log_volume(H: Matrix) -> tuple[float, Matrix, Matrix]:
    """Return -log|det (I + D) H| at D = 0, with its gradient ``(n, n)`` and Hessian in all of D.

    -log|det(I + D)| = -tr D + tr(D D) / 2 + ...
    """
    eye = np.eye(len(H))
    hessian = eye[:, None, None, :] * eye[None, :, :, None]
    return -float(np.linalg.slogdet(H)[1]), -eye, hessian


def in_free_entries(gradient: Matrix, hessian: Matrix) -> tuple[Matrix, Matrix]:
    """Return a gradient ``(n, n)`` and a Hessian ``(n, n, n, n)`` in the free entries of D."""
    n = len(gradient)
    free = off_diagonal(n).ravel()
    return gradient.ravel()[free], hessian.reshape(n * n, n * n)[np.ix_(free, free)]
