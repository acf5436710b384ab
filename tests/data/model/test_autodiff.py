from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.data.model import _autodiff


def cubic(row):
    return (row**3).sum() + row[0] * row[1]


@pytest.mark.parametrize("n_rows", [0, 1, 5, 4096, 4097])
def test_derivatives_of_any_number_of_rows(n_rows):
    rows = np.random.default_rng(0).standard_normal((n_rows, 2))
    product = rows[:, :1] * rows[:, 1:]
    np.testing.assert_allclose(
        _autodiff.values(cubic, rows), (rows**3).sum(1) + product[:, 0], atol=1e-14
    )
    np.testing.assert_allclose(
        _autodiff.gradients(cubic, rows), 3 * rows**2 + rows[:, ::-1], atol=1e-14
    )
    expected = 6 * rows[:, :, None] * np.eye(2) + (1 - np.eye(2))
    np.testing.assert_allclose(_autodiff.hessians(cubic, rows), expected, atol=1e-14)


def test_results_are_float64_numpy():
    result = _autodiff.values(cubic, np.ones((3, 2)))
    assert type(result) is np.ndarray
    assert result.dtype == np.float64


def test_output_shape_costs_no_evaluation():
    assert _autodiff.output_shape(jnp.sum, 3) == ()
    assert _autodiff.output_shape(jnp.sin, 3) == (3,)
