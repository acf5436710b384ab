from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.config import config_context, numerics
from crlearn.flows import SegmentObjective, SegmentParameters, SegmentRegressions, SmoothFlow
from crlearn.flows._densities import Densities
from crlearn.flows.segments._objective import _moments

N, N_SEGMENTS = 3, 6
COUNTS = tuple(range(100, 700, 100))
BEFORE = np.triu(np.ones((N, N), bool), 1)
LINEAR = SegmentObjective(N, COUNTS, "linear", n_components=1, price=0.0)
GENERAL = SegmentObjective(N, COUNTS, n_features=2, n_components=3, price=0.0)
PRICED = replace(LINEAR, price=1.0)


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
    for u, share in enumerate(LINEAR.shares):
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
    """What the likelihood does not see."""
    shear = np.eye(N)
    shear[0, 1], shear[1, 2] = 0.7, -1.3
    found = [loss(LINEAR, parameters(LINEAR, matrix), rows()) for matrix in (np.eye(N), shear)]
    assert found[0] == pytest.approx(found[1], abs=5e-3)


def independent_rows() -> Any:
    """Latents without mechanisms, which change by segment."""
    rng = np.random.default_rng(3)
    return rng.normal(size=(4000, N_SEGMENTS, N)) * rng.uniform(0.3, 2, size=(N_SEGMENTS, N))


def priced(matrix: Any, batch: Any, progress: float = 1.0) -> float:
    """What mechanisms cost."""
    params = parameters(LINEAR, matrix)
    return loss(PRICED, params, batch, progress) - loss(LINEAR, params, batch, progress)


def test_mechanisms_that_explain_nothing_cost_nothing():
    assert priced(np.eye(N), independent_rows()) == pytest.approx(0.0, abs=2e-4)


def test_mechanisms_that_explain_all_cost_what_bic_says():
    """Two latents with one regressor and two: half the logarithm of the rows for each."""
    batch = independent_rows()
    batch[..., 1] += 1e3 * batch[..., 0]
    batch[..., 2] += 1e6 * batch[..., 0]
    counts = np.array(COUNTS)
    expected = 0.5 * 3 * (LINEAR.shares * np.log(counts) / counts).sum()
    assert priced(np.eye(N), batch) == pytest.approx(expected, rel=0.01)


def test_a_function_of_predecessors_has_its_price():
    """Where mechanisms vanish the loss is least at the latents themselves."""
    shear = np.eye(N)
    shear[0, 1] = 0.7
    batch = independent_rows()
    assert priced(shear, batch) > priced(np.eye(N), batch) + 1e-3


def test_mechanisms_cost_nothing_while_there_are_none():
    assert priced(np.eye(N), rows(), 0.0) == 0.0


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
    objective = SegmentObjective(N, COUNTS, "polynomial", n_features=2, n_components=1, price=0.0)
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


@pytest.mark.parametrize("kind", ["nonlinear", "polynomial", "linear"])
def test_compiled_moments_are_those_of_the_regressions(kind: Any):
    u = np.random.default_rng(4).normal(size=(*rows().shape[:2], 2))
    batch = np.concatenate([rows(), u], axis=2)
    with config_context(precision="float64"), numerics():
        found = _moments(affine_flow(2 * np.eye(N)), jnp.asarray(batch), kind)
    by_segment = batch.swapaxes(0, 1)
    regressions = SegmentRegressions.of(
        [*by_segment[..., :N]], [*by_segment[..., N:]], LINEAR.shares, kind
    )
    np.testing.assert_allclose(found, regressions.moments, atol=1e-8)


def test_draws_fit_together():
    with numerics():
        params = GENERAL.init(jax.random.key(0))
    assert params.projections.shape == (N, 2, N)
    assert not np.asarray(params.before).any()
