from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn import config_context
from crlearn.data import make_sparse_mixture
from crlearn.flows import white
from crlearn.methods.sparse._hyperplanes import find_hyperplanes
from crlearn.methods.sparse._stages import completed, fit_flows
from crlearn.metrics import mcc
from crlearn.nets import evaluate


@pytest.fixture(scope="module")
def bent() -> tuple[np.ndarray, np.ndarray]:
    """Return latents, and white rows behind a mixing that bends."""
    world: Any = make_sparse_mixture(
        3, n_samples=4000, n_layers=3, slope=0.5, random_state=0, active=2
    )
    return world.truth.Z, white(world.X)[0](world.X)


def test_flows_come_nearer_than_hyperplanes(bent: tuple[np.ndarray, np.ndarray]):
    Z, rows = bent
    planes = find_hyperplanes(rows, seed=0)
    with config_context(progress=False):
        stage = fit_flows(rows, planes, slab="gaussian", n_steps=600, seed=0, checkpoint=None)
    found = np.asarray(evaluate(stage.params.flow, rows.astype(np.float32)))
    assert mcc(Z, found) > max(0.99, mcc(Z, rows @ planes.normals.T))
    assert list(stage.slab_losses) == ["gaussian"]


def test_hyperplanes_are_completed_to_a_basis():
    rows = np.random.default_rng(0).normal(size=(300, 3))
    planes = completed(find_hyperplanes(rows, seed=0, n_hyperplanes=1))
    assert len(planes) == 3
    np.testing.assert_allclose(planes.normals[1:] @ planes.normals[0], 0.0, atol=1e-6)
    assert np.linalg.matrix_rank(planes.normals) == 3
