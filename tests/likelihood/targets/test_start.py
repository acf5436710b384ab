from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood import Moments
from crlearn.likelihood.targets._start import Peeling, _best, peel

N = 4


def answer(targets: list[list[int]], score: float) -> Peeling:
    rows = np.array(targets, dtype=np.intp)
    return Peeling(np.eye(len(rows), N), rows, score, np.zeros((0, N)), rows[:0])


class TestPeel:
    @pytest.mark.parametrize("soft", [False, True])
    @pytest.mark.parametrize("seed", range(4))
    def test_exact_moments_give_targets_and_rows_causes_first(
        self, multi_node, seed: int, soft: bool
    ):
        world = multi_node(seed, soft=soft)
        first = peel(world.moments, np.random.default_rng(0), 4)[0]
        order = [world.targets.tolist().index(row) for row in first.targets.tolist()]
        assert sorted(order) == list(range(N))
        place = np.argsort(order)
        assert all(place[i] < place[j] for i, j in np.argwhere(world.graph))
        assert first.score < 1
        # Each row is a combination of its latent and of those before it.
        mixed = np.abs(first.encoder @ world.mixing)[:, order]
        mixed /= mixed.max(axis=1, keepdims=True)
        assert np.triu(mixed, 1).max() < 0.02

    def test_rows_give_what_exact_moments_give(self, multi_node, rows_of):
        world = multi_node(0)
        moments = Moments.of(rows_of(world, [20_000] * 5))
        first = peel(moments, np.random.default_rng(0), 4)[0]
        assert sorted(first.targets.tolist()) == sorted(world.targets.tolist())

    def test_answers_are_sorted_and_differ(self, multi_node):
        found = peel(multi_node(1).moments, np.random.default_rng(0), 4)
        scores = [each.score for each in found]
        assert scores == sorted(scores)
        assert 1 <= len(found) <= 4
        sets = {tuple(sorted(map(tuple, each.targets.tolist()))) for each in found}
        assert len(sets) == len(found)


def test_the_best_answers_differ_in_their_targets():
    one, other = [[0, 1, 0], [0, 1, 1]], [[0, 1, 1], [0, 1, 0]]  # the same in another order
    third = [[0, 0, 1], [0, 1, 0]]
    kept = _best([answer(one, 3.0), answer(other, 1.0), answer(third, 2.0)], n_kept=5)
    assert [each.score for each in kept] == [1.0, 2.0]
    assert [each.score for each in _best(kept, n_kept=1)] == [1.0]
