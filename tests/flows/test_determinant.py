from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from crlearn.config import config_context, numerics
from crlearn.flows._determinant import gaussian_log_density, log_determinant


def positive_definite(n: int, n_matrices: int) -> np.ndarray:
    """Matrices in the order that the function takes, their numbers last."""
    factors = np.random.default_rng(0).normal(size=(n_matrices, n, n))
    return np.moveaxis(factors @ factors.transpose(0, 2, 1) + np.eye(n), 0, 2)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_value_and_gradient(n: int):
    matrices = positive_definite(n, 7)
    with config_context(precision="float64"), numerics():
        found = log_determinant(jax.numpy.asarray(matrices))
        gradient = jax.grad(lambda m: log_determinant(m).sum())(jax.numpy.asarray(matrices))
    each = np.moveaxis(matrices, 2, 0)
    np.testing.assert_allclose(found, np.linalg.slogdet(each)[1], rtol=1e-12)
    inverses = np.moveaxis(np.linalg.inv(each), 0, 2)
    np.testing.assert_allclose(gradient, inverses, rtol=1e-9, atol=1e-12)


def test_one_matrix_without_rows():
    matrix = positive_definite(3, 1)[:, :, 0]
    found = log_determinant(jax.numpy.asarray(matrix, "float32"))
    np.testing.assert_allclose(found, np.linalg.slogdet(matrix)[1], rtol=1e-4)


def test_gaussian_densities_and_their_gradients():
    """Gradients are those of the formula, with a factorisation that JAX differentiates itself."""
    matrices, values = positive_definite(3, 5), np.random.default_rng(1).normal(size=(3, 5))

    def formula(values: jax.Array, matrices: jax.Array) -> jax.Array:
        each = jax.numpy.moveaxis(matrices, 2, 0)
        solved = jax.numpy.linalg.solve(each, values.T[..., None])[..., 0]
        return -0.5 * (jax.numpy.linalg.slogdet(each)[1] + (values.T * solved).sum(axis=1))

    def summed(function: Any) -> Any:
        return lambda values, matrices: (function(values, matrices) * jax.numpy.arange(5.0)).sum()

    with config_context(precision="float64"), numerics():
        at = jax.numpy.asarray(values), jax.numpy.asarray(matrices)
        np.testing.assert_allclose(gaussian_log_density(*at), formula(*at), rtol=1e-10)
        found = jax.grad(summed(gaussian_log_density), argnums=(0, 1))(*at)
        expected = jax.grad(summed(formula), argnums=(0, 1))(*at)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-8)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-8, atol=1e-12)
