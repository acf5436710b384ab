from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood import Moments
from crlearn.likelihood.targets._candidates import View
from crlearn.likelihood.targets._start import Peeling, _best, _Partial, _refitted, peel

N = 4


def answer(targets: list[list[int]], score: float) -> Peeling:
    rows = np.array(targets, dtype=np.intp)
    return Peeling(np.eye(len(rows), N), rows, score, 1.0, np.zeros((0, N)), rows[:0])


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


class TestPartial:
    @pytest.fixture
    def partial(self, multi_node) -> tuple[_Partial, np.ndarray, np.ndarray]:
        """The score of the first two latents, rows near them and the whole encoder."""
        world = multi_node(0)
        root = View.of(world.moments, np.zeros((0, N)))
        H = np.linalg.inv(world.mixing)
        H = H + 0.05 * np.random.default_rng(0).standard_normal((N, N)) @ H
        H /= np.linalg.norm(H, axis=1, keepdims=True)
        free = np.zeros((N, N), dtype=bool)
        free[:2] = np.arange(N) > np.arange(2)[:, None]
        return _Partial.of(world.moments, root, world.targets[:2]), H, free

    def test_derivatives(self, partial: tuple[_Partial, np.ndarray, np.ndarray]):
        score, H, free = partial
        n_first, size, h = int(free[0].sum()), int(free.sum()), 1e-5

        def moved(step: np.ndarray) -> np.ndarray:
            D = np.zeros((N, N))
            D[free] = step
            return H + D @ H

        point = score._expanded(H, free)
        assert point.value == score._value(H)
        moves = h * np.eye(size)
        slopes = [(score._value(moved(m)) - score._value(moved(-m))) / (2 * h) for m in moves]
        np.testing.assert_allclose(point.gradient, slopes, atol=1e-5 * np.abs(point.gradient).max())
        # Of the second row: that of the first one is on a sphere, where a step is a turn.
        curved = [
            [
                (
                    score._value(moved(10 * (a + b)))
                    - score._value(moved(10 * (a - b)))
                    - score._value(moved(10 * (b - a)))
                    + score._value(moved(-10 * (a + b)))
                )
                / (400 * h * h)
                for b in moves[n_first:]
            ]
            for a in moves[n_first:]
        ]
        found = point.hessian[n_first:, n_first:]
        np.testing.assert_allclose(found, curved, atol=1e-3 * np.abs(found).max())

    def test_minimising_gains_what_it_says(self, partial: tuple[_Partial, np.ndarray, np.ndarray]):
        score, H, _ = partial
        rows, gain = score.minimised(H[:2])
        whole = np.vstack([rows, np.linalg.svd(rows)[2][2:]])
        before = np.vstack([H[:2], np.linalg.svd(H[:2])[2][2:]])
        assert gain > 100
        assert score._value(before) - score._value(whole) == pytest.approx(gain, rel=1e-6)

    def test_multiples_of_earlier_rows_make_no_difference(
        self, partial: tuple[_Partial, np.ndarray, np.ndarray]
    ):
        score, H, _ = partial
        other = H.copy()
        other[1] += 0.7 * other[0]
        other[0] *= -2
        assert score._value(other) == pytest.approx(score._value(H), rel=1e-9)


def test_answers_without_doubt_are_not_refitted(multi_node):
    world = multi_node(0)
    root = View.of(world.moments, np.zeros((0, N)))
    good = answer(world.targets[:2].tolist(), 0.5)
    assert _refitted(world.moments, root, good) is good
    doubtful = answer(world.targets[:2].tolist(), 1e9)
    better = _refitted(world.moments, root, doubtful)
    assert better.score < doubtful.score
