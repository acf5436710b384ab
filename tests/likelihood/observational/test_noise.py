"""Measurement noise: which edges it makes, and that they go again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crlearn.likelihood import Fit, fit_observational, is_gaussian, noises_of
from crlearn.likelihood.observational._model import RelevanceModel
from crlearn.likelihood.observational._noise import NoisySearch, without_noise
from crlearn.metrics import layer_recovery, mac_matched

N_ROWS = 1500
# In directions that mix the latents.
NOISE = 0.06 * np.array([[1.0, 0.5, 0.3], [0.5, 1.0, 0.4], [0.3, 0.4, 1.0]])


def signal(noise: np.ndarray) -> np.ndarray:
    """z1 = z0^2 + e1, and z2 for itself; whitened."""
    Z = noise.copy()
    Z[:, 1] += Z[:, 0] ** 2
    Z -= Z.mean(axis=0)
    return Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / len(Z))).T


def measured(y: np.ndarray) -> np.ndarray:
    return y + np.random.default_rng(9).multivariate_normal(np.zeros(3), NOISE, len(y))


def by_the_true_map(noise: np.ndarray) -> np.ndarray:
    """What the true encoder and mechanism leave of the measured rows."""
    Z = noise.copy()
    Z[:, 1] += Z[:, 0] ** 2
    y, centre = signal(noise), Z.mean(axis=0)
    Z = measured(y) @ np.linalg.lstsq(y, Z - centre, rcond=None)[0] + centre
    Z[:, 1] -= Z[:, 0] ** 2
    return Z


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((N_ROWS, 3)) * [1.0, 0.7, 1.0]


@pytest.fixture(scope="module")
def truth(noise: np.ndarray) -> Fit:
    """The structure of the world, fitted to its measured rows."""
    y = signal(noise)
    Z = noise.copy()
    Z[:, 1] += Z[:, 0] ** 2
    model = RelevanceModel(measured(y))
    H = np.linalg.lstsq(y, Z - Z.mean(axis=0), rcond=None)[0].T
    return model.scored(model.fitted(model.start(H, ((), (0,), ()))))


def test_noises_are_found_behind_measurement_noise(noise: np.ndarray):
    fit = fit_observational(
        measured(signal(noise)), rng=np.random.default_rng(0), n_starts=3, noise=NOISE
    )
    assert fit.n_edges == 1
    assert [len(layer) for layer in fit.layers] == [2, 1]
    y = measured(signal(noise))
    reached = layer_recovery(noise, noises_of(fit, y), [[1, 2], [0]], fit.layers)
    assert reached > layer_recovery(noise, by_the_true_map(noise), [[1, 2], [0]]) - 0.02


def test_edges_that_noise_alone_calls_for_are_dropped(noise: np.ndarray, truth: Fit):
    model = RelevanceModel(measured(signal(noise)))
    full = model.scored(model.fitted(model.start(truth.H, ((), (0,), (0, 1)))))
    best, *others = without_noise(model.y, NOISE, [full], seed=0)
    assert best.graph == ((), (0,), ())
    assert others  # what was tried is kept
    assert all(best.score >= other.score for other in others)


def test_edges_that_are_needed_stay(noise: np.ndarray, truth: Fit):
    search = NoisySearch(measured(signal(noise)), NOISE, seed=0)
    best = search.pruned(search.fitted(truth))
    assert best.graph == truth.graph
    assert [other.n_edges for other in search.not_taken] == [0]
    assert best.score - search.not_taken[0].score > 50


def test_completed_rows_have_the_covariance_of_the_signal(noise: np.ndarray, truth: Fit):
    fit = NoisySearch(measured(signal(noise)), NOISE, seed=0).fitted(truth)
    assert fit.completed is not None
    np.testing.assert_allclose(np.cov(fit.completed.T), np.eye(3), atol=0.08)
    np.testing.assert_allclose(fit.completed.mean(axis=0), 0, atol=1e-12)


def test_without_structure_nothing_is_gained_over_a_gaussian():
    y = measured(np.random.default_rng(3).standard_normal((N_ROWS, 3)))
    model = RelevanceModel(y)
    empty = model.scored(model.start(np.eye(3), ((), (), ())))
    found = NoisySearch(y, NOISE, seed=0).fitted(empty)
    assert abs(found.score) < 10


def test_densities_of_noises_are_fitted_to_completed_rows():
    noise = np.random.default_rng(0).laplace(size=(N_ROWS, 3))
    y = measured(signal(noise))
    fit = fit_observational(y, rng=np.random.default_rng(0), n_starts=3, noise=NOISE)
    assert not is_gaussian(fit)
    reached = mac_matched(noise, noises_of(fit, y))
    assert reached > mac_matched(noise, by_the_true_map(noise)) - 0.02


def test_same_seed_same_rows(noise: np.ndarray, truth: Fit):
    y = measured(signal(noise))
    one, other = (NoisySearch(y, NOISE, seed=4).fitted(truth) for _ in range(2))
    assert one.completed is not None
    np.testing.assert_array_equal(one.completed, other.completed)
    assert one.score == other.score
    another = NoisySearch(y, NOISE, seed=5).fitted(replace(truth))
    assert another.score != one.score
    assert another.score == pytest.approx(one.score, abs=20)
