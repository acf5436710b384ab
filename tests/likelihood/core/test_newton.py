from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crlearn.likelihood.core._encoder import moved
from crlearn.likelihood.core._newton import Expansion, descend, descend_all

A = np.array([[3.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]])
GOAL = np.array([1.0, -2.0, 3.0])


def added(x: np.ndarray, step: np.ndarray) -> np.ndarray:
    return x + step


def bowl(x: np.ndarray) -> float:
    return float(0.5 * (x - GOAL) @ A @ (x - GOAL))


def expanded_bowl(x: np.ndarray) -> Expansion:
    return Expansion(bowl(x), A @ (x - GOAL), A)


def two_wells(x: np.ndarray) -> float:
    """Minima at (-1, 0) and (1, 0), a saddle between them."""
    return float((x[0] ** 2 - 1) ** 2 + 2 * x[1] ** 2)


def expanded_wells(x: np.ndarray) -> Expansion:
    gradient = np.array([4 * x[0] * (x[0] ** 2 - 1), 4 * x[1]])
    return Expansion(two_wells(x), gradient, np.diag([12 * x[0] ** 2 - 4, 4.0]))


class TestExpansion:
    def test_a_step_goes_downhill_where_the_curvature_is_negative(self):
        point = Expansion(0.0, np.array([1.0, 1.0]), np.diag([2.0, -2.0]))
        assert (point.step(damping=0.0) < 0).all()

    def test_negative_curvature_is_reversed(self):
        positive, mixed = (
            Expansion(0.0, np.array([1.0, 3.0]), np.diag(curvature)).step(damping=1e-6)
            for curvature in ([2.0, 5.0], [2.0, -5.0])
        )
        np.testing.assert_allclose(mixed, positive, rtol=1e-5)

    def test_steps_are_capped(self):
        point = Expansion(0.0, np.array([100.0, 0.0]), np.eye(2))
        assert np.abs(point.step(longest=0.5)).max() == pytest.approx(0.5)
        assert np.abs(point.step()).max() == pytest.approx(100, rel=0.01)

    def test_the_promise_is_never_above_the_present_value(self):
        point = Expansion(3.0, np.array([0.0, 0.0]), np.diag([1.0, 1.0]))
        assert point.after(np.array([1.0, 1.0])) == 3.0
        assert point.after(np.zeros(2)) == 3.0
        downhill = Expansion(3.0, np.array([1.0, 0.0]), np.eye(2))
        assert downhill.after(np.array([-1.0, 0.0])) == pytest.approx(2.5)

    def test_gains_are_those_of_newton_steps_and_never_negative(self):
        gradients = np.array([[1.0, 0.0], [2.0, 2.0], [0.0, 0.0]])
        point = Expansion(0.0, np.zeros(2), np.diag([1.0, 4.0]))
        np.testing.assert_allclose(point.gains(gradients), [0.5, 2.5, 0.0], atol=1e-5)
        saddle = Expansion(0.0, np.zeros(2), np.diag([1.0, -4.0]))
        np.testing.assert_allclose(saddle.gains(gradients), [0.5, 2.5, 0.0], atol=1e-5)

    @pytest.mark.parametrize(
        "hessian", [A, np.diag([3.0, -2.0, 1.0]) + 0.5], ids=["bowl", "saddle"]
    )
    @pytest.mark.parametrize("damping", [1e-6, 1e-2, 10.0])
    def test_steps_do_not_depend_on_units(self, hessian: np.ndarray, damping: float):
        """Neither those of the parameters nor that of the value, which grows with the rows."""
        gradient, unit = np.array([1.0, -2.0, 0.5]), np.array([0.1, 1.0, 20.0])
        step = Expansion(0.0, gradient, hessian).step(damping)
        other = Expansion(0.0, gradient * unit, hessian * np.outer(unit, unit)).step(damping)
        np.testing.assert_allclose(unit * other, step, rtol=1e-9)
        rows = Expansion(0.0, 1e5 * gradient, 1e5 * hessian).step(damping)
        np.testing.assert_allclose(rows, step, rtol=1e-9)


class TestDescend:
    def test_a_quadratic_takes_one_step(self):
        """Up to the first damping, a thousandth of the curvature; the second one is exact."""
        start = np.zeros(3)
        for max_steps, left in ((1, 1e-5), (2, 1e-12)):
            x, reached = descend(
                start, expanded_bowl, bowl, added, max_steps=max_steps, tolerance=0.0
            )
            assert reached == bowl(x)
            assert reached < left * bowl(start)

    def test_without_damping_the_first_step_is_exact(self):
        x, _ = descend(
            np.zeros(3), expanded_bowl, bowl, added, max_steps=1, tolerance=0.0, damping=0.0
        )
        np.testing.assert_allclose(x, GOAL, atol=1e-4)

    def test_steps_that_are_too_long_are_damped_all_the_same(self):
        """The curvature at the start is a hundredth of what it is on the way."""

        def value(x: np.ndarray) -> float:
            return float(np.cosh(x[0]))

        def expand(x: np.ndarray) -> Expansion:
            return Expansion(value(x), np.sinh(x), np.array([[0.01 * np.cosh(x[0])]]))

        _, reached = descend(
            np.array([1.0]), expand, value, added, max_steps=100, tolerance=1e-9, damping=0.0
        )
        assert reached == pytest.approx(1.0, abs=1e-6)

    @pytest.mark.parametrize(("below_the_minimum", "moves"), [(-0.1, True), (0.1, False)])
    def test_what_is_out_of_reach_is_given_up(self, below_the_minimum: float, moves: bool):
        start, least = np.zeros(3), bowl(GOAL)
        x, reached = descend(
            start,
            expanded_bowl,
            bowl,
            added,
            max_steps=1,
            tolerance=0.0,
            goal=least - below_the_minimum,
        )
        assert bool((x != start).any()) == moves
        assert reached == bowl(x)

    @pytest.mark.parametrize(("least_promise", "moves"), [(1e-3, True), (1e3, False)])
    def test_steps_that_promise_too_little_are_not_tried(self, least_promise: float, moves: bool):
        start = np.zeros(3)
        x, _ = descend(
            start,
            expanded_bowl,
            bowl,
            added,
            max_steps=1,
            tolerance=0.0,
            least_promise=least_promise,
        )
        assert bool((x != start).any()) == moves

    def test_nothing_to_move(self):
        empty = Expansion(1.0, np.zeros(0), np.zeros((0, 0)))
        assert empty.step().shape == (0,)

    def test_it_finds_the_minimum_of_a_smooth_function(self):
        """A bowl in the off-diagonal entries of D, around a known matrix."""
        goal = np.array([[1.0, 0.3], [-0.2, 1.0]])

        def value(H: np.ndarray) -> float:
            return float(((H - goal) ** 2).sum())

        def expand(H: np.ndarray) -> Expansion:
            steps = [np.array([1.0, 0.0]), np.array([0.0, 1.0])]
            change = [moved(H, step) - H for step in steps]
            gradient = np.array([2 * ((H - goal) * each).sum() for each in change])
            hessian = np.array([[2 * (a * b).sum() for b in change] for a in change])
            return Expansion(value(H), gradient, hessian)

        start = np.eye(2)
        H, reached = descend(start, expand, value, moved, max_steps=50, tolerance=1e-14)
        assert reached == pytest.approx(value(H))
        assert np.abs(expand(H).gradient).max() < 1e-6
        assert reached < value(start)

    def test_an_indefinite_function_leads_to_a_minimum_not_to_the_saddle(self):
        start = np.array([0.05, 0.5])
        assert np.linalg.eigvalsh(expanded_wells(start).hessian)[0] < 0
        x, reached = descend(start, expanded_wells, two_wells, added, max_steps=50, tolerance=1e-14)
        np.testing.assert_allclose(x, [1, 0], atol=1e-6)
        assert reached == pytest.approx(0, abs=1e-12)

    def test_infinite_values_are_stepped_back_from(self):
        """Newton's step for x - log x leads from 5 to -15, where there is no value."""

        def value(x: np.ndarray) -> float:
            return float(x[0] - np.log(x[0])) if x[0] > 0 else np.inf

        def expand(x: np.ndarray) -> Expansion:
            return Expansion(value(x), 1 - 1 / x, np.diag(1 / x**2))

        seen = []

        def watched(x: np.ndarray) -> float:
            seen.append(value(x))
            return seen[-1]

        x, reached = descend(np.array([5.0]), expand, watched, added, max_steps=50, tolerance=1e-14)
        assert np.isinf(seen).any()
        assert x[0] == pytest.approx(1, abs=1e-6)
        assert reached == pytest.approx(1)

    def test_it_stays_where_nothing_is_lower(self):
        x, reached = descend(
            GOAL, expanded_bowl, lambda x: np.inf, added, max_steps=9, tolerance=0.0
        )
        assert (x == GOAL).all()
        assert reached == 0

    def test_it_stops_at_the_given_number_of_steps(self):
        calls = []

        def expand(H: np.ndarray) -> Expansion:
            calls.append(H)
            return Expansion(float(H[0, 1]), np.array([1.0, 0.0]), np.zeros((2, 2)))

        start: np.ndarray = np.eye(2)
        descend(start, expand, lambda H: float(H[0, 1]), moved, max_steps=3, tolerance=0.0)
        assert len(calls) == 3

    def test_a_known_expansion_is_not_computed_again(self):
        calls: list[np.ndarray] = []

        def expand(x: np.ndarray) -> Expansion:
            calls.append(x)
            return expanded_bowl(x)

        first = expanded_bowl(np.zeros(3))
        options = {"max_steps": 1, "tolerance": 0.0}
        known = descend(np.zeros(3), expand, bowl, added, first=first, **options)
        assert not calls
        np.testing.assert_array_equal(
            known[0], descend(np.zeros(3), expand, bowl, added, **options)[0]
        )

    @pytest.mark.parametrize("max_steps", [1, 3, 6])
    def test_the_way_does_not_depend_on_the_units_of_parameters(self, max_steps: int):
        unit = np.array([0.1, 30.0])

        def expand(u: np.ndarray) -> Expansion:
            point = expanded_wells(unit * u)
            return Expansion(
                point.value, unit * point.gradient, point.hessian * np.outer(unit, unit)
            )

        start, options = np.array([0.05, 0.5]), {"max_steps": max_steps, "tolerance": 0.0}
        x, _ = descend(start, expanded_wells, two_wells, added, **options)
        u, _ = descend(start / unit, expand, lambda u: two_wells(unit * u), added, **options)
        np.testing.assert_allclose(unit * u, x, rtol=1e-8, atol=1e-12)


def stacked(
    function: Callable[[np.ndarray], Expansion],
) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    def expand(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        points = [function(each) for each in x]
        return np.stack([p.gradient for p in points]), np.stack([p.hessian for p in points])

    return expand


class TestDescendAll:
    def test_it_ends_where_descend_does(self):
        starts = np.array([[0.05, 0.5], [-0.1, -1.0], [2.0, 0.3], [-3.0, 2.0]])
        found, values = descend_all(
            starts,
            stacked(expanded_wells),
            lambda x: np.array([two_wells(each) for each in x]),
            added,
            max_steps=60,
            tolerance=1e-14,
        )
        one_by_one = [
            descend(start, expanded_wells, two_wells, added, max_steps=60, tolerance=1e-14)
            for start in starts
        ]
        np.testing.assert_allclose(found, [x for x, _ in one_by_one], atol=1e-6)
        np.testing.assert_allclose(values, [value for _, value in one_by_one], atol=1e-12)

    def test_it_never_goes_up(self):
        starts = np.random.default_rng(0).standard_normal((30, 2))
        before = np.array([two_wells(each) for each in starts])
        for max_steps in (1, 2, 5):
            _, values = descend_all(
                starts,
                stacked(expanded_wells),
                lambda x: np.array([two_wells(each) for each in x]),
                added,
                max_steps=max_steps,
                tolerance=0.0,
            )
            assert (values <= before).all()
            before = values

    def test_starts_far_behind_the_best_are_not_waited_for(self):
        """One is at its minimum; the other is behind by more than the margin."""
        calls = []

        def expand(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            calls.append(x)
            return stacked(expanded_wells)(x)

        starts = np.array([[1.0, 0.0], [30.0, 0.0]])
        for margin in (10.0, np.inf):
            calls.clear()
            descend_all(
                starts,
                expand,
                lambda x: np.array([two_wells(each) for each in x]),
                added,
                max_steps=40,
                tolerance=1e-9,
                margin=margin,
            )
            n_steps = len(calls)
            assert (n_steps < 8) == (margin == 10.0)
