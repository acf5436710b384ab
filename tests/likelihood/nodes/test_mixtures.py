from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.nodes._mixtures import free_of_parents

CHAIN, TRIANGLE = ((), (0,), (1,)), ((), (0,), (0, 1))
POOL = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])


@pytest.fixture(scope="module")
def latents() -> list[np.ndarray]:
    """An environment of its own for each latent, which halves the effect of its parents."""
    rng = np.random.default_rng(0)
    environments = []
    for e in range(4):
        effect = np.where(np.arange(3) == e - 1, 0.5, 1.0)
        z = rng.standard_normal((3, 4000))
        z[1] += effect[1] * np.abs(z[0])
        z[2] += effect[2] * np.abs(z[1])
        environments.append(z.T)
    return environments


def test_only_parents_that_all_children_share_are_taken_out(latents):
    """z2 has no children, so that z1 can be taken out of it; z1 must keep what z2 needs."""
    mixed = np.eye(3)
    mixed[2, 1] = mixed[1, 0] = 0.7
    free = free_of_parents(mixed, CHAIN, Moments.of(latents), POOL)
    np.testing.assert_allclose(free[:2], mixed[:2])  # z0 is no parent of z2
    inside = latents[3] @ free.T
    assert abs(np.corrcoef(inside[:, 1], inside[:, 2])[0, 1]) < 1e-8


def test_in_causal_order(latents):
    """With an edge from z0 to z2, z0 is taken out of z1, and what is left of both out of z2."""
    mixed = np.eye(3) + np.tril(np.full((3, 3), 0.7), -1)
    free = free_of_parents(mixed, TRIANGLE, Moments.of(latents), POOL)
    inside = [np.cov((latents[e] @ free.T).T) for e in range(4)]
    assert abs(inside[2][0, 1]) < 1e-8
    np.testing.assert_allclose(inside[3][2, :2], 0, atol=1e-8)


def test_latents_without_an_intervention_stay(latents):
    mixed = np.eye(3)
    mixed[2, 1] = 0.7
    free = free_of_parents(mixed, CHAIN, Moments.of(latents[:3]), POOL[:, :3])
    np.testing.assert_array_equal(free, mixed)
