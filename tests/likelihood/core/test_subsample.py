from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.core._subsample import part_of_each, shared_part, some_rows


def numbered(n_rows: int) -> np.ndarray:
    return np.arange(float(n_rows))[:, None]


class TestSomeRows:
    def test_rows_are_spread_evenly_from_the_first_to_the_last(self):
        assert some_rows(numbered(10), 4)[:, 0].tolist() == [0, 3, 6, 9]
        part = some_rows(numbered(1000), 10)
        assert part[[0, -1], 0].tolist() == [0, 999]
        assert np.ptp(np.diff(part[:, 0])) <= 1

    def test_few_rows_are_all_taken(self):
        rows = numbered(10)
        assert some_rows(rows, 10) is rows
        assert len(some_rows(rows, 9)) == 9

    def test_none_comes_twice(self):
        assert len(np.unique(some_rows(numbered(11), 10))) == 10


def test_environments_are_cut_one_by_one():
    few, many = numbered(10), numbered(11)
    parts = part_of_each([few, many], 10)
    assert parts[0] is few
    assert len(parts[1]) == 10


@pytest.mark.parametrize(("n_environments", "each"), [(2, 100), (6, 100), (12, 50)])
def test_many_environments_share_the_rows_of_a_search(n_environments: int, each: int):
    parts = shared_part([np.zeros((200, 1))] * n_environments, 100)
    assert [len(part) for part in parts] == n_environments * [each]
