from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from crlearn.flows import Assignment, SmoothFlow
from crlearn.methods.nonlinear._linear_start import nearest, then_linear, unmixed
from crlearn.nets import evaluate

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(400, 2))
MIXING = np.array([[1.0, 0.4], [-0.3, 1.0]])


@pytest.fixture(scope="module")
def flow() -> SmoothFlow:
    return SmoothFlow.random(jax.random.key(0), 2, 2, 4)


def chain(targets: list[int]) -> list[Any]:
    """Mixtures of z0 -> z1 where nobody intervenes, and where each target is cut off."""
    rows = []
    for target in [None, *targets]:
        z = RNG.normal(size=(2000, 2)) * np.where(np.arange(2) == target, 3.0, 1.0)
        if target != 1:
            z[:, 1] += 1.5 * z[:, 0]
        rows.append(z @ MIXING.T)
    return rows


@pytest.mark.parametrize("quick", [True, False])
def test_a_linear_mixing_is_undone(quick: bool):
    rows = chain([1, 0, 0, 1])
    found = unmixed(rows, Assignment(0, ((), None, None, None, None)), 0, quick=quick)
    (latent,) = np.flatnonzero(found.targets[1])
    np.testing.assert_array_equal(np.flatnonzero(found.targets[4]), [latent])
    np.testing.assert_array_equal(np.flatnonzero(found.targets[2]), [1 - latent])
    assert found.adjacency[1 - latent, latent]
    back = found.H @ MIXING  # each latent is its own alone
    others = np.abs(back[[latent, 1 - latent], [0, 1]])
    assert (others < 0.05 * np.abs(back[[latent, 1 - latent], [1, 0]])).all()


def test_environments_with_one_known_target_share_a_latent():
    """Whatever the data say: two environments on z0 are told apart from each other here."""
    found = unmixed(chain([1, 0, 0]), Assignment(0, ((), (1,), (0,), (1,))), 0, quick=True)
    np.testing.assert_array_equal(found.targets[1], found.targets[3])
    assert (found.targets[1] != found.targets[2]).all()


def test_a_linear_map_joins_the_last_one(flow: SmoothFlow):
    after = then_linear(flow, MIXING, np.array([1.0, -2.0]))
    wanted = evaluate(flow, ROWS) @ MIXING + [1.0, -2.0]
    np.testing.assert_allclose(evaluate(after, ROWS), wanted, atol=1e-5)


def test_the_nearest_flow_is_all_but_linear(flow: SmoothFlow):
    latents = ROWS @ MIXING + 3.0
    found = evaluate(nearest(flow, ROWS, latents), ROWS)
    assert ((found - latents) ** 2).mean() < 0.05 * latents.var()
    assert ((evaluate(flow, ROWS) - latents) ** 2).mean() > latents.var()
