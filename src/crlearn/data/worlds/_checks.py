"""What the arguments of several worlds may be, and what is said if they are not."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np


def check_count(count: Any, name: str, smallest: int = 1) -> None:
    """Refuse what is not an integer, or too small a one."""
    if not isinstance(count, Integral) or isinstance(count, bool) or count < smallest:
        raise ValueError(
            f"'{name}' must be an integer of at least {smallest}. Got {count!r} instead."
        )


def check_range(pair: Any, name: str, *, positive: bool = False) -> None:
    """Refuse what is not a pair of numbers in order."""
    numbers = np.atleast_1d(np.asarray(pair, dtype=object)).tolist()
    if len(numbers) == 2 and all(isinstance(number, Real) for number in numbers):
        low, high = numbers
        if -np.inf < low <= high < np.inf and (low > 0 or not positive):
            return
    raise ValueError(
        f"'{name}' must be a pair (low, high) of {'positive ' if positive else ''}numbers with "
        f"low <= high. Got {pair!r} instead."
    )


def check_share(share: Any, name: str) -> None:
    """Refuse what is not a number between 0 and 1."""
    if not (isinstance(share, Real) and 0 <= float(share) <= 1):
        raise ValueError(
            f"'{name}' is a share and must lie between 0 and 1. Got {share!r} instead."
        )


def check_choice(given: Any, name: str, allowed: Sequence[str]) -> None:
    """Refuse a word that is not among those allowed."""
    if not isinstance(given, str) or given not in allowed:
        raise ValueError(
            f"'{name}' must be {' or '.join(map(repr, allowed))}. Got {given!r} instead."
        )
