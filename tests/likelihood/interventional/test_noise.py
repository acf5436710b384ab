from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_linear_interventional
from crlearn.graph import graph_of
from crlearn.likelihood import Moments, pools_of
from crlearn.likelihood.interventional._noise import (
    NoisyModel,
    denoised,
    fit_with_noise,
    moments_behind,
)

N = 3
POOL = pools_of(np.arange(N), N)
# Of each environment.
NOISE = np.array([[1.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 0.5]]) * np.array(
    [0.3, 0.1, 0.6, 0.4]
).reshape(-1, 1, 1)


@pytest.fixture(scope="module", params=["hard", "soft"])
def drawn(request: pytest.FixtureRequest) -> Any:
    """White rows of a world with noise, the encoder of its latents and its graph."""
    world: Any = make_linear_interventional(
        N, N, 20_000, intervention=request.param, variance_factor=5.0, random_state=1
    )
    X, y = world.X - world.X.mean(axis=0), np.asarray(world.y)
    whiten = np.linalg.inv(np.linalg.cholesky(np.cov(X.T)))
    rng = np.random.default_rng(0)
    rows = [
        X[y == e] @ whiten.T + rng.multivariate_normal(np.zeros(N), NOISE[e], (y == e).sum())
        for e in range(N + 1)
    ]
    H = np.linalg.inv(whiten @ world.truth.mixing.matrix)
    return rows, H, world.truth.graph, request.param == "hard"


def test_moments_are_those_without_noise(drawn: Any):
    rows, _, _, _ = drawn
    moments = Moments.of(rows, noise=NOISE)
    raw = Moments.of(rows)
    np.testing.assert_allclose(moments.covariances + NOISE, raw.covariances, atol=1e-9)
    np.testing.assert_array_equal(moments.measured.covariances, raw.covariances)


def test_noise_larger_than_the_rows_leaves_something_positive(drawn: Any):
    rows, _, _, _ = drawn
    moments = Moments.of(rows, noise=100 * NOISE)
    assert (np.linalg.eigvalsh(moments.covariances) > 0).all()


def test_turns_climb_to_where_the_likelihood_is_flat(drawn: Any, monkeypatch: pytest.MonkeyPatch):
    """The gradient of the likelihood of the measured rows is zero in all entries of H."""
    monkeypatch.setattr("crlearn.likelihood.interventional._noise._STILL", 1e-9)
    monkeypatch.setattr("crlearn.likelihood.interventional._noise._MOST_TURNS", 3000)
    rows, H, graph, hard = drawn
    model = NoisyModel(Moments.of(rows, noise=NOISE), POOL, hard)
    masks = model.reference.masks(graph_of(graph))
    found = model.completed(model.moments, H, masks)
    turned = model.completed(found.moments, H + 0.1, masks)
    assert turned.log_likelihood == pytest.approx(found.log_likelihood, abs=1e-3)
    saturated = -model.reference.n_rows * model.reference.moments.saturated
    assert found.log_likelihood <= saturated


def test_the_graph_and_the_latents_are_found(drawn: Any):
    rows, H, graph, hard = drawn
    rng = np.random.default_rng(0)
    moments = Moments.of(rows, noise=NOISE)
    model, fit = fit_with_noise(moments, POOL, rng, hard=hard, n_attempts=3)
    assert fit.fits
    np.testing.assert_array_equal(fit.adjacency, graph)
    assert fit.edge_p_values is not None
    assert (fit.edge_p_values[graph] < 1e-6).all()
    assert (fit.edge_p_values[~graph] > 1e-3).all()
    if hard:
        cosines = np.abs((fit.H * H).sum(axis=1)) / np.linalg.norm(H, axis=1)
        assert cosines.min() > 0.99
        assert fit.standard_errors is not None
        off = fit.H @ np.linalg.inv(H)
        off = off / np.diag(off)[:, None] - np.eye(N)
        assert (np.abs(off) < 5 * fit.standard_errors + 1e-6 * np.eye(N)).all()
    completed = moments_behind(fit, rows, NOISE)
    np.testing.assert_allclose(completed.covariances, moments.covariances, atol=0.1)
    assert model.moments is completed


def test_a_model_that_is_wrong_is_rejected(drawn: Any):
    """An environment of its own for each latent, but not the one that intervenes on it."""
    rows, _, _, hard = drawn
    wrong = [rows[0], rows[2], rows[3], rows[1]]
    doubled = [np.concatenate([wrong[1], 3 * wrong[2]]), *wrong[1:]]
    moments = Moments.of(doubled, noise=NOISE)
    _, fit = fit_with_noise(moments, POOL, np.random.default_rng(0), hard=hard, n_attempts=1)
    assert not fit.fits


def test_denoised_rows_have_the_moments_of_what_was_measured(drawn: Any):
    rows, _, _, _ = drawn
    moments = Moments.of(rows, noise=NOISE)
    for each, mean, covariance in zip(
        denoised(rows, NOISE), moments.means, moments.covariances, strict=True
    ):
        np.testing.assert_allclose(each.mean(axis=0), mean, atol=1e-9)
        np.testing.assert_allclose(np.cov(each.T, bias=True), covariance, atol=1e-9)


def test_noise_of_one_environment_is_not_that_of_another(drawn: Any):
    rows, _, _, hard = drawn
    mean = np.broadcast_to(NOISE.mean(axis=0), NOISE.shape)
    moments = Moments.of(rows, noise=mean)
    _, fit = fit_with_noise(moments, POOL, np.random.default_rng(0), hard=hard, n_attempts=1)
    assert not fit.fits
