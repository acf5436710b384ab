from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_sparse_mixture
from crlearn.flows import white
from crlearn.methods.sparse._hyperplanes import find_hyperplanes, pile_up
from crlearn.metrics import mcc


def affine(n: int = 4, n_samples: int = 3000, **options: Any) -> Any:
    return make_sparse_mixture(
        n, n_samples=n_samples, n_layers=1, slope=1.0, **{"random_state": 0, **options}
    )


def whitened(X: Any) -> Any:
    return white(X)[0](X)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"active": "one"},
        {"active": "three_quarters"},
        {"delta": 3.0},
        {"edges_per_node": 1.5},
        {"n": 12},
    ],
    ids=str,
)
def test_the_map_back_to_the_latents(options: Any):
    world = affine(**options)
    rows = whitened(world.X)
    planes = find_hyperplanes(rows, seed=0)
    assert len(planes) == world.truth.Z.shape[1]
    assert mcc(world.truth.Z, rows @ planes.normals.T) > 0.9999


def test_what_it_says_of_a_hyperplane():
    """A line that holds 70% of the points of the plane, the others at a distance of 2 from it."""
    rng = np.random.default_rng(0)
    distance = np.where(rng.random(4000) < 0.7, 0.0, 2 + rng.normal(size=4000))
    along = rng.normal(size=4000)
    scale = distance.std()
    rows = np.column_stack([along / along.std(), (distance - distance.mean()) / scale])
    planes = find_hyperplanes(rows, seed=0, n_hyperplanes=1)
    sign = np.sign(planes.normals[0, 1])
    np.testing.assert_allclose(sign * planes.normals, [[0.0, 1.0]], atol=1e-3)
    np.testing.assert_allclose(planes.shares, [0.7], atol=0.03)
    np.testing.assert_allclose(sign * planes.means, [2 / scale], atol=0.1)
    np.testing.assert_allclose(planes.spreads, [1 / scale], atol=0.1)
    np.testing.assert_allclose(sign * planes.offsets, [-distance.mean() / scale], atol=1e-3)
    assert planes.noises[0] < 1e-2


def test_noise_around_hyperplanes():
    world = affine(5)
    rows = whitened(world.X)
    rows = whitened(rows + 0.2 * np.random.default_rng(1).normal(size=rows.shape))
    planes = find_hyperplanes(rows, seed=0)
    assert mcc(world.truth.Z, rows @ planes.normals.T) > 0.97
    np.testing.assert_allclose(planes.noises, 0.2, atol=0.05)


def test_normals_of_latents_that_are_off_together_are_different_ones():
    world = affine(4, blocks=(2, 1, 1), active=2)
    planes = find_hyperplanes(whitened(world.X), seed=0)
    assert np.linalg.svd(planes.normals)[1].min() > 0.05


def test_the_same_seed_gives_the_same_bits():
    rows = whitened(affine().X)
    one, other = (find_hyperplanes(rows, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.normals, other.normals)


def test_few_rows():
    planes = find_hyperplanes(np.random.default_rng(0).normal(size=(5, 2)), seed=0)
    assert np.isfinite(planes.normals).all()
    assert np.isfinite(planes.spreads).all()


def test_one_column():
    z = np.where(np.arange(400) % 2 == 0, 0.5, np.random.default_rng(0).normal(size=400))
    planes = find_hyperplanes(z[:, None], seed=0)
    np.testing.assert_allclose(planes.offsets / planes.normals[:, 0], [0.5], atol=1e-3)


def test_how_far_rows_pile_up():
    """By hand: all rows on the hyperplane have 1 - 1/2, rows far from it nothing."""
    rows = np.array([[0.0, 1.0], [0.0, -1.0]])
    found = pile_up(rows, np.eye(2), np.array([0.0, 50.0]))
    np.testing.assert_allclose(found, [0.5, 0.0])
