from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from crlearn.data import make_linear_interventional
from crlearn.scores import ExactScores, NoisyScores, ScoreDifference, make_score


@pytest.fixture(scope="module")
def world() -> Any:
    return make_linear_interventional(n_latents=3, n_features=4, n_samples=500, random_state=0)


@pytest.mark.parametrize("ratio", [0.1, 100.0])
def test_errors_have_the_size_that_was_asked_for(world: Any, ratio: float):
    exact = ExactScores(world.truth)
    noisy = NoisyScores(exact, ratio)
    for environment in (1, 2):
        difference = exact.difference(world.X, environment)
        errors = noisy.fit(world.X, world.y).difference(world.X, environment) - difference
        assert (difference**2).mean() / (errors**2).mean() == pytest.approx(ratio)
        assert np.abs(np.corrcoef(errors.T) - np.eye(4)).max() < 0.1
        assert np.abs(np.corrcoef(errors[:, 0], difference[:, 0])[0, 1]) < 0.1


def test_errors_are_those_of_the_seed_and_of_the_environment(world: Any):
    exact = ExactScores(world.truth)

    def errors(environment: int, seed: int) -> Any:
        noisy = NoisyScores(exact, 1.0, seed).difference(world.X, environment)
        return (noisy - exact.difference(world.X, environment)).ravel()

    np.testing.assert_array_equal(errors(1, seed=0), errors(1, seed=0))
    for other in (errors(2, seed=0), errors(1, seed=1)):
        assert abs(np.corrcoef(errors(1, seed=0), other)[0, 1]) < 0.1


def test_it_is_taken_as_it_is(world: Any):
    noisy = NoisyScores(ExactScores(world.truth), 4.0)
    assert isinstance(noisy, ScoreDifference)
    copy: Any = clone(noisy)  # type: ignore[type-var]
    assert copy.exact.truth is world.truth
    made: Any = make_score(noisy)
    assert made.original_coordinates


def test_a_ratio_that_means_nothing(world: Any):
    with pytest.raises(ValueError, match=r"'signal_to_error' must be positive. Got 0.0"):
        NoisyScores(ExactScores(world.truth), 0.0)
