"""A Gaussian of its own for every environment: the start for linear Gaussian latents.

Its optimum is affine in the latents if their covariances change enough, so that whatever is linear
can be found afterwards by moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from crlearn.flows._smooth import SmoothFlow

_LEAST_VARIANCE = 1e-6


class GaussianParameters(NamedTuple):
    """The encoder alone: means and covariances are those of the batch."""

    flow: SmoothFlow


@dataclass(frozen=True)
class GaussianObjective:
    """Minus the mean log-likelihood of the rows, up to a constant.

    A batch has rows of every environment side by side, ``(rows, environments, n)``.

    Attributes
    ----------
    n_latents
        Number of latents.
    shares
        Share of each environment in the likelihood.
    n_blocks, n_units
        Of the encoder; see `SmoothFlow`.
    """

    n_latents: int
    shares: tuple[float, ...]
    n_blocks: int = 6
    n_units: int | None = None

    def init(self, key: PRNGKeyArray) -> GaussianParameters:
        """Draw the encoder."""
        return GaussianParameters(
            SmoothFlow.random(key, self.n_latents, self.n_blocks, self.n_units)
        )

    def loss(
        self,
        params: GaussianParameters,
        batch: Float[Array, "rows environments latents"],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Minus the mean log-likelihood, with means and covariances profiled out."""
        z, log_determinant = params.flow.forward(batch)
        shares = jnp.asarray(self.shares, z.dtype)
        centred = z - z.mean(axis=0)
        covariances = jnp.einsum("bei,bej->eij", centred, centred) / len(z)
        covariances += _LEAST_VARIANCE * jnp.eye(self.n_latents, dtype=z.dtype)
        spreads = jax.vmap(lambda matrix: jnp.linalg.slogdet(matrix)[1])(covariances)
        return (shares * (0.5 * spreads - log_determinant.mean(axis=0))).sum()
