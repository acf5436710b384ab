from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.scores import GaussianScores, RatioScores
from crlearn.scores.differences._ratio import RatioObjective


def small(**parameters: Any) -> RatioScores:
    settings = {"width": 32, "n_steps": 600, "random_state": 0}
    return RatioScores(**{**settings, **parameters})


@pytest.fixture(scope="module")
def fitted(curved_world: Any) -> RatioScores:
    return small().fit(curved_world.X, curved_world.codes)


def test_training_starts_at_the_offsets():
    # Offsets 0 and log 3: a row is of class 1 with probability 3/4.
    objective = RatioObjective(n_variables=2, n_environments=1, width=4, penalty=0.0)
    start = objective.init(jax.random.key(0))
    batch = (jnp.ones((2, 2)), jnp.array([0, 1]), jnp.full((2, 1), jnp.log(3.0)))
    loss = objective.loss(start, batch, jax.random.key(0), jnp.asarray(0.0))
    assert float(loss) == pytest.approx(-np.mean(np.log([0.25, 0.75])), rel=1e-5)


def test_close_to_the_truth_in_environments_of_different_size(
    linear_world: Any, curved_world: Any, fitted: RatioScores
):
    assert max(linear_world.errors(small().fit(linear_world.X, linear_world.codes))) < 0.05
    assert max(curved_world.errors(fitted)) < 0.2
    gaussian = GaussianScores().fit(curved_world.X, curved_world.codes)
    assert max(curved_world.errors(fitted)) < 0.5 * max(curved_world.errors(gaussian))


def test_the_log_ratio_is_free_of_the_sizes_of_environments(curved_world: Any, fitted: RatioScores):
    # The environments have 2000, 1000 and 3000 rows; a ratio of densities has mean one.
    reference = curved_world.X[curved_world.codes == 0]
    for environment in (1, 2):
        mean = np.exp(fitted.log_ratio(reference, environment)).mean()
        assert mean == pytest.approx(1.0, abs=0.15)


def test_the_difference_is_minus_the_slope_of_the_log_ratio(curved_world: Any, fitted: RatioScores):
    at, step = curved_world.at[:50], 0.05
    slopes = [
        (fitted.log_ratio(at + move, 2) - fitted.log_ratio(at - move, 2)) / (2 * step)
        for move in step * np.eye(2)
    ]
    np.testing.assert_allclose(fitted.difference(at, 2), -np.transpose(slopes), atol=0.05)


def test_differences_turn_with_the_coordinates(curved_world: Any, fitted: RatioScores):
    # Another start of the network, so that it holds up to what a network leaves to chance.
    matrix, shift = np.array([[2.0, -1.0], [0.5, 3.0]]), np.array([1.0, -7.0])
    turned = small().fit(curved_world.X @ matrix.T + shift, curved_world.codes)
    plain = fitted.difference(curved_world.at, 2)
    found = turned.difference(curved_world.at @ matrix.T + shift, 2) @ matrix
    assert ((found - plain) ** 2).sum() < 0.1 * (plain**2).sum()


def test_same_seed_same_bits_and_units_do_not_matter(curved_world: Any, fitted: RatioScores):
    units = np.array([0.5, 16.0])
    again = small().fit(curved_world.X * units, curved_world.codes)
    np.testing.assert_array_equal(
        again.difference(curved_world.at * units, 1) * units, fitted.difference(curved_world.at, 1)
    )
    other = small(random_state=1).fit(curved_world.X, curved_world.codes)
    assert not np.array_equal(
        other.difference(curved_world.at, 1), fitted.difference(curved_world.at, 1)
    )


def test_bad_input(curved_world: Any, fitted: RatioScores):
    with pytest.raises(ValueError, match="not fitted yet"):
        small().difference(curved_world.at, 1)
    with pytest.raises(ValueError, match="from 1 to 2"):
        fitted.difference(curved_world.at, 0)
    with pytest.raises(ValueError, match=r"shape \(N, 2\)"):
        fitted.log_ratio([[1.0]], 1)
    with pytest.raises(ValueError, match="The rows of X must vary in all 2 directions"):
        small().fit(np.ones((4, 2)), [0, 0, 1, 1])
