from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.scores import (
    CubicSplines,
    Denoiser,
    Posterior,
    StructuredScore,
    root_of,
    whitened,
)

COVARIANCE = np.array([[2.0, 1.2], [1.2, 3.0]])


def denoiser(noise: Any, **options: Any) -> tuple[Denoiser, Any, Any]:
    """Gaussian latents with Gaussian noise, whose posterior is known exactly."""
    rng = np.random.default_rng(0)
    Z = rng.multivariate_normal([1, -1], COVARIANCE, 20_000)
    X = Z + rng.multivariate_normal([0, 0], noise, len(Z))
    root = root_of(np.asarray(noise))
    rows = whitened(X, root)
    score = StructuredScore.fit(
        rows,
        np.zeros(rows.shape, dtype=bool),
        np.eye(2, k=1, dtype=bool),
        splines=CubicSplines.spanning(rows, 5),
        dense=True,
    )
    return Denoiser(np.eye(2), np.zeros(2), root, None, score, **options), X, Z


@pytest.mark.parametrize("noise", [0.5 * np.eye(2), np.array([[1.0, 0.6], [0.6, 0.8]])])
def test_gaussian_shrinkage(noise: Any):
    model, X, Z = denoiser(noise)
    posterior = model.posterior(X)
    gain = COVARIANCE @ np.linalg.inv(COVARIANCE + noise)
    exact = [1, -1] + (X - [1, -1]) @ gain.T
    assert ((posterior.mean - exact) ** 2).mean() < 0.002
    variance = np.diag(COVARIANCE - gain @ COVARIANCE)
    np.testing.assert_allclose(posterior.variance.mean(axis=0), variance, rtol=0.05)
    low, high = posterior.interval(0.9)
    assert ((low < Z) & (high > Z)).mean() == pytest.approx(0.9, abs=0.01)


def test_a_score_of_latents_that_are_not_white():
    """Coordinates of one's own: the mean is as exact, variances as far as slopes tell them."""
    noise = np.array([[1.0, 0.6], [0.6, 0.8]])
    white, X, _ = denoiser(noise)
    axes = np.array([2.0, 0.5])
    rows = X / axes
    score = StructuredScore.fit(
        rows,
        np.zeros(rows.shape, dtype=bool),
        np.eye(2, k=1, dtype=bool),
        splines=CubicSplines.spanning(rows, 5),
    )
    model = Denoiser(np.eye(2), np.zeros(2), white.root, None, score, axes=axes)
    assert ((model(X) - white(X)) ** 2).mean() < 0.002
    np.testing.assert_array_equal(model.beyond(X), score.splines.beyond(rows).max(axis=1))
    slope = score(rows, np.zeros(rows.shape, dtype=bool))[1]
    expected = np.diag(noise) + (slope / axes**2) @ (noise**2).T
    floor = 1e-3 * np.diag(noise)
    np.testing.assert_allclose(model.posterior(X).variance, np.maximum(expected, floor))


def test_no_shrinkage_leaves_the_noise():
    model, X, _ = denoiser(0.5 * np.eye(2), shrinkage=0.0)
    np.testing.assert_array_equal(model(X), X)
    np.testing.assert_allclose(model.posterior(X).variance, 0.5)


def test_half_of_the_shrinkage_goes_half_the_way():
    full, X, _ = denoiser(0.5 * np.eye(2))
    half, _, _ = denoiser(0.5 * np.eye(2), shrinkage=0.5)
    np.testing.assert_allclose(half(X), (X + full(X)) / 2)


def test_variances_stay_positive_far_away():
    model, _, _ = denoiser(0.5 * np.eye(2))
    far = model.posterior(np.array([[1e4, -1e4], [-300.0, 300.0]]))
    assert (far.variance > 0).all()
    assert (model.beyond(np.array([[1e4, 0.0]])) > 100).all()


def test_values_that_are_not_finite_do_not_spread():
    model, X, _ = denoiser(0.5 * np.eye(2))
    rows = X[:3].copy()
    rows[1] = np.inf
    mean = model.posterior(rows).mean
    assert np.isnan(mean[1]).all()
    np.testing.assert_allclose(mean[[0, 2]], model(X[[0, 2]]))


def test_root():
    root = root_of(COVARIANCE)
    np.testing.assert_allclose(root @ root, COVARIANCE)
    np.testing.assert_array_equal(root_of(np.diag([4.0, 9.0])), np.diag([2.0, 3.0]))


def test_level_of_an_interval():
    with pytest.raises(ValueError, match=r"between 0 and 1. Got 90"):
        Posterior(np.zeros((1, 1)), np.ones((1, 1))).interval(90)
