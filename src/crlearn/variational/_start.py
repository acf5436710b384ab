"""Where training starts: networks that are the linear map of an unmixing, and its moments.

From weights at random the bound is led to latents that are rotated against the truth, and stays
there: a start with the right axes is worth more than any number of restarts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from numpy.typing import NDArray

from crlearn.nets import MLP, BentLinear
from crlearn.variational._bound import LEAST_NOISE, EvidenceBound, Parameters, Rows

Matrix = NDArray[np.floating]

_LEAST_SCALE = 0.05  # of a posterior, for a latent whose sd is one over all rows


def straight_start(
    objective: EvidenceBound,
    rows: Rows,
    unmixing: Matrix,
    mixing: Matrix,
    noise_variance: float,
    key: PRNGKeyArray,
) -> Parameters:
    """Draw networks that are straight.

    Parameters
    ----------
    objective
        What they are trained for.
    rows
        The data.
    unmixing, mixing
        Latents are ``unmixing @ x``, and x is ``mixing @ z``. Latents are given unit sd.
    noise_variance
        Of the measurement.
    key
        Of what is random: hidden units.
    """
    z = np.asarray(rows.x, dtype=float) @ unmixing.T
    scale = np.where(z.std(axis=0) > 0, z.std(axis=0), 1.0)
    drawn = objective.init(key)
    noise_variance = max(noise_variance, LEAST_NOISE)
    started = Parameters(
        _encoder(drawn.encoder, unmixing / scale[:, None], noise_variance),
        _with_matrix(drawn.decoder, (mixing * scale).T),
        jnp.asarray(np.log(noise_variance), float),
        drawn.prior.at_moments(z / scale, np.asarray(rows.codes)),
    )
    return jax.tree.map(lambda leaf: np.asarray(jnp.asarray(leaf)), started)


def _encoder(drawn: BentLinear, unmixing: Matrix, noise_variance: float) -> BentLinear:
    """Return the linear map; posterior variances are those of the noise."""
    n, n_features = unmixing.shape
    matrix = np.zeros(drawn.matrix.shape)
    matrix[:n_features, :n] = unmixing.T
    scales = np.zeros(matrix.shape[1])
    spread = noise_variance * (unmixing**2).sum(axis=1)
    scales[n : 2 * n] = 0.5 * np.log(np.clip(spread, _LEAST_SCALE**2, 1.0))
    bend = drawn.bend
    biases = (*bend.biases[:-1], jnp.asarray(scales, float))
    return _with_matrix(replace(drawn, bend=MLP(bend.weights, biases, bend.activation)), matrix)


def _with_matrix(network: Any, matrix: Matrix) -> Any:
    return eqx.tree_at(lambda net: net.matrix, network, jnp.asarray(matrix, float))
