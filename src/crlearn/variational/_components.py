"""Priors that are Gaussians in each environment, or mixtures of them, behind a linear mixing.

Noisy latents of a component are Gaussian, too, so that posteriors have a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import log_softmax, logsumexp

from crlearn.tags import stored

Matrix = NDArray[np.floating]

_LOG_2_PI = float(np.log(2 * np.pi))


@stored("prior/components")
@dataclass(frozen=True, eq=False)
class Components:
    """Gaussian components of the latents, and how often each environment has them.

    Attributes
    ----------
    log_weights
        ``(environments, components)``; minus infinity where an environment does not have one.
    means, covariances
        ``(components, latents)`` and ``(components, latents, latents)``.
    """

    log_weights: NDArray[np.floating]
    means: NDArray[np.floating]
    covariances: NDArray[np.floating]

    @property
    def is_known(self) -> bool:
        """Whether the environment of a row says its component."""
        return bool((np.isfinite(self.log_weights).sum(axis=1) == 1).all())

    def log_joint(self, noisy: Matrix, noise: Matrix, log_weights: Matrix) -> Matrix:
        """Return log p(c) + log p(z + noise | c) of each row and component.

        Parameters
        ----------
        noisy
            Latents with their noise, one row a sample.
        noise
            Covariance of the noise.
        log_weights
            Of the components, for each row or for all.
        """
        n = noisy.shape[1]
        joint = np.empty((len(noisy), len(self.means)))
        for k, (mean, covariance) in enumerate(zip(self.means, self.covariances, strict=True)):
            root = np.linalg.cholesky(covariance + noise)
            standard = solve_triangular(root, (noisy - mean).T, lower=True, check_finite=False)
            size = 2 * np.log(np.diag(root)).sum() + n * _LOG_2_PI
            joint[:, k] = -0.5 * ((standard**2).sum(axis=0) + size)
        return joint + log_weights

    def posterior(self, noisy: Matrix, noise: Matrix, log_weights: Matrix) -> tuple[Matrix, Matrix]:
        """Return posterior means and variances; arguments as for `log_joint`."""
        shares = np.exp(log_softmax(self.log_joint(noisy, noise, log_weights), axis=1))
        mean, square = np.zeros_like(noisy), np.zeros_like(noisy)
        for k, (centre, covariance) in enumerate(zip(self.means, self.covariances, strict=True)):
            gain = np.linalg.solve(covariance + noise, covariance).T
            own = centre + (noisy - centre) @ gain.T
            left = np.diag(covariance - gain @ covariance)
            mean += shares[:, [k]] * own
            square += shares[:, [k]] * (own**2 + left)
        return mean, np.maximum(square - mean**2, 0.0)

    def log_likelihood(
        self, noisy: Matrix, noise: Matrix, codes: NDArray[np.integer]
    ) -> NDArray[np.floating]:
        """Return log p(z + noise | e) of each row; `codes` number the environments."""
        total = np.empty(len(noisy))
        for e in range(len(self.log_weights)):
            mine = np.flatnonzero(codes == e)
            kept = np.flatnonzero(np.isfinite(self.log_weights[e]))
            some = Components(self.log_weights[:, kept], self.means[kept], self.covariances[kept])
            joint = some.log_joint(noisy[mine], noise, some.log_weights[e])
            total[mine] = logsumexp(joint, axis=1)
        return total


def without_noise(covariance: Matrix, noise: Matrix) -> Matrix:
    """Return the most likely covariance of latents whose noisy ones have this one.

    What is smaller than the noise, in some direction, is zero there.
    """
    root = np.linalg.cholesky(noise)
    inward = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(inward @ covariance @ inward.T)
    outward = root @ vectors
    return (outward * np.maximum(values - 1, 0)) @ outward.T


def covariance_of(rows: Matrix) -> Matrix:
    """Return the covariance of rows, that of the most likely Gaussian."""
    centred = rows - rows.mean(axis=0)
    return centred.T @ centred / len(rows)
