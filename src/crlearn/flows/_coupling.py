"""Smooth coupling layers: forward, inverse, log-determinant and log-density, all exact."""

from __future__ import annotations

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from crlearn.nets import MLP, AnyArray
from crlearn.tags import stored


@stored("flow/coupling")
class CouplingFlow(eqx.Module):
    """An invertible map to variables that are standard Gaussian.

    Each layer rotates the coordinates at random, then scales and shifts half of them by tanh
    networks of the other half. The rotations are part of the model, and not trained.

    Cost: O(layers width (d + width)) for each row, in both directions.
    """

    networks: tuple[MLP, ...]
    n_variables: int = eqx.field(static=True)

    @classmethod
    def random(
        cls, key: PRNGKeyArray, n_variables: int, n_layers: int = 6, width: int = 32
    ) -> CouplingFlow:
        """Draw the networks; their last layers are zero, so that the flow starts as a rotation."""
        keys = jax.random.split(key, n_layers)
        return cls(tuple(_network(one, n_variables, width) for one in keys), n_variables)

    def forward(
        self, x: Float[AnyArray, "*rows variables"]
    ) -> tuple[Float[Array, "*rows variables"], Float[Array, "*rows"]]:
        """Return z for each row, and the logarithm of the determinant of dz / dx."""
        x = jnp.asarray(x)
        log_determinant = jnp.zeros(x.shape[:-1], x.dtype)
        for rotation, network in self._layers():
            x = x @ rotation.astype(x.dtype)
            shift, log_scale = self._shift_and_log_scale(network, x)
            x = x * jnp.exp(log_scale) + shift
            log_determinant += log_scale.sum(axis=-1)
        return x, log_determinant

    def inverse(self, z: Float[AnyArray, "*rows variables"]) -> Float[Array, "*rows variables"]:
        """Return the x that `forward` takes to `z`."""
        z = jnp.asarray(z)
        for rotation, network in reversed(list(self._layers())):
            # What the networks see is left as it is, so that they say the same again.
            shift, log_scale = self._shift_and_log_scale(network, z)
            z = ((z - shift) * jnp.exp(-log_scale)) @ rotation.T.astype(z.dtype)
        return z

    def log_density(self, x: Float[AnyArray, "*rows variables"]) -> Float[Array, "*rows"]:
        """Logarithm of the density at each row, if z is standard Gaussian."""
        z, log_determinant = self.forward(x)
        constant = 0.5 * self.n_variables * np.log(2 * np.pi)
        return log_determinant - 0.5 * (z**2).sum(axis=-1) - constant

    def _layers(self) -> Iterator[tuple[NDArray[np.floating], MLP]]:
        d = self.n_variables
        draws = np.random.default_rng(0).normal(size=(len(self.networks), d, d))
        return zip(np.linalg.qr(draws)[0], self.networks, strict=True)

    def _shift_and_log_scale(
        self, network: MLP, x: Float[Array, "*rows variables"]
    ) -> tuple[Float[Array, "*rows variables"], Float[Array, "*rows variables"]]:
        """Return what is done to each coordinate: nothing to those that the network sees."""
        seen = (np.arange(self.n_variables) < self.n_variables // 2).astype(np.float32)
        shift, scale = jnp.split(network(x * seen), 2, axis=-1)
        return shift * (1 - seen), jnp.tanh(scale) * (1 - seen)


def _network(key: PRNGKeyArray, n_variables: int, width: int) -> MLP:
    hidden = MLP.random(key, [n_variables, width, width], "tanh")
    last = jnp.zeros((width, 2 * n_variables))
    return MLP((*hidden.weights, last), (*hidden.biases, jnp.zeros(2 * n_variables)), "tanh")
