from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from crlearn.flows._densities import Densities

GRID = np.linspace(-12, 12, 1201, dtype=np.float32)


def on_the_grid(densities: Densities, n_columns: int) -> np.ndarray:
    return np.exp(np.asarray(densities(jnp.asarray(np.repeat(GRID[:, None], n_columns, axis=1)))))


def test_they_integrate_to_one_whatever_the_parameters():
    rng = np.random.default_rng(0)
    drawn = Densities.random(jax.random.key(0), n_columns=3, n_components=4)
    moved = jax.tree.map(lambda leaf: 0.7 * rng.normal(size=leaf.shape), drawn)
    for densities in (drawn, moved):
        values = on_the_grid(densities, 3)
        np.testing.assert_allclose(values.sum(axis=0) * (GRID[1] - GRID[0]), 1, atol=1e-4)
    assert np.abs(np.diff(values, axis=1)).max() > 0.05  # each column has its own


def test_one_component_is_the_standard_gaussian():
    densities = Densities.random(jax.random.key(0), n_columns=1, n_components=1)
    wanted = np.exp(-0.5 * GRID[:, None] ** 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(on_the_grid(densities, 1), wanted, atol=1e-6)
    moved = jax.tree.map(lambda leaf: leaf + 1.0, densities)
    np.testing.assert_array_equal(on_the_grid(moved, 1), on_the_grid(densities, 1))


def test_drawn_ones_are_nearly_standard_gaussian():
    densities = Densities.random(jax.random.key(1), n_columns=2, n_components=4)
    wanted = np.exp(-0.5 * GRID[:, None] ** 2) / np.sqrt(2 * np.pi)
    assert np.abs(on_the_grid(densities, 2) - wanted).max() < 0.05
    one, other = on_the_grid(densities, 2).T
    assert not np.array_equal(one, other)
