from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_multi_node
from crlearn.graph import transitive_closure
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.targets._search import TargetFit, find_targets
from crlearn.metrics import match


def solved(seed: int, **options: Any) -> tuple[Any, np.ndarray, TargetFit]:
    """Return a world, its recovered latents and the fit."""
    world: Any = make_multi_node(
        **{"n_latents": 4, "n_features": 4, "n_samples": 20_000, "random_state": seed, **options}
    )
    moments = Moments.of([world.X[world.y == e] for e in world.environments])
    mean = np.tensordot(moments.shares, moments.covariances, 1)
    whitener = np.linalg.inv(np.linalg.cholesky(mean))
    hard = options.get("intervention", "hard") == "hard"
    fit = find_targets(moments.transformed(whitener), rng=np.random.default_rng(0), hard=hard)
    return world, world.X @ whitener.T @ fit.encoder.T, fit


@pytest.mark.parametrize("n_interventions", [4, 7])
@pytest.mark.parametrize("seed", range(3))
def test_hard_interventions(seed: int, n_interventions: int):
    world, Z, fit = solved(seed, target_sets="general", n_interventions=n_interventions)
    order = match(world.truth.Z, Z)[:, 1]
    assert (fit.targets[:, order] == world.truth.targets).all()
    assert (fit.adjacency[np.ix_(order, order)] == world.truth.graph).all()
    correlation = np.corrcoef(world.truth.Z.T, Z[:, order].T)[:4, 4:]
    assert np.abs(np.diag(correlation)).min() > 0.999
    assert fit.goodness_of_fit.p_value > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_soft_interventions_give_the_closure(seed: int):
    world, _, fit = solved(seed, intervention="soft")
    # Latents are mixed with their ancestors, so they are told apart by their targets.
    order = [
        int(np.flatnonzero((fit.targets == row[:, None]).all(axis=0))[0])
        for row in world.truth.targets.T
    ]
    found = fit.adjacency[np.ix_(order, order)]
    assert (found == transitive_closure(world.truth.graph)).all()


def test_same_seed_same_bits():
    _, first, _ = solved(0)
    _, second, _ = solved(0)
    assert (first == second).all()
