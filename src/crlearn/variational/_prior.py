"""The prior of latents whose causes and targets are known: one density a latent given its causes.

Every latent has one mechanism, a small network of its causes, in all environments that leave it
alone, and a mean and a variance of its own in each environment that intervenes on it. The noise of
a latent has one shape, a mixture of Gaussians, wherever its mean and its variance change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from crlearn.flows import Densities
from crlearn.nets import AnyArray
from crlearn.tags import stored
from crlearn.variational._components import Components

Matrix = NDArray[np.floating]

_LEAST_SCALE = 0.05  # of a latent whose sd is one over all rows, where training starts


class Prior(Protocol):
    """What g-modelling needs of a prior p(z | environment)."""

    @property
    def n_environments(self) -> int:
        """Number of environments."""
        ...

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        ...

    def log_density(
        self, z: Float[Array, "*draws rows latents"], codes: Int[Array, " rows"]
    ) -> Float[Array, "*draws rows"]:
        """Return the log-density of latents of rows from the environments `codes`."""
        ...

    def at_moments(self, noisy: Matrix, codes: NDArray[np.integer]) -> Self:
        """Return the same prior with the moments of these latents: where a fit starts."""
        ...


class ExactPrior(Prior, Protocol):
    """A prior of Gaussian components, for which a linear mixing has exact posteriors."""

    def components(self) -> Components:
        """Return its Gaussians."""
        ...

    def maximised(
        self, counts: NDArray[np.floating], means: Matrix, covariances: NDArray[np.floating]
    ) -> Self:
        """Return the prior that is most likely for latents with these moments in each component."""
        ...

    def at_moments(
        self, noisy: Matrix, codes: NDArray[np.integer], noise: Matrix | None = None
    ) -> Self:
        """Return the same prior with the moments of noisy latents without their noise."""
        ...


class KnownCauses(eqx.Module):
    """What priors share of latents whose causes and targets are known.

    Attributes
    ----------
    slopes
        ``slopes[i, j]``: the straight part of the effect of latent i on latent j.
    mean, log_scale
        Of each latent's noise where it is left alone.
    own
        ``own[e, j]``: environment e intervenes on latent j. Not trained.
    causes
        ``causes[i, j]``: latent i is a cause of latent j. Not trained.
    """

    slopes: eqx.AbstractVar[Float[AnyArray, "latents latents"]]
    mean: eqx.AbstractVar[Float[AnyArray, " latents"]]
    log_scale: eqx.AbstractVar[Float[AnyArray, " latents"]]
    own: eqx.AbstractVar[Bool[AnyArray, "environments latents"]]
    causes: eqx.AbstractVar[Bool[AnyArray, "latents latents"]]

    @property
    def n_environments(self) -> int:
        """Number of environments."""
        return self.own.shape[0]

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.own.shape[1]

    def straight(self, z: Float[Array, "*rows latents"]) -> Float[Array, "*rows latents"]:
        """Return the mean of each latent given its causes, less what is not linear."""
        return jnp.asarray(self.mean + z @ (self.slopes * self.causes))


@stored("prior/structural")
class StructuralPrior(KnownCauses):
    """Densities of latents in environments with known targets.

    Attributes
    ----------
    inputs, thresholds, outputs
        Of the hidden units of each latent's mechanism, which see its causes only.
    own_mean, own_log_scale
        Of each latent in each environment that intervenes on it.
    densities
        Shapes of the noises.
    slopes, mean, log_scale, own, causes
        See `KnownCauses`.
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
        return self.straight(z) + (units * self.outputs).sum(axis=-1)

    def log_density(
        self, z: Float[Array, "*draws rows latents"], codes: Int[Array, " rows"]
    ) -> Float[Array, "*draws rows"]:
        """Return the log-density of latents of rows from the environments `codes`."""
        own = self.own[codes]
        mean = jnp.where(own, self.own_mean[codes], self.effects(z))
        log_scale = jnp.where(own, self.own_log_scale[codes], self.log_scale)
        standard = (z - mean) * jnp.exp(-log_scale)
        return (self.densities(standard) - log_scale).sum(axis=-1)

    def at_moments(self, noisy: Matrix, codes: NDArray[np.integer]) -> StructuralPrior:
        """Give latents the means and sds that they have in the data, without effects."""
        own = np.asarray(self.own)
        means = np.array([noisy[codes == e].mean(axis=0) for e in range(len(own))])
        scales = np.array([noisy[codes == e].std(axis=0) for e in range(len(own))])
        left_alone = ~own[codes]
        free = np.where(left_alone.any(axis=0), left_alone, True)
        mean = np.average(noisy, axis=0, weights=free)
        scale = np.sqrt(np.average((noisy - mean) ** 2, axis=0, weights=free))
        logs: Any = [np.log(np.maximum(values, _LEAST_SCALE)) for values in (scale, scales)]
        return replace(self, mean=mean, log_scale=logs[0], own_mean=means, own_log_scale=logs[1])
