from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.core._subsample import part_of_each, telling_rows


def numbered(n_rows: int) -> np.ndarray:
    return np.arange(float(n_rows))[:, None]


class TestPartOfEach:
    def test_rows_are_spread_evenly(self):
        (part,) = part_of_each([numbered(1000)], 10)
        assert len(part) == 10
        assert part[0, 0] == 0
        assert part[-1, 0] == 999
        assert np.ptp(np.diff(part[:, 0])) <= 1

    def test_environments_are_cut_one_by_one(self):
        few, many = numbered(10), numbered(11)
        parts = part_of_each([few, many], 10)
        assert parts[0] is few
        assert len(parts[1]) == 10
        assert len(np.unique(parts[1])) == 10


class TestTellingRows:
    @pytest.fixture
    def rows(self) -> np.ndarray:
        """Whitened rows, seven of which no Gaussian sample has."""
        rows = np.random.default_rng(0).standard_normal((5000, 3))
        rows[100:800:100] = 20.0 + np.arange(7.0)[:, None]
        return rows

    def test_few_rows_are_all_taken(self, rows: np.ndarray):
        assert telling_rows(rows, 5000) is rows

    def test_rows_that_are_far_out_are_among_them(self, rows: np.ndarray):
        part = telling_rows(rows, 1000)
        assert part.shape == (1000, 3)
        assert (np.abs(part).max(axis=1) > 10).sum() == 7

    def test_they_are_a_small_share(self, rows: np.ndarray):
        part = telling_rows(rows, 200)
        assert len(part) == 200
        far = part[np.abs(part).max(axis=1) > 10]
        assert 4 <= len(far) <= 5  # a fiftieth, the farthest ones; one more may come by itself
        assert far.max() == 26

    def test_the_others_are_in_order_and_spread_evenly(self, rows: np.ndarray):
        part = telling_rows(rows, 1000)
        where = [int(np.flatnonzero((rows == row).all(axis=1))[0]) for row in part]
        assert (np.diff(where) > 0).all()
        assert where[0] == 0
        assert where[-1] == 4999
        assert np.diff(where).max() <= 6

    def test_gaussian_rows_are_not_sorted_by_distance(self):
        rows = np.random.default_rng(1).standard_normal((4000, 2))
        part = telling_rows(rows, 500)
        assert np.abs(np.cov(part.T) - np.eye(2)).max() < 0.2
