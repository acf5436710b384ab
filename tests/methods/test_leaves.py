from __future__ import annotations

import numpy as np
import pytest

from crlearn.methods._leaves import (
    Evidence,
    leaf_directions,
    leaf_test,
    published_leaf_directions,
)


def evidence_of(jacobians: np.ndarray, noise: float) -> Evidence:
    """Jacobians whose halves differ by noise; the functions are those behind `curvatures`."""
    rng = np.random.default_rng(1)
    n_rows = len(jacobians)
    at = jacobians + noise * _symmetric(rng.normal(size=jacobians.shape))
    halves = at + noise * _symmetric(rng.normal(size=(8, *jacobians.shape)))
    return Evidence(np.eye(2), at, at=at, halves=halves, functions=curvatures(n_rows)[:, None])


def curvatures(n_rows: int) -> np.ndarray:
    values = np.linspace(-1, 1, n_rows)
    return values / values.std()


def _symmetric(matrices: np.ndarray) -> np.ndarray:
    return (matrices + np.swapaxes(matrices, -1, -2)) / 2


def test_the_test_sees_curvature_through_noise():
    signal = np.zeros((1000, 2, 2))
    signal[:, 0, 0] = 0.5 * curvatures(1000)
    evidence = evidence_of(signal, noise=1.0)
    axes = np.eye(2)
    assert leaf_test(evidence, axes[:, :1]).p_value < 0.01
    assert leaf_test(evidence, axes[:, 1:]).p_value > 0.05


def test_the_size_of_a_layer_is_that_of_the_test():
    signal = np.zeros((1000, 2, 2))
    signal[:, 0, 0] = curvatures(1000)
    rng = np.random.default_rng(0)
    leaves = leaf_directions(evidence_of(signal, noise=0.3), 0.01, rng)
    assert leaves.directions.shape == (2, 1)
    assert abs(leaves.directions[1, 0]) > 0.9
    assert leaves.next_p_value < 0.01 < leaves.p_value
    both = leaf_directions(evidence_of(np.zeros((1000, 2, 2)), noise=0.3), 0.01, rng)
    assert both.directions.shape == (2, 2)
    assert np.isnan(both.next_p_value)


def test_published_directions_stop_at_the_tolerance():
    jacobians = np.zeros((100, 3, 3))
    jacobians[:, 0, 0] = curvatures(100)
    jacobians[:, 1, 1] = 0.5e-3 * curvatures(100)
    known = Evidence(np.eye(3), jacobians, scores=np.zeros((100, 3)), mean=-np.eye(3))
    leaves = published_leaf_directions(known, np.random.default_rng(0))
    assert leaves.directions.shape == (3, 2)
    assert leaves.next_deviation == pytest.approx(1.0, rel=1e-6)


def test_known_noise_is_the_score_over_its_slope():
    evidence = Evidence(
        np.eye(2),
        np.zeros((1, 2, 2)),
        scores=np.array([[8.0, -1.0]]),
        mean=np.diag([-4.0, -1.0]),
    )
    noise = evidence.noise_along(np.array([[1.0, 0.0]]))
    assert noise is not None
    np.testing.assert_allclose(noise, [[-2.0]])
    assert Evidence(np.eye(2), np.zeros((1, 2, 2))).noise_along(np.eye(2)) is None
