"""The likelihood of interventions: latents regressed on their predecessors, in closed form.

Every latent has one mechanism in the environments that leave it alone, and a mean and a variance of
its own in each environment that intervenes on it. Regressions and variances are those of the batch,
so that only the encoder and the features of the regressions are trained. While every environment
has a mean and a variance of its own for every latent, this is nonlinear ICA: the start of all fits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from numpy.typing import NDArray

from crlearn.flows._densities import Densities
from crlearn.flows._smooth import SmoothFlow
from crlearn.flows.interventional._structure import Assignment, Structure, revised
from crlearn.nets import evaluate

_SOFTENING = 0.01  # of the bend in the features sqrt(t^2 + this)
_LEAST_VARIANCE = 1e-8
_STRONG_RIDGE, _WEAK_RIDGE = 100.0, 1e-3


class Parameters(NamedTuple):
    """What is trained, and the structure, which is not.

    Attributes
    ----------
    flow
        The encoder.
    projections
        Of the predecessors of each latent, on which the features of its mechanism stand.
    densities
        Of the noise of each latent.
    own
        ``own[e, j]``: latent j has a mean and a variance of its own in environment e.
    before
        ``before[i, j]``: latent i may be a cause of latent j.
    given
        Whether targets and order came with the start, and stay.
    """

    flow: SmoothFlow
    projections: Float[Array, "kinds latents features latents"]
    densities: Densities
    own: Bool[Array, "environments latents"]
    before: Bool[Array, "latents latents"]
    given: Bool[Array, ""]


@dataclass(frozen=True)
class InterventionalObjective:
    """Minus the mean log-likelihood of the rows, up to a constant.

    A batch has rows of every environment side by side, ``(rows, environments, n)``.

    Attributes
    ----------
    n_latents
        Number of latents.
    shares
        Share of each environment in the likelihood.
    assignment
        What is known of the targets.
    n_features
        Features of each kind in a mechanism; 0: linear mechanisms.
    n_components
        Of the density of each latent's noise, a mixture of Gaussians; 1: Gaussian noise. The noise
        has one shape, wherever its variance changes.
    n_blocks, n_units
        Of the encoder; see `SmoothFlow`.
    free
        Share of the training in which every environment has means and variances of its own.
    settled
        Share of the training after which targets and order stay.
    """

    n_latents: int
    shares: tuple[float, ...]
    assignment: Assignment = field(compare=False)  # no part of what is compiled
    n_features: int = 8
    n_components: int = 4
    n_blocks: int = 4
    n_units: int | None = None
    free: float = 0.2
    settled: float = 0.6

    def init(self, key: PRNGKeyArray) -> Parameters:
        """Draw the encoder and the features; environments have nothing in common yet."""
        n = self.n_latents
        flow_key, feature_key, density_key = jax.random.split(key, 3)
        return Parameters(
            SmoothFlow.random(flow_key, n, self.n_blocks, self.n_units),
            jax.random.normal(feature_key, (2, n, self.n_features, n)),
            Densities.random(density_key, n, self.n_components),
            jnp.ones((len(self.shares), n), bool),
            jnp.zeros((n, n), bool),
            jnp.asarray(False),
        )

    def loss(
        self,
        params: Parameters,
        batch: Float[Array, "rows environments latents"],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Minus the mean log-likelihood, with mechanisms and variances profiled out."""
        z, log_determinant = params.flow.forward(batch)
        shares = jnp.asarray(self.shares, z.dtype)
        shared = shares[:, None] * ~params.own
        features = self._features(params, z)
        residuals, variances = regressed(z, features, shared, self._ridge(params, progress))
        centred = z - z.mean(axis=0)
        noises = jnp.where(params.own, centred, residuals)
        scales = jnp.sqrt(jnp.where(params.own, centred.var(axis=0), variances) + _LEAST_VARIANCE)
        log_density = params.densities(noises / scales) - jnp.log(scales)
        return -(shares * (log_density.sum(axis=2) + log_determinant).mean(axis=0)).sum()

    def _features(self, params: Parameters, z: Array) -> Float[Array, "rows envs latents features"]:
        """Return what each latent is regressed on: its predecessors, and functions of them."""
        standard = (z - z.mean((0, 1))) / jnp.sqrt(z.var((0, 1)) + _LEAST_VARIANCE)
        linear = standard[..., None, :] * params.before.T
        if not self.n_features:
            return linear
        masked = params.projections * params.before[None, :, None, :]
        scale = jnp.sqrt((masked**2).sum(axis=1, keepdims=True) + _LEAST_VARIANCE)
        inputs = jnp.einsum("...i,kifj->k...jf", standard, masked / scale)
        bends = jnp.sqrt(inputs[1] ** 2 + _SOFTENING)
        return jnp.concatenate([linear, jnp.tanh(inputs[0]), bends], axis=-1)

    def _ridge(self, params: Parameters, progress: Float[Array, ""]) -> Float[Array, ""]:
        """Hold mechanisms back at first: they must not explain what the encoder should."""
        middle = 0.5 * (self.free + self.settled)
        annealed = jnp.clip((progress - self.free) / (middle - self.free), 0, 1)
        share = jnp.where(params.given, 1.0, annealed)
        return _STRONG_RIDGE * (_WEAK_RIDGE / _STRONG_RIDGE) ** share

    def revise(
        self, params: Parameters, rows: NDArray[np.floating], progress: float
    ) -> Parameters | None:
        """Find targets and order anew, once the free start is over and until they are settled."""
        if params.given or not self.free <= progress <= self.settled:
            return None
        n_rows, n_environments, n = rows.shape
        z = np.asarray(evaluate(params.flow, np.asarray(rows).reshape(-1, n)), dtype=float)
        z = z.reshape(n_rows, n_environments, n)
        known = Structure(np.asarray(params.own), np.asarray(params.before))
        found = revised(
            z, known, np.array(self.shares), self.assignment, linear=not self.n_features
        )
        return params._replace(own=found.own, before=found.before)


def regressed(
    z: Float[Array, "rows environments latents"],
    features: Float[Array, "rows environments latents features"],
    shares: Float[Array, "environments latents"],
    ridge: Float[Array, ""],
) -> tuple[Float[Array, "rows environments latents"], Float[Array, " latents"]]:
    """Return the residuals of each latent, and their variance with the price of coefficients.

    Coefficients minimise that variance, so that its gradient is that at fixed coefficients: nothing
    is differentiated through the solution.
    """
    total = shares.sum(axis=0)
    weights = shares / jnp.where(total > 0, total, 1.0)  # of an environment, for each latent
    z = z - jnp.einsum("ej,ej->j", weights, z.mean(axis=0))
    features = features - jnp.einsum("ej,ejf->jf", weights, features.mean(axis=0))
    weighted = features * (weights / len(z))[..., None]
    sizes = jnp.einsum("bejf,bejf->jf", weighted, features) + _LEAST_VARIANCE
    coefficients = jax.lax.stop_gradient(_ridge_solution(z, features, weighted, ridge * sizes))
    residuals = z - jnp.einsum("bejf,jf->bej", features, coefficients)
    squares = jnp.einsum("ej,ej->j", weights, (residuals**2).mean(axis=0))
    return residuals, squares + ridge * (sizes * coefficients**2).sum(axis=-1)


def _ridge_solution(z: Array, features: Array, weighted: Array, penalty: Array) -> Array:
    gram = jnp.einsum("bejf,bejg->jfg", weighted, features)
    moments = jnp.einsum("bejf,bej->jf", weighted, z)
    system = gram + jnp.eye(features.shape[-1], dtype=z.dtype) * penalty[:, None]
    return jnp.linalg.solve(system, moments[..., None])[..., 0]
