from __future__ import annotations

import numpy as np

from crlearn.likelihood import Moments
from crlearn.methods._interventional import visibility_check

LABELS = np.array(["control", "a", "b", "c"])


def check_of(*others: np.ndarray, seed: int = 0) -> tuple[bool | None, str]:
    rng = np.random.default_rng(seed)
    moments = Moments.of([rng.standard_normal((500, 2)), *others])
    check = visibility_check(moments, LABELS[: len(others) + 1])
    return check.passed, check.detail.rpartition(": ")[2]


def test_shifts_and_other_covariances_are_visible():
    rows = np.random.default_rng(1).standard_normal((500, 2))
    assert check_of(rows + np.array([1, 0]), rows * np.array([1, 2])) == (True, "none")


def test_environments_like_the_reference_are_named():
    rows = np.random.default_rng(1).standard_normal((1000, 2))
    assert check_of(rows[:500], 3 * rows[:500], rows[500:]) == (False, "a, c")
