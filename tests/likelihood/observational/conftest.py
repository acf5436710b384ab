from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from crlearn.likelihood.core._encoder import unit_rows
from crlearn.likelihood.observational._model import RelevanceModel


@dataclass(frozen=True, eq=False)
class World:
    """Whitened rows of latents that are known: their model, the encoder and the noises."""

    model: RelevanceModel
    H: np.ndarray
    noise: np.ndarray

    @classmethod
    def of(cls, Z: np.ndarray, noise: np.ndarray) -> World:
        Z = Z - Z.mean(axis=0)
        y = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / len(Z))).T
        return cls(RelevanceModel(y), unit_rows(np.linalg.lstsq(y, Z, rcond=None)[0].T), noise)


@pytest.fixture(scope="session")
def chain() -> World:
    """0 -> 1 by a sine, 1 -> 2 by a square."""
    noise = np.random.default_rng(0).standard_normal((500, 3)) * [1.0, 0.5, 0.5]
    Z = noise.copy()
    Z[:, 1] += np.sin(2 * Z[:, 0])
    Z[:, 2] += Z[:, 1] ** 2
    return World.of(Z, noise)


@pytest.fixture(scope="session")
def network() -> World:
    """0 -> 2 <- 1 by a network whose hidden units see both."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((800, 3)) * [1.0, 1.0, 0.2]
    Z = noise.copy()
    hidden = np.tanh(Z[:, :2] @ rng.standard_normal((2, 8)) + rng.standard_normal(8))
    Z[:, 2] += hidden @ rng.standard_normal(8)
    return World.of(Z, noise)


@pytest.fixture(scope="session")
def gaussian() -> World:
    """Three latents without effects."""
    noise = np.random.default_rng(0).standard_normal((500, 3))
    return World.of(noise, noise)
