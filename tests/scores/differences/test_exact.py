from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from crlearn.data import make_coupled_interventional, make_linear_interventional
from crlearn.scores import ExactScores, FunctionScores


@pytest.fixture(scope="module")
def world() -> Any:
    return make_linear_interventional(n_latents=3, n_features=7, n_samples=50, random_state=0)


def test_of_a_linear_mixing(world: Any):
    score = ExactScores(world.truth)
    assert score.fit(world.X, world.y) is score
    for environment in (1, 2, 3):
        latent = world.truth.score_difference(world.truth.Z, environment)
        found = score.difference(world.X, environment)
        np.testing.assert_allclose(found @ world.truth.mixing.matrix, latent, atol=1e-9)


def test_of_a_nonlinear_mixing():
    world: Any = make_coupled_interventional(
        n_latents=2, n_features=3, n_samples=20, random_state=0
    )
    expected = world.truth.observed_score_difference(world.truth.Z, 4)
    found = ExactScores(world.truth).difference(world.X, 4)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_environments_may_be_counted_otherwise(world: Any):
    plain, turned = ExactScores(world.truth), ExactScores(world.truth, environments=[2, 0, 3])
    np.testing.assert_allclose(
        turned.difference(world.X, 2),
        plain.difference(world.X, 3) - plain.difference(world.X, 2),
        atol=1e-9,
    )
    with pytest.raises(ValueError, match="from 1 to 2"):
        turned.difference(world.X, 3)


def test_a_clone_shares_the_truth(world: Any):
    copy: Any = clone(ExactScores(world.truth))
    assert copy.truth is world.truth


def test_bad_input(world: Any):
    with pytest.raises(ValueError, match=r"shape \(N, 7\)"):
        ExactScores(world.truth).difference(world.X[:, :3], 1)
    noisy = make_linear_interventional(n_latents=2, measurement_noise=0.1, random_state=0)
    noisy_truth: Any = noisy.truth
    with pytest.raises(ValueError, match=r"without measurement noise. Got one .* sd 0.1"):
        ExactScores(noisy_truth)


def test_a_function_is_asked_for_its_values():
    score = FunctionScores(lambda X, environment: environment * X)
    assert score.fit([[1.0]], [0]) is score
    np.testing.assert_array_equal(score.difference([[1, 2]], 3), [[3.0, 6.0]])


def test_the_values_of_a_function_are_checked():
    with pytest.raises(ValueError, match=r"one row of 2 numbers for each of the 3 rows.*\(3,\)"):
        FunctionScores(lambda X, _: X[:, 0]).difference(np.ones((3, 2)), 1)
    with pytest.raises(ValueError, match=r"finite numbers. For environment 2"):
        FunctionScores(lambda X, _: X * np.nan).difference(np.ones((3, 2)), 2)
