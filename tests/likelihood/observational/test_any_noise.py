"""Densities of the noises: which single noises and graphs are found, and when they are used."""

from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood import Fit, fit_observational, is_gaussian, mechanisms_of, noises_of
from crlearn.likelihood.observational._any_noise import AnyNoiseSearch
from crlearn.metrics import mac_matched

N_ROWS = 1500


def rows(noise: np.ndarray, *, linear: bool = False) -> np.ndarray:
    """A square and a line: z1 = z0^2 + e1, z2 = z0 + e2; whitened and rotated."""
    Z = noise.copy()
    Z[:, 1] += Z[:, 0] if linear else Z[:, 0] ** 2
    Z[:, 2] += Z[:, 0]
    Z -= Z.mean(axis=0)
    white = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / len(Z))).T
    return white @ np.linalg.qr(np.random.default_rng(5).standard_normal((3, 3)))[0]


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    return np.random.default_rng(0).laplace(size=(N_ROWS, 3))


@pytest.fixture(scope="module")
def fit(noise: np.ndarray) -> Fit:
    return fit_observational(rows(noise), rng=np.random.default_rng(0), n_starts=3)


def test_single_noises_are_found_and_linear_effects_are_no_edges(noise: np.ndarray, fit: Fit):
    assert not is_gaussian(fit)
    assert fit.any_noise
    assert mac_matched(noise, noises_of(fit, rows(noise))) > 0.99
    assert fit.n_edges == 1
    assert [len(layer) for layer in fit.layers] == [2, 1]


def test_stored_mechanisms_leave_the_noises(noise: np.ndarray, fit: Fit):
    y = rows(noise)
    Z = y @ fit.H.T
    np.testing.assert_allclose(Z - mechanisms_of(fit, y)(Z), noises_of(fit, y), atol=1e-5)


def test_linear_mechanisms_are_independent_components(noise: np.ndarray):
    y = rows(noise, linear=True)
    fit = fit_observational(y, rng=np.random.default_rng(0), n_starts=3)
    assert mac_matched(noise, noises_of(fit, y)) > 0.99
    assert fit.n_edges == 0


def test_gaussian_noise_is_fitted_by_evidence():
    y = rows(np.random.default_rng(1).standard_normal((N_ROWS, 3)))
    assert is_gaussian(fit_observational(y, rng=np.random.default_rng(0), n_starts=3))


def test_an_edge_is_dropped_although_the_encoder_must_follow(noise: np.ndarray):
    """z2 without its parent is another combination of the rows."""
    y = rows(noise)
    search = AnyNoiseSearch(y)
    Z = noise.copy()
    Z[:, 1] += Z[:, 0] ** 2
    Z[:, 2] += Z[:, 0]
    H = np.linalg.lstsq(y, Z - Z.mean(axis=0), rcond=None)[0].T
    dense = search.model.fitted(H, ((), (0,), (0,)))
    found = search.improved(dense)
    assert found.graph == ((), (0,), ())
    assert found.score > dense.score
    assert all(other.score <= found.score for other in search.not_taken)
