"""Networks as equinox modules.

They work on numpy and JAX arrays alike, so that what was trained with JAX is applied with numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from crlearn.tags import stored

AnyArray = Array | np.ndarray

_ROWS_PER_BLOCK = 8192


def leaky_relu(x: Any) -> Any:
    """Identity above zero, slope 0.2 below: piecewise linear and invertible."""
    return x.__array_namespace__().maximum(x, 0.2 * x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return x.__array_namespace__().tanh(x)


def silu(x: Any) -> Any:
    """Return x times its logistic function: a leaky ReLU without the kink."""
    return 0.5 * x * (1 + x.__array_namespace__().tanh(0.5 * x))


# Networks name their activation: a name can be stored in a file, a function cannot.
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "leaky_relu": leaky_relu,
    "tanh": tanh,
    "silu": silu,
}


@stored("net/mlp")
class MLP(eqx.Module):
    """Fully connected network; the activation follows every layer but the last."""

    weights: tuple[Float[AnyArray, "_ _"], ...]
    biases: tuple[Float[AnyArray, " _"], ...]
    activation: str = eqx.field(static=True, default="leaky_relu")

    @classmethod
    def random(cls, key: PRNGKeyArray, sizes: Sequence[int], activation: str = "leaky_relu") -> MLP:
        """Draw weights with variance 1 / inputs, and zero biases."""
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = list(pairwise(sizes))
        weights = tuple(
            jax.random.normal(k, shape) / shape[0] ** 0.5
            for k, shape in zip(keys, shapes, strict=True)
        )
        biases = tuple(jax.numpy.zeros(outputs) for _, outputs in shapes)
        return cls(weights, biases, activation)

    def __call__(self, x: Float[AnyArray, "*rows inputs"]) -> Float[AnyArray, "*rows outputs"]:
        """Return the outputs of each row of `x`."""
        activate = ACTIVATIONS[self.activation]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = activate(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


@stored("net/bent")
class BentLinear(eqx.Module):
    """A matrix and a network beside it that bends it: ``x @ matrix + bend(x)``."""

    matrix: Float[AnyArray, "inputs outputs"]
    bend: MLP

    @classmethod
    def straight(
        cls, key: PRNGKeyArray, sizes: Sequence[int], activation: str = "silu"
    ) -> BentLinear:
        """Draw a network whose last layer is zero; the matrix keeps the leading inputs."""
        bend = MLP.random(key, sizes, activation)
        weights = (*bend.weights[:-1], jax.numpy.zeros_like(bend.weights[-1]))
        return cls(jax.numpy.eye(sizes[0], sizes[-1]), MLP(weights, bend.biases, activation))

    def __call__(self, x: Float[AnyArray, "*rows inputs"]) -> Float[AnyArray, "*rows outputs"]:
        """Return the outputs of each row of `x`."""
        return x @ self.matrix + self.bend(x)


@stored("encoder/network")
@dataclass(frozen=True, eq=False)
class NetworkMap:
    """A trained network between its users' units: ``network((x - mean) / scale)``, then affine.

    Serves as encoder and as decoder. Only the first outputs of the network count, one for each
    entry of `output_mean`: those of an encoder are followed by log-variances.
    """

    network: MLP | BentLinear
    input_mean: NDArray[np.floating]
    input_scale: NDArray[np.floating]
    output_mean: NDArray[np.floating]
    output_scale: NDArray[np.floating]

    @property
    def n_latents(self) -> int:
        """Number of columns that the map returns."""
        return len(self.output_mean)

    def __call__(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the image of each row of `X`, in double precision, some rows at a time."""
        blocks = range(0, max(len(X), 1), _ROWS_PER_BLOCK)
        return np.concatenate([self._image(X[start : start + _ROWS_PER_BLOCK]) for start in blocks])

    def _image(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        inputs = (np.asarray(X, dtype=float) - self.input_mean) / self.input_scale
        outputs = np.asarray(self.network(inputs))
        return outputs[:, : self.n_latents] * self.output_scale + self.output_mean
