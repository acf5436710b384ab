from __future__ import annotations

import numpy as np
import pytest

from crlearn.methods.sparse._activity import (
    Activity,
    Units,
    UnitsInverse,
    blocks_of,
    components_of_rows,
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
    np.testing.assert_allclose(back, np.column_stack([np.zeros(len(Z)), values[:, 1]]))


def test_components_come_with_the_most_frequent_first():
    active = np.array([[1, 0], [0, 1], [0, 1], [1, 1], [0, 1]], dtype=bool)
    sets, component, shares = components_of_rows(active)
    np.testing.assert_array_equal(sets[0], [False, True])
    np.testing.assert_array_equal(sets[component], active)
    np.testing.assert_allclose(shares, [0.6, 0.2, 0.2])


def test_a_latent_that_is_only_on_with_another_is_entangled_with_it():
    """The second is never on while the first is off; so the first may contain the second."""
    active = np.array([[1, 1, 0], [1, 0, 1], [0, 0, 1], [0, 0, 0]] * 10, dtype=bool)
    expected = np.zeros((3, 3), dtype=bool)
    expected[0, 1] = True
    np.testing.assert_array_equal(entangled(active), expected)
    assert blocks_of(active) == ((0, 1), (2,))


def test_latents_that_are_always_on_together_are_a_block():
    on = RNG.random((500, 3)) < 0.5
    assert blocks_of(on[:, [0, 1, 0, 2, 1]]) == ((0, 2), (1, 4), (3,))


def test_latents_on_their_own_are_blocks_of_one():
    assert blocks_of(RNG.random((500, 3)) < 0.5) == ((0,), (1,), (2,))


def test_one_constant_column():
    found = Activity.of(np.zeros((10, 1)), np.zeros(1))
    assert np.isfinite([found.widths, found.spreads, found.shares]).all()
