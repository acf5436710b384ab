"""Input checks that every metric shares."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]


def check_matrix(values: ArrayLike, name: str) -> Matrix:
    """Return a finite two-dimensional float array with at least one row and one column."""
    try:
        matrix = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a numeric array. {error}.") from error
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(
            f"{name} must be a non-empty two-dimensional array. Got shape {matrix.shape} instead."
        )
    n_bad = int((~np.isfinite(matrix)).sum())
    if n_bad:
        raise ValueError(f"{name} must be finite. Got {n_bad} NaN or infinite entries.")
    return matrix


def check_samples(
    Z: ArrayLike, Z_hat: ArrayLike, names: tuple[str, str] = ("Z", "Z_hat")
) -> tuple[Matrix, Matrix]:
    """Return true and recovered variables, one row for each of the same samples."""
    true, recovered = check_matrix(Z, names[0]), check_matrix(Z_hat, names[1])
    if len(true) != len(recovered):
        raise ValueError(
            f"{names[0]} and {names[1]} must have one row for each of the same samples. "
            f"Got {len(true)} and {len(recovered)} rows."
        )
    if len(true) < 2:
        raise ValueError(f"{names[0]} must have at least 2 rows. Got {len(true)}.")
    return true, recovered


def check_same_width(true: Matrix, recovered: Matrix, names: tuple[str, str], remedy: str) -> None:
    """Raise unless both have the same number of columns."""
    if true.shape[1] != recovered.shape[1]:
        raise ValueError(
            f"{names[0]} and {names[1]} must have the same number of columns. "
            f"Got {true.shape[1]} and {recovered.shape[1]}; {remedy}."
        )


def check_choice(value: str, choices: Sequence[str], name: str) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {allowed}. Got {value!r} instead.")


def check_groups(groups: Sequence[ArrayLike], n_columns: int, name: str) -> list[NDArray[np.intp]]:
    """Return disjoint groups of column indices."""
    try:
        checked = [[index(member) for member in np.atleast_1d(group)] for group in groups]
    except TypeError as error:
        raise ValueError(
            f"{name} must be a list of lists of column indices. Got {groups!r}."
        ) from error
    members = [member for group in checked for member in group]
    all_exist = set(members) <= set(range(n_columns))
    if not members or not all_exist or len(set(members)) < len(members):
        raise ValueError(
            f"{name} must hold column indices from 0 to {n_columns - 1}, at least one and none "
            f"twice. Got {checked}."
        )
    return [np.array(group, dtype=np.intp) for group in checked]
