from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from crlearn.graph import complete_graph
from crlearn.likelihood import Fit
from crlearn.likelihood.nodes._polynomial import PolynomialModel
from crlearn.likelihood.observational._model import RelevanceModel, has_hidden_units
from crlearn.likelihood.observational._start import (
    Start,
    complete_structures,
    distinct,
    starting_rotations,
)
from crlearn.likelihood.search._local import LEAST_GAIN


def one_by_one(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    return [function(item) for item in items]


@pytest.fixture(scope="module")
def squares() -> tuple[RelevanceModel, np.ndarray]:
    """Whitened rows of a chain of squares, and the noises."""
    noise = np.random.default_rng(0).standard_normal((500, 3)) * [1.0, 0.5, 0.7]
    Z = noise.copy()
    for j in (1, 2):
        Z[:, j] += 0.7 * (Z[:, j - 1] ** 2 - 1)
    Z -= Z.mean(axis=0)
    return RelevanceModel(Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / len(Z))).T), noise


class TestStartingRotations:
    def test_they_are_distinct_rotations_and_the_best_comes_first(self, squares: Any):
        y = squares[0].y
        found = starting_rotations(y, np.random.default_rng(0), 4, one_by_one)
        assert 1 < len(found) <= 4
        for Q in found:
            np.testing.assert_allclose(Q @ Q.T, np.eye(3), atol=1e-9)
        values = [PolynomialModel(y).value(Q) * len(y) for Q in found]
        assert (np.diff(values) > 0.9 * LEAST_GAIN).all()

    def test_one_is_the_best_of_many(self, squares: Any):
        y = squares[0].y
        (one,) = starting_rotations(y, np.random.default_rng(0), 1, one_by_one)
        several = starting_rotations(y, np.random.default_rng(0), 3, one_by_one)
        np.testing.assert_array_equal(one, several[0])

    def test_squares_are_found_at_once(self, squares: Any):
        model, noise = squares
        (Q,) = starting_rotations(model.y, np.random.default_rng(0), 1, one_by_one)
        Z = model.y @ Q.T
        assert abs(np.corrcoef(Z[:, 0], noise[:, 0])[0, 1]) > 0.99


class TestCompleteStructures:
    def test_the_best_comes_first_and_finds_the_noises(self, squares: Any):
        model, noise = squares
        starts = [np.eye(3)[::-1], np.eye(3)]  # whitened rows are in causal order
        found = complete_structures(model, starts, one_by_one, n_followed=4)
        scores = [fit.score for fit in found]
        assert (np.diff(scores) < -LEAST_GAIN).all()
        assert scores[0] > 10 - model.objective(model.start(starts[1], complete_graph(range(3))))
        assert all(fit.graph == complete_graph(range(3)) for fit in found)
        residuals = model.residuals(found[0])
        for j in range(3):
            assert abs(np.corrcoef(residuals[:, j], noise[:, j])[0, 1]) > 0.98

    def test_equal_ones_are_one(self, squares: Any):
        found = complete_structures(squares[0], [np.eye(3), -np.eye(3)], one_by_one, n_followed=2)
        assert len(found) == 1

    def test_hidden_units_are_tried_from_the_best_starts_alone(self, squares: Any):
        n_fits = list[int]()

        def counted(function: Any, items: Any) -> list[Any]:
            n_fits.append(len(items))
            return one_by_one(function, items)

        starts = [np.eye(3)[::-1], np.eye(3)]
        complete_structures(squares[0], starts, counted, n_followed=1)
        assert n_fits == [2, 1]

    def test_hidden_units_where_they_help(self, squares: Any, network: Any):
        (plain,) = complete_structures(squares[0], [np.eye(3)], one_by_one, n_followed=1)
        (rich,) = complete_structures(network.model, [network.H], one_by_one, n_followed=1)
        assert not has_hidden_units(plain)
        assert has_hidden_units(rich)


class TestDistinct:
    def test_the_best_first_and_equals_once(self):
        scores = [1.0, 5.0, 0.9, 4.9, -3.0]
        fits = [Fit(np.eye(1), ((),), score) for score in scores]
        assert [fit.score for fit in distinct(fits)] == [5.0, 1.0, -3.0]
        assert distinct(fits)[0] is fits[1]

    def test_whatever_has_a_score(self):
        starts = [Start(np.eye(2), 1.0), Start(-np.eye(2), 2.0)]
        assert distinct(starts) == starts[::-1]
        assert distinct([]) == []

    def test_equals_of_one_that_was_dropped_are_kept(self):
        """A ladder of small steps does not hide its lower end."""
        steps = LEAST_GAIN * np.arange(0, -4, -0.75)
        fits = [Fit(np.eye(1), ((),), float(score)) for score in steps]
        assert [fit.score for fit in distinct(fits)] == steps[::2].tolist()
