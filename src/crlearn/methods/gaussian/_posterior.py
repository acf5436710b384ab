"""Posteriors under a prior of Gaussian components: what a closed form leaves behind as encoder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crlearn.scores import Posterior
from crlearn.tags import stored
from crlearn.variational import Components

Matrix = NDArray[np.floating]


@stored("encoder/components")
@dataclass(frozen=True, eq=False)
class ComponentsPosterior:
    """Exact posteriors of latents behind a linear mixing.

    Attributes
    ----------
    matrix, offset
        Noisy latents are ``matrix @ (x - offset)``.
    noise
        Covariance of their noise.
    prior
        Of the latents, in the same units.
    shares
        Of the environments in the fit.
    largest
        Length of the longest row of noisy latents in the fit.
    reach
        What `beyond` is at most in the fit.
    """

    matrix: Matrix
    offset: NDArray[np.floating]
    noise: Matrix
    prior: Components
    shares: NDArray[np.floating]
    largest: float = np.inf
    reach: float = 1.0

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return len(self.matrix)

    def __call__(self, X: Matrix) -> Matrix:
        """Return the posterior means of rows from unknown environments."""
        return self.posterior(X).mean

    def noisy(self, X: Matrix) -> Matrix:
        """Return the latents with their noise."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is caught later
            return (np.asarray(X, dtype=float) - self.offset) @ self.matrix.T

    def beyond(self, X: Matrix) -> NDArray[np.floating]:
        """Return how long each row is, compared with the longest one of the fit."""
        return np.linalg.norm(self.noisy(X), axis=1) / self.largest

    def posterior(self, X: Matrix, codes: NDArray[np.integer] | None = None) -> Posterior:
        """Return means and variances; `codes` are the numbers of the rows' environments.

        Without them any environment may have made a row, by its share in the fit.
        """
        if codes is None:
            with np.errstate(divide="ignore"):
                log_weights = np.log(self.shares @ np.exp(self.prior.log_weights))
        else:
            log_weights = self.prior.log_weights[codes]
        return Posterior(*self.prior.posterior(self.noisy(X), self.noise, log_weights))
