"""Some of the rows, for searches that do not need all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]

_FULL_SHARES = 6


def some_rows(rows: Matrix, most: int) -> Matrix:
    """Return at most so many rows, spread evenly: their order may matter."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.intp)]


def part_of_each(environments: Sequence[Matrix], most: int) -> list[Matrix]:
    """Return at most so many rows of each environment."""
    return [some_rows(rows, most) for rows in environments]


def shared_part(environments: Sequence[Matrix], most: int) -> list[Matrix]:
    """Return at most so many rows of each of six environments; more share as many as six have."""
    return part_of_each(
        environments, most * min(_FULL_SHARES, len(environments)) // len(environments)
    )
