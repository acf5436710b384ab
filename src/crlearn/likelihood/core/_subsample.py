"""Some of the rows, for searches that do not need all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

Matrix = NDArray[np.floating]

_MOST_FAR_OUT = 0.02  # share of a sample that is taken for being far out
_EXPECTED_OF_A_GAUSSIAN = 0.1  # rows beyond what counts as far out


def part_of_each(environments: Sequence[Matrix], most: int) -> list[Matrix]:
    """Return at most so many rows of each environment, evenly spread: their order may matter."""
    return [rows if len(rows) <= most else rows[_spread(len(rows), most)] for rows in environments]


def telling_rows(y: Matrix, most: int) -> Matrix:
    """Return at most so many whitened rows: some that are far out, and others, spread evenly.

    Products of latents have long tails, and where noise is small a few rows in them determine the
    encoder: a fit without those would not hold for all rows.
    """
    n_rows, n = y.shape
    if n_rows <= most:
        return y
    squared = np.einsum("ij,ij->i", y, y)
    unheard_of = chi2.isf(_EXPECTED_OF_A_GAUSSIAN / n_rows, n)
    n_far = min(int(_MOST_FAR_OUT * most), int((squared > unheard_of).sum()))
    by_distance = np.argsort(squared, kind="stable")
    near, far = np.sort(by_distance[: n_rows - n_far]), by_distance[n_rows - n_far :]
    return y[np.sort(np.concatenate([near[_spread(len(near), most - n_far)], far]))]


def _spread(n_rows: int, most: int) -> NDArray[np.intp]:
    return np.linspace(0, n_rows - 1, most).astype(np.intp)
