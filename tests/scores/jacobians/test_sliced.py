from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.nets import MLP
from crlearn.scores import SlicedJacobians

MIXTURE = np.array([[2.0, 0.0], [1.0, 0.5]])
GAUSSIAN = np.random.default_rng(0).normal(size=(3000, 2)) @ MIXTURE.T + [5.0, -3.0]


def small(**parameters: Any) -> SlicedJacobians:
    settings: dict[str, Any] = {"width": 16, "n_steps": 300, "batch_size": 256}
    return SlicedJacobians(**{**settings, "learning_rate": 1e-2, "random_state": 0, **parameters})


def test_gaussian_rows_have_the_precision_as_jacobian():
    jacobians = small().fit(GAUSSIAN).evaluate(GAUSSIAN[:500])[1]
    precision = np.linalg.inv(MIXTURE @ MIXTURE.T)
    assert np.abs(jacobians.mean(axis=0) + precision).max() < 0.2 * np.abs(precision).max()


def test_the_jacobian_is_the_symmetric_slope_of_the_network():
    fitted = small(n_steps=10).fit(GAUSSIAN)
    turn = np.array([[0.0, 1.0], [-3.0, 0.5]])
    fitted.network_ = MLP((turn,), (np.zeros(2),), "tanh")
    scores, jacobians = fitted.evaluate(GAUSSIAN[:3])
    matrix = fitted.whitening_.matrix
    rows = fitted.whitening_(GAUSSIAN[:3])
    np.testing.assert_allclose(scores, rows @ turn @ matrix, rtol=1e-5)
    wanted = matrix.T @ ((turn + turn.T) / 2) @ matrix
    np.testing.assert_allclose(jacobians, np.tile(wanted, (3, 1, 1)), rtol=1e-5)


def test_same_seed_same_bits():
    first, again = (small(n_steps=10).fit(GAUSSIAN).evaluate(GAUSSIAN[:5])[1] for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_bad_input():
    with pytest.raises(ValueError, match="not fitted yet"):
        SlicedJacobians().evaluate(GAUSSIAN)
    with pytest.raises(ValueError, match="must be finite"):
        SlicedJacobians().fit([[1.0, np.nan]])
