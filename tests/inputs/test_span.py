from __future__ import annotations

import numpy as np
import pytest

from crlearn.inputs import (
    Scaling,
    check_columns,
    components_of,
    in_readable_units,
    read_environments,
)
from crlearn.result import Check


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


def check_of(X: np.ndarray) -> Check:
    return next(c for c in check_columns(X, Scaling.of(X))[1] if c.name == "columns vary")


def test_constant_columns_are_counted_and_named():
    X = np.random.default_rng(0).standard_normal((50, 12))
    assert str(check_of(X)) == "columns vary: holds (all 12 columns of X do)"
    X[:, [0, 3]] = 7.0
    assert str(check_of(X)).startswith(
        "columns vary: holds (2 of 12 columns of X (at 0, 3, from 0)"
    )
    X[:, :10] = 7.0
    assert "(at 0, 1, 2, 3, 4, 5, 6, 7, ..., from 0)" in check_of(X).detail


@pytest.mark.parametrize(("offset", "passed"), [(1e9, True), (1e12, False)])
def test_an_offset_that_hides_what_varies_is_noticed(offset: float, passed: bool):
    X = np.random.default_rng(0).standard_normal((50, 3))
    X[:, 1] += offset
    check = check_of(X)
    assert check.passed is passed
    assert passed or check.detail.startswith("1 of 3 columns of X (at 1, from 0) vary so little")


def test_readable_units_do_not_depend_on_an_offset():
    X = np.random.default_rng(0).standard_normal((50, 2))
    environments, matrix = read_environments(np.arange(50) % 2), np.array([[2.0, -3.0], [1.0, 1.0]])
    plain = in_readable_units(matrix, X, environments)
    far = in_readable_units(matrix, X + 1e9, environments)
    np.testing.assert_allclose(far.matrix, plain.matrix, rtol=1e-6)
    assert plain(X[::2]).std(axis=0) == pytest.approx([1, 1])


def measured(noise: float, n_rows: int = 2000) -> np.ndarray:
    """Six features of three latents, with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, 3)) @ rng.standard_normal((3, 6))
    return X + noise * X.std(axis=0) * rng.standard_normal(X.shape)


@pytest.mark.parametrize(("noise", "passed"), [(0.0, True), (0.001, True), (0.3, False)])
def test_noise_beside_the_weakest_direction_is_what_counts(noise: float, passed: bool):
    _, rank, _ = components_of(measured(noise), None)
    check = rank.check(3)
    assert check.name == "rank of X"
    assert check.passed is passed
    if noise:
        assert "X has rank 6, and 3 latents" in check.detail
    else:
        assert check.detail == "the 6 columns that vary have rank 3"


def test_fewer_latents_than_dimensions_of_exact_features():
    _, rank, _ = components_of(measured(0.0), None)
    assert rank.check(2).passed is False
