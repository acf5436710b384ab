from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from crlearn.flows import Links, learn_links
from crlearn.flows._links import LinkObjective


@pytest.fixture(scope="module")
def world() -> Any:
    """Two latents, five features behind tanh."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(4000, 2))
    return Z, np.tanh(Z @ (0.8 * rng.normal(size=(2, 5))))


@pytest.fixture(scope="module")
def links(world: Any) -> Links:
    return learn_links(world[1], 2, seed=0, n_steps=400)


def explained(Z: Any, values: Any) -> float:
    """Smallest R^2 of a latent on the two leading components of standardised values."""
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    components = values @ np.linalg.svd(values, full_matrices=False)[2][:2].T
    Z = Z - Z.mean(axis=0)
    left = Z - components @ np.linalg.lstsq(components, Z)[0]
    return float((1 - left.var(axis=0) / Z.var(axis=0)).min())


def test_the_right_links_are_found(world: Any, links: Links):
    Z, X = world
    assert explained(Z, X) < 0.99
    assert explained(Z, links(X)) > 0.999


def test_they_increase_and_can_be_undone(world: Any, links: Links):
    X = world[1]
    assert (np.diff(links.knots, axis=1) > 0).all()
    assert (np.diff(links.values, axis=1) > 0).all()
    np.testing.assert_allclose(links.inverse(links(X)), X, atol=1e-8)


def test_beyond_the_knots_they_go_on_as_lines(links: Links):
    outside = links.knots[:, -1] + np.array([[0.1], [0.2], [0.3]])
    values = links(outside)
    np.testing.assert_allclose(values[2] - values[1], values[1] - values[0], rtol=1e-6)
    np.testing.assert_allclose(links.inverse(values), outside, atol=1e-8)


def test_interpolation_by_hand():
    links = Links(np.array([[0.0, 1.0, 3.0]]), np.array([[0.0, 2.0, 3.0]]))
    X = np.array([[-1.0], [0.5], [2.0], [5.0]])
    np.testing.assert_allclose(links(X), [[-2.0], [1.0], [2.5], [4.0]])


def test_ties_become_increasing(world: Any):
    X = np.round(world[1], 2)
    links = learn_links(X, 2, seed=0, n_steps=400)
    assert (np.diff(links.knots, axis=1) > 0).all()
    assert (np.diff(links.values, axis=1) > 0).all()
    np.testing.assert_allclose(links.inverse(links(X)), X, atol=1e-5)


def test_the_loss_is_that_of_trailing_eigenvalues():
    """Links as drawn are nearly linear: rows in a plane nearly stay there."""
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 3))
    objective, key = LinkObjective(3, 2), jax.random.key(0)
    loss = jax.jit(lambda x: objective.loss(objective.init(key), x, key, jax.numpy.ones(())))
    in_a_plane, all_around = (
        loss(x.astype(np.float32)) for x in (plane, rng.normal(size=(500, 3)))
    )
    assert in_a_plane < all_around - 2
