"""Networks between images and vectors: strided convolutions for images of any size.

Each layer of the encoder halves height and width (rounded up) until no more than four pixels are
left; the decoder goes the same way back. Images have the shape that they are given: height and
width, or height, width and channels.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from crlearn.nets._mlp import ACTIVATIONS, MLP, AnyArray
from crlearn.tags import stored

_LAYOUT = ("NHWC", "HWIO", "NHWC")
_SMALLEST_SIDE = 4
_KERNEL_SIDE = 3
_MOST_GROWTH = 8  # channels are doubled with each layer up to this many times those of the first

Kernels = tuple[Float[AnyArray, "_ _ _ _"], ...]
Biases = tuple[Float[AnyArray, " _"], ...]


@stored("net/convolutional-encoder")
class ConvolutionalEncoder(eqx.Module):
    """From images to vectors."""

    kernels: Kernels
    biases: Biases
    head: MLP
    image_shape: tuple[int, ...] = eqx.field(static=True)
    activation: str = eqx.field(static=True, default="leaky_relu")

    @classmethod
    def random(
        cls,
        key: PRNGKeyArray,
        image_shape: tuple[int, ...],
        n_outputs: int,
        width: int = 16,
        activation: str = "leaky_relu",
    ) -> ConvolutionalEncoder:
        """Draw weights with variance 1 / inputs; the first layer has `width` channels."""
        channels = _channels(image_shape, width)
        *layer_keys, head_key = jax.random.split(key, len(channels))
        kernels = _random_kernels(layer_keys, channels[:-1], channels[1:])
        biases = tuple(jnp.zeros(size) for size in channels[1:])
        n_features = int(np.prod(_sides(image_shape)[-1])) * channels[-1]
        head = MLP.random(head_key, [n_features, n_outputs])
        return cls(kernels, biases, head, tuple(image_shape), activation)

    def __call__(self, images: Float[AnyArray, ...]) -> Float[Array, "*rows outputs"]:
        """Return the outputs of each image."""
        x, rows = _as_batch(images, self.image_shape)
        for kernel, bias in zip(self.kernels, self.biases, strict=True):
            x = ACTIVATIONS[self.activation](convolved(x, kernel, 2) + bias)
        return jnp.asarray(self.head(x.reshape(*rows, -1)))


@stored("net/convolutional-decoder")
class ConvolutionalDecoder(eqx.Module):
    """From vectors to images."""

    stem: MLP
    kernels: Kernels
    biases: Biases
    image_shape: tuple[int, ...] = eqx.field(static=True)
    activation: str = eqx.field(static=True, default="leaky_relu")

    @classmethod
    def random(
        cls,
        key: PRNGKeyArray,
        n_inputs: int,
        image_shape: tuple[int, ...],
        width: int = 16,
        activation: str = "leaky_relu",
    ) -> ConvolutionalDecoder:
        """Draw weights with variance 1 / inputs; the last layer but one has `width` channels."""
        channels = _channels(image_shape, width)[::-1]
        *layer_keys, stem_key = jax.random.split(key, len(channels))
        kernels = _random_kernels(layer_keys, channels[:-1], channels[1:])
        biases = tuple(jnp.zeros(size) for size in channels[1:])
        n_features = int(np.prod(_sides(image_shape)[-1])) * channels[0]
        stem = MLP.random(stem_key, [n_inputs, n_features])
        return cls(stem, kernels, biases, tuple(image_shape), activation)

    def __call__(self, vectors: Float[AnyArray, "*rows inputs"]) -> Float[Array, ...]:
        """Return the image of each vector."""
        activate = ACTIVATIONS[self.activation]
        vectors = jnp.asarray(vectors)
        sides = _sides(self.image_shape)[::-1]
        x = jnp.asarray(self.stem(vectors)).reshape(-1, *sides[0], self._n_channels())
        for (height, width), kernel, bias in zip(sides[1:], self.kernels, self.biases, strict=True):
            x = jax.lax.conv_transpose(
                activate(x), jnp.asarray(kernel, x.dtype), (2, 2), "SAME", dimension_numbers=_LAYOUT
            )
            x = x[:, :height, :width] + bias  # odd sides were rounded up on the way down
        return x.reshape(*vectors.shape[:-1], *self.image_shape)

    def _n_channels(self) -> int:
        """Return the number of channels before the first convolution."""
        shape = [
            *(kernel.shape[2] for kernel in self.kernels),
            *_with_channels(self.image_shape)[2:],
        ]
        return shape[0]


def convolved(
    x: Float[Array, "rows height width inputs"],
    kernel: Float[AnyArray, "down across inputs outputs"],
    stride: int,
) -> Float[Array, "rows _ _ outputs"]:
    """Convolve images, zeros around them; there is one output for each `stride` pixels, rounded up.

    As one matrix product of all patches: inside a compiled loop, such as that of a training, XLA's
    own convolutions are many times slower on a CPU.
    """
    side_down, side_across = kernel.shape[:2]
    rows = -(-x.shape[1] // stride)
    columns = -(-x.shape[2] // stride)
    margins = [
        max((n_out - 1) * stride + side - n, 0)
        for n_out, side, n in ((rows, side_down, x.shape[1]), (columns, side_across, x.shape[2]))
    ]
    around = [(total // 2, total - total // 2) for total in margins]
    x = jnp.pad(x, [(0, 0), *around, (0, 0)])
    patches = [
        x[:, i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
        for i in range(side_down)
        for j in range(side_across)
    ]
    flat = jnp.asarray(kernel, x.dtype).reshape(-1, kernel.shape[-1])
    return jnp.concatenate(patches, axis=-1) @ flat


def _with_channels(image_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return height, width and channels."""
    if len(image_shape) not in (2, 3) or min(image_shape) < 1:
        raise ValueError(
            "image_shape must be (height, width) or (height, width, channels), all positive. "
            f"Got {tuple(image_shape)} instead."
        )
    height, width, *channels = image_shape
    return height, width, channels[0] if channels else 1


def _sides(image_shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return height and width of the image and of the outputs of each layer."""
    height, width, _ = _with_channels(image_shape)
    sides = [(height, width)]
    while max(sides[-1]) > _SMALLEST_SIDE:
        height, width = sides[-1]
        sides.append((-(-height // 2), -(-width // 2)))
    return sides


def _channels(image_shape: tuple[int, ...], width: int) -> list[int]:
    """Return the channels of the image and of the outputs of each layer."""
    n_layers = len(_sides(image_shape)) - 1
    growth = [min(2**layer, _MOST_GROWTH) for layer in range(n_layers)]
    return [_with_channels(image_shape)[2], *(width * factor for factor in growth)]


def _random_kernels(keys: Any, inputs: list[int], outputs: list[int]) -> Kernels:
    side = _KERNEL_SIDE
    return tuple(
        jax.random.normal(key, (side, side, before, after)) / (side**2 * before) ** 0.5
        for key, before, after in zip(keys, inputs, outputs, strict=True)
    )


def _as_batch(
    images: AnyArray, image_shape: tuple[int, ...]
) -> tuple[Float[Array, "_ _ _ _"], tuple[int, ...]]:
    """Return images as one batch with channels, and the shape of the rows they came in."""
    n_own = len(image_shape)
    if images.shape[-n_own:] != image_shape:
        raise ValueError(
            f"images must have the shape (rows, {', '.join(map(str, image_shape))}). "
            f"Got {images.shape} instead."
        )
    batch = jnp.asarray(images).reshape(-1, *_with_channels(image_shape))
    return batch, images.shape[:-n_own]
