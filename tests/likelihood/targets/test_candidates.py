from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood import Moments
from crlearn.likelihood.core._encoder import unit_rows
from crlearn.likelihood.targets._candidates import (
    Candidates,
    View,
    _expanded,
    _is_independent,
    _log_forms,
    _refined,
    candidates,
    possible_rows,
    sums_of_products,
    target_scores,
    target_splits,
)

N = 4
NOTHING = np.zeros((0, N + 1), dtype=np.intp)
SIZES = (60, 50, 80, 70)


def environments(seed: int = 0, n: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal((size, n)) @ rng.standard_normal((n, n)) + rng.standard_normal(n)
        for size in SIZES
    ]


def deviance(rows: np.ndarray) -> float:
    """N log of the residual variance of the last column given the others and a constant."""
    given = np.column_stack([np.ones(len(rows)), rows[:, :-1]])
    residual = rows[:, -1] - given @ np.linalg.lstsq(given, rows[:, -1], rcond=None)[0]
    return float(len(rows) * np.log(np.mean(residual**2)))


def root_of(world) -> int:
    """A latent without causes."""
    return int(np.flatnonzero(~world.graph.any(axis=0))[0])


def nothing_known(view: View) -> Candidates:
    return Candidates(np.zeros((0, len(view.basis))), NOTHING, np.zeros(0))


class TestScores:
    def test_sums_of_products_are_those_of_rows(self):
        rows = environments()
        found = sums_of_products(Moments.of(rows))
        for e, x in enumerate(rows):
            columns = np.column_stack([np.ones(len(x)), x])
            np.testing.assert_allclose(found[e], columns.T @ columns)

    def test_scores_are_likelihood_ratios_of_regressions(self):
        rows = environments()
        targets = np.array([[0, 1, 0, 1], [0, 0, 1, 0], [0, 1, 1, 1]])
        sums = sums_of_products(Moments.of(rows))[None]
        found = target_scores(sums, np.array(SIZES), targets[None])[0]
        for score, row in zip(found, targets.astype(bool), strict=True):
            parts = [[x for x, far in zip(rows, row, strict=True) if far == s] for s in (0, 1)]
            together = sum(deviance(np.vstack(part)) for part in parts)
            assert score == pytest.approx(together - sum(map(deviance, rows)))
            assert score > 0

    def test_splits_put_the_reference_on_the_near_side(self):
        sums = sums_of_products(Moments.of(environments()))[None]
        rows = target_splits(sums, np.array(SIZES))
        assert rows.shape == (1, 2 * len(SIZES) - 2, len(SIZES))
        assert not rows[..., 0].any()
        assert rows.any(axis=-1).all()

    @pytest.mark.parametrize("seed", range(4))
    def test_the_truth_is_among_the_splits_and_has_no_score(self, multi_node, seed: int):
        """Of a latent without causes, on exact moments."""
        world = multi_node(seed)
        j = root_of(world)
        row = np.linalg.inv(world.mixing)[[j]]
        sums = sums_of_products(world.moments.transformed(row))[None]
        rows = target_splits(sums, world.moments.sizes)
        scores = target_scores(sums, world.moments.sizes, rows)[0]
        (place,) = np.flatnonzero((rows[0] == world.targets[j]).all(axis=1))[:1]
        assert scores[place] == pytest.approx(0, abs=1e-4)
        others = (rows[0] != world.targets[j]).any(axis=1)
        assert (scores[others] > 100).all()


class TestPossibleRows:
    def test_all_sets_of_few_environments(self):
        rows = possible_rows(np.array([0, 1, 0, 1]))
        assert len(rows) == len(np.unique(rows, axis=0)) == 6  # of 8: not the empty one, not itself
        assert not rows[:, 0].any()
        assert rows.any(axis=1).all()

    def test_one_or_two_changes_of_many_environments(self):
        row = np.zeros(15, dtype=int)
        row[3] = 1
        rows = possible_rows(row)
        changes = (rows != row).sum(axis=1)
        near, far = changes <= 2, changes >= 13  # far: with the reference on the other side
        assert near.sum() == 14 - 1 + 14 * 13 // 2  # one single change leaves nothing
        assert far.sum() == 1 + 14
        assert (near | far).all()
        assert not rows[:, 0].any()


class TestView:
    @pytest.fixture
    def view(self, multi_node) -> View:
        world = multi_node(0)
        return View.of(world.moments, np.linalg.inv(world.mixing)[:1])

    def test_sums_along_a_direction_are_those_of_its_rows(self, view: View, multi_node):
        x = np.array([[0.6, 0.0, 0.8]])
        row = x @ view.basis
        world = multi_node(0)
        found = np.linalg.inv(world.mixing)[:1]
        moments = world.moments.transformed(np.vstack([found, row]))
        np.testing.assert_allclose(view.along(x)[0], sums_of_products(moments))

    def test_residuals_are_conditional(self, view: View):
        found = view.residuals(view.sums)
        assert found.shape == (N + 1, N - 1, N - 1)
        inverse = np.linalg.inv(view.sums)[:, view.n_given :, view.n_given :]
        np.testing.assert_allclose(found, np.linalg.inv(inverse), rtol=1e-8)


class TestCandidates:
    def test_the_best_have_different_targets(self):
        targets = np.array([[0, 1], [0, 1], [0, 0], [0, 0]])
        found = Candidates(np.eye(4), targets, np.array([3.0, 1.0, 9.0, 2.0])).best(None)
        assert found.scores.tolist() == [1, 2]
        np.testing.assert_array_equal(found.directions, np.eye(4)[[1, 3]])

    def test_none_is_too_far_behind(self):
        targets = np.array([[0, 0], [0, 1], [1, 0]])
        both = Candidates(np.eye(3), targets, np.array([1.0, 2.0, 50.0]))
        assert len(both.best(None, margin=5.0).scores) == 2
        assert len(both.best(1).scores) == 1

    def test_targets_that_depend_on_those_taken_are_left_out(self):
        targets = np.array([[0, 1, 0, 1], [0, 1, 1, 1], [0, 0, 0, 1]])
        taken = np.array([[0, 1, 0, 0], [0, 0, 0, 1]])
        assert _is_independent(targets, taken).tolist() == [False, True, False]
        assert _is_independent(targets, taken[:0]).all()

    def test_derivatives_of_log_forms(self, multi_node):
        world = multi_node(0)
        view = View.of(world.moments, np.zeros((0, N)))
        forms, weights, _ = _log_forms(view, world.targets[:2])
        x = np.random.default_rng(0).standard_normal((2, N))
        gradient, hessian = _expanded(x, forms, weights)

        def value(x: np.ndarray) -> np.ndarray:
            return (weights * np.log(np.einsum("ci,ctij,cj->ct", x, forms, x))).sum(axis=1)

        step = 1e-5
        for i in range(N):
            move = step * np.eye(N)[i]
            slope = (value(x + move) - value(x - move)) / (2 * step)
            np.testing.assert_allclose(gradient[:, i], slope, rtol=1e-5, atol=1)
            ahead, behind = (_expanded(x + s * move, forms, weights)[0] for s in (1, -1))
            np.testing.assert_allclose(
                hessian[:, i], (ahead - behind) / (2 * step), rtol=1e-5, atol=1
            )

    def test_directions_near_a_latent_are_led_to_it(self, multi_node):
        world = multi_node(0)
        j = root_of(world)
        view = View.of(world.moments, np.zeros((0, N)))
        truth = unit_rows(np.linalg.solve(view.basis.T, np.linalg.inv(world.mixing)[j])[None])
        near = truth + 0.1 * np.random.default_rng(0).standard_normal((6, N))
        near /= np.linalg.norm(near, axis=1, keepdims=True)
        start = Candidates(near, np.tile(world.targets[j], (6, 1)), np.full(6, np.inf))
        found = _refined(view, start, np.inf)
        assert np.abs(near @ truth.T).min() < 0.99
        assert np.abs(found.directions @ truth.T).min() > 0.999
        assert found.scores.min() == pytest.approx(0, abs=0.01)
        np.testing.assert_allclose(np.linalg.norm(found.directions, axis=1), 1)

    @pytest.mark.parametrize("seed", range(4))
    def test_a_latent_without_causes_is_found_first(self, multi_node, seed: int):
        world = multi_node(seed)
        view = View.of(world.moments, np.zeros((0, N)))
        found = candidates(view, NOTHING, nothing_known(view), np.random.default_rng(0), 8)
        assert (np.diff(found.scores) >= 0).all()
        assert found.scores[0] < 0.1 * view.usual_score
        (latent,) = np.flatnonzero((world.targets == found.targets[0]).all(axis=1))
        mixed = np.abs(found.directions[0] @ view.basis @ world.mixing)
        assert mixed.argmax() == latent
        np.testing.assert_allclose(mixed / mixed.max(), np.eye(N)[latent], atol=0.01)
        assert not world.graph[:, latent].any()

    def test_the_best_candidate_of_rows_cannot_be_improved(self, multi_node, rows_of):
        world = multi_node(0)
        view = View.of(Moments.of(rows_of(world, [2000] * (N + 1))), np.zeros((0, N)))
        found = candidates(view, NOTHING, nothing_known(view), np.random.default_rng(0), 8)
        best = found[np.array([0])]
        assert found.scores[0] < 2 * view.usual_score
        assert found.scores[0] - _refined(view, best, np.inf).scores[0] < 0.5

    def test_with_its_causes_held_constant_the_last_latent_is_found(self, multi_node):
        world = multi_node(2)
        encoder = np.linalg.inv(world.mixing)
        view = View.of(world.moments, encoder[:-1])
        assert len(view.basis) == 1
        found = candidates(view, NOTHING, nothing_known(view), np.random.default_rng(0), 8)
        assert found.targets[0].tolist() == world.targets[-1].tolist()
        assert found.scores[0] == pytest.approx(0, abs=1e-3)
