"""EM f-modelling, Algorithm 1 of Wu, von Kügelgen and Blei (2026), with its M-step mended.

x = A z + noise with A = O D, O orthonormal columns, D diagonal. One iteration: y = O'x; a score of
y for each latent from splines of the latent and its parents; Tweedie's formulas for the first two
moments of z; then O, D and the noise variance given these moments.

What is mended. The M-step minimises sum_j D_j^2 S_j - 2 sum_j D_j (O'M)_jj with M = sum x z' and
S_j = sum E[z_j^2].

- O given D is the polar factor of M D, not of M (4.8); the two agree only if D is a multiple of I.
- D given O is (O'M)_jj / S_j. Equation 4.8 gives its square root, and both it and the appendix use
  the sorted singular values of M, which do not belong to the latents: D overflows in a few steps.
- D is not identified: with nonparametric scores (D, z) and (c D, z / c) are the same model. It
  stays at one unless `learn_scales` is set; what it does then is drift.
- The permutation of A.2, that maximises the diagonal of a diagonal matrix, is always the identity.
  Columns are matched to targets at the start instead.

What cannot be mended. With exact scores every rotation of O is a fixed point, and with the causal
class of scores the truth is none where parents and children are correlated: started there, the
error grows with the iterations. `crlearn.EmpiricalBayesCRL` therefore finds the rotation from
moments and does not iterate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from crlearn.exceptions import DivergenceError
from crlearn.scores import StructuredScore

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

_SMALLEST_SHARE = 1e-3


@dataclass(frozen=True, eq=False)
class EMAnswer:
    """Mixing, noise variance, and how they came about."""

    mixing: NDArray[np.floating]
    noise_variance: float
    history: Mapping[str, NDArray[np.floating]]


def match_columns(
    columns: Matrix, means: Matrix, targets: BoolMatrix, base: NDArray[np.floating]
) -> Matrix:
    """Give each latent the principal component that its interventions move most, and raise it."""
    weight = targets / np.maximum(targets.sum(axis=0), 1)
    shifts = weight.T @ (means - base) @ columns  # latents x components
    latents, components = linear_sum_assignment(-np.abs(shifts))
    signs = np.where(shifts[latents, components] < 0, -1.0, 1.0)
    matched = np.empty_like(columns)
    matched[:, latents] = columns[:, components] * signs
    return matched


def em_f_modelling(
    X: Matrix,
    intervened: BoolMatrix,
    start: Matrix,
    noise_variance: float,
    fit_score: Callable[[Matrix], StructuredScore],
    *,
    n_iterations: int,
    shrinkage: float = 1.0,
    learn_scales: bool = False,
) -> EMAnswer:
    """Iterate from orthonormal columns; see the module's text.

    Parameters
    ----------
    X, intervened
        Rows, and the targets of each row's environment.
    start, noise_variance
        Where to start.
    fit_score
        Matches a score to noisy latents.
    n_iterations, shrinkage
        Iterations, and the share of Tweedie's correction that is made (eta).
    learn_scales
        Whether D is learned.
    """
    columns, D, variance = start, np.ones(start.shape[1]), noise_variance
    total, (n_rows, n_features) = float(np.einsum("ij,ij->", X, X)), X.shape
    steps, variances = np.zeros(n_iterations), np.zeros(n_iterations)
    for t in range(n_iterations):
        y = X @ columns
        score, slope = fit_score(y)(y, intervened)
        z = (y + shrinkage * variance * score) / D  # (4.4)
        spread = variance * np.maximum(1 + variance * slope, _SMALLEST_SHARE) / D**2
        second = (z**2 + spread).sum(axis=0)  # (4.5)
        cross = X.T @ z
        new = polar(cross * D)
        along = np.einsum("ij,ij->j", new, cross)
        if learn_scales:
            D = along / second
        variance = (total + D**2 @ second - 2 * D @ along) / (n_rows * n_features)  # (4.9)
        steps[t], variances[t] = np.linalg.norm(new - columns), variance
        columns = new
        if not (np.isfinite(variance) and variance > 0 and np.isfinite(D).all()):
            raise DivergenceError(
                f"EM f-modelling diverged in iteration {t + 1}: the noise variance became "
                f"{variance}. Use estimator='moments', or fewer iterations (max_iter)."
            )
    return EMAnswer(columns * D, float(variance), {"step": steps, "noise_variance": variances})


def polar(matrix: Matrix) -> Matrix:
    """Return the matrix with orthonormal columns that is closest (Procrustes)."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left @ right
