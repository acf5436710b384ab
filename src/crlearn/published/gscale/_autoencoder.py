"""The autoencoder of GSCALE-I: its coordinates, its loss, and score differences of its latents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from crlearn.inputs import choose_n_latents, components_of
from crlearn.nets import MLP, apply_in_blocks
from crlearn.result import Check, LinearDecoder, LinearEncoder
from crlearn.scores import all_differences
from crlearn.tags import stored

Matrix = NDArray[np.floating]
DecoderName = Literal["mlp", "tanh"]

_LARGEST_TANH = 1 - 1e-12  # four digits of atanh are left; the published 1e-6 bends the span
# Principal components that together hold less than this share of the variance are left out: in
# single precision they are rounding.
_HARDLY_VARIES = 1e-6


@stored("encoder/tanh")
@dataclass(frozen=True, eq=False)
class TanhEncoder:
    """``z = linear(atanh(x))``."""

    linear: LinearEncoder

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.linear.n_latents

    def __call__(self, X: Matrix) -> Matrix:
        """Return the latents of each row of `X`; what is not between -1 and 1 has none."""
        return self.linear(undo_tanh(X))


@stored("decoder/tanh")
@dataclass(frozen=True, eq=False)
class TanhDecoder:
    """``x = tanh(linear(z))``."""

    linear: LinearDecoder

    def __call__(self, Z: Matrix) -> Matrix:
        """Return the observations at each row of `Z`."""
        return np.tanh(self.linear(Z))


def undo_tanh(X: Matrix) -> Matrix:
    """Return atanh(x), finite where rounding has made x one, and NaN beyond."""
    X = np.asarray(X, dtype=float)
    with np.errstate(invalid="ignore"):
        return np.arctanh(np.where(np.abs(X) <= 1, _inside(X), X))


def _inside(X: Matrix) -> Matrix:
    return np.clip(X, -_LARGEST_TANH, _LARGEST_TANH)


# Coordinates in which the autoencoder works


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Rows of X in the coordinates of the autoencoder, and the way back.

    Attributes
    ----------
    rows
        ``(N, k)``.
    encoder, decoder
        Affine maps between what is encoded, x or atanh(x), and the coordinates.
    slopes
        Derivative of each feature by what is encoded, ``(N, d)``, or 1.
    checks
        Of the columns of X.
    """

    rows: Matrix
    encoder: LinearEncoder
    decoder: LinearDecoder
    slopes: Any
    checks: tuple[Check, ...]

    def differences(
        self, score: Any, X: Matrix, codes: NDArray[np.intp], at: NDArray[np.intp]
    ) -> Matrix:
        """Return reference minus each environment at some rows, ``(m, len(at), k)``."""
        if not getattr(score, "original_coordinates", False):
            return all_differences(score, self.rows, codes, self.rows[at])
        observed = all_differences(score, X, codes, X[at])
        slopes = self.slopes[at] if np.ndim(self.slopes) else self.slopes
        return (observed * slopes) @ self.decoder.matrix


def coordinates_of(X: Matrix, n_latents: int | None, decoder: DecoderName) -> Coordinates:
    """Reduce X to its principal components, or atanh(X) to as many as there are latents."""
    if decoder == "mlp":
        span, rank, checks = components_of(X, None)
        choose_n_latents(n_latents, rank.value)
        kept = rank.variances[: span.n_latents]
        left_out = np.cumsum(kept[::-1])[::-1] / kept.sum()
        n_kept = max(int((left_out > _HARDLY_VARIES).sum()), n_latents or 1)
        sizes = np.sqrt(kept / kept[0])[:n_kept, None]
        return _in_span(X, LinearEncoder(sizes * span.matrix[:n_kept], span.offset), 1.0, checks)
    if np.abs(X).max() > 1:
        raise ValueError(
            "With decoder='tanh' all values of X must lie between -1 and 1, as x = tanh(U z). Got "
            f"values from {X.min():.3g} to {X.max():.3g}; bring X into this range, or give "
            "decoder='mlp', which takes any mixing."
        )
    links = undo_tanh(X)
    span, rank, checks = components_of(links, n_latents)
    checks = (*checks, rank.check(span.n_latents))
    return _in_span(links, span, 1 - _inside(X) ** 2, checks)


def _in_span(X: Matrix, encoder: LinearEncoder, slopes: Any, checks: Any) -> Coordinates:
    return Coordinates(encoder(X), encoder, LinearDecoder.undoing(encoder, X), slopes, checks)


# The autoencoder


class AutoEncoder(NamedTuple):
    """Two networks."""

    encoder: MLP
    decoder: MLP

    def encode(self, x: Any) -> Any:
        """Return the latents."""
        return self.encoder(x)

    def decode(self, z: Any) -> Any:
        """Return the coordinates."""
        return self.decoder(z)


class LinearAutoEncoder(NamedTuple):
    """A matrix and its inverse; ``x = z @ mixing``."""

    mixing: Float[Array, "latents latents"]

    def encode(self, x: Any) -> Any:
        """Return the latents."""
        return jnp.linalg.solve(self.mixing.T, x.T).T

    def decode(self, z: Any) -> Any:
        """Return the coordinates."""
        return z @ self.mixing


def latent_differences(
    model: AutoEncoder | LinearAutoEncoder,
    x: Float[Array, "rows inputs"],
    differences: Float[Array, "rows environments inputs"],
) -> tuple[Float[Array, "rows inputs"], Float[Array, "rows environments latents"]]:
    """Return reconstructions, and score differences of the latents: ``J' ds``, row by row."""
    again, pull_back = jax.vjp(model.decode, model.encode(x))
    # Each row of the decoder's output depends on its own latents alone.
    (pulled,) = jax.vmap(pull_back, in_axes=1, out_axes=1)(differences)
    return again, pulled


@dataclass(frozen=True)
class OneHotDifferences:
    """The loss of GSCALE-I."""

    n_inputs: int
    n_latents: int
    decoder: DecoderName
    places: tuple[int, ...]  # the latents that have environments
    reconstruction_weight: float
    width: int
    depth: int

    def init(self, key: PRNGKeyArray) -> AutoEncoder | LinearAutoEncoder:
        """Draw the weights; a matrix from -0.5 to 0.5, as published."""
        n, k = self.n_latents, self.n_inputs
        if self.decoder == "tanh":
            return LinearAutoEncoder(jax.random.uniform(key, (n, k), minval=-0.5, maxval=0.5))
        hidden, keys = [self.width] * self.depth, jax.random.split(key)
        return AutoEncoder(
            MLP.random(keys[0], [k, *hidden, n]), MLP.random(keys[1], [n, *hidden, k], "tanh")
        )

    def loss(
        self,
        params: AutoEncoder | LinearAutoEncoder,
        batch: tuple[Array, Array],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Distance of the mean absolute differences from one-hot ones, and of x from itself."""
        x, differences = batch
        again, pulled = latent_differences(params, x, differences)
        wanted = jnp.eye(self.n_latents)[jnp.asarray(self.places)]
        distance = ((jnp.abs(pulled).mean(axis=0) - wanted) ** 2).sum()
        if self.decoder == "tanh":  # reconstruction is exact
            return distance
        error = ((again - x) ** 2).sum(axis=1).mean()
        return distance + self.reconstruction_weight * error


def pulled_differences(model: Any, rows: Matrix, differences: Matrix) -> Matrix:
    """Return score differences of the latents at some rows, ``(m, N, n)``."""
    m, n_rows, k = differences.shape
    packed = np.concatenate([rows, differences.transpose(1, 0, 2).reshape(n_rows, m * k)], axis=1)
    pulled = apply_in_blocks(partial(_pulled, model, k), packed.astype(np.float32))
    return np.asarray(pulled, dtype=float).transpose(1, 0, 2)


@partial(jax.jit, static_argnums=1)
def _pulled(model: Any, n_inputs: int, packed: Float[Array, "rows columns"]) -> Array:
    x, differences = packed[:, :n_inputs], packed[:, n_inputs:]
    return latent_differences(model, x, differences.reshape(len(x), -1, n_inputs))[1]
