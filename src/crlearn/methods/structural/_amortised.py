"""Posteriors that a network gives: what a variational fit leaves behind as encoder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from crlearn.methods.structural._checks import Scored
from crlearn.nets import apply_in_blocks
from crlearn.scores import Posterior
from crlearn.tags import stored
from crlearn.variational import Gaussian, Parameters, Rows, draw, log_weights, posterior

Matrix = NDArray[np.floating]

# Draws from which the likelihood of an environment is told where it is not known, in pairs of
# opposite signs. Importance weights of 64 draws are worth 56 to 64 equal ones in linear worlds
# (development seeds 0 to 2): a few are enough.
_PAIRS_OF_DRAWS = 8
_WIDE_DRAWS, _WIDTH = 64, 1.5


@stored("encoder/amortised")
@dataclass(frozen=True, eq=False)
class AmortisedPosterior:
    """Gaussian posteriors of latents given a row and its environment.

    Attributes
    ----------
    params
        Networks, noise and prior; see `crlearn.variational`.
    offset, scale
        Features are ``(x - offset) / scale``.
    basis
        What they are multiplied with, one column a coordinate.
    mean, unit
        Latents in users' units are ``(z - mean) / unit``.
    shares
        Of the environments in the fit.
    largest
        Length of the longest row of the fit, in these coordinates.
    """

    params: Parameters
    offset: NDArray[np.floating]
    scale: NDArray[np.floating]
    basis: NDArray[np.floating]
    mean: NDArray[np.floating]
    unit: NDArray[np.floating]
    shares: NDArray[np.floating]
    largest: float = np.inf
    reach: float = 1.0

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return len(self.mean)

    def __call__(self, X: Matrix) -> Matrix:
        """Return the posterior means of rows from unknown environments."""
        return self.posterior(X).mean

    def coordinates(self, X: Matrix) -> Matrix:
        """Return rows as the networks see them."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is caught later
            return (np.asarray(X, dtype=float) - self.offset) / self.scale @ self.basis

    def beyond(self, X: Matrix) -> NDArray[np.floating]:
        """Return how long each row is, compared with the longest one of the fit."""
        return np.linalg.norm(self.coordinates(X), axis=1) / self.largest

    def posterior(self, X: Matrix, codes: NDArray[np.integer] | None = None) -> Posterior:
        """Return means and variances; `codes` are the numbers of the rows' environments.

        Without them the posterior is the mixture of those of all environments, by their shares in
        the fit and by how likely they make the row.
        """
        rows = self.coordinates(X)
        if codes is None:
            compiled = partial(_mixed, self.params, np.log(self.shares))
        else:
            compiled = partial(_of_environments, self.params)
            rows = np.column_stack([rows, codes])
        mean, variance = apply_in_blocks(compiled, rows.astype(np.float32))
        return Posterior(
            (np.asarray(mean, dtype=float) - self.mean) / self.unit,
            np.asarray(variance, dtype=float) / self.unit**2,
        )

    def scored(self, X: Matrix, codes: NDArray[np.integer], seed: int) -> Scored:
        """Return draws of each row's latents, wider than its posterior, and what speaks for them.

        Wider, so that a prior which the posterior was not made for finds its latents among them.
        """
        shape = (len(X), _WIDE_DRAWS * self.n_latents)
        noise = _WIDTH * np.random.default_rng(seed).standard_normal(shape)
        rows = np.column_stack([self.coordinates(X), codes, noise]).astype(np.float32)
        z, ratio, prior = apply_in_blocks(partial(_scored, self.params), rows)
        draws_first = lambda part: np.moveaxis(np.asarray(part, dtype=float), 1, 0)  # noqa: E731
        return Scored(draws_first(z), draws_first(ratio), draws_first(prior), codes)


@stored("decoder/amortised")
@dataclass(frozen=True, eq=False)
class AmortisedDecoder:
    """The features that latents make, without noise."""

    encoder: AmortisedPosterior

    def __call__(self, Z: Matrix) -> Matrix:
        """Return the features at each row of `Z`."""
        z = np.asarray(Z, dtype=float) * self.encoder.unit + self.encoder.mean
        rows = apply_in_blocks(partial(_decoded, self.encoder.params), z.astype(np.float32))
        features = np.asarray(rows, dtype=float) @ self.encoder.basis.T
        return features * self.encoder.scale + self.encoder.offset


@eqx.filter_jit
def _of_environments(params: Parameters, block: Any) -> tuple[Any, Any]:
    return _moments(posterior(params, block[:, :-1], _codes(block[:, -1])))


@eqx.filter_jit
def _scored(params: Parameters, block: Any) -> tuple[Any, Any, Any]:
    n, n_rows = params.prior.n_latents, len(block)
    n_columns = block.shape[1] - _WIDE_DRAWS * n
    x, codes = block[:, : n_columns - 1], _codes(block[:, n_columns - 1])
    noise = jnp.moveaxis(block[:, n_columns:].reshape(n_rows, _WIDE_DRAWS, n), 1, 0)
    q = posterior(params, x, codes)
    z = draw(q, noise)
    prior = params.prior.log_density(z, codes)
    # Weights are for draws of standard width: those here have a density that is wider.
    weights = log_weights(params, Rows(x, jnp.zeros(n_rows), codes), q, noise, 0)
    wider = 0.5 * (noise**2).sum(axis=-1) * (_WIDTH**-2 - 1) + n * np.log(_WIDTH)
    return jax.tree.map(lambda part: jnp.moveaxis(part, 0, 1), (z, weights - prior + wider, prior))


@eqx.filter_jit
def _decoded(params: Parameters, block: Any) -> Any:
    return params.decoder(block)


@eqx.filter_jit
def _mixed(params: Parameters, log_shares: Any, block: Any) -> tuple[Any, Any]:
    """Return the moments of the mixture over environments."""
    n_environments, n = params.prior.n_environments, params.prior.n_latents
    # The same draws for all rows: a row has the same bits whatever stands beside it.
    half = jax.random.normal(jax.random.key(0), (_PAIRS_OF_DRAWS, 1, n), block.dtype)
    noise = jnp.broadcast_to(jnp.concatenate([half, -half]), (2 * len(half), len(block), n))

    def of_environment(code: Any) -> tuple[Any, Any, Any]:
        codes = jnp.full(len(block), code)
        q = posterior(params, block, codes)
        weights = log_weights(params, Rows(block, jnp.zeros(len(block)), codes), q, noise, 0)
        return jax.nn.logsumexp(weights, axis=0), *_moments(q)

    evidence, means, variances = jax.lax.map(of_environment, jnp.arange(n_environments))
    weights = jax.nn.softmax(evidence + log_shares[:, None], axis=0)[..., None]
    mean = (weights * means).sum(axis=0)
    return mean, (weights * (variances + (means - mean) ** 2)).sum(axis=0)


def _moments(q: Gaussian) -> tuple[Any, Any]:
    return q.mean, (q.root**2).sum(axis=-1)


def _codes(column: Any) -> Any:
    return column.astype(jnp.int32)
