"""A chain of bent mechanisms."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

POOL = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
MIXING = np.array([[1.0, 0.3, 0.2], [0.0, 1.0, 0.4], [0.1, 0.0, 1.0]])


def bent_rows(n_rows: int, kept: float = 0.0) -> list[np.ndarray]:
    """A chain z0 -> |z0| -> |z1|; each latent in turn keeps so much of its mechanism."""
    rng = np.random.default_rng(0)
    found = []
    for e in range(4):
        z = rng.standard_normal((n_rows, 3)) * (1.0, 0.5, 0.5)
        z[:, 0] *= 2.0 if e == 1 else 1.0
        z[:, 1] += (kept if e == 2 else 1.0) * np.abs(z[:, 0])
        z[:, 2] += (kept if e == 3 else 1.0) * np.abs(z[:, 1] - 1)
        found.append(z @ MIXING.T)
    return found


def mixture(H: np.ndarray) -> np.ndarray:
    mixed = np.abs(H @ MIXING)
    return mixed / mixed.max(axis=1, keepdims=True)


@pytest.fixture
def chain() -> SimpleNamespace:
    """Rows of a number, targets, graph, mixing and encoder; how one mixes latents."""
    return SimpleNamespace(
        rows=bent_rows,
        pool=POOL,
        graph=((), (0,), (1,)),
        mixing=MIXING,
        truth=np.linalg.inv(MIXING),
        mixture=mixture,
    )
