from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crlearn.data import make_linear_interventional
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.core._newton import moved
from crlearn.likelihood.interventional._linear import LinearProblem
from crlearn.likelihood.nodes._any_noise import NoiseFit, NoiseModel
from crlearn.likelihood.nodes._linear import minimise

N = 3


def fitted(noise: str, *, n_rows: int = 1500) -> tuple[NoiseModel, NoiseFit, np.ndarray]:
    """A model, its Gaussian fit, and the mixing."""
    world = make_linear_interventional(N, N, n_rows, noise=noise, random_state=1)
    assert world.truth is not None
    rows = [world.X[world.y == e] for e in range(N + 1)]
    pool = np.zeros((N, N + 1), dtype=int)
    pool[np.arange(N), np.arange(N) + 1] = 1
    problem = LinearProblem(Moments.of(rows), pool, hard=True)
    masks = problem.masks(world.truth.graph)
    mixing = np.linalg.lstsq(world.truth.Z, world.X, rcond=None)[0].T
    H, value = minimise(np.linalg.inv(mixing), problem.pools, masks)
    model = NoiseModel.of(rows, pool, masks)
    gaussian = model.gaussian(H)
    assert gaussian.value == pytest.approx(value, abs=1e-9)
    return model, gaussian, mixing


def distance(H: np.ndarray, mixing: np.ndarray) -> float:
    mixed = H @ mixing
    mixed /= np.diag(mixed)[:, None]
    return float(np.linalg.norm(mixed - np.eye(N)))


@pytest.mark.parametrize("noise", ["gaussian", "gumbel"])
def test_gradients_are_those_of_the_likelihood(noise: str):
    model, gaussian, _ = fitted(noise)
    fit = replace(gaussian, H=moved(gaussian.H, np.full(N * (N - 1), 0.02)))
    fit = model.refitted(fit)
    gradient, n_moved = model.gradient(fit), N * (N - 1)
    for k in range(len(gradient)):
        values = []
        for size in (1e-3, -1e-3):
            step = np.zeros(len(gradient))
            step[k] = size
            coefficients = fit.coefficients.copy()
            coefficients[model.masks > 0] += step[n_moved:]
            there = replace(fit, H=moved(fit.H, step[:n_moved]), coefficients=coefficients)
            values.append(-model.value(there) * model.n_samples)
        assert gradient[k] == pytest.approx((values[0] - values[1]) / 2e-3, abs=3, rel=0.02)


@pytest.mark.parametrize("noise", ["laplace", "exponential", "gumbel"])
def test_the_fit_has_more_likelihood_and_less_error(noise: str):
    model, gaussian, mixing = fitted(noise, n_rows=4000)
    fit = model.fit(model.start(gaussian.H))
    assert not fit.is_gaussian
    assert model.bic(fit) < model.bic(gaussian) - 100
    assert distance(fit.H, mixing) < distance(gaussian.H, mixing)


def test_gaussian_noise_changes_nothing():
    model, gaussian, _ = fitted("gaussian")
    fit = model.fit(model.start(gaussian.H))
    assert fit.is_gaussian
    np.testing.assert_allclose(fit.H, gaussian.H)


def test_information_is_the_curvature():
    """The scatter of the gradient's parts, up to sampling, predicts how the gradient changes."""
    model, gaussian, _ = fitted("gumbel", n_rows=8000)
    fit = model.fit(model.start(gaussian.H))
    information, n_moved = model.information(fit), N * (N - 1)
    step = np.zeros(len(information))
    step[0] = 0.01
    there = replace(fit, H=moved(fit.H, step[:n_moved]))
    change = model.gradient(fit) - model.gradient(there)
    expected = information @ step
    assert change[0] == pytest.approx(expected[0], rel=0.2)
