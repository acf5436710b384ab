from __future__ import annotations

import numpy as np
import pytest

from crlearn.scores import isotropic_subspace, principal_matrices

Array = np.ndarray


def isotropic_matrices(n: int, size: int, n_matrices: int = 200) -> tuple[Array, Array]:
    """Random symmetric matrices that vanish in a random subspace, and a basis of it."""
    rng = np.random.default_rng(10 * n + size)
    matrices = rng.normal(size=(n_matrices, n, n))
    matrices += np.swapaxes(matrices, 1, 2)
    matrices[:, :size, :size] = 0
    turn = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return turn @ matrices @ turn.T, turn[:, :size]


def objective(matrices: Array, basis: Array) -> float:
    return float(((basis.T @ matrices @ basis) ** 2).sum(axis=(1, 2)).mean())


def test_few_matrices_stand_for_many():
    matrices, _ = isotropic_matrices(4, 1)
    principal = principal_matrices(matrices)
    assert principal.shape == (10, 4, 4)
    np.testing.assert_allclose(principal, np.swapaxes(principal, 1, 2))
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 2)))[0]
    total = ((basis.T @ principal @ basis) ** 2).sum()
    assert total == pytest.approx(objective(matrices, basis), rel=1e-10)


def test_fewer_matrices_than_entries_are_enough():
    matrices, basis = isotropic_matrices(5, 2, n_matrices=8)
    assert len(principal_matrices(matrices)) == 8
    assert objective(matrices, basis) < 1e-25


@pytest.mark.parametrize(("n", "size"), [(2, 1), (4, 1), (4, 2), (6, 3), (10, 1), (10, 5)])
def test_a_subspace_built_by_hand_is_found(n: int, size: int):
    matrices, basis = isotropic_matrices(n, size)
    found, value = isotropic_subspace(principal_matrices(matrices), size, np.random.default_rng(0))
    assert value < 1e-20
    np.testing.assert_allclose(found.T @ found, np.eye(size), atol=1e-12)
    np.testing.assert_allclose(found @ found.T, basis @ basis.T, atol=1e-8)


def test_one_direction_more_does_not_vanish():
    matrices, basis = isotropic_matrices(5, 2)
    rng = np.random.default_rng(0)
    wider, value = isotropic_subspace(principal_matrices(matrices), 3, rng, inside=basis)
    assert value > 0.01
    assert value == pytest.approx(objective(matrices, wider), rel=1e-8)


def test_the_minimum_of_a_single_matrix_is_known():
    # Along h the form is h0^2 + 2 h1^2 + 3 h2^2; its square is least at the first axis.
    found, value = isotropic_subspace(np.diag([1.0, 2.0, 3.0])[None], 1, np.random.default_rng(0))
    assert value == pytest.approx(1.0, rel=1e-6)
    assert abs(found[0, 0]) == pytest.approx(1.0, abs=1e-3)


def test_everything_is_a_subspace_too():
    found, value = isotropic_subspace(np.ones((1, 3, 3)), 3, np.random.default_rng(0))
    np.testing.assert_array_equal(found, np.eye(3))
    assert value == 9.0


def test_matrices_that_are_all_zero():
    found, value = isotropic_subspace(np.zeros((6, 3, 3)), 2, np.random.default_rng(0))
    assert value == 0.0
    np.testing.assert_allclose(found.T @ found, np.eye(2), atol=1e-12)
