"""Pools: for each latent, the environments that share its mechanism.

An environment that does not touch latent j leaves its mechanism as it was; these environments
together are pool 0 of j. Those that do touch it are other pools. Everything the Gaussian model
needs of the data are the covariances of the pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]

# How many rows of an environment fourth moments are taken of, and how many products of features.
_MOST_ROWS = 20_000
_MOST_PRODUCTS = 1_500_000_000
_BLOCK = 1024
_LEAST_SIGNAL = 0.01  # share of the variance in a direction that is not noise


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows of each environment, and a matrix that they are still to be multiplied by."""

    rows: tuple[Matrix, ...]
    matrix: Matrix


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and covariances of the environments.

    Attributes
    ----------
    sizes
        Number of rows of each environment, ``(E,)``.
    means
        ``(E, n)``.
    covariances
        Around the environment's own mean, ``(E, n, n)``.
    sample
        Rows from which fourth moments can be had; None: rows are taken for Gaussian.
    free_means
        Whether each environment has a mean of its own that no mechanism explains; `means` are zero
        then.
    noise
        Covariance of the measurement noise of the rows of each environment, ``(E, n, n)``, which
        the covariances are without.
    """

    sizes: NDArray[np.intp]
    means: Matrix
    covariances: Matrix
    sample: Sample | None = None
    free_means: bool = False
    noise: Matrix | None = None

    @classmethod
    def of(
        cls,
        environments: Sequence[Matrix],
        *,
        free_means: bool = False,
        noise: Matrix | None = None,
    ) -> Moments:
        """Return the moments of the rows of each environment, less those of their noise."""
        means = np.array([rows.mean(axis=0) for rows in environments])
        covariances = np.array(
            [np.cov(rows.T, bias=True).reshape(2 * rows.shape[1:]) for rows in environments]
        )
        return cls(
            np.array([len(rows) for rows in environments]),
            0 * means if free_means else means,
            covariances if noise is None else _without(covariances, noise),
            Sample(tuple(environments), np.eye(environments[0].shape[1])),
            free_means,
            noise,
        )

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return self.means.shape[1]

    @property
    def n_samples(self) -> int:
        """Number of rows of all environments."""
        return int(self.sizes.sum())

    @property
    def shares(self) -> Matrix:
        """Share of the rows that each environment has."""
        return self.sizes / self.n_samples

    def transformed(self, matrix: Matrix) -> Moments:
        """Return the moments of ``matrix @ x``."""
        return Moments(
            self.sizes,
            self.means @ matrix.T,
            matrix @ self.covariances @ matrix.T,
            None if self.sample is None else Sample(self.sample.rows, matrix @ self.sample.matrix),
            self.free_means,
            None if self.noise is None else matrix @ self.noise @ matrix.T,
        )

    @cached_property
    def measured(self) -> Moments:
        """The moments of the rows as they are, noise and all."""
        assert self.sample is not None
        rows = [each @ self.sample.matrix.T for each in self.sample.rows]
        return Moments.of(rows, free_means=self.free_means)

    def pooled(self, weights: ArrayLike) -> Matrix:
        """Return covariances of mixtures of environments, each around the mixture's own mean.

        `weights` has one row for each mixture and need not be normalised.
        """
        shares: Matrix = np.asarray(weights, dtype=float)
        shares = shares / shares.sum(axis=-1, keepdims=True)
        second = self.covariances + np.einsum("ei,ej->eij", self.means, self.means)
        mean = shares @ self.means
        return np.tensordot(shares, second, 1) - mean[..., :, None] * mean[..., None, :]

    @cached_property
    def saturated(self) -> float:
        """Half the log-determinants, weighted: the lowest value that any Gaussian model reaches."""
        return float(0.5 * self.shares @ np.linalg.slogdet(self.covariances)[1])

    @cached_property
    def quadratic_moments(self) -> Matrix | None:
        """Second moments of `quadratic_features` of whitened rows, ``(2, E, m, m)``.

        The features have mean zero, and for Gaussian rows the identity as their second moments.
        Halves of the rows are kept apart: products of the two have no bias. Where means are free,
        products are the only features. None without rows.
        """
        if self.sample is None:
            return None
        found = np.stack(
            [
                _quadratic_moments(rows @ self.sample.matrix.T, covariance, self.noise)
                for rows, covariance in zip(self.sample.rows, self.covariances, strict=True)
            ],
            axis=1,
        )
        first = self.n_variables if self.free_means else 0
        return found[:, :, first:, first:]


def _without(covariances: Matrix, noise: Matrix) -> Matrix:
    """Take noise off covariances; what is left is positive in every direction."""
    root = np.linalg.cholesky(covariances)
    inverse = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(inverse @ noise @ np.swapaxes(inverse, 1, 2))
    kept = np.maximum(1 - values, _LEAST_SIGNAL)
    axes = root @ vectors
    return (axes * kept[:, None, :]) @ np.swapaxes(axes, 1, 2)


def quadratic_features(y: Matrix) -> Matrix:
    """Return y, its products, and squares less one over sqrt(2): mean 0, variance 1 if normal."""
    a, b = np.triu_indices(y.shape[1])
    products = y[:, a] * y[:, b]
    products[:, a == b] = (products[:, a == b] - 1) / np.sqrt(2)
    return np.concatenate([y, products], axis=1)


def _quadratic_moments(rows: Matrix, covariance: Matrix, noise: Matrix | None) -> Matrix:
    """Return the second moments in two halves of some of the rows, each ``(m, m)``.

    With noise, rows are larger than the covariance says, and features have other means than zero.
    """
    n = len(covariance)
    m = n * (n + 3) // 2
    most = min(_MOST_ROWS, _MOST_PRODUCTS // m**2)
    some = rows[:: -(-len(rows) // most)] - rows.mean(axis=0)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), some.T).T
    centre = np.zeros(m) if noise is None else _mean_of_features(whitened)
    sums = np.zeros((2, m, m))
    for start in range(0, len(whitened), 2 * _BLOCK):
        for half in (0, 1):
            features = quadratic_features(whitened[start + half : start + 2 * _BLOCK : 2])
            features -= centre
            sums[half] += features.T @ features
    counts = np.array([-(-len(whitened) // 2), len(whitened) // 2])
    return sums / counts[:, None, None]


def _mean_of_features(y: Matrix) -> Matrix:
    """Return the mean of `quadratic_features` of rows whose own mean is zero."""
    n = y.shape[1]
    second = y.T @ y / len(y) - np.eye(n)
    second[np.diag_indices(n)] /= np.sqrt(2)
    return np.concatenate([np.zeros(n), second[np.triu_indices(n)]])


@dataclass(frozen=True, eq=False)
class Pools:
    """Covariances and shares of the pools of each latent.

    Attributes
    ----------
    covariances
        ``covariances[j, p]`` belongs to pool p of latent j, ``(n, P, n, n)``.
    shares
        Share of all rows that a pool has; zero for pools that a latent does not have, ``(n, P)``.
    """

    covariances: Matrix
    shares: Matrix

    @classmethod
    def of(cls, moments: Moments, pool: IntMatrix) -> Pools:
        """Form the pools; ``pool[j, e]`` is the pool of environment e for latent j."""
        n_latents, n_pools = len(pool), int(pool.max()) + 1
        members = pool[:, None, :] == np.arange(n_pools)[:, None]
        weights = members * moments.shares
        shares = weights.sum(axis=-1)
        # A pool without rows has weight zero in every sum; any covariance will do.
        weights = np.where(shares[..., None] > 0, weights, moments.shares)
        covariances = moments.pooled(weights.reshape(n_latents * n_pools, -1))
        n = moments.n_variables
        return cls(covariances.reshape(n_latents, n_pools, n, n), shares)

    @property
    def n_pools(self) -> int:
        """Number of pools of each latent."""
        return self.shares.shape[1]
