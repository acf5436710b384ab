"""Monotone links of features: x_k = g_k(h_k) with h in fewer dimensions than there are features.

Undoing the right links makes the features linear combinations of n variables, so that the trailing
eigenvalues of their correlation matrix vanish. Links are found by making these small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray
from scipy.special import ndtri

from crlearn.tags import stored
from crlearn.train import Settings, train

Matrix = NDArray[np.floating]

_KNOTS = 1000  # of a link, at quantiles of its feature
_UNITS = 6  # bends of a link, half of them up and half down
# Eigenvalues far below this share of a feature's variance count alike, and steps are large. Tanh of
# 100 mixtures of eight latents, 3,000 rows in each of 17 environments, development seeds 0 to 4:
# with 1e-7 and steps of .02 the largest trailing eigenvalue was larger in all five (.01 to .19),
# and in the world where a latent itself has no more than .16 it was lost (R2 .47, now .999).
_LEAST_EIGENVALUE = 1e-2
_LARGEST_STEP = 0.1
_MOST_ROWS = 20_000  # that links are learned from


@stored("map/links")
@dataclass(frozen=True, eq=False)
class Links:
    """An increasing function of each feature, linear between its knots and beyond them."""

    knots: NDArray[np.floating]
    values: NDArray[np.floating]

    def __call__(self, X: Matrix) -> Matrix:
        """Undo the links."""
        return _interpolated(X, self.knots, self.values)

    def inverse(self, H: Matrix) -> Matrix:
        """Apply the links."""
        return _interpolated(H, self.values, self.knots)


def _interpolated(X: Matrix, knots: Matrix, values: Matrix) -> Matrix:
    columns = []
    for x, at, value in zip(np.asarray(X, dtype=float).T, knots, values, strict=True):
        place = np.clip(np.searchsorted(at, x) - 1, 0, len(at) - 2)
        slope = (value[place + 1] - value[place]) / (at[place + 1] - at[place])
        columns.append(value[place] + slope * (x - at[place]))
    return np.stack(columns, axis=1)


class _Bends(NamedTuple):
    """Of the links on normal scores, for each feature."""

    slope: Float[Array, " features"]
    strength: Float[Array, "units features"]
    sharpness: Float[Array, "units features"]
    place: Float[Array, "units features"]

    def __call__(self, scores: Float[Array, "rows features"]) -> Float[Array, "rows features"]:
        total = jax.nn.softplus(self.slope) * scores
        for unit in range(_UNITS):
            up = 1.0 if unit % 2 else -1.0
            sharpness = jax.nn.softplus(self.sharpness[unit])
            inputs = sharpness * up * (scores - self.place[unit])
            bend = up * jax.nn.softplus(inputs) / sharpness
            total += jax.nn.softplus(self.strength[unit]) * bend
        return total


@dataclass(frozen=True)
class LinkObjective:
    """Mean logarithm of the trailing eigenvalues of the correlation matrix."""

    n_features: int
    n_latents: int

    def init(self, key: PRNGKeyArray) -> _Bends:
        """Draw links that leave normal scores nearly as they are."""
        shape = (_UNITS, self.n_features)
        return _Bends(
            jnp.full(self.n_features, 0.5),
            jnp.full(shape, -3.0),
            jnp.full(shape, 0.5),
            jax.random.normal(key, shape),
        )

    def loss(
        self,
        params: _Bends,
        batch: Float[Array, "rows features"],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Mean logarithm of the trailing eigenvalues."""
        values = params(batch)
        values = (values - values.mean(axis=0)) / values.std(axis=0)
        correlation = values.T @ values / len(values)
        trailing = jnp.linalg.eigvalsh(correlation)[: self.n_features - self.n_latents]
        return jnp.log(jnp.maximum(trailing, 0) + _LEAST_EIGENVALUE).mean()


def learn_links(X: Matrix, n_latents: int, seed: int, n_steps: int = 1000) -> Links:
    """Return links that bring the features as close to `n_latents` dimensions as they can.

    Parameters
    ----------
    X
        Rows; more features than latents.
    n_latents
        Dimensions.
    seed
        Of starts and batches.
    n_steps
        Of the training.
    """
    rng = np.random.default_rng(seed)
    some = X[rng.permutation(len(X))[:_MOST_ROWS]]
    levels = np.linspace(0.5 / len(some), 1 - 0.5 / len(some), min(_KNOTS, len(some)))
    knots = _increasing(np.quantile(some, levels, axis=0)).T
    scores = np.broadcast_to(ndtri(levels), knots.shape)
    rows = Links(knots, scores)(some).astype(np.float32)
    batch = min(max(500, 10 * X.shape[1]), len(rows))
    settings = Settings(
        max_epochs=max(1, n_steps // max(1, int(0.9 * len(rows)) // batch)),
        batch_size=batch,
        learning_rate=_LARGEST_STEP,
        patience=None,
    )
    objective = LinkObjective(X.shape[1], n_latents)
    bends = train(objective, rows, settings, seed=seed, description="links").params
    values = np.asarray(_Bends(*map(jnp.asarray, bends))(jnp.asarray(scores.T))).T
    centre = values.mean(axis=1, keepdims=True)
    return Links(knots, _increasing((values - centre).T / values.std(axis=1)).T)


def _increasing(columns: Matrix) -> Matrix:
    """Make ties increase by next to nothing, so that links can be undone."""
    columns = np.maximum.accumulate(np.asarray(columns, dtype=float), axis=0)
    span = np.ptp(columns, axis=0)
    steps = np.arange(len(columns))[:, None] / len(columns)
    return columns + 1e-9 * np.where(span > 0, span, 1.0) * steps
