from __future__ import annotations

import numpy as np
import pytest

from crlearn.data.worlds._checks import check_choice, check_count, check_range, check_share


@pytest.mark.parametrize("count", [1, 3, np.int64(7)])
def test_counts(count):
    check_count(count, "n")


@pytest.mark.parametrize("count", [0, -1, 2.0, "many", True, None])
def test_what_is_no_count(count):
    with pytest.raises(ValueError, match=r"'n' must be an integer of at least 1. Got"):
        check_count(count, "n")


def test_a_count_has_a_smallest():
    with pytest.raises(ValueError, match=r"'n' must be an integer of at least 4. Got 3"):
        check_count(3, "n", 4)


@pytest.mark.parametrize("pair", [(1, 2), [0.5, 0.5], np.array([1.0, 2.0])])
def test_ranges(pair):
    check_range(pair, "r", positive=True)


@pytest.mark.parametrize("pair", [(2, 1), 1.0, (1,), "ab", (1.0, np.nan), (1.0, np.inf), None])
def test_what_is_no_range(pair):
    with pytest.raises(ValueError, match=r"'r' must be a pair \(low, high\)"):
        check_range(pair, "r")


def test_ranges_may_have_to_be_positive():
    check_range((0, 1), "r")
    with pytest.raises(ValueError, match="of positive numbers"):
        check_range((0, 1), "r", positive=True)


@pytest.mark.parametrize("share", [-0.1, 1.1, np.nan, "half", None])
def test_shares(share):
    check_share(0, "s")
    check_share(1.0, "s")
    with pytest.raises(ValueError, match="'s' is a share and must lie between 0 and 1"):
        check_share(share, "s")


@pytest.mark.parametrize("word", ["c", None, 1])
def test_choices(word):
    check_choice("a", "w", ("a", "b"))
    with pytest.raises(ValueError, match=r"'w' must be 'a' or 'b'. Got"):
        check_choice(word, "w", ("a", "b"))
