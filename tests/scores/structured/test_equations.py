from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array

from crlearn.exceptions import DivergenceError
from crlearn.scores import CubicSplines
from crlearn.scores.structured import _equations
from crlearn.scores.structured._equations import (
    DenseEquations,
    SparseEquations,
    curvature_penalty,
    refuse_large_design,
    tensor_design,
)


def both(n_rows: int = 60, size: int = 12, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    design = rng.standard_normal((n_rows, size)) * (rng.random((n_rows, size)) < 0.3)
    slopes = rng.standard_normal(size)
    dense = DenseEquations(design.T @ design, slopes, float(n_rows))
    return dense, SparseEquations(csr_array(design), slopes, float(n_rows))


def test_a_hand_made_case():
    """Features 1 and y at y = -1, 1 have slopes 0 and 1: the score is -y."""
    design = np.array([[1.0, -1.0], [1.0, 1.0]])
    equations = DenseEquations(design.T @ design, np.array([0.0, 2.0]), 2.0)
    theta = equations.solve(np.zeros((2, 2)))
    np.testing.assert_allclose(theta, [0, -1], atol=1e-12)
    assert equations.loss(theta) == pytest.approx(-1)  # 2 rows of 1/2 - 1


def test_sparse_equations_are_the_dense_ones():
    dense, sparse = both()
    theta = dense.solve(0.01 * np.eye(12))
    np.testing.assert_allclose(sparse.solve(0.01 * eye_array(12)), theta, atol=1e-8)
    assert sparse.loss(theta) == pytest.approx(dense.loss(theta))


def test_halves_add_up():
    for one, other in zip(both(seed=1), both(seed=2), strict=True):
        theta = np.arange(12.0)
        together = one + other
        assert together.weight == 120
        assert together.loss(theta) == pytest.approx(one.loss(theta) + other.loss(theta))


def test_a_ridge_below_rounding_is_no_failure():
    equations = DenseEquations(np.ones((2, 2)), np.ones(2), 1.0)
    np.testing.assert_allclose(equations.solve(np.zeros((2, 2))), [-0.5, -0.5])


def test_conjugate_gradients_that_do_not_converge_are_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_equations, "_MOST_PRODUCTS", 1)
    with pytest.raises(DivergenceError, match="12 features did not converge"):
        both()[1].solve(1e-9 * eye_array(12))


def test_design_of_products():
    rows = np.random.default_rng(0).standard_normal((20, 3))
    splines = CubicSplines.spanning(rows, 4)
    places, near, _ = splines.local(rows)
    values, _ = splines(rows)
    design = tensor_design(list(places), list(near), splines.n_basis)
    assert design.nnz == 20 * 4**3
    expected = np.einsum("na,nb,nc->nabc", *values).reshape(20, -1)
    np.testing.assert_allclose(design.toarray(), expected, atol=1e-15)


def test_straight_coefficients_have_no_curvature():
    line = np.arange(5.0)
    plane = (line[:, None] - 2 * line[None, :]).ravel()
    np.testing.assert_allclose(curvature_penalty(5, 2) @ plane, 0, atol=1e-12)
    bent = (line[:, None] ** 2 * np.ones(5)).ravel()
    assert bent @ (curvature_penalty(5, 2) @ bent) == pytest.approx(5 * 3 * 2**2)


def test_large_designs_are_refused():
    refuse_large_design(8000, 4, 10, latent=3)
    with pytest.raises(ValueError, match=r"score of latent 3 .* 10 splines of each of 8 latents"):
        refuse_large_design(8000, 8, 10, latent=3)
