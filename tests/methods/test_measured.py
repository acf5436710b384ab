from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crlearn import LinearInterventionCRL, MultiNodeCRL, load
from crlearn.data import make_linear_interventional, make_multi_node
from crlearn.methods._measured import PosteriorEncoder
from crlearn.metrics import correlation_matrix


@pytest.fixture(scope="module")
def world() -> Any:
    return make_linear_interventional(
        3, 20, 4000, variance_factor=5.0, measurement_noise=0.5, random_state=0
    )


@pytest.fixture(scope="module")
def model(world: Any) -> LinearInterventionCRL:
    return LinearInterventionCRL(n_latents=3, random_state=0).fit(world.X, world.y)


def limit(world: Any) -> np.ndarray:
    """Posterior means with the true parameters."""
    truth, X, y = world.truth, world.X, np.asarray(world.y)
    G, Z = truth.mixing.matrix, np.empty_like(truth.Z)
    for e in np.unique(y):
        z, x = truth.Z[y == e], X[y == e]
        C = np.cov(z.T)
        gain = C @ G.T @ np.linalg.inv(G @ C @ G.T + 0.25 * np.eye(len(G)))
        Z[y == e] = z.mean(axis=0) + (x - x.mean(axis=0)) @ gain.T
    return Z


def test_noise_is_taken_off_as_far_as_it_can_be(world: Any, model: LinearInterventionCRL):
    assert not model.result_.failed_checks
    np.testing.assert_array_equal(model.result_.adjacency, world.truth.graph)
    np.testing.assert_allclose(model.result_.details["noise_sds"], 0.5, rtol=0.05)
    own = np.diag(correlation_matrix(world.truth.Z, model.transform(world.X, world.y)))
    best = np.diag(correlation_matrix(world.truth.Z, limit(world)))
    assert (own > best - 0.003).all()


def test_labels_help(world: Any, model: LinearInterventionCRL):
    known = np.diag(correlation_matrix(world.truth.Z, model.transform(world.X, world.y)))
    unknown = np.diag(correlation_matrix(world.truth.Z, model.transform(world.X)))
    assert known.mean() >= unknown.mean()


def test_fit_transform_is_told_the_labels(world: Any, model: LinearInterventionCRL):
    again = LinearInterventionCRL(n_latents=3, random_state=0)
    np.testing.assert_array_equal(
        again.fit_transform(world.X, world.y), model.transform(world.X, world.y)
    )


def test_posterior_variances_are_those_of_the_errors(world: Any, model: LinearInterventionCRL):
    """In units of the truth, whose scale the model does not know."""
    posterior = model.posterior(world.X, world.y)
    for j in range(3):
        scale = np.polyfit(posterior.mean[:, j], world.truth.Z[:, j], 1)[0]
        errors = world.truth.Z[:, j] - scale * posterior.mean[:, j]
        assert errors.var() == pytest.approx(scale**2 * posterior.variance[:, j].mean(), rel=0.15)


def test_the_decoder_is_the_mixing(world: Any, model: LinearInterventionCRL):
    decoded = model.inverse_transform(np.eye(3)) - model.inverse_transform(np.zeros((3, 3)))
    for column, true in zip(decoded, world.truth.mixing.matrix.T, strict=True):
        cosine = abs(column @ true) / np.linalg.norm(column) / np.linalg.norm(true)
        assert cosine > 0.99


def test_labels_that_fit_has_not_seen(world: Any, model: LinearInterventionCRL):
    with pytest.raises(ValueError, match=r"has not seen: 7\."):
        model.transform(world.X[:2], [0, 7])


def test_it_is_saved(world: Any, model: LinearInterventionCRL, tmp_path: Path):
    model.save(tmp_path / "model.crl")
    again = load(tmp_path / "model.crl")
    assert isinstance(again.result_.encoder, PosteriorEncoder)
    np.testing.assert_array_equal(
        again.transform(world.X, world.y), model.transform(world.X, world.y)
    )


def test_without_noise_posteriors_have_no_variance():
    world = make_linear_interventional(2, 5, 500, random_state=0)
    model = LinearInterventionCRL(random_state=0).fit(world.X, world.y)
    posterior = model.posterior(world.X)
    np.testing.assert_array_equal(posterior.mean, model.transform(world.X, world.y))
    assert (posterior.variance == 0).all()


def test_unknown_targets_behind_noise():
    world: Any = make_multi_node(3, 20, 4000, measurement_noise=0.3, random_state=0)
    model: Any = MultiNodeCRL(n_latents=3, random_state=0).fit(world.X, world.y)
    correlations = correlation_matrix(world.truth.Z, model.transform(world.X, world.y))
    assert correlations.max(axis=1).min() > 0.95
    place = correlations.argmax(axis=1)
    np.testing.assert_array_equal(model.result_.targets[:, place], world.truth.targets)
