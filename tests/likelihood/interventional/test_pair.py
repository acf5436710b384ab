from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import Intervention, make_linear_interventional, simulate
from crlearn.likelihood import one_direction

N = 4


def pair(*interventions: Any, mechanism: str = "linear", noise: str = "gaussian") -> Any:
    """Return white rows of two environments, and the row of latent 2 among their directions."""
    world: Any = make_linear_interventional(
        N, N, 10, mechanism=mechanism, noise=noise, graph="full", random_state=0
    )
    found = simulate(
        world.truth.scms[0],
        world.truth.mixing,
        3000,
        interventions=interventions,
        random_state=0,
    )
    centred = found.X - found.X.mean(axis=0)
    root = np.linalg.cholesky(centred.T @ centred / len(centred))
    rows = np.linalg.solve(root, centred.T).T
    target = np.linalg.inv(np.asarray(world.truth.mixing.matrix))[2] @ root
    return np.split(rows, 2), target / np.linalg.norm(target)


def hard(j: int = 2, **options: Any) -> Intervention:
    return Intervention(j, "hard", **options)


VARIANCES = hard(variance_factor=0.25), hard(variance_factor=4.0)
MEANS = hard(mean=0.0), hard(mean=2.0)


@pytest.mark.parametrize("mechanism", ["linear", "quadratic"])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("interventions", [VARIANCES, MEANS], ids=["variances", "means"])
def test_the_row_of_the_latent_is_found(mechanism: str, noise: str, interventions: Any):
    rows, target = pair(*interventions, mechanism=mechanism, noise=noise)
    found = one_direction(rows, np.random.default_rng(0))
    assert abs(found.row @ target) > 0.998
    assert found.p_value > 1e-3


@pytest.mark.parametrize("mechanism", ["linear", "quadratic"])
def test_interventions_on_two_latents_are_seen(mechanism: str):
    rows, _ = pair(VARIANCES[0], hard(0, variance_factor=4.0), mechanism=mechanism)
    assert one_direction(rows, np.random.default_rng(0)).p_value < 1e-6


def test_the_test_has_its_level_and_its_degrees_of_freedom():
    p_values = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((2, 400, 3))
        rows[1, :, 0] = 2 * rows[1, :, 0] + 0.5
        found = one_direction(list(rows), rng)
        assert found.freedom == 7  # linear terms, squares and products, but for z and its square
        p_values.append(found.p_value)
    assert sum(p < 0.05 for p in p_values) <= 8
    assert np.median(p_values) == pytest.approx(0.5, abs=0.2)


def test_the_same_seed_has_the_same_answer():
    rows, _ = pair(*VARIANCES)
    one, other = (one_direction(rows, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(one.row, other.row)
