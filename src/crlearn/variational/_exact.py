"""Fit a Gaussian prior to noisy latents behind a linear mixing: expectation and maximisation.

The likelihood is exact, as are posteriors: nothing is bounded and nothing is trained.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from crlearn.variational._components import Components
from crlearn.variational._prior import ExactPrior

Matrix = NDArray[np.floating]

_MOST_ROUNDS = 2000
_STILL = 1e-2  # nats, of all rows together, that a round gains


class ExactFit(NamedTuple):
    """A prior that was fitted.

    Attributes
    ----------
    prior
        The most likely one that was found.
    log_likelihood
        Of all rows after each round.
    settled
        Whether the last round gained next to nothing.
    """

    prior: Any
    log_likelihood: NDArray[np.floating]
    settled: bool


class _Moments(NamedTuple):
    """Of noisy latents in each component."""

    counts: NDArray[np.floating]
    means: Matrix
    covariances: NDArray[np.floating]


def fit_exactly(
    prior: ExactPrior, noisy: Matrix, noise: Matrix, codes: NDArray[np.integer]
) -> ExactFit:
    """Fit a prior from a start at the moments of the data.

    Parameters
    ----------
    prior
        Says which prior; what it holds is not looked at.
    noisy
        Latents with their noise, one row a sample.
    noise
        Covariance of the noise.
    codes
        Number of each row's environment.
    """
    prior = prior.at_moments(noisy, codes, noise)
    components = prior.components()
    moments = None
    values = []
    for _ in range(_MOST_ROUNDS):
        values.append(float(components.log_likelihood(noisy, noise, codes).sum()))
        if len(values) > 1 and values[-1] - values[-2] < _STILL:
            break
        if moments is None or not components.is_known:
            moments = _moments(components, noisy, noise, codes)
        prior = prior.maximised(*_expected(components, moments, noise))
        components = prior.components()
    settled = len(values) > 1 and values[-1] - values[-2] < _STILL
    return ExactFit(prior, np.array(values), settled)


def _moments(
    components: Components, noisy: Matrix, noise: Matrix, codes: NDArray[np.integer]
) -> _Moments:
    logs = components.log_weights[codes]
    if components.is_known:
        shares = np.isfinite(logs).astype(float)
    else:
        shares = np.exp(log_softmax(components.log_joint(noisy, noise, logs), axis=1))
    counts = shares.sum(axis=0)
    safe = np.maximum(counts, 1e-300)
    means = shares.T @ noisy / safe[:, None]
    squares = np.array([(share[:, None] * noisy).T @ noisy for share in shares.T])
    outer = np.einsum("ki,kj->kij", means, means)
    return _Moments(counts, means, squares / safe[:, None, None] - outer)


def _expected(components: Components, moments: _Moments, noise: Matrix) -> _Moments:
    """Return the moments that latents are expected to have without noise."""
    old = components.covariances
    gains = np.swapaxes(np.linalg.solve(old + noise, old), 1, 2)
    means = components.means + np.einsum("kij,kj->ki", gains, moments.means - components.means)
    seen = gains @ moments.covariances @ np.swapaxes(gains, 1, 2)
    return _Moments(moments.counts, means, seen + old - gains @ old)
