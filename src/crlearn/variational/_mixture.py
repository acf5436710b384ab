"""The prior of latents that belong to components which are not observed: a mixture of Gaussians."""

from __future__ import annotations

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from crlearn.nets import AnyArray
from crlearn.tags import stored

_LOG_2_PI = float(np.log(2 * np.pi))


@stored("prior/mixture")
class MixturePrior(eqx.Module):
    """A mixture of Gaussians with diagonal covariances.

    Attributes
    ----------
    log_weights
        Of the components, up to a constant.
    means, log_variances
        Of each latent in each component.
    """

    log_weights: Float[AnyArray, " components"]
    means: Float[AnyArray, "components latents"]
    log_variances: Float[AnyArray, "components latents"]

    @classmethod
    def standard(cls, n_components: int, n_latents: int) -> MixturePrior:
        """Return components that are all standard Gaussian."""
        shape = (n_components, n_latents)
        return cls(jnp.zeros(n_components), jnp.zeros(shape), jnp.zeros(shape))

    @classmethod
    def of(cls, codes: NDArray[np.floating], n_components: int, seed: int) -> MixturePrior:
        """Return the mixture that is most likely for these latents, as far as EM finds it."""
        found: Any = GaussianMixture(n_components, covariance_type="diag", random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # training goes on from there
            found.fit(codes)
        return cls(np.log(found.weights_), found.means_, np.log(found.covariances_))

    @property
    def weights(self) -> NDArray[np.floating]:
        """Share of the rows that belong to each component."""
        return softmax(np.asarray(self.log_weights, dtype=float))

    @property
    def variances(self) -> NDArray[np.floating]:
        """Variance of each latent over all components."""
        means, own = np.asarray(self.means, float), np.exp(np.asarray(self.log_variances, float))
        return self.weights @ (own + (means - self.weights @ means) ** 2)

    def in_units(self, shift: NDArray[np.floating], stretch: NDArray[np.floating]) -> MixturePrior:
        """Return the mixture of latents that are stretched first and shifted then."""
        means = np.asarray(self.means, dtype=float) * stretch + shift
        log_variances = np.asarray(self.log_variances, dtype=float) + 2 * np.log(stretch)
        return MixturePrior(np.asarray(self.log_weights, dtype=float), means, log_variances)

    def likeliest(self, z: NDArray[np.floating]) -> NDArray[np.intp]:
        """Return the component of each row that is most likely given its latents."""
        return np.asarray(self.log_joint(z)).argmax(axis=1)

    def log_joint(self, z: Float[AnyArray, "rows latents"]) -> Float[Array, "rows components"]:
        """Return log p(c) + log p(z | c) for each component c."""
        distances = (z[:, None, :] - self.means) ** 2 * jnp.exp(-self.log_variances)
        densities = -0.5 * (distances + self.log_variances + _LOG_2_PI).sum(axis=-1)
        return jax.nn.log_softmax(self.log_weights) + densities

    def log_density(self, z: Float[AnyArray, "rows latents"]) -> Float[Array, " rows"]:
        """Return log p(z)."""
        return jax.nn.logsumexp(self.log_joint(z), axis=1)
