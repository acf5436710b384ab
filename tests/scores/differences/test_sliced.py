from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.nets import MLP
from crlearn.scores import SlicedScores
from crlearn.scores.differences._sliced import SlicedObjective


def small(**parameters: Any) -> SlicedScores:
    settings = {"width": 32, "n_steps": 400, "batch_size": 256, "learning_rate": 5e-3}
    return SlicedScores(**{**settings, "random_state": 0, **parameters})


def test_the_loss_of_a_known_score():
    # For s(x) = -a x the loss is (a^2 E|x|^2 / 2) - a d; it is least at a = 1 for unit variance.
    rows = jax.random.normal(jax.random.key(0), (20_000, 2))
    objective = SlicedObjective(n_variables=2, width=4, n_projections=8, penalty=0.0)

    def loss(a: float) -> float:
        linear = MLP((-a * jnp.eye(2),), (jnp.zeros(2),), "tanh")
        return float(objective.loss(linear, rows, jax.random.key(1), jnp.asarray(0.0)))

    assert loss(1.0) == pytest.approx(-1.0, abs=0.03)
    assert loss(1.0) < min(loss(0.7), loss(1.3))


def test_the_penalty_is_on_the_squared_weights():
    rows = jnp.zeros((4, 2))
    network = MLP((2 * jnp.eye(2),), (jnp.zeros(2),), "tanh")
    losses = [
        SlicedObjective(2, 4, 1, penalty).loss(network, rows, jax.random.key(0), jnp.asarray(0.0))
        for penalty in (0.0, 0.5)
    ]
    assert float(losses[1] - losses[0]) == pytest.approx(0.5 * 8)


@pytest.mark.parametrize(("name", "bound"), [("linear_world", 0.25), ("curved_world", 0.25)])
def test_close_to_the_truth_in_environments_of_different_size(
    name: str, bound: float, request: pytest.FixtureRequest
):
    world = request.getfixturevalue(name)
    assert max(world.errors(small().fit(world.X, world.codes))) < bound


def test_same_seed_same_bits_and_units_do_not_matter(linear_world: Any):
    world, units = linear_world, np.array([0.5, 16.0])
    first = small().fit(world.X, world.codes).difference(world.at, 1)
    again = small().fit(world.X * units, world.codes).difference(world.at * units, 1)
    np.testing.assert_array_equal(again * units, first)
    other = small(random_state=1).fit(world.X, world.codes).difference(world.at, 1)
    assert not np.array_equal(other, first)


def test_bad_input(linear_world: Any):
    with pytest.raises(ValueError, match="not fitted yet"):
        small().difference(linear_world.at, 1)
    fitted = small().fit(linear_world.X, linear_world.codes)
    with pytest.raises(ValueError, match="from 1 to 2"):
        fitted.difference(linear_world.at, 3)
    with pytest.raises(ValueError, match="The rows of environment 0 must vary"):
        small().fit(np.ones((4, 2)), [0, 0, 1, 1])
