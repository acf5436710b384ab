from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.nodes._any_noise_nonlinear import _Model, fit_noise_nonlinear
from crlearn.likelihood.nodes._selected import AdditiveModel

POOL = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
GRAPH = ((), (0,), (0, 1))
MIXING = np.array([[1.0, 0.3, 0.2], [0.0, 1.0, 0.4], [0.1, 0.0, 1.0]])


def environments(noise: str, n_rows: int = 1500) -> list[np.ndarray]:
    """Latents with curved mechanisms; each in turn becomes noise with a quarter of the variance."""
    rng = np.random.default_rng(0)
    found = []
    for e in range(4):
        shape = {
            "gaussian": rng.standard_normal((n_rows, 3)),
            "laplace": rng.laplace(scale=np.sqrt(0.5), size=(n_rows, 3)),
            "exponential": rng.standard_exponential((n_rows, 3)) - 1,
        }
        z = shape[noise]
        if e:
            z[:, e - 1] *= 0.5
        if e != 2:
            z[:, 1] += np.sqrt(1 + 2 * z[:, 0] ** 2)
        if e != 3:
            z[:, 2] += np.tanh(2 * z[:, 0]) + 0.5 * np.abs(z[:, 1])
        found.append(z @ MIXING.T)
    return found


def distance(H: np.ndarray) -> float:
    mixed = H @ MIXING
    return float(np.linalg.norm(mixed / np.diag(mixed)[:, None] - np.eye(3)))


def gaussian_encoder(rows: list[np.ndarray]) -> np.ndarray:
    model = AdditiveModel(rows, POOL, hard=True, choose_features=False)
    return model.minimise(np.linalg.inv(MIXING), GRAPH)[0]


@pytest.mark.parametrize("noise", ["laplace", "exponential"])
def test_other_noise_is_no_obstacle(noise: str):
    rows = environments(noise)
    H = gaussian_encoder(rows)
    fit = fit_noise_nonlinear(rows, POOL, GRAPH, H, hard=True)
    assert not fit.is_gaussian
    assert distance(fit.H) < 0.6 * distance(H)
    assert distance(fit.H) < 0.05


def test_gaussian_noise_changes_nothing():
    rows = environments("gaussian")
    H = gaussian_encoder(rows)
    fit = fit_noise_nonlinear(rows, POOL, GRAPH, H, hard=True)
    assert fit.is_gaussian
    assert distance(fit.H) == pytest.approx(distance(H), rel=1e-6)


def test_gradients_are_those_of_the_likelihood():
    model = _Model.of(environments("laplace", 600), POOL, GRAPH, np.linalg.inv(MIXING), hard=True)
    fit = model.refitted(model.gaussian(np.linalg.inv(MIXING) + 0.03))
    gradient, information = model.scatter(fit)
    assert information.shape == (len(gradient), len(gradient))
    values = []
    for size in (1e-3, -1e-3):
        D = np.zeros((3, 3))
        D[0, 2] = size
        moved = type(fit)(fit.H + D @ fit.H, fit.coefficients, fit.densities)
        values.append(-model.value(moved) * model.n_samples)
    assert gradient[1] == pytest.approx((values[0] - values[1]) / 2e-3, rel=0.03, abs=3)
