from __future__ import annotations

import numpy as np
import pytest

from crlearn.methods.gaussian._posterior import ComponentsPosterior
from crlearn.variational import Components

NOISE = np.array([[0.5, 0.1], [0.1, 0.3]])


@pytest.fixture
def encoder() -> ComponentsPosterior:
    """Two environments: latents around 0, and around (20, 0)."""
    with np.errstate(divide="ignore"):
        weights = np.log(np.eye(2))
    prior = Components(weights, np.array([[0.0, 0.0], [20.0, 0.0]]), np.array([np.eye(2)] * 2))
    matrix, offset = np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 0.0]]), np.array([1.0, 2.0, 3.0])
    return ComponentsPosterior(matrix, offset, NOISE, prior, np.array([0.5, 0.5]), largest=10.0)


def test_latents_shrink_towards_the_mean_of_their_environment(encoder: ComponentsPosterior):
    X = np.array([[4.0, 3.0, 8.0]])
    noisy = np.array([[8.0, 2.0]])
    np.testing.assert_allclose(encoder.noisy(X), noisy)
    gain = np.linalg.inv(np.eye(2) + NOISE)
    for code, centre in enumerate([[0.0, 0.0], [20.0, 0.0]]):
        found = encoder.posterior(X, np.array([code]))
        np.testing.assert_allclose(found.mean, centre + (noisy - centre) @ gain)
        np.testing.assert_allclose(found.variance, [np.diag(np.eye(2) - gain)])


def test_an_environment_that_is_not_known_is_told_by_the_row(encoder: ComponentsPosterior):
    X = np.array([[21.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    np.testing.assert_allclose(encoder(X), encoder.posterior(X, np.array([1, 0])).mean, atol=1e-6)


def test_rows_that_are_far(encoder: ComponentsPosterior):
    X = np.array([[1.0, 2.0, 3.0], [101.0, 2.0, 3.0]])
    np.testing.assert_allclose(encoder.beyond(X), [0, 10])
    assert encoder.n_latents == 2
