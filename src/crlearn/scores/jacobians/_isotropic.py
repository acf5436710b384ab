"""Directions in which all of many symmetric matrices vanish at once.

A subspace V is isotropic for symmetric matrices J_m if ``V' J_m V = 0`` for all m. The sum of
``|V' J_m V|^2`` over m depends on the matrices only through their second moments, so that at most
n (n + 1) / 2 matrices stand for any number of them. It is minimised by Levenberg-Marquardt steps
over orthonormal V, from many random starts in one batch.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]

_N_STARTS = 64
_N_FINALISTS = 8
_MOST_SCOUTING_STEPS = 40
_MOST_FINAL_STEPS = 400
# Improvements below this share of the objective end a search; so does an objective that is, by its
# root, below this share of the matrices: it is rounding.
_CONVERGED, _ROUNDING = 1e-9, 1e-15
_LEAST_DAMPING, _MOST_DAMPING, _DAMPING_FACTOR = 1e-13, 1e6, 5.0


def principal_matrices(matrices: Matrix) -> Matrix:
    """Return at most n (n + 1) / 2 symmetric matrices with the same second moments.

    Parameters
    ----------
    matrices
        Symmetric, ``(N, n, n)``.

    Returns
    -------
    principal
        ``(K, n, n)``, such that the sum of ``|V' A V|^2`` over them is the mean over `matrices`.
    """
    n = matrices.shape[1]
    i, j = np.triu_indices(n)
    weight = np.where(i == j, 1.0, np.sqrt(2.0))
    # A triangular factor keeps the digits that a Gram matrix would square away.
    factor = np.linalg.qr(matrices[:, i, j] * weight, mode="r") / np.sqrt(len(matrices))
    principal = np.zeros((len(factor), n, n))
    principal[:, i, j] = principal[:, j, i] = factor / weight
    return principal


def isotropic_subspace(
    matrices: Matrix,
    size: int,
    rng: np.random.Generator,
    inside: Matrix | None = None,
    n_starts: int = _N_STARTS,
) -> tuple[Matrix, float]:
    """Return the subspace of a given size in which symmetric matrices come closest to zero.

    Parameters
    ----------
    matrices
        Symmetric, ``(K, n, n)``; see `principal_matrices`.
    size
        Dimension of the subspace.
    rng
        Draws the starts.
    inside
        Orthonormal columns that starts contain (fewer than `size`): a smaller solution.
    n_starts
        Number of starts; a few of them are followed to the end.

    Returns
    -------
    basis
        Orthonormal columns, ``(n, size)``.
    objective
        Sum of ``|basis' A basis|^2`` over the matrices.
    """
    n = matrices.shape[1]
    if size == n:
        return np.eye(n), float((matrices**2).sum())
    draws = rng.normal(size=(n_starts, n, size))
    if inside is not None:
        draws[:, :, : inside.shape[1]] = inside
    starts = np.linalg.qr(draws)[0]
    bases, objectives = _descend(matrices, starts, _MOST_SCOUTING_STEPS)
    finalists = np.argsort(objectives)[:_N_FINALISTS]
    bases, objectives = _descend(matrices, bases[finalists], _MOST_FINAL_STEPS)
    best = objectives.argmin()
    return bases[best], float(objectives[best])


def _descend(matrices: Matrix, bases: Matrix, n_steps: int) -> tuple[Matrix, Matrix]:
    """Take Levenberg-Marquardt steps until all starts have come to rest, or one is at zero."""
    damping = np.full(len(bases), 1e-3)
    rounding = _ROUNDING**2 * (matrices**2).sum()
    images, residuals = _residuals(matrices, bases)
    objectives = (residuals**2).sum(axis=(1, 2))
    for _ in range(n_steps):
        moved = _step(images, residuals, bases, damping)
        new_images, new_residuals = _residuals(matrices, moved)
        new_objectives = (new_residuals**2).sum(axis=(1, 2))
        better = new_objectives < objectives
        resting = better & (objectives - new_objectives < _CONVERGED * objectives)
        keep = better[:, None, None]
        bases = np.where(keep, moved, bases)
        images = np.where(keep[:, None], new_images, images)
        residuals = np.where(keep, new_residuals, residuals)
        objectives = np.where(better, new_objectives, objectives)
        damping = np.where(better, damping / _DAMPING_FACTOR, damping * _DAMPING_FACTOR)
        if objectives.min() < rounding or (resting | (damping > _MOST_DAMPING)).all():
            break
        damping = np.clip(damping, _LEAST_DAMPING, _MOST_DAMPING)
    return bases, objectives


def _residuals(matrices: Matrix, bases: Matrix) -> tuple[Matrix, Matrix]:
    """Return ``A V`` for each start and matrix, and the distinct entries of ``V' A V``."""
    a, b, weight = _pairs(bases.shape[2])
    images = matrices @ bases[:, None]
    products = np.swapaxes(bases, 1, 2)[:, None] @ images
    return images, products[:, :, a, b] * weight


def _step(images: Matrix, residuals: Matrix, bases: Matrix, damping: Matrix) -> Matrix:
    """Move each subspace along the directions outside of it, by damped least squares."""
    n_starts, n, size = bases.shape
    a, b, weight = _pairs(size)
    outside = np.linalg.qr(bases, mode="complete")[0][:, :, size:]
    slopes = np.swapaxes(outside, 1, 2)[:, None] @ images
    n_out = n - size
    jacobian = np.zeros((n_starts, images.shape[1], len(a), n_out, size))
    for pair, (first, second) in enumerate(zip(a, b, strict=True)):
        jacobian[:, :, pair, :, first] += slopes[..., second] * weight[pair]
        jacobian[:, :, pair, :, second] += slopes[..., first] * weight[pair]
    jacobian = jacobian.reshape(n_starts, -1, n_out * size)
    transposed = np.swapaxes(jacobian, 1, 2)
    hessian = transposed @ jacobian
    gradient = transposed @ residuals.reshape(n_starts, -1, 1)
    mean_curvature = np.trace(hessian, axis1=1, axis2=2) / hessian.shape[1]
    ridge = damping * mean_curvature + np.finfo(float).tiny
    step = np.linalg.solve(hessian + ridge[:, None, None] * np.eye(hessian.shape[1]), -gradient)
    return np.linalg.qr(bases + outside @ step.reshape(n_starts, n_out, size))[0]


@cache
def _pairs(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Matrix]:
    a, b = np.triu_indices(size)
    return a, b, np.where(a == b, 1.0, np.sqrt(2.0))
