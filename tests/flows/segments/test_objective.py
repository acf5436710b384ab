from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.config import config_context, numerics
from crlearn.flows import SegmentObjective, SegmentParameters, SmoothFlow
from crlearn.flows._densities import Densities

N, N_SEGMENTS = 3, 6
SHARES = tuple(np.arange(1, N_SEGMENTS + 1) / 21)
BEFORE = np.triu(np.ones((N, N), bool), 1)
LINEAR = SegmentObjective(N, SHARES, "linear", n_components=1)
GENERAL = SegmentObjective(N, SHARES, n_features=2, n_components=3)


def affine_flow(matrix: Any) -> SmoothFlow:
    """One without blocks."""
    empty = np.zeros((0, N, 1))
    return SmoothFlow(
        np.asarray(matrix, float)[None], np.zeros((1, N)), empty, empty[:, 0], empty[:, 0]
    )


@cache
def rows() -> Any:
    """A linear chain whose effects, means and variances change by segment."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, N_SEGMENTS, N)) * rng.uniform(0.3, 2, size=(N_SEGMENTS, N))
    z += rng.uniform(-2, 2, size=(N_SEGMENTS, N))
    z[..., 1] += rng.uniform(1, 2, size=N_SEGMENTS) * z[..., 0]
    z[..., 2] -= rng.uniform(1, 2, size=N_SEGMENTS) * z[..., 1]
    return z


def parameters(objective: SegmentObjective, matrix: Any, before: Any = BEFORE) -> Any:
    rng = np.random.default_rng(1)
    projections: Any = rng.normal(size=(N, objective.n_features, N))
    thresholds: Any = rng.normal(size=(objective.n_features, N))
    density = rng.normal(size=(3, objective.n_components, N))
    return SegmentParameters(
        affine_flow(matrix), projections, thresholds, Densities(*density), jnp.asarray(before)
    )


def loss(objective: SegmentObjective, params: Any, batch: Any, progress: float = 1.0) -> float:
    with config_context(precision="float64"), numerics():
        return float(
            objective.loss(params, jnp.asarray(batch), jax.random.key(0), jnp.asarray(progress))
        )


def least_squares_loss() -> float:
    """The loss of linear latents by numpy's least squares, without a ridge."""
    total = 0.0
    for u, share in enumerate(SHARES):
        z = rows()[:, u] - rows()[:, u].mean(axis=0)
        for j in range(N):
            left = z[:, j] - z[:, :j] @ np.linalg.lstsq(z[:, :j], z[:, j], rcond=None)[0]
            total += share * 0.5 * (np.log(2 * np.pi * left.var()) + 1)
    return total


def test_linear_loss_is_the_gaussian_likelihood_of_least_squares():
    found = loss(LINEAR, parameters(LINEAR, np.eye(N)), rows())
    assert found == pytest.approx(least_squares_loss(), abs=5e-3)


def test_scaling_latents_changes_nothing():
    """The log-determinant takes back what the variances gain."""
    scaled = np.diag([0.5, 3.0, 2.0])
    found = [loss(GENERAL, parameters(GENERAL, matrix), rows()) for matrix in (np.eye(N), scaled)]
    assert found[0] == pytest.approx(found[1], abs=1e-4)


def test_a_function_of_predecessors_changes_nothing():
    """What the likelihood does not see, and `vanishing` must find."""
    shear = np.eye(N)
    shear[0, 1], shear[1, 2] = 0.7, -1.3
    found = [loss(LINEAR, parameters(LINEAR, matrix), rows()) for matrix in (np.eye(N), shear)]
    assert found[0] == pytest.approx(found[1], abs=5e-3)


def test_without_mechanisms_at_first():
    """The strong ridge leaves of each latent its variance: nonlinear ICA."""
    alone = parameters(LINEAR, np.eye(N), np.zeros((N, N), bool))
    assert loss(LINEAR, parameters(LINEAR, np.eye(N)), rows(), 0.0) == pytest.approx(
        loss(LINEAR, alone, rows()), abs=0.02
    )


def test_covariates_are_regressed_out():
    rng = np.random.default_rng(2)
    u = rng.normal(size=(*rows().shape[:2], 1))
    # A map of unit determinant takes latents along the covariate: only with it is nothing lost.
    moved = np.concatenate([rows() + 2 * u, u], axis=2)
    with_them = loss(LINEAR, parameters(LINEAR, np.eye(N)), moved)
    assert with_them == pytest.approx(loss(LINEAR, parameters(LINEAR, np.eye(N)), rows()), abs=0.02)
    assert loss(LINEAR, parameters(LINEAR, np.eye(N)), moved[..., :N]) > with_them + 0.1


def test_polynomials_have_squares_and_cubes():
    objective = SegmentObjective(N, SHARES, "polynomial", n_features=2, n_components=1)
    squared = rows().copy()
    squared[..., 2] += squared[..., 0] ** 2
    linear = loss(LINEAR, parameters(LINEAR, np.eye(N)), squared)
    assert loss(objective, parameters(objective, np.eye(N)), squared) < linear - 0.05


def test_the_order_is_revised_between_the_free_start_and_the_settled_end():
    bent = rows().copy()
    bent[..., 1] += 3 * np.tanh(2 * bent[..., 0])
    bent[..., 2] += 3 * np.tanh(bent[..., 1])
    backwards = parameters(GENERAL, np.eye(N), BEFORE.T)
    assert GENERAL.revise(backwards, bent, 0.0) is None
    assert GENERAL.revise(backwards, bent, 0.9) is None
    revised = GENERAL.revise(backwards, bent, 0.3)
    assert revised is not None
    assert np.asarray(revised.before).tolist() == BEFORE.tolist()


def test_draws_fit_together():
    with numerics():
        params = GENERAL.init(jax.random.key(0))
    assert params.projections.shape == (N, 2, N)
    assert not np.asarray(params.before).any()
