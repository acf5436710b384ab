"""The prior of perturbations that add something: linear mechanisms, shifted where they are hit.

Environments differ in the means of their targets' noises and in nothing else: mechanisms and noise
variances are the same in all. Without effects between latents this is the prior of additive shifts
in single-cell models, where latents of an environment are those of all others plus a constant.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import NDArray

from crlearn.nets import AnyArray
from crlearn.tags import stored
from crlearn.variational._components import Components, without_noise
from crlearn.variational._prior import KnownCauses

Matrix = NDArray[np.floating]

_LOG_2_PI = float(np.log(2 * np.pi))
_LEAST_VARIANCE = 1e-6  # of a noise, relative to its latent


@stored("prior/shift")
class ShiftPrior(KnownCauses):
    """Linear mechanisms with Gaussian noises, whose targets are shifted.

    Attributes
    ----------
    shifts
        ``shifts[e, j]``: what environment e adds to latent j.
    slopes, mean, log_scale, own, causes
        See `KnownCauses`.
    """

    slopes: Float[AnyArray, "latents latents"]
    mean: Float[AnyArray, " latents"]
    log_scale: Float[AnyArray, " latents"]
    shifts: Float[AnyArray, "environments latents"]
    own: Bool[AnyArray, "environments latents"]
    causes: Bool[AnyArray, "latents latents"]

    @classmethod
    def without_effects(cls, own: NDArray[np.bool_], causes: NDArray[np.bool_]) -> ShiftPrior:
        """Return latents that are standard normal and not shifted yet."""
        n_environments, n = own.shape
        return cls(
            slopes=jnp.zeros((n, n)),
            mean=jnp.zeros(n),
            log_scale=jnp.zeros(n),
            shifts=jnp.zeros((n_environments, n)),
            own=jnp.asarray(own),
            causes=jnp.asarray(causes),
        )

    def log_density(
        self, z: Float[Array, "*draws rows latents"], codes: Int[Array, " rows"]
    ) -> Float[Array, "*draws rows"]:
        """Return the log-density of latents of rows from the environments `codes`."""
        mean = self.straight(z) + (self.shifts * self.own)[codes]
        standard = (z - mean) * jnp.exp(-self.log_scale)
        return (-0.5 * (standard**2 + _LOG_2_PI) - self.log_scale).sum(axis=-1)

    def components(self) -> Components:
        """Return the Gaussian of each environment."""
        slopes, own = np.asarray(self.slopes, float) * self.causes, np.asarray(self.own)
        total = np.linalg.inv(np.eye(self.n_latents) - slopes)
        means = (np.asarray(self.mean, float) + np.asarray(self.shifts, float) * own) @ total
        covariance = (total.T * np.exp(2 * np.asarray(self.log_scale, float))) @ total
        n = self.n_environments
        return Components(
            np.where(np.eye(n, dtype=bool), 0.0, -np.inf), means, np.array([covariance] * n)
        )

    def maximised(
        self, counts: NDArray[np.floating], means: Matrix, covariances: NDArray[np.floating]
    ) -> ShiftPrior:
        """Return the prior that is most likely for latents with these moments in each environment.

        A regression for each latent: on its causes, a constant, and one for each environment that
        intervenes on it.
        """
        own, causes = np.asarray(self.own), np.asarray(self.causes)
        n_environments, n = own.shape
        squares = covariances + np.einsum("ei,ej->eij", means, means)
        slopes, mean, scale = np.zeros((n, n)), np.zeros(n), np.zeros(n)
        shifts = np.zeros((n_environments, n))
        for j in range(n):
            parents, hit = np.flatnonzero(causes[:, j]), np.flatnonzero(own[:, j])
            p, free = len(parents), not own[:, j].all()
            # After its causes: a constant, and one for each of these environments.
            marks = np.eye(n_environments)[:, hit]
            if free:
                marks = np.column_stack([np.ones(n_environments), marks])
            gram = np.zeros((p + marks.shape[1],) * 2)
            moment = np.zeros(len(gram))
            for e in range(n_environments):
                across = np.outer(means[e, parents], marks[e])
                inner = squares[e][np.ix_(parents, parents)]
                gram += counts[e] * np.block(
                    [[inner, across], [across.T, np.outer(marks[e], marks[e])]]
                )
                moment += counts[e] * np.r_[squares[e][parents, j], marks[e] * means[e, j]]
            found = np.linalg.lstsq(gram, moment, rcond=None)[0]
            slopes[parents, j], mean[j] = found[:p], found[p] if free else 0.0
            shifts[hit, j] = found[p + free :]
            total = counts @ squares[:, j, j]
            left = (total - found @ moment) / counts.sum()
            scale[j] = max(left, _LEAST_VARIANCE * total / counts.sum())
        return replace(self, slopes=slopes, mean=mean, log_scale=0.5 * np.log(scale), shifts=shifts)

    def at_moments(
        self, noisy: Matrix, codes: NDArray[np.integer], noise: Matrix | None = None
    ) -> ShiftPrior:
        """Return where a fit to noisy latents starts; without `noise` they have none."""
        parts = [noisy[codes == e] for e in range(self.n_environments)]
        counts = np.array([len(part) for part in parts], dtype=float)
        means = np.array([part.mean(axis=0) for part in parts])
        covariances = np.array(
            [np.cov(part.T, ddof=0).reshape(noisy.shape[1], -1) for part in parts]
        )
        if noise is not None:
            covariances = np.array([without_noise(each, noise) for each in covariances])
        return self.maximised(counts, means, covariances)
