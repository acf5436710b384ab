from __future__ import annotations

import numpy as np
import pytest

from crlearn.data._random import (
    haar_orthonormal,
    independent_seeds,
    invertible_uniform,
    signed_uniform,
)


def test_seeds_are_reproducible_and_distinct():
    assert independent_seeds(3, 4) == independent_seeds(3, 4)
    assert len(set(independent_seeds(3, 4))) == 4


@pytest.mark.parametrize(
    "random_state", [None, 0, np.random.default_rng(0), np.random.RandomState(0)]
)
def test_every_usual_random_state_is_accepted(random_state):
    assert len(independent_seeds(random_state, 2)) == 2


def test_signed_uniform_has_both_signs_and_stays_in_range():
    draws = signed_uniform(np.random.default_rng(0), 0.5, 1.5, 1000)
    assert 400 < (draws > 0).sum() < 600
    assert np.abs(draws).min() >= 0.5
    assert np.abs(draws).max() <= 1.5


def test_haar_columns_are_orthonormal():
    q = haar_orthonormal(np.random.default_rng(0), 6, 3)
    np.testing.assert_allclose(q.T @ q, np.eye(3), atol=1e-12)


def test_invertible_matrices_of_any_size():
    for n in (1, 5, 40):
        matrix = invertible_uniform(np.random.default_rng(0), 0.5, n, lambda largest: 0.1 * largest)
        values = np.linalg.svd(matrix, compute_uv=False)
        assert values[-1] >= 0.0999 * values[0]
