"""Squared errors after the order, sign or scale that cannot be known is taken out."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.metrics._check import (
    Matrix,
    check_choice,
    check_matrix,
    check_same_width,
    check_samples,
)
from crlearn.metrics._correlation import best_pairs

Align = Literal["signed_permutation", "scaled_permutation", "none"]
Average = Literal["pooled", "samples"]


def relmse(
    Z: ArrayLike,
    Z_hat: ArrayLike,
    align: Align = "signed_permutation",
    average: Average = "pooled",
) -> float:
    """Return the squared error of the recovered latents relative to the size of the true ones.

    No intercept is fitted: a shift of the latents is an error.

    Parameters
    ----------
    Z, Z_hat
        True and recovered latents, one row a sample.
    align
        What is chosen to make the error smallest before it is measured: ``"signed_permutation"``:
        order and signs of the columns, as in Wu et al. (2026); ``"scaled_permutation"``: order and
        any factor for each column; ``"none"``. True latents left without a partner are
        estimated by 0.
    average
        ``"pooled"``: mean of ||zhat - z||^2 over all samples, divided by the mean of ||z||^2.
        ``"samples"``: mean over samples of ||zhat - z||^2 / ||z||^2, the equation of Wu et al.
        (2026) read literally; a few samples near zero dominate it, and with one or two latents it
        grows without limit with the number of samples.
    """
    check_choice(average, ("pooled", "samples"), "average")
    true, recovered = check_samples(Z, Z_hat)
    error = ((aligned(true, recovered, align, ("Z", "Z_hat")) - true) ** 2).sum(axis=1)
    size = (true**2).sum(axis=1)
    if not size.any() or (average == "samples" and not size.all()):
        raise ValueError(
            "Z must not be zero where its size is divided by. Got "
            f"{int((size == 0).sum())} of {len(size)} rows that are all zero."
        )
    return float(error.sum() / size.sum() if average == "pooled" else (error / size).mean())


def relmse_by_environment(
    Z: ArrayLike, Z_hat: ArrayLike, labels: ArrayLike, align: Align = "signed_permutation"
) -> NDArray[np.floating]:
    """Return the `relmse` of each environment in the order of labels.

    Columns are aligned once, over all rows.

    Parameters
    ----------
    Z, Z_hat, align
        As for `relmse`.
    labels
        Environment of each row.
    """
    true, recovered = check_samples(Z, Z_hat)
    error = ((aligned(true, recovered, align, ("Z", "Z_hat")) - true) ** 2).sum(axis=1)
    size = (true**2).sum(axis=1)
    _, codes = np.unique(np.asarray(labels), return_inverse=True)
    return np.bincount(codes, error) / np.bincount(codes, size)


def relmse_worst(
    Z: ArrayLike, Z_hat: ArrayLike, labels: ArrayLike, align: Align = "signed_permutation"
) -> float:
    """Return the largest `relmse` of any environment; columns are aligned over all rows.

    Parameters
    ----------
    Z, Z_hat, labels, align
        As for `relmse_by_environment`.
    """
    return float(relmse_by_environment(Z, Z_hat, labels, align).max())


def coverage(Z: ArrayLike, low: ArrayLike, high: ArrayLike) -> float:
    """Return the share of true latents that lie inside their intervals.

    Columns are matched, and turned around, as `relmse` does with the middles of the intervals.

    Parameters
    ----------
    Z
        True latents, one row a sample.
    low, high
        Ends of the intervals of the recovered latents.
    """
    true, low = check_samples(Z, low, ("Z", "low"))
    _, high = check_samples(true, high, ("Z", "high"))
    middle, reach = (low + high) / 2, (high - low) / 2
    rows, columns, factor = _pairs(true, middle, "signed_permutation")
    inside = np.abs(middle[:, columns] * factor - true[:, rows]) < reach[:, columns]
    return float(inside.sum() / true.size)


def frobenius(A: ArrayLike, A_hat: ArrayLike, align: Align = "signed_permutation") -> float:
    """Return the squared Frobenius error of a mixing matrix, after alignment of its columns.

    Parameters
    ----------
    A, A_hat
        True and recovered mixing, shape (n_features, n_latents), one column a latent.
    align
        As for `relmse`: ``"signed_permutation"`` (Wu et al., 2026), ``"scaled_permutation"`` or
        ``"none"``.
    """
    true, recovered = check_matrix(A, "A"), check_matrix(A_hat, "A_hat")
    if len(true) != len(recovered):
        raise ValueError(
            "A and A_hat must have one row for each of the same features. "
            f"Got {len(true)} and {len(recovered)} rows."
        )
    return float(((aligned(true, recovered, align, ("A", "A_hat")) - true) ** 2).sum())


def aligned(true: Matrix, recovered: Matrix, align: Align, names: tuple[str, str]) -> Matrix:
    """Return the recovered columns where they are closest to the true ones, in their place."""
    check_choice(align, ("signed_permutation", "scaled_permutation", "none"), "align")
    if align == "none":
        check_same_width(true, recovered, names, "choose an align that matches columns")
        return recovered
    rows, columns, factor = _pairs(true, recovered, align)
    in_place = np.zeros_like(true)
    in_place[:, rows] = recovered[:, columns] * factor
    return in_place


def _pairs(
    true: Matrix, recovered: Matrix, align: Align
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.floating]]:
    """Return true columns, their recovered partners, and the factors of the latter."""
    inner = true.T @ recovered
    size = (recovered**2).sum(axis=0)
    if align == "signed_permutation":
        factor = np.where(inner < 0, -1.0, 1.0)
    else:
        factor = inner / np.where(size > 0, size, 1.0)
    error_removed = 2 * factor * inner - factor**2 * size
    rows, columns = best_pairs(error_removed).T
    return rows, columns, factor[rows, columns]
