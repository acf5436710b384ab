from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.nets import ACTIVATIONS, MLP, BentLinear, NetworkMap


def test_one_layer_is_affine():
    network = MLP((np.array([[1.0], [2.0]]),), (np.array([3.0]),))
    np.testing.assert_array_equal(network(np.array([[1.0, 1.0], [0.0, -1.0]])), [[6.0], [1.0]])


def test_hidden_layers_are_activated_and_the_last_is_not():
    identity, zero = np.eye(1), np.zeros(1)
    network = MLP((identity, -identity), (zero, zero), "leaky_relu")
    np.testing.assert_allclose(network(np.array([[2.0], [-1.0]])), [[-2.0], [0.2]])


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_numpy_and_jax_agree(activation: str):
    network = MLP.random(jax.random.key(0), [3, 8, 8, 2], activation)
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    on_jax = np.asarray(network(jnp.asarray(x)))
    as_numpy = jax.tree.map(np.asarray, network)
    np.testing.assert_allclose(as_numpy(x), on_jax, rtol=1e-5, atol=1e-6)


def test_random_weights_keep_the_variance():
    weight = MLP.random(jax.random.key(0), [400, 500]).weights[0]
    assert np.var(np.asarray(weight)) == pytest.approx(1 / 400, rel=0.05)


def test_a_bent_matrix_starts_straight():
    network = BentLinear.straight(jax.random.key(0), [3, 8, 2])
    x = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_allclose(network(x), x[:, :2], rtol=1e-6)
    assert np.abs(np.asarray(network.bend.weights[0])).max() > 0.1


def test_network_map_works_in_the_units_of_the_user():
    network = MLP((np.eye(2),), (np.zeros(2),))
    to_latents = NetworkMap(
        network,
        input_mean=np.array([10.0, 0.0]),
        input_scale=np.array([2.0, 1.0]),
        output_mean=np.array([5.0]),
        output_scale=np.array([3.0]),
    )
    assert to_latents.n_latents == 1
    np.testing.assert_allclose(to_latents(np.array([[14.0, 7.0]])), [[11.0]])
