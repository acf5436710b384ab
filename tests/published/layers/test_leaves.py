from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from crlearn.published.layers._leaves import (
    Evidence,
    leaf_directions,
    leaf_directions_by_test,
    leaf_test,
    observe,
)


def evidence_of(jacobians: np.ndarray, noise: float) -> Evidence:
    """Jacobians whose halves differ by noise; the functions are those behind `curvatures`."""
    rng = np.random.default_rng(1)
    n_rows = len(jacobians)
    at = jacobians + noise * _symmetric(rng.normal(size=jacobians.shape))
    halves = at + noise * _symmetric(rng.normal(size=(8, *jacobians.shape)))
    return Evidence(at, np.eye(2), at=at, halves=halves, functions=curvatures(n_rows)[:, None])


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
    leaves = leaf_directions_by_test(evidence_of(signal, noise=0.3), 0.01, rng)
    assert leaves.directions.shape == (2, 1)
    assert abs(leaves.directions[1, 0]) > 0.9
    assert leaves.next_p_value < 0.01 < leaves.p_value
    both = leaf_directions_by_test(evidence_of(np.zeros((1000, 2, 2)), noise=0.3), 0.01, rng)
    assert both.directions.shape == (2, 2)
    assert np.isnan(both.next_p_value)


def curved(*sizes: float) -> Evidence:
    """Curvatures of given sizes along the axes, at samples with all combinations of signs."""
    signs = np.array(list(product([1.0, -1.0], repeat=len(sizes))))
    return Evidence((signs * sizes)[:, :, None] * np.eye(len(sizes)), np.eye(len(sizes)))


def test_directions_are_leaves_within_the_tolerance_at_every_sample():
    rng = np.random.default_rng(0)
    leaves = leaf_directions(curved(1.0, 0.8e-3, 0.0), 1e-3, rng)
    assert leaves.directions.shape == (3, 2)
    np.testing.assert_allclose(leaves.directions[0], 0, atol=1e-3)
    np.testing.assert_allclose(leaves.directions.T @ leaves.directions, np.eye(2), atol=1e-12)
    assert leaves.deviation == pytest.approx(0.8e-3, rel=1e-2)
    assert leaves.next_deviation == pytest.approx(1.0, rel=1e-2)
    assert np.isnan(leaves.p_value)
    # The largest counts, whatever its units: ten times the size is no leaf any more.
    assert leaf_directions(curved(10.0, 8e-3, 0.0), 1e-3, rng).directions.shape == (3, 1)


def test_the_tolerance_counts_from_the_smallest_that_there_is():
    rng = np.random.default_rng(0)
    leaves = leaf_directions(curved(2.0, 0.5005, 0.5), 1e-2, rng)
    assert leaves.directions.shape == (3, 2)
    assert leaf_directions(curved(2.0, 0.7, 0.5), 1e-2, rng).directions.shape == (3, 1)
    assert leaf_directions(curved(0.0, 0.0, 0.0), 1e-3, rng).directions.shape == (3, 3)


class Given:
    """Jacobians that were estimated, and may be anything."""

    def __init__(self, jacobians: np.ndarray) -> None:
        self.jacobians = jacobians

    def fit(self, X: Any) -> Given:
        return self

    def evaluate(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros_like(X), self.jacobians


def test_the_largest_estimates_are_dropped():
    jacobians = np.zeros((8, 2, 2))
    jacobians[:, 0, 0] = [0, 1, 2, 3, 4, 5, 6, 99]
    X = np.zeros((8, 2))
    kept = observe(Given(jacobians), X, np.eye(2), 2, prune_outliers=0.25).jacobians
    # They count from the mean of all, 15; 99 and 0 are the farthest from it.
    assert kept[:, 0, 0].tolist() == [-14, -13, -12, -11, -10, -9]
    assert len(observe(Given(jacobians), X, np.eye(2), 2, prune_outliers=0.0).jacobians) == 8
