from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from crlearn.flows import GaussianObjective, SmoothFlow
from crlearn.flows._gaussian import GaussianParameters

OBJECTIVE = GaussianObjective(2, (0.25, 0.75), n_blocks=1, n_units=2)


def linear_flow(matrix: Any) -> SmoothFlow:
    """One without blocks: x @ matrix."""
    n = len(matrix)
    return SmoothFlow(
        np.asarray(matrix, np.float32)[None],
        np.zeros((1, n), np.float32),
        np.zeros((0, n, 1), np.float32),
        np.zeros((0, 1), np.float32),
        np.zeros((0, 1), np.float32),
    )


def batch() -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2, 2)).astype(np.float32)
    x[:, 1] = x[:, 1] @ np.array([[2.0, 1.0], [0.0, 0.5]], np.float32) + 3
    return x


@jax.jit
def compiled(flow: Any, x: Any) -> Any:
    key, progress = jax.random.key(0), jax.numpy.ones(())
    return OBJECTIVE.loss(GaussianParameters(flow), x, key, progress)


def loss(flow: Any, x: Any) -> float:
    return float(compiled(flow, x))


def test_closed_form():
    x = batch()
    spreads = [np.linalg.slogdet(np.cov(part.T, bias=True))[1] for part in x.transpose(1, 0, 2)]
    wanted = 0.5 * (0.25 * spreads[0] + 0.75 * spreads[1])
    assert loss(linear_flow(np.eye(2)), x) == pytest.approx(wanted, abs=1e-5)


def test_whatever_is_affine_stays_open():
    x = batch()
    other = linear_flow([[1.0, 2.0], [-0.5, 3.0]])
    assert loss(other, x) == pytest.approx(loss(linear_flow(np.eye(2)), x), abs=1e-4)


def test_a_bent_encoder_of_gaussians_is_worse():
    x = batch()
    bent = OBJECTIVE.init(jax.random.key(0)).flow
    assert loss(bent, x) > loss(linear_flow(np.eye(2)), x) + 0.002
