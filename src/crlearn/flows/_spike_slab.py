"""The likelihood of latents that switch off: a spike for each where it is off, a slab where on.

The spikes are as narrow as noise that is added to the rows and becomes less during training.
Without that noise the likelihood would have no bound: a map may stretch space around the spikes.
While spikes are wide, hyperplanes of switched-off rows draw the map from afar.

At first latents are independent, and sums run over both states of each. With `joint` every row has
the state of each latent that is more likely, and latents that are on are Gaussian together: those
that cause each other explain each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from crlearn.flows._determinant import gaussian_log_density
from crlearn.flows._smooth import SmoothFlow
from crlearn.nets import AnyArray
from crlearn.tags import stored

_LOG_2PI = float(np.log(2 * np.pi))


@stored("prior/spike-slab")
class SpikeSlab(eqx.Module):
    """Densities of latents that are off in a share of the rows.

    Attributes
    ----------
    logits
        Of the share of rows in which each latent is off.
    places
        Of the spikes.
    log_widths
        Of the spikes, relative to the noise.
    log_weights, means, log_scales
        Of the slabs, mixtures of Gaussians.
    factor
        ``factor @ factor.T`` is the covariance of latents that are on.
    one_gaussian
        Whether slabs have one component alone, the first. Not trained.
    """

    logits: Float[AnyArray, " latents"]
    places: Float[AnyArray, " latents"]
    log_widths: Float[AnyArray, " latents"]
    log_weights: Float[AnyArray, "components latents"]
    means: Float[AnyArray, "components latents"]
    log_scales: Float[AnyArray, "components latents"]
    factor: Float[AnyArray, "latents latents"]
    one_gaussian: Bool[AnyArray, ""]

    @classmethod
    def random(cls, key: PRNGKeyArray, n_latents: int, n_components: int) -> SpikeSlab:
        """Draw slabs around spikes at zero; half of the rows are off."""
        nothing, shape = jnp.zeros(n_latents), (n_components, n_latents)
        means, scales = 0.5 * jax.random.normal(key, (2, *shape))
        return cls(
            logits=nothing,
            places=nothing,
            log_widths=nothing,
            log_weights=jnp.zeros(shape),
            means=means.at[0].set(0.0),
            log_scales=scales.at[0].set(0.0),
            factor=jnp.eye(n_latents),
            one_gaussian=jnp.asarray(True),
        )

    def off(self, z: Float[Array, "*rows latents"], noise: Float[Array, ""] | float) -> Array:
        """Return log-densities at each value, times the share of rows that are off."""
        scales = noise * jnp.exp(self.log_widths)
        squares = ((z - self.places) / scales) ** 2
        return jax.nn.log_sigmoid(self.logits) - jnp.log(scales) - 0.5 * (squares + _LOG_2PI)

    def on(self, z: Float[Array, "*rows latents"]) -> Array:
        """Return log-densities at each value, times the share of rows that are on."""
        squares = ((z[..., None, :] - self.means) * jnp.exp(-self.log_scales)) ** 2
        each = -self.log_scales - 0.5 * (squares + _LOG_2PI)
        weights = jax.nn.log_softmax(self.log_weights, axis=0)
        mixture = jax.nn.logsumexp(weights + each, axis=-2)
        slab = jnp.where(self.one_gaussian, each[..., 0, :], mixture)
        return jax.nn.log_sigmoid(-self.logits) + slab

    def independent(self, z: Float[Array, "rows latents"], noise: Float[Array, ""]) -> Array:
        """Return the log-density of each row, latents being independent."""
        return jnp.logaddexp(self.off(z, noise), self.on(z)).sum(axis=-1)

    def together(self, z: Float[Array, "rows latents"], noise: Float[Array, ""]) -> Array:
        """Return the log-density of each row in its likely state, Gaussian in latents that are on.

        What is off is as a standard Gaussian at zero to the covariance, which then factorises.
        """
        n = z.shape[-1]
        off, on = self.off(z, noise), self.on(z)
        is_on = jax.lax.stop_gradient(on > off)
        covariance = jnp.asarray(self.factor) @ jnp.asarray(self.factor).T
        both = is_on[:, None] & is_on[:, :, None]
        masked = jnp.where(both, covariance, jnp.eye(n, dtype=z.dtype))
        values = jnp.where(is_on, z - self.means[0], 0.0)
        active = gaussian_log_density(values.T, jnp.moveaxis(masked, 0, 2))
        shares = jax.nn.log_sigmoid(-self.logits) - 0.5 * _LOG_2PI
        return active + jnp.where(is_on, shares, off).sum(axis=-1)


class SpikeSlabParameters(NamedTuple):
    """What is trained, and noises that are not.

    Attributes
    ----------
    flow, prior
        The encoder and the densities of its outputs.
    noises
        Standard deviations of what is added to the rows, which have unit variances, at the start
        of a training and at its end. They are here and not in the objective: trainings that differ
        in them share compiled programs.
    """

    flow: SmoothFlow
    prior: SpikeSlab
    noises: Float[AnyArray, " ends"]


@dataclass(frozen=True)
class SpikeSlabObjective:
    """Minus the mean log-likelihood of noisy rows, up to a constant.

    Attributes
    ----------
    n_latents
        Number of latents.
    joint
        Whether latents that are on are Gaussian together.
    n_components
        Of the slab of each latent, where it is not one Gaussian.
    n_blocks, n_units
        Of the encoder; see `SmoothFlow`.
    settled
        Share of the training after which noise is at its least.
    """

    n_latents: int
    joint: bool = False
    n_components: int = 12
    n_blocks: int = 4
    n_units: int | None = None
    settled: float = 0.8

    def init(self, key: PRNGKeyArray) -> SpikeSlabParameters:
        """Draw the encoder and the prior."""
        flow_key, prior_key = jax.random.split(key)
        return SpikeSlabParameters(
            SmoothFlow.random(flow_key, self.n_latents, self.n_blocks, self.n_units),
            SpikeSlab.random(prior_key, self.n_latents, self.n_components),
            jnp.array([0.2, 0.03]),
        )

    def loss(
        self,
        params: SpikeSlabParameters,
        batch: Float[Array, "*rows latents"],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Return minus the mean log-likelihood of the rows and fresh noise."""
        rows = batch.reshape(-1, batch.shape[-1])
        share = jnp.clip(progress / self.settled, 0, 1)
        first, last = jax.lax.stop_gradient(jnp.asarray(params.noises))
        noise = first * (last / first) ** share
        noisy = rows + noise * jax.random.normal(key, rows.shape, rows.dtype)
        z, log_determinant = params.flow.forward(noisy)
        density = params.prior.together if self.joint else params.prior.independent
        return -(density(z, noise) + log_determinant).mean()
