"""Short bases of lattices, and the targets that they propose."""

from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.targets._lattice import (
    lattice_targets,
    reduced_basis,
    zero_one_combinations,
)


def triangular_targets(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.permutation(np.tril(rng.random((n, n)) < 0.5, k=-1) | np.eye(n, dtype=bool))


def test_reduced_basis_finds_the_short_vectors():
    rng = np.random.default_rng(0)
    short = np.diag([1.0, 2.0, 3.0, 4.0])
    mixed = triangular_targets(rng, 4) @ short
    basis = reduced_basis(mixed @ mixed.T)
    assert np.array_equal(basis, np.rint(basis))
    assert np.isclose(np.abs(np.linalg.det(basis)), 1)
    assert np.allclose(np.sort(np.linalg.norm(basis @ mixed, axis=1)), [1, 2, 3, 4])


def test_zero_one_combinations_adds_as_few_as_needed():
    vectors = np.array([[1, 0, 1], [0, -1, 0], [2, 0, 1]])
    found = zero_one_combinations(vectors).tolist()
    assert found[:2] in ([[1, 0, 1], [0, 1, 0]], [[0, 1, 0], [1, 0, 1]])
    assert [1, 0, 0] in found  # the third less the first
    assert all(set(row) <= {0, 1} and any(row) for row in found)


def test_targets_of_matrices_of_low_rank_are_proposed():
    rng = np.random.default_rng(1)
    n = 12
    targets = triangular_targets(rng, n)
    rows = rng.standard_normal((2, n, n))
    added = 4 * rows[0][:, :, None] * rows[0][:, None] - rows[1][:, :, None] * rows[1][:, None]
    with_reference = np.vstack([np.zeros(n), targets.astype(float)])
    precisions = np.eye(n) + np.einsum("ej,jab->eab", with_reference, added)
    proposed = {tuple(row) for row in lattice_targets(precisions).tolist()}
    assert {(0, *row) for row in targets.T.astype(int).tolist()} <= proposed


def test_more_vectors_than_dimensions():
    """Integer relations among them are long; products of such combinations lose their digits."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        vectors = rng.standard_normal((7, 3)) * 10 ** rng.uniform(-2, 2, size=(7, 1))
        basis = reduced_basis(vectors @ vectors.T)
        assert abs(np.linalg.det(basis)) == pytest.approx(1, abs=0.01)
