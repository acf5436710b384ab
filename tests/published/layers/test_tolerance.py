from __future__ import annotations

import numpy as np
import pytest

from crlearn.published.layers._tolerance import curvatures, flattest_direction


def symmetric(rng: np.random.Generator, *shape: int) -> np.ndarray:
    matrices = rng.normal(size=shape)
    return (matrices + np.swapaxes(matrices, -1, -2)) / 2


def circle(n_directions: int) -> np.ndarray:
    angles = np.linspace(0, np.pi, n_directions)
    return np.column_stack([np.cos(angles), np.sin(angles)])


def test_by_hand():
    # v' diag(1, -1) v = cos 2a is zero along the diagonals; a second matrix leaves one of them.
    one = np.array([[[1.0, 0.0], [0.0, -1.0]]])
    direction, tolerance = flattest_direction(one, np.random.default_rng(0))
    assert tolerance == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(np.abs(direction), np.sqrt(0.5), atol=1e-6)
    both = np.concatenate([one, [[[1.0, 1.0], [1.0, 1.0]]]])
    direction, tolerance = flattest_direction(both, np.random.default_rng(0))
    assert tolerance == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(direction[0], -direction[1], atol=1e-6)


def test_the_largest_counts_and_not_the_mean():
    # Along the first axis one sample has 1, along the second all have 0.5.
    jacobians = np.zeros((100, 2, 2))
    jacobians[:, 1, 1] = 0.5
    jacobians[0, 0, 0] = 1.0
    jacobians[:, 0, 1] = jacobians[:, 1, 0] = np.linspace(-9, 9, 100)  # no mixtures
    direction, tolerance = flattest_direction(jacobians, np.random.default_rng(0))
    assert tolerance == pytest.approx(0.5, abs=1e-3)
    assert abs(direction[1]) > 0.99


@pytest.mark.parametrize("seed", range(6))
def test_noise_in_two_dimensions_against_all_directions(seed: int):
    jacobians = symmetric(np.random.default_rng(seed), 30, 2, 2)
    direction, tolerance = flattest_direction(jacobians, np.random.default_rng(0))
    assert np.linalg.norm(direction) == pytest.approx(1)
    assert tolerance == np.abs(curvatures(jacobians, direction)).max()
    everywhere = [np.abs(curvatures(jacobians, v)).max() for v in circle(2001)]
    assert tolerance <= min(everywhere) * (1 + 1e-3)


def test_noise_in_four_dimensions_has_one_answer():
    jacobians = symmetric(np.random.default_rng(0), 1000, 4, 4)
    first, second = (flattest_direction(jacobians, np.random.default_rng(s))[1] for s in (0, 1))
    assert first == pytest.approx(second, rel=1e-2)


def test_one_dimension():
    direction, tolerance = flattest_direction(
        np.array([[[0.5]], [[-2.0]]]), np.random.default_rng(0)
    )
    assert direction.tolist() == [1.0]
    assert tolerance == 2.0
