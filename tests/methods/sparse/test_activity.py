from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from crlearn.methods.sparse._activity import (
    Activity,
    Components,
    Units,
    UnitsInverse,
    blocks_of,
    entangled,
)

RNG = np.random.default_rng(0)


@pytest.fixture
def values() -> np.ndarray:
    """Return two latents that are off at 1 and -2 in 60% and 30% of the rows."""
    off = RNG.random((4000, 2)) < [0.6, 0.3]
    return np.where(off, [1.0, -2.0], RNG.normal(size=(4000, 2)) * [2.0, 1.0] + [0.0, 1.0])


def test_spikes_and_slabs_are_found(values: np.ndarray):
    found = Activity.of(values, np.array([0.9, -1.9]))
    np.testing.assert_allclose(found.shares, [0.6, 0.3], atol=0.03)
    np.testing.assert_allclose(found.places, [1.0, -2.0], atol=1e-3)
    np.testing.assert_allclose(found.spreads, [2.0, 1.0], atol=0.1)
    np.testing.assert_allclose(found.means, [0.0, 1.0], atol=0.15)


def test_which_latents_are_on(values: np.ndarray):
    on = Activity.of(values, np.array([1.0, -2.0]))(values)
    np.testing.assert_array_equal(on, np.abs(values - [1.0, -2.0]) > 1e-3)


def test_latents_in_the_units_of_their_slabs(values: np.ndarray):
    units = Units.of(Activity.of(values, np.array([1.0, -2.0])), np.array([1]))
    Z = units(values)
    assert units.n_latents == 1
    off = values[:, 1] == -2
    np.testing.assert_allclose(Z[off], 0.0, atol=1e-3)
    np.testing.assert_allclose(Z[~off].std(), 1.0, atol=0.05)
    np.testing.assert_array_equal(units.activity(Z)[:, 0], ~off)
    back = UnitsInverse(units)(Z)
    np.testing.assert_allclose(back[:, 0], 1.0, atol=1e-3)  # off, where its spike is
    np.testing.assert_allclose(back[:, 1], values[:, 1])


def components(sets: Any, shares: Any) -> Components:
    """Return some of latents with spikes that are narrow."""
    sets = np.array(sets, dtype=bool)
    zeros, ones = np.zeros(sets.shape[1]), np.ones(sets.shape[1])
    activity = Activity(0.5 * ones, zeros, 0.01 * ones, zeros, ones)
    return Components(sets, np.array(shares), activity)


def test_rows_belong_to_the_sets_of_their_latents():
    found = components([[0, 1], [1, 0], [1, 1]], [0.5, 0.3, 0.2])
    Z = np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, 2.0]])
    np.testing.assert_array_equal(found(Z), [0, 1, 2])


def test_a_value_near_its_spike_does_not_make_a_set_of_its_own():
    """By hand: at 0.02 a spike is likelier than a slab by 2.6 nats, a share of 0.99 by 4.6."""
    found = components([[1, 1], [1, 0]], [0.99, 0.01])
    assert found(np.array([[1.0, 0.02]])).tolist() == [0]
    assert components([[1, 1], [1, 0]], [0.5, 0.5])(np.array([[1.0, 0.02]])).tolist() == [1]


def test_components_are_found_the_most_frequent_first():
    sets = np.array([[0, 1, 1], [1, 1, 0], [1, 0, 1]], dtype=bool)
    drawn = RNG.choice(3, size=6000, p=[0.2, 0.5, 0.3])
    Z = np.where(sets[drawn], RNG.normal(size=(6000, 3)), 0.01 * RNG.normal(size=(6000, 3)))
    found = Components.of(Z, Activity.of(Z, np.zeros(3)))
    np.testing.assert_array_equal(found.sets[:3], sets[[1, 2, 0]])
    np.testing.assert_allclose(found.shares[:3], [0.5, 0.3, 0.2], atol=0.03)
    assert found.shares[3:].sum() < 0.02
    right = (found.sets[found(Z)] == sets[drawn]).all(axis=1).mean()
    assert right > 0.97


def test_a_latent_that_is_only_on_with_another_is_entangled_with_it():
    """The second is never on while the first is off; so the first may contain the second."""
    found = components([[1, 1, 0], [1, 0, 1], [0, 0, 1], [0, 0, 0]], [0.25] * 4)
    expected = np.zeros((3, 3), dtype=bool)
    expected[0, 1] = True
    np.testing.assert_array_equal(entangled(found), expected)
    assert blocks_of(found) == ((0, 1), (2,))


def test_latents_that_are_always_on_together_are_a_block():
    sets = np.array(list(product([0, 1], repeat=3)))[:, [0, 1, 0, 2, 1]]
    assert blocks_of(components(sets, [1 / 8] * 8)) == ((0, 2), (1, 4), (3,))


def test_latents_on_their_own_are_blocks_of_one():
    sets = list(product([0, 1], repeat=3))
    assert blocks_of(components(sets, [1 / 8] * 8)) == ((0,), (1,), (2,))


def test_one_constant_column():
    found = Activity.of(np.zeros((10, 1)), np.zeros(1))
    assert np.isfinite([found.widths, found.spreads, found.shares]).all()
