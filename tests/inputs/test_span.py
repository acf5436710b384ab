from __future__ import annotations

import numpy as np
import pytest

from crlearn.inputs import Scaling, check_columns


@pytest.mark.parametrize("shape", [(5000, 3), (7, 20)])
def test_scaling_measures_columns_in_blocks_as_a_whole(shape: tuple[int, int]):
    rng = np.random.default_rng(0)
    X = 3 + 2 * rng.standard_normal(shape)
    scaling = Scaling.of(X)
    np.testing.assert_allclose(scaling.mean, X.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(scaling.scale, X.std(axis=0), rtol=1e-12)
    Y = scaling(X)
    expected = Y.T @ Y if shape[0] > shape[1] else Y @ Y.T
    np.testing.assert_allclose(scaling.gram(X), expected / len(X), atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e200, 12345.678])
def test_constant_columns_are_seen(value: float):
    X = np.column_stack([np.full(9000, value), np.arange(9000.0)])
    scaling = Scaling.of(X)
    assert scaling.constant.tolist() == [True, False]
    assert (scaling(X)[:, 0] == 0).all()
    assert check_columns(X, scaling)[0] == 1


def test_scaling_survives_large_numbers_and_large_means():
    z = np.random.default_rng(1).standard_normal(3000)
    X = np.column_stack([1e200 * z, 1e9 + z, 1e-200 * z])
    scaling = Scaling.of(X)
    np.testing.assert_allclose(scaling.scale, z.std() * np.array([1e200, 1, 1e-200]), rtol=1e-6)
    assert check_columns(X, scaling)[0] == 1
