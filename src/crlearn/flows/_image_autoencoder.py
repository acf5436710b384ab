"""Reduction of images: an autoencoder of positions, or of whatever convolutions see."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from crlearn.flows._codes import settings_for, white
from crlearn.nets import ConvolutionalEncoder, PixelDecoder, PositionEncoder, evaluate
from crlearn.result import LinearDecoder, LinearEncoder
from crlearn.tags import stored
from crlearn.train import train

Images = NDArray[Any]
Sees = Literal["positions", "any"]

# 9,000 images of two balls, 32 x 32, 700 steps, seeds 0 to 2: positions have R2 0.992 to 0.999 by a
# linear regression on the codes, 0.998 to 0.999 by a smooth one; 80 s on one core. Whatever
# convolutions see ("any", seed 1) has only one ball by then, and so had positions in plain colours.
#
# As many starts as codes, of which the leading one goes on after a fifth of the steps: of 12 starts
# with three balls, 64 x 64, seeds 0 to 2, 7 never saw one of the balls (0.29 to 0.37 of the
# variance was lost, in place of 0.05 to 0.09), as was plain after 1,200 steps; of 8 with two balls
# none.
#
# Images are seen around one colour. Around the mean image the codes of balls that rest in half of
# the images folded: in one of four worlds of two balls (15,000 steps, seeds 0 to 3) y of one ball
# had an R2 of 0.13 by a linear regression, around one colour 0.996 after 1,500 steps; three of four
# balls folded (seed 2; two with noise on the codes that became less), around one colour all had R2s
# of 0.97 and more after 4,500 steps.
_BATCH, _STEP = 64, 3e-3
_PIXELS = 256  # that a step looks at in each image
_WIDTH = 16  # channels of the first convolution
_MOST_IMAGES = 2000  # from which the mean image is taken
_LARGEST_INTEGER = 255.0  # of 8 bits
_LEAST_COLOUR = 0.01  # variance of a direction of colours that counts in full, beside the largest


@stored("map/image-autoencoder")
@dataclass(frozen=True, eq=False)
class ImageAutoencoder:
    """A smooth map from images to codes, and back.

    Codes have mean zero, variance one and no correlations on the images that it was learned from.

    Attributes
    ----------
    encoder, decoder
        From images around `ground`, and to images around their mean, both in white colours.
    ground
        The mean colour of all pixels, between 0 and 1.
    mean
        The mean image.
    unit
        Of the images: 255 if they are whole numbers, else 1.
    colours
        Matrix after which the channels of a pixel have variance one and no correlations.
    whitening, colouring
        Of the codes, and back.
    error
        Share of the variance of held-out images in white colours that is lost.
    """

    encoder: PositionEncoder | ConvolutionalEncoder
    whitening: LinearEncoder
    colouring: LinearDecoder
    decoder: PixelDecoder
    ground: NDArray[np.float32]
    mean: NDArray[np.float32]
    unit: float
    colours: NDArray[np.float32]
    error: float

    @property
    def n_latents(self) -> int:
        """Number of codes."""
        return self.whitening.n_latents

    def __call__(self, X: Images) -> NDArray[np.floating]:
        """Return the codes of each image."""
        network = _Centred(self.encoder, _Units.of(self.ground, self.colours, self.unit))
        return self.whitening(np.asarray(evaluate(network, X), dtype=float))

    def inverse(self, codes: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return the image at each row of `codes`, in the units of the images learned from."""
        vectors = self.colouring(codes).astype(np.float32)
        # As many rows at a time as an image has hidden numbers, not as few as a code has.
        parts = [vectors[k : k + _BATCH] for k in range(0, max(len(vectors), 1), _BATCH)]
        white_colours = np.concatenate([evaluate(self.decoder, part) for part in parts])
        back = np.linalg.inv(self.colours).astype(np.float32)
        centred = np.einsum("rchw,cd->rdhw", white_colours, back)
        return np.clip(centred + self.mean, 0, 1) * np.float32(self.unit)


class _Units(NamedTuple):
    """How images as they come get a zero (the ground, or the mean image) and white colours."""

    zero: Float[Array, "channels _ _"]
    colours: Float[Array, "channels channels"]
    unit: Float[Array, ""]

    @classmethod
    def of(cls, zero: NDArray[np.float32], colours: NDArray[np.float32], unit: float) -> _Units:
        return cls(jnp.asarray(zero), jnp.asarray(colours), jnp.asarray(unit, jnp.float32))

    def __call__(self, images: Array) -> Float[Array, "rows channels height width"]:
        centred = images.astype(jnp.float32) / self.unit - self.zero
        return jnp.einsum("rchw,cd->rdhw", centred, self.colours)


class _Centred(eqx.Module):
    """An encoder of images as they come, so that only a block of them is ever in floating point."""

    encoder: PositionEncoder | ConvolutionalEncoder
    units: _Units

    def __call__(self, images: Array) -> Array:
        return encoded(self.encoder, self.units(images))


def encoded(
    encoder: PositionEncoder | ConvolutionalEncoder,
    images: Float[Array, "rows channels height width"],
) -> Float[Array, "rows codes"]:
    """Apply either encoder to images whose channels come first."""
    if isinstance(encoder, ConvolutionalEncoder):
        images = jnp.moveaxis(images, 1, -1)
    return encoder(images)


class _Parameters(NamedTuple):
    encoder: PositionEncoder | ConvolutionalEncoder
    decoder: PixelDecoder


@dataclass(frozen=True)
class ImageObjective:
    """Share of the variance of some pixels that is lost on the way to the codes and back.

    Attributes
    ----------
    image_shape
        Channels, height and width.
    n_codes
        Number of codes.
    sees
        Which encoder: see `learn_image_autoencoder`.
    unit
        Of the images.
    variance
        Of a channel of a pixel in white colours, on average.
    mean, colours
        The mean image and the matrix of colours as bytes, so that they can be compared.
    """

    image_shape: tuple[int, int, int]
    n_codes: int
    sees: Sees
    unit: float
    variance: float
    mean: bytes
    colours: bytes

    def init(self, key: PRNGKeyArray) -> _Parameters:
        """Draw encoder and decoder."""
        encoder_key, decoder_key = jax.random.split(key)
        channels, *sides = self.image_shape
        if self.sees == "positions":
            encoder = PositionEncoder.random(encoder_key, self.image_shape, self.n_codes)
        else:
            shape = (*sides, channels)
            encoder = ConvolutionalEncoder.random(encoder_key, shape, self.n_codes, _WIDTH, "silu")
        decoder = PixelDecoder.random(decoder_key, self.n_codes, self.image_shape)
        return _Parameters(encoder, decoder)

    def loss(
        self, params: _Parameters, batch: Array, key: PRNGKeyArray, progress: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Mean squared error at pixels drawn at random, as a share of the variance."""
        channels, height, width = self.image_shape
        mean = np.frombuffer(self.mean, np.float32).reshape(self.image_shape)
        colours = np.frombuffer(self.colours, np.float32).reshape(channels, channels)
        images = _Units.of(mean, colours, self.unit)(batch)
        codes = encoded(params.encoder, _Units.of(ground_of(mean), colours, self.unit)(batch))
        n_pixels = height * width
        pixels = jnp.arange(n_pixels)
        if n_pixels > _PIXELS:
            pixels = jax.random.randint(key, (_PIXELS,), 0, n_pixels)
        wanted = jnp.moveaxis(images.reshape(len(images), channels, -1), 1, -1)[:, pixels]
        return ((params.decoder.at(codes, pixels) - wanted) ** 2).mean() / self.variance


def learn_image_autoencoder(
    X: Images,
    n_codes: int,
    *,
    seed: int,
    n_steps: int = 6000,
    sees: Sees = "positions",
    checkpoint: str | Path | None = None,
) -> ImageAutoencoder:
    """Return the autoencoder of images to `n_codes` numbers that loses least of the pixels.

    Whole numbers stay what they are until a batch is taken: 100,000 images of 3 x 64 x 64 in 8 bits
    take 1.2 GB, and training as much again. There are as many starts as codes; the one that leads
    after a fifth of the steps goes on alone.

    Parameters
    ----------
    X
        Images, ``(N, channels, height, width)``: whole numbers from 0 to 255, or real ones from 0
        to 1.
    n_codes
        Number of codes.
    seed
        Of starts and batches.
    n_steps
        Of the training.
    sees
        ``"positions"``: codes are made of the mean positions of learned maps, for things that
        move; ``"any"``: of all that convolutions see.
    checkpoint
        File in which the progress of the training is kept.
    """
    if X.ndim != 4:
        raise ValueError(
            "X must hold images, (rows, channels, height, width). Got an array of shape "
            f"{X.shape} instead."
        )
    unit = _LARGEST_INTEGER if X.dtype.kind in "iu" else 1.0
    some = X[np.random.default_rng(seed).permutation(len(X))[:_MOST_IMAGES]] / np.float32(unit)
    mean = some.mean(axis=0, dtype=float).astype(np.float32)
    colours, variance = _white_colours(some - mean)
    objective = ImageObjective(
        X.shape[1:], n_codes, sees, unit, variance, mean.tobytes(), colours.tobytes()
    )
    training = train(
        objective,
        X,
        settings_for(len(X), n_steps, _BATCH, _STEP, n_restarts=n_codes),
        seed=seed,
        checkpoint=checkpoint,
        description="image autoencoder",
    )
    encoder, decoder = training.params
    ground = ground_of(mean)
    codes = evaluate(_Centred(encoder, _Units.of(ground, colours, unit)), X)
    whitening, colouring = white(np.asarray(codes, dtype=float))
    return ImageAutoencoder(
        encoder, whitening, colouring, decoder, ground, mean, unit, colours, float(training.loss)
    )


def ground_of(mean: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean colour of all pixels, around which encoders see images.

    Around the mean image, what often rests at one place leaves a shadow there when it is elsewhere,
    and convolutions see two things.
    """
    return mean.mean(axis=(1, 2), keepdims=True)


def _white_colours(images: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    """Return the matrix that makes the channels of a pixel white, and their variance after it.

    Things whose colours change few channels, or change them little, count as much as others: in
    plain colours a red ball on white is two thirds of the variance beside a cyan one, and hides it.
    """
    n_channels = images.shape[1]
    pixels = np.moveaxis(images, 1, -1).reshape(-1, n_channels).astype(float)
    variances, directions = np.linalg.eigh(pixels.T @ pixels / len(pixels))
    if variances[-1] == 0:
        raise ValueError("All images in X are the same: there is nothing to recover from them.")
    scale = np.sqrt(np.maximum(variances, _LEAST_COLOUR * variances[-1]))
    return (
        ((directions / scale) @ directions.T).astype(np.float32),
        float((variances / scale**2).mean()),
    )
