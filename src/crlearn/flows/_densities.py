"""Densities of standardised noises: mixtures of a few Gaussians."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from crlearn.nets import AnyArray
from crlearn.tags import stored


@stored("density/mixture")
class Densities(eqx.Module):
    """One density for each column, a mixture of Gaussians; with one component a Gaussian."""

    log_weights: Float[AnyArray, "components columns"]
    means: Float[AnyArray, "components columns"]
    log_scales: Float[AnyArray, "components columns"]

    @classmethod
    def random(cls, key: PRNGKeyArray, n_columns: int, n_components: int) -> Densities:
        """Draw mixtures that are nearly standard Gaussian."""
        shape = (n_components, n_columns)
        small = 0.1 * jax.random.normal(key, (2, *shape))
        spread = small * (n_components > 1)
        return cls(jnp.zeros(shape), spread[0], spread[1])

    def __call__(self, values: Float[Array, "*rows columns"]) -> Float[Array, "*rows columns"]:
        """Return the logarithm of the density at each value."""
        if len(self.means) == 1:
            return -0.5 * (values**2 + np.log(2 * np.pi))
        distances = (values[..., None, :] - self.means) * jnp.exp(-self.log_scales)
        weights = jax.nn.log_softmax(self.log_weights, axis=0) - self.log_scales
        return jax.nn.logsumexp(weights - 0.5 * distances**2, axis=-2) - 0.5 * np.log(2 * np.pi)
