"""Gaussian priors: one for all rows, one for each environment, or a mixture that nobody labels.

In a linear mixing the first is that of probabilistic principal components, and behind a network of
a plain variational autoencoder; the second that of a conditional one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture

from crlearn.nets import AnyArray
from crlearn.tags import stored
from crlearn.variational._components import Components, covariance_of, without_noise

Matrix = NDArray[np.floating]
Kind = Literal["normal", "mixture", "conditional"]

_LOG_2_PI = float(np.log(2 * np.pi))
_LEAST_VARIANCE = 1e-6  # of latents, relative to their size: roots are those of regular matrices
_PATIENCE = 2  # numbers of components in turn that are no better
_STARTS = 3


@stored("prior/gaussians")
class GaussianPrior(eqx.Module):
    """A mixture of Gaussians with full covariances; environments have some of its components.

    Attributes
    ----------
    log_weights
        Of the components, up to a constant.
    means
        Of the latents in each component.
    log_scales, shears
        The triangular root of a covariance is ``diag(exp(log_scale)) @ (1 + lower(shear))``.
    allowed
        ``allowed[e, k]``: environment e has component k. Not trained.
    """

    log_weights: Float[AnyArray, " components"]
    means: Float[AnyArray, "components latents"]
    log_scales: Float[AnyArray, "components latents"]
    shears: Float[AnyArray, "components latents latents"]
    allowed: Bool[AnyArray, "environments components"]

    @classmethod
    def standard(
        cls, kind: Kind, n_environments: int, n_latents: int, n_components: int = 1
    ) -> GaussianPrior:
        """Return standard normal components; `n_components` is that of mixtures."""
        allowed = np.ones((n_environments, 1), bool)
        if kind == "conditional":
            allowed = np.eye(n_environments, dtype=bool)
        elif kind == "mixture":
            allowed = np.ones((n_environments, n_components), bool)
        k, n = allowed.shape[1], n_latents
        return cls(
            jnp.zeros(k),
            jnp.zeros((k, n)),
            jnp.zeros((k, n)),
            jnp.zeros((k, n, n)),
            jnp.asarray(allowed),
        )

    @property
    def n_environments(self) -> int:
        """Number of environments."""
        return self.allowed.shape[0]

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.means.shape[1]

    @property
    def roots(self) -> Float[Array, "components latents latents"]:
        """Triangular roots of the covariances."""
        lower = jnp.tril(self.shears, -1) + jnp.eye(self.n_latents)
        return jnp.exp(self.log_scales)[..., None] * lower

    def log_density(
        self, z: Float[Array, "*draws rows latents"], codes: Int[Array, " rows"]
    ) -> Float[Array, "*draws rows"]:
        """Return the log-density of latents of rows from the environments `codes`."""
        identity = jnp.broadcast_to(jnp.eye(self.n_latents), self.shears.shape)
        inverse = jax.scipy.linalg.solve_triangular(self.roots, identity, lower=True)
        standard = jnp.einsum("kij,...kj->...ki", inverse, z[..., None, :] - self.means)
        density = -0.5 * (standard**2 + _LOG_2_PI).sum(axis=-1) - self.log_scales.sum(axis=-1)
        weights = jnp.where(self.allowed, self.log_weights, -jnp.inf)
        return jax.nn.logsumexp(density + jax.nn.log_softmax(weights, axis=1)[codes], axis=-1)

    def components(self) -> Components:
        """Return the same in double precision, for what has a closed form."""
        logs = np.where(self.allowed, np.asarray(self.log_weights, dtype=float), -np.inf)
        with np.errstate(divide="ignore"):
            shares = np.exp(logs - logs.max(axis=1, keepdims=True))
            logs = np.log(shares / shares.sum(axis=1, keepdims=True))
        scales, shears = (np.asarray(part, float) for part in (self.log_scales, self.shears))
        roots = np.exp(scales)[..., None] * (np.tril(shears, -1) + np.eye(self.n_latents))
        return Components(logs, np.asarray(self.means, float), roots @ np.swapaxes(roots, 1, 2))

    def maximised(
        self, counts: NDArray[np.floating], means: Matrix, covariances: NDArray[np.floating]
    ) -> GaussianPrior:
        """Return the prior that is most likely for latents with these moments in each component."""
        size = np.trace(covariances, axis1=1, axis2=2).mean() / self.n_latents
        least = max(_LEAST_VARIANCE * size, np.finfo(float).tiny)
        roots = np.linalg.cholesky(covariances + least * np.eye(self.n_latents))
        scales = np.diagonal(roots, axis1=1, axis2=2)
        return replace(
            self,
            log_weights=np.log(np.maximum(counts, 1e-300)),
            means=means,
            log_scales=np.log(scales),
            shears=roots / scales[..., None],
        )

    def at_moments(
        self, noisy: Matrix, codes: NDArray[np.integer], noise: Matrix | None = None
    ) -> GaussianPrior:
        """Return where a fit to noisy latents starts: it is the answer but for small latents.

        Without `noise` latents have none.
        """
        groups = codes if self.allowed.shape[1] > 1 else np.zeros_like(codes)
        counts = np.bincount(groups, minlength=self.allowed.shape[1]).astype(float)
        if self.allowed.all() and self.allowed.shape[1] > 1:
            found: Any = _mixture(noisy, self.allowed.shape[1])
            counts, means, covariances = found.weights_, found.means_, found.covariances_
        else:
            parts = [noisy[groups == k] for k in range(self.allowed.shape[1])]
            means = np.array([part.mean(axis=0) for part in parts])
            covariances = np.array([covariance_of(part) for part in parts])
        if noise is not None:
            covariances = np.array([without_noise(each, noise) for each in covariances])
        return self.maximised(counts, means, covariances)


def number_of_components(noisy: Matrix) -> int:
    """Return how many Gaussians describe rows best, by the Bayesian information criterion."""
    best, best_price, k = 1, np.inf, 1
    while k <= min(best + _PATIENCE, len(noisy)):
        price = _mixture(noisy, k).bic(noisy)
        if price < best_price:
            best, best_price = k, price
        k += 1
    return best


def _mixture(rows: Matrix, n_components: int) -> GaussianMixture:
    return GaussianMixture(n_components, n_init=_STARTS, random_state=0).fit(rows)
