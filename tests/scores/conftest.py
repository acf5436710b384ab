from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_linear_interventional
from crlearn.scores import ExactScores

SIZES = (2000, 1000, 3000)  # environments of different size, everywhere


class World:
    """Rows, codes and the exact differences at some rows of the reference."""

    def __init__(self, mechanism: str) -> None:
        world = make_linear_interventional(
            n_latents=2,
            n_features=2,
            n_samples=SIZES,
            mechanism=mechanism,
            graph="chain",
            variance_factor=5.0,
            random_state=0,
        )
        assert world.y is not None
        assert world.truth is not None
        self.X, self.codes, self.truth = world.X, world.y.astype(int), world.truth
        self.at = self.X[self.codes == 0][:1000]

    def errors(self, score: Any) -> list[float]:
        """Mean square errors of a fitted score, relative to those of zero."""
        exact = ExactScores(self.truth)
        return [
            float(
                ((score.difference(self.at, m) - exact.difference(self.at, m)) ** 2).sum()
                / (exact.difference(self.at, m) ** 2).sum()
            )
            for m in (1, 2)
        ]


@pytest.fixture(scope="session")
def linear_world() -> World:
    return World("linear")


@pytest.fixture(scope="session")
def curved_world() -> World:
    return World("quadratic")


@pytest.fixture
def corners() -> np.ndarray:
    """Rows with mean zero and covariance one, to the last bit."""
    return np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
