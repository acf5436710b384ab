"""From a flow to latents, with a flow that is known to be right up to a function."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from crlearn.data import make_latent_anm
from crlearn.flows import Densities, SegmentParameters, SmoothFlow
from crlearn.methods.additive._auxiliary import read_auxiliary
from crlearn.methods.additive._latents import (
    Segments,
    latents_of,
    mechanisms_of,
    regressions_of,
)

N = 3


@cache
def world() -> Any:
    return make_latent_anm(N, n_samples=500, n_segments=40, random_state=0)


@cache
def found() -> Any:
    """Latents from rows that are the true ones, sheared: z2 + 1.5 z1, in another order."""
    order = np.array([2, 0, 1])
    shear = np.eye(N)
    shear[1, 2] = 1.5
    matrix = shear[:, order]
    empty = np.zeros((0, N, 1))
    flow = SmoothFlow(matrix[None], np.zeros((1, N)), empty, empty[:, 0], empty[:, 0])
    before: Any = np.triu(np.ones((N, N), bool), 1)[np.ix_(order, order)]
    rng = np.random.default_rng(0)
    projections: Any = rng.normal(size=(N, 4, N))
    thresholds: Any = rng.normal(size=(4, N))
    density = np.zeros((3, 1, N))
    params = SegmentParameters(flow, projections, thresholds, Densities(*density), before)
    segments = Segments.of(read_auxiliary(world().y, 0), world().y)
    return latents_of(params, "nonlinear", world().truth.Z, segments), segments


def test_the_function_that_was_added_is_taken_off():
    latents, _ = found()
    correlations = np.corrcoef(latents.Z.T, world().truth.Z.T)[:N, N:]
    assert np.abs(np.diag(correlations)).min() > 0.995
    assert latents.identified.all()


def test_segments_without_mechanism_are_those_of_the_world():
    latents, segments = found()
    probabilities = latents.vanishes(len(segments))
    assert (probabilities[:, 0] == 1).all()
    for j in (1, 2):
        truth = np.array([not scm.graph[:, j].any() for scm in world().truth.scms])
        assert probabilities[truth, j].mean() > probabilities[~truth, j].mean() + 0.6


def test_the_graph_is_that_of_the_world():
    latents, segments = found()
    adjacency = regressions_of(latents.Z, segments, "nonlinear").parents(range(N), 0.05)
    np.testing.assert_array_equal(adjacency, world().truth.graph)


def test_mechanisms_leave_the_noises():
    latents, segments = found()
    auxiliary = read_auxiliary(world().y, 0)
    mechanisms = mechanisms_of(latents, world().truth.graph, segments, auxiliary)
    left = np.concatenate(segments.centred(mechanisms.noises(latents.Z, world().y)))
    truth = np.concatenate(segments.centred(world().truth.noise))
    correlations = [abs(np.corrcoef(left[:, j], truth[:, j])[0, 1]) for j in range(N)]
    assert min(correlations) > 0.99


def test_covariates_are_taken_off_inside_of_segments():
    rng = np.random.default_rng(0)
    u = rng.uniform(-1, 1, size=(1000, 1))
    segments = Segments(tuple(np.split(np.arange(1000), 4)), u)
    values = np.repeat([1.0, -2.0, 0.5, 3.0], 250)[:, None] * u + 7
    for part in segments.centred(values):
        np.testing.assert_allclose(part, 0, atol=1e-9)
    assert segments.shares == pytest.approx([0.25] * 4)
