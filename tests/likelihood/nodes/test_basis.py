from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.nodes._basis import Basis

ROWS = np.random.default_rng(0).standard_normal((40, 2))


def numerical_slope(basis: Basis, coefficients: np.ndarray, step: float = 1e-5) -> np.ndarray:
    ahead, behind = np.eye(2) * step, -np.eye(2) * step
    return np.column_stack(
        [
            (basis(ROWS + ahead[q]).values - basis(ROWS + behind[q]).values)
            @ coefficients
            / (2 * step)
            for q in range(2)
        ]
    )


@pytest.fixture
def basis() -> Basis:
    plain = Basis.plain(2)
    form = np.array([[0.5, 0.1, 0.0], [0.1, 1.0, 0.2], [0.0, 0.2, 2.0]])
    return Basis(plain.directions.astype(float), plain.knots.astype(float), form, plain.n_axes)


@pytest.fixture
def coefficients(basis: Basis) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(basis.size)


@pytest.mark.parametrize("n_parents", [1, 2, 3])
def test_sizes_agree(n_parents: int):
    basis = Basis.plain(n_parents)
    assert basis(np.zeros((3, n_parents), np.float32)).values.shape == (3, basis.size)
    linear, quadratic, with_root, along_parents, every = (
        len(selection.kept) for selection in basis.selections()
    )
    assert (linear, with_root, every) == (1 + n_parents, 2 + n_parents, basis.size)
    assert quadratic == linear + n_parents * (n_parents + 1) // 2
    assert along_parents == linear + 5 * n_parents


def test_products_of_parents(basis: Basis):
    t = ROWS[:, :2]
    np.testing.assert_allclose(
        basis(t).values[:, 3:6], np.column_stack([t[:, 0] ** 2, t[:, 0] * t[:, 1], t[:, 1] ** 2])
    )


def test_slopes_are_derivatives(basis: Basis, coefficients: np.ndarray):
    found = basis(ROWS).slope(coefficients)
    np.testing.assert_allclose(found, numerical_slope(basis, coefficients), rtol=1e-5, atol=1e-6)


def test_moments_of_slopes(basis: Basis, coefficients: np.ndarray):
    """Contracted with the coefficients they are the moments of the mechanism's slope."""
    weights = np.random.default_rng(2).standard_normal((len(ROWS), 3))
    features = basis(ROWS)
    contracted = np.einsum("kql,k->ql", features.moments_of_slopes(weights), coefficients)
    np.testing.assert_allclose(contracted, features.slope(coefficients).T @ weights, rtol=1e-6)


def test_curvature_of_the_ramps(basis: Basis, coefficients: np.ndarray):
    coefficients[-1] = 0.0  # the root's own curvature is left out
    step = 1e-4
    numerical = np.stack(
        [
            (
                basis(ROWS + step * e).slope(coefficients)
                - basis(ROWS - step * e).slope(coefficients)
            )
            / (2 * step)
            for e in np.eye(2)
        ],
        axis=2,
    )
    np.testing.assert_allclose(basis(ROWS).curvature(coefficients), numerical, atol=1e-4)


def test_the_form_of_a_cone_is_found():
    """z^2 = t'Mt + noise: the root is the cone itself."""
    rng = np.random.default_rng(3)
    t = rng.standard_normal((20_000, 2))
    cone = np.sqrt(2 * t[:, 0] ** 2 + t[:, 0] * t[:, 1] + t[:, 1] ** 2)
    child = cone + 0.1 * rng.standard_normal(len(t))
    basis = Basis.plain(2).fitted_to([(t[:9000], child[:9000]), (t[9000:], child[9000:])])
    root = basis(t).values[:, -1]
    assert np.corrcoef(root, cone)[0, 1] > 0.999
