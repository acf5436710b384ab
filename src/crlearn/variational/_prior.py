"""The prior of latents whose causes and targets are known: one density a latent given its causes.

Every latent has one mechanism, a small network of its causes, in all environments that leave it
alone, and a mean and a variance of its own in each environment that intervenes on it. The noise of
a latent has one shape, a mixture of Gaussians, wherever its mean and its variance change.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from crlearn.flows import Densities
from crlearn.nets import AnyArray
from crlearn.tags import stored


@stored("prior/structural")
class StructuralPrior(eqx.Module):
    """Densities of latents in environments with known targets.

    Attributes
    ----------
    inputs, thresholds, outputs
        Of the hidden units of each latent's mechanism, which see its causes only.
    slopes
        ``slopes[i, j]``: the straight part of the effect of latent i on latent j.
    mean, log_scale
        Of each latent's noise where it is left alone.
    own_mean, own_log_scale
        Of each latent in each environment that intervenes on it.
    densities
        Shapes of the noises.
    own
        ``own[e, j]``: environment e intervenes on latent j. Not trained.
    causes
        ``causes[i, j]``: latent i is a cause of latent j. Not trained.
    """

    inputs: Float[AnyArray, "latents latents units"]
    thresholds: Float[AnyArray, "latents units"]
    outputs: Float[AnyArray, "latents units"]
    slopes: Float[AnyArray, "latents latents"]
    mean: Float[AnyArray, " latents"]
    log_scale: Float[AnyArray, " latents"]
    own_mean: Float[AnyArray, "environments latents"]
    own_log_scale: Float[AnyArray, "environments latents"]
    densities: Densities
    own: Bool[AnyArray, "environments latents"]
    causes: Bool[AnyArray, "latents latents"]

    @classmethod
    def without_effects(
        cls,
        key: PRNGKeyArray,
        own: NDArray[np.bool_],
        causes: NDArray[np.bool_],
        n_units: int,
        n_components: int,
    ) -> StructuralPrior:
        """Draw mechanisms that have no effect yet; all latents are standard normal."""
        n_environments, n = own.shape
        input_key, threshold_key, density_key = jax.random.split(key, 3)
        n_causes = np.maximum(causes.sum(axis=0), 1)
        return cls(
            inputs=jax.random.normal(input_key, (n, n, n_units)) / n_causes[:, None] ** 0.5,
            thresholds=jax.random.normal(threshold_key, (n, n_units)),
            outputs=jnp.zeros((n, n_units)),
            slopes=jnp.zeros((n, n)),
            mean=jnp.zeros(n),
            log_scale=jnp.zeros(n),
            own_mean=jnp.zeros((n_environments, n)),
            own_log_scale=jnp.zeros((n_environments, n)),
            densities=Densities.random(density_key, n, n_components),
            own=jnp.asarray(own),
            causes=jnp.asarray(causes),
        )

    def effects(self, z: Float[Array, "*rows latents"]) -> Float[Array, "*rows latents"]:
        """Return the mean of each latent given its causes."""
        masked = self.inputs * self.causes[:, :, None]
        units = jnp.tanh(jnp.einsum("...i,iju->...ju", z, masked) + self.thresholds)
        straight = z @ (self.slopes * self.causes)
        return jnp.asarray(self.mean + straight + (units * self.outputs).sum(axis=-1))

    def log_density(
        self, z: Float[Array, "*draws rows latents"], codes: Int[Array, " rows"]
    ) -> Float[Array, "*draws rows"]:
        """Return the log-density of latents of rows from the environments `codes`."""
        own = self.own[codes]
        mean = jnp.where(own, self.own_mean[codes], self.effects(z))
        log_scale = jnp.where(own, self.own_log_scale[codes], self.log_scale)
        standard = (z - mean) * jnp.exp(-log_scale)
        return (self.densities(standard) - log_scale).sum(axis=-1)
