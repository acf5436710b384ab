"""Reduction of rows on a curved surface: an autoencoder that starts as principal components.

Encoder and decoder are a matrix each, with a smooth network beside it that starts at zero. So
training starts from the best linear reduction, and bends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from crlearn.flows._codes import leading_components, settings_for, white
from crlearn.nets import BentLinear
from crlearn.result import LinearDecoder, LinearEncoder
from crlearn.tags import stored
from crlearn.train import train

Matrix = NDArray[np.floating]

_ROWS_PER_BLOCK = 8192
# A leaky-ReLU network from 5 latents by 4 x 512 units to 20 features, 60,000 rows, seed 0, share of
# the variance that is lost: 2 layers of 128 units 0.0082 after 4,000 steps of 512 rows (tanh
# instead of silu 0.0102), 3 of 128 0.0047 after 4,000 of 256 and 0.0040 after 8,000, 3 of 256
# 0.0027 after 6,000, 4 of 128 0.0027 after 16,000.
_WIDTH, _DEPTH = 256, 3
_BATCH, _STEP = 256, 3e-3


@stored("map/autoencoder")
@dataclass(frozen=True, eq=False)
class Autoencoder:
    """A smooth map from rows to codes, and back.

    Codes have mean zero, variance one and no correlations on the rows that it was learned from.

    Attributes
    ----------
    before, after
        From features to their principal components and back.
    encoder, decoder
        From components to codes and back.
    whitening, colouring
        Of the codes, and back.
    error
        Share of the variance of held-out rows that is lost.
    """

    before: LinearEncoder
    encoder: BentLinear
    whitening: LinearEncoder
    colouring: LinearDecoder
    decoder: BentLinear
    after: LinearDecoder
    error: float

    @property
    def n_latents(self) -> int:
        """Number of codes."""
        return self.whitening.n_latents

    def __call__(self, X: NDArray[np.floating]) -> Matrix:
        """Return the codes of each row of `X`."""
        return np.concatenate([self._codes(rows) for rows in _blocks(X)])

    def inverse(self, codes: Matrix) -> Matrix:
        """Return the row of features at each row of `codes`."""
        return np.concatenate([self._features(rows) for rows in _blocks(codes)])

    def _codes(self, rows: NDArray[np.floating]) -> Matrix:
        return self.whitening(np.asarray(self.encoder(self.before(rows))))

    def _features(self, codes: Matrix) -> Matrix:
        return self.after(np.asarray(self.decoder(self.colouring(codes))))


class _Parameters(NamedTuple):
    encoder: BentLinear
    decoder: BentLinear


@dataclass(frozen=True)
class ReconstructionObjective:
    """Share of the variance that is lost on the way to the codes and back.

    Attributes
    ----------
    n_codes
        Number of codes.
    shares
        What a squared error of one in each component is of the variance of the features.
    width, depth
        Of the hidden layers.
    """

    n_codes: int
    shares: tuple[float, ...]
    width: int = _WIDTH
    depth: int = _DEPTH

    def init(self, key: PRNGKeyArray) -> _Parameters:
        """Draw networks that leave principal components as they are."""
        encoder_key, decoder_key = jax.random.split(key)
        n_inputs, hidden = len(self.shares), [self.width] * self.depth
        return _Parameters(
            BentLinear.straight(encoder_key, [n_inputs, *hidden, self.n_codes]),
            BentLinear.straight(decoder_key, [self.n_codes, *hidden, n_inputs]),
        )

    def loss(
        self,
        params: _Parameters,
        batch: Float[Array, "rows components"],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Mean squared error of the reconstruction, as a share of the variance."""
        lost = jnp.asarray(params.decoder(params.encoder(batch))) - batch
        return ((lost**2).mean(axis=0) * jnp.array(self.shares, lost.dtype)).sum()


def learn_autoencoder(
    X: NDArray[np.floating],
    n_codes: int,
    *,
    seed: int,
    n_steps: int = 6000,
    width: int = _WIDTH,
    checkpoint: str | Path | None = None,
) -> Autoencoder:
    """Return the autoencoder to `n_codes` numbers that loses least of the standardised features.

    Images have one of their own, see `learn_image_autoencoder`.

    Where there are no more than `n_codes` principal components, nothing is lost, and nothing is
    trained. Cost: O(N d^2 + d^3) for the components, and O(256 width^2) a step.

    Parameters
    ----------
    X
        Rows of features.
    n_codes
        Number of codes.
    seed
        Of starts and batches.
    n_steps
        Of the training.
    width
        Units of each of the three hidden layers of encoder and decoder.
    checkpoint
        File in which the progress of the training is kept.
    """
    before, after, shares = leading_components(X, n_codes)
    rows = np.concatenate([before(part).astype(np.float32) for part in _blocks(X)])
    if len(shares) <= n_codes:
        straight = _Parameters(_straight(n_codes), _straight(n_codes))
        return _with_white_codes(before, straight, after, rows, 0.0)
    objective = ReconstructionObjective(n_codes, tuple(shares.tolist()), width)
    training = train(
        objective,
        rows,
        settings_for(len(rows), n_steps, _BATCH, _STEP),
        seed=seed,
        checkpoint=checkpoint,
        description="autoencoder",
    )
    return _with_white_codes(before, training.params, after, rows, training.loss)


def _straight(n_codes: int) -> BentLinear:
    return BentLinear.straight(jax.random.key(0), [n_codes, 1, n_codes])


def _with_white_codes(
    before: LinearEncoder,
    params: _Parameters,
    after: LinearDecoder,
    rows: NDArray[np.float32],
    error: float,
) -> Autoencoder:
    codes = np.concatenate([np.asarray(params.encoder(part), float) for part in _blocks(rows)])
    whitening, colouring = white(codes)
    return Autoencoder(
        before, params.encoder, whitening, colouring, params.decoder, after, float(error)
    )


def _blocks(rows: NDArray[np.floating]) -> list[NDArray[np.floating]]:
    return [rows[k : k + _ROWS_PER_BLOCK] for k in range(0, max(len(rows), 1), _ROWS_PER_BLOCK)]
