"""Networks between images and vectors for things that move: where they are, and how it looks.

The encoder makes maps of the image by convolutions and takes the mean position of each map, so that
a thing that moves by some pixels moves its outputs by as much. The decoder is one small network of
the vector and the position of a pixel, the same for all pixels: training can look at some of them.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from crlearn.nets._convolutional import convolved
from crlearn.nets._mlp import ACTIVATIONS, MLP, AnyArray, BentLinear
from crlearn.tags import stored

_KERNEL_SIDES = (5, 3)
_FINEST = 16  # side of the maps; those of larger images leave pixels out
_CONTRAST = 5.0  # of the maps at the start: weak ones have their mean in the middle of every image
_STEEPNESS = 5.0  # of the pixels' positions, beside which outputs change from one to the next


@stored("net/position-encoder")
class PositionEncoder(eqx.Module):
    """From images to vectors: the mean positions of learned maps, then a matrix and a network."""

    kernels: tuple[Float[AnyArray, "_ _ _ _"], ...]
    biases: tuple[Float[AnyArray, " _"], ...]
    contrast: Float[AnyArray, " maps"]
    head: BentLinear
    image_shape: tuple[int, int, int] = eqx.field(static=True)

    @classmethod
    def random(
        cls,
        key: PRNGKeyArray,
        image_shape: tuple[int, int, int],
        n_outputs: int,
        n_maps: int = 16,
        width: int = 64,
    ) -> PositionEncoder:
        """Draw the weights; `image_shape` is channels, height and width."""
        keys = jax.random.split(key, 4)
        channels = [image_shape[0], n_maps, n_maps]
        layers = zip(keys[:2], _KERNEL_SIDES, channels[:-1], channels[1:], strict=True)
        kernels = tuple(
            jax.random.normal(one, (side, side, before, after)) / (side**2 * before) ** 0.5
            for one, side, before, after in layers
        )
        head = BentLinear.straight(keys[2], [2 * n_maps, width, n_outputs])
        mixed = jax.random.normal(keys[3], (2 * n_maps, n_outputs)) / n_outputs**0.5
        head = BentLinear(mixed, head.bend)
        biases = (jnp.zeros(n_maps), jnp.zeros(n_maps))
        return cls(kernels, biases, jnp.full(n_maps, _CONTRAST), head, image_shape)

    def __call__(self, images: Float[AnyArray, "rows channels height width"]) -> Array:
        """Return the outputs of each image."""
        return jnp.asarray(self.head(self.positions(images)))

    def positions(
        self, images: Float[AnyArray, "rows channels height width"]
    ) -> Float[Array, "rows positions"]:
        """Return the mean position of each map, from -1 to 1 across the image."""
        x = jnp.moveaxis(jnp.asarray(images), 1, -1)
        stride = -(-max(x.shape[1:3]) // _FINEST)
        for kernel, bias, step in zip(self.kernels, self.biases, (stride, 1), strict=True):
            x = ACTIVATIONS["silu"](convolved(x, kernel, step) + bias)
        n_rows, height, width, n_maps = x.shape
        weights = jax.nn.softmax((x * self.contrast).reshape(n_rows, -1, n_maps), axis=1)
        return jnp.einsum("rpm,pc->rmc", weights, grid(height, width)).reshape(n_rows, -1)


@stored("net/pixel-decoder")
class PixelDecoder(eqx.Module):
    """From vectors to images: a network of the vector and the position of a pixel."""

    from_vector: Float[AnyArray, "inputs width"]
    from_place: Float[AnyArray, "2 width"]
    bias: Float[AnyArray, " width"]
    rest: MLP
    image_shape: tuple[int, int, int] = eqx.field(static=True)

    @classmethod
    def random(
        cls,
        key: PRNGKeyArray,
        n_inputs: int,
        image_shape: tuple[int, int, int],
        width: int = 64,
        depth: int = 3,
    ) -> PixelDecoder:
        """Draw the weights, zeros in the last layer; `depth` is the number of hidden layers."""
        keys = jax.random.split(key, 4)
        rest = MLP.random(keys[3], [*[width] * depth, image_shape[0]], "silu")
        blank = (*rest.weights[:-1], jnp.zeros_like(rest.weights[-1]))
        return cls(
            jax.random.normal(keys[0], (n_inputs, width)) / n_inputs**0.5,
            _STEEPNESS * jax.random.normal(keys[1], (2, width)),
            2.0 * jax.random.normal(keys[2], (width,)),
            MLP(blank, rest.biases, "silu"),
            image_shape,
        )

    def __call__(self, vectors: Float[AnyArray, "rows inputs"]) -> Array:
        """Return the image of each vector."""
        channels, height, width = self.image_shape
        pixels = self.at(vectors, np.arange(height * width))
        return jnp.moveaxis(pixels, 1, -1).reshape(len(vectors), channels, height, width)

    def at(
        self, vectors: Float[AnyArray, "rows inputs"], pixels: AnyArray
    ) -> Float[Array, "rows pixels channels"]:
        """Return the colours of some pixels, counted row by row."""
        places = grid(*self.image_shape[1:])[pixels]
        hidden = (jnp.asarray(vectors) @ self.from_vector)[:, None] + places @ self.from_place
        return jnp.asarray(self.rest(ACTIVATIONS["silu"](hidden + self.bias)))


def grid(height: int, width: int) -> Float[Array, "pixels 2"]:
    """Return the position of each pixel, row by row: to the right and down, from -1 to 1."""
    down, right = (jnp.linspace(-1, 1, n) if n > 1 else jnp.zeros(1) for n in (height, width))
    return jnp.stack(jnp.meshgrid(right, down), axis=-1).reshape(-1, 2)
