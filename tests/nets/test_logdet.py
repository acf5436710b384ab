from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.nets import MLP, log_determinants

RNG = np.random.default_rng(0)
Z = jnp.asarray(RNG.normal(size=(6, 2)))


def test_polar_coordinates():
    to_plane = lambda p: p[0] * jnp.array([jnp.cos(p[1]), jnp.sin(p[1])])  # noqa: E731
    found = log_determinants(to_plane, jnp.array([[2.0, 0.3], [0.5, -1.0]]))
    np.testing.assert_allclose(found, np.log([2.0, 0.5]), rtol=1e-5)


def test_area_of_a_surface():
    # The graph of z0^2 + z1^2 stretches areas by sqrt(1 + 4 z0^2 + 4 z1^2).
    surface = lambda z: jnp.array([z[0], z[1], (z**2).sum()])  # noqa: E731
    wanted = 0.5 * np.log(1 + 4 * (np.asarray(Z) ** 2).sum(axis=1))
    np.testing.assert_allclose(log_determinants(surface, Z), wanted, rtol=1e-4)


def test_it_can_be_differentiated():
    scaled = lambda scale: log_determinants(lambda z: jnp.append(scale * z, z[0]), Z).sum()  # noqa: E731
    wanted = len(Z) * 3.0 * (1 / 3.0 + 3.0 / (9.0 + 1))  # of log(s) + 0.5 log(s^2 + 1), times 3
    assert 3.0 * float(jax.grad(scaled)(3.0)) == pytest.approx(wanted, rel=1e-4)


def test_networks():
    network = MLP.random(jax.random.key(0), [2, 8, 2], "tanh")
    jacobians = jax.vmap(jax.jacfwd(network))(Z)
    wanted = np.log(np.abs(np.linalg.det(np.asarray(jacobians))))
    np.testing.assert_allclose(log_determinants(network, Z), wanted, rtol=1e-3)


def test_fewer_outputs_than_inputs_are_refused():
    with pytest.raises(ValueError, match=r"at least as many outputs as inputs, 2.* It has 1"):
        log_determinants(lambda z: z[:1], Z)
