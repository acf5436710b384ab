"""`Mixing`: maps from latents to observations, with their Jacobian and inverse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.data._random import RandomState, haar_orthonormal, invertible_uniform
from crlearn.data.model._layer import Layer
from crlearn.tags import stored

Matrix = NDArray[np.floating]


@stored("mixing")
@dataclass(frozen=True, eq=False)
class Mixing:
    """Map from latents to observations: one layer after the other.

    Attributes
    ----------
    layers
        At least one `Layer`; ``Mixing([Layer(G)])`` is the linear map ``x = G z``.
    """

    layers: Sequence[Layer]

    def __post_init__(self) -> None:
        layers = tuple(self.layers)
        object.__setattr__(self, "layers", layers)
        if not layers:
            raise ValueError("A mixing needs at least one layer.")
        for before, after in pairwise(layers):
            if before.weight.shape[0] != after.weight.shape[1]:
                raise ValueError(
                    "The layers of a mixing must fit together. Got a layer with "
                    f"{before.weight.shape[0]} outputs before one with {after.weight.shape[1]} "
                    "inputs."
                )
        _check_sizes(self.n_latents, self.n_features)

    @property
    def n_latents(self) -> int:
        """Number of inputs."""
        return self.layers[0].weight.shape[1]

    @property
    def n_features(self) -> int:
        """Number of outputs."""
        return self.layers[-1].weight.shape[0]

    @cached_property
    def matrix(self) -> Matrix | None:
        """The matrix ``(n_features, n_latents)``; None if there is a bias or an activation."""
        if any(layer.activation != "identity" or layer.bias is not None for layer in self.layers):
            return None
        product = self.layers[0].weight
        for layer in self.layers[1:]:
            product = layer.weight @ product
        return product

    @property
    def is_linear(self) -> bool:
        """Whether the map is a matrix."""
        return self.matrix is not None

    def __call__(self, Z: ArrayLike) -> Matrix:
        """Mix each row."""
        values = _checked_rows(Z, "Z", self.n_latents)
        for layer in self.layers:
            values = layer.activate(layer.affine(values))
        return values

    def jacobian(self, Z: ArrayLike) -> NDArray[np.floating]:
        """Jacobian at each row, ``(N, n_features, n_latents)``."""
        values = _checked_rows(Z, "Z", self.n_latents)
        jacobian = np.eye(self.n_latents)[None]
        for layer in self.layers:
            jacobian = layer.weight @ jacobian
            values = layer.affine(values)
            if layer.activation != "identity":
                jacobian = layer.derivative(values)[:, :, None] * jacobian
                values = layer.activate(values)
        return np.array(np.broadcast_to(jacobian, (len(values), *jacobian.shape[1:])))

    def inverse(self, X: ArrayLike) -> Matrix:
        """Recover the latents of noise-free observations.

        Exact for points of the image, as far as float64 goes: a saturated tanh loses digits. Other
        points are projected layer by layer (least squares), which is the orthogonal projection if
        the map is linear.
        """
        values = _checked_rows(X, "X", self.n_features)
        for layer in reversed(self.layers):
            values = layer.inverse(values)
        return values

    def __repr__(self) -> str:
        names = dict.fromkeys(layer.activation for layer in self.layers)
        shape = f"{self.n_latents} -> {self.n_features}"
        return f"Mixing({shape}, {'linear' if self.is_linear else ' and '.join(names)})"


def linear_mixing(
    n_latents: int,
    n_features: int | None = None,
    kind: str = "well_conditioned",
    random_state: RandomState = None,
) -> Mixing:
    """Draw a linear map.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    kind
        ``"gaussian"``: independent normal entries; ``"well_conditioned"``: singular values within
        a factor of ten before each column is divided by its largest entry (score-based papers);
        ``"orthonormal"``: orthonormal columns, uniformly distributed.
    random_state
        Seed or generator.
    """
    if kind not in _RANDOM_WEIGHTS:
        allowed = ", ".join(repr(name) for name in _RANDOM_WEIGHTS)
        raise ValueError(
            f"The 'kind' of a linear mixing must be one of {allowed}. Got {kind!r} instead."
        )
    d = _check_sizes(n_latents, n_features)
    rng = np.random.default_rng(random_state)
    return Mixing([Layer(_RANDOM_WEIGHTS[kind](rng, d, n_latents))])


def tanh_mixing(
    n_latents: int,
    n_features: int | None = None,
    random_state: RandomState = None,
    *,
    gain: float = 1.0,
) -> Mixing:
    """Draw ``x = tanh(gain G z)`` with a well-conditioned G.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    random_state
        Seed or generator.
    gain
        Factor on the matrix; make it smaller for large latents, which saturate the tanh.
    """
    d = _check_sizes(n_latents, n_features)
    rng = np.random.default_rng(random_state)
    return Mixing([Layer(gain * _well_conditioned(rng, d, n_latents), activation="tanh")])


def tanh_mlp_mixing(
    n_latents: int,
    n_features: int | None = None,
    random_state: RandomState = None,
    *,
    n_layers: int = 3,
    gain: float = 1.0,
) -> Mixing:
    """Draw ``x = tanh(G3 tanh(G2 tanh(G1 z)))``; only the last matrix changes the dimension.

    As in the code of the score-based papers, matrices are well-conditioned, and their columns keep
    the lengths with which they are drawn: with the largest entry 1, as in `tanh_mixing`, three
    layers of tanh would saturate and lose latents.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    random_state
        Seed or generator.
    n_layers
        Number of matrices, each well-conditioned.
    gain
        Factor on each matrix; make it smaller for large latents.
    """
    d = _check_sizes(n_latents, n_features)
    rng = np.random.default_rng(random_state)
    heights = [n_latents] * (n_layers - 1) + [d]
    return Mixing(
        [Layer(gain * _conditioned(rng, h, n_latents), activation="tanh") for h in heights]
    )


def leaky_relu_mixing(
    n_latents: int,
    n_features: int | None = None,
    random_state: RandomState = None,
    *,
    n_layers: int = 2,
    slope: float | ArrayLike = 0.2,
    bias_scale: float = 0.0,
) -> Mixing:
    """Draw a leaky-ReLU network that is injective by construction.

    The first matrix has orthonormal columns, the others are orthogonal, and a leaky ReLU is one
    to one.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    random_state
        Seed or generator.
    n_layers
        Number of leaky-ReLU layers; one more matrix follows.
    slope
        Slope below zero, one for all layers or one for each.
    bias_scale
        Standard deviation of the biases; 0 for none.
    """
    return network_mixing(
        n_latents, n_features, random_state, n_layers=n_layers, slope=slope, bias_scale=bias_scale
    )


def network_mixing(
    n_latents: int,
    n_features: int | None = None,
    random_state: RandomState = None,
    *,
    activation: str = "leaky_relu",
    n_layers: int = 2,
    slope: float | ArrayLike = 0.2,
    bias_scale: float = 0.0,
) -> Mixing:
    """Draw the network of `leaky_relu_mixing` with another activation.

    The matrices and biases of a seed do not depend on the activation.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    random_state
        Seed or generator.
    activation
        Of a `Layer`, such as ``"leaky_relu"``, ``"smooth_leaky_relu"`` or ``"sigmoid"``. Each
        sigmoid divides differences by four or more: after 20 of them about three of the digits of
        float64 are left, and none of float32.
    n_layers
        Number of layers with the activation; one more matrix follows.
    slope
        Of the activation, one for all layers or one for each.
    bias_scale
        Standard deviation of the biases; 0 for none.
    """
    d = _check_sizes(n_latents, n_features)
    rng = np.random.default_rng(random_state)
    slopes = np.broadcast_to(slope, n_layers) if np.ndim(slope) == 0 else np.asarray(slope)
    if len(slopes) != n_layers:
        raise ValueError(
            f"'slope' must be one number, or one for each of the {n_layers} layers. "
            f"Got {len(slopes)} numbers instead."
        )

    def random_bias() -> NDArray[np.floating] | None:
        return bias_scale * rng.standard_normal(d) if bias_scale else None

    layers, width = [], n_latents
    for layer_slope in slopes:
        layers.append(
            Layer(haar_orthonormal(rng, d, width), random_bias(), activation, layer_slope)
        )
        width = d
    return Mixing([*layers, Layer(haar_orthonormal(rng, d, width), random_bias())])


def smooth_mixing(
    n_latents: int,
    n_features: int | None = None,
    random_state: RandomState = None,
    *,
    n_layers: int = 3,
    slope: float = 0.2,
    gain: float = 1.0,
) -> Mixing:
    """Draw layers of ``slope t + tanh t``, smooth and one to one, then a matrix.

    Singular values of the matrices lie between 0.7 and 1.4; only the last one changes the
    dimension, so that features span as many directions as there are latents.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    random_state
        Seed or generator.
    n_layers
        Number of bent layers.
    slope
        Of the activation far out.
    gain
        Factor on the first matrix; make it smaller for large latents, which are bent more.
    """
    d = _check_sizes(n_latents, n_features)
    rng = np.random.default_rng(random_state)
    gains = [gain] + [1.0] * (n_layers - 1)
    bent = [
        Layer(factor * _mildly_stretched(rng, n_latents), None, "leaky_tanh", slope)
        for factor in gains
    ]
    return Mixing([*bent, Layer(haar_orthonormal(rng, d, n_latents))])


def curved_mixing(
    n_latents: int,
    n_features: int | None = None,
    random_state: RandomState = None,
    *,
    n_units: int | None = None,
    gain: float = 1.0,
) -> Mixing:
    """Draw ``x = B tanh(gain A z + b)``, a curved surface that spans all features.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is twice `n_latents` by default.
    random_state
        Seed or generator.
    n_units
        Number of tanh units; four for each latent by default. It is one to one almost surely if
        there are enough of them and of features.
    gain
        Factor on the first matrix; make it smaller for large latents.
    """
    d = 2 * n_latents if n_features is None else _check_sizes(n_latents, n_features)
    n_units = 4 * n_latents if n_units is None else n_units
    rng = np.random.default_rng(random_state)
    inner = gain * rng.standard_normal((n_units, n_latents)) / n_latents**0.5
    outer = rng.standard_normal((d, n_units)) / n_units**0.5
    return Mixing([Layer(inner, rng.standard_normal(n_units), "tanh"), Layer(outer)])


def polynomial_mixing(
    n_latents: int,
    n_features: int | None = None,
    random_state: RandomState = None,
    *,
    degree: int = 2,
) -> Mixing:
    """Draw polynomials: ``x = B (A z + b)^degree``, with powers of each unit.

    There are enough units that features span all monomials of the latents up to that degree; almost
    surely the latents are then determined up to an affine map (Ahuja et al., Interventional causal
    representation learning, ICML 2023).

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is the number of monomials by default, and at least that.
    random_state
        Seed or generator.
    degree
        2 or 3.
    """
    if degree not in _POWERS:
        raise ValueError(f"The 'degree' of a polynomial mixing must be 2 or 3. Got {degree!r}.")
    n_monomials = comb(n_latents + degree, degree) - 1
    n_features = n_monomials if n_features is None else n_features
    if n_features < n_monomials:
        raise ValueError(
            f"'n_features' must be at least {n_monomials}, the number of monomials of {n_latents} "
            f"latents up to degree {degree}. Got {n_features} instead."
        )
    rng = np.random.default_rng(random_state)
    units = n_monomials + 1  # the constant is one more
    inner = rng.standard_normal((units, n_latents)) / n_latents**0.5
    outer = rng.standard_normal((n_features, units)) / units**0.5
    return Mixing([Layer(inner, rng.standard_normal(units), _POWERS[degree]), Layer(outer)])


def wide_mlp_mixing(
    n_latents: int,
    n_features: int | None = None,
    random_state: RandomState = None,
    *,
    width: int = 512,
    n_layers: int = 4,
    slope: float = 0.2,
) -> Mixing:
    """Draw a wide leaky-ReLU network with uniform weights and biases.

    Its entries lie within one over the square root of the number of inputs, PyTorch's default: the
    mixing of Buchholz et al. (2023). Almost surely one to one, but with no inverse by layers.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    random_state
        Seed or generator.
    width, n_layers
        Of the hidden layers.
    slope
        Below zero.
    """
    d = _check_sizes(n_latents, n_features)
    rng = np.random.default_rng(random_state)
    sizes = [n_latents, *[width] * n_layers, d]
    layers = []
    for inputs, outputs in pairwise(sizes):
        bound = inputs**-0.5
        weight = rng.uniform(-bound, bound, (outputs, inputs))
        layers.append(Layer(weight, rng.uniform(-bound, bound, outputs), "leaky_relu", slope))
    last = layers[-1]
    return Mixing([*layers[:-1], Layer(last.weight, last.bias)])


def make_mixing(
    mixing: str | ArrayLike | Mixing,
    n_latents: int,
    n_features: int | None = None,
    random_state: RandomState = None,
    **options: Any,
) -> Mixing:
    """Mixing by name, or one of one's own, checked.

    Parameters
    ----------
    mixing
        ``"gaussian"``, ``"well_conditioned"`` (also called ``"linear"``), ``"orthonormal"``,
        ``"tanh"``, ``"tanh_mlp"``, ``"leaky_relu"``, ``"network"``, ``"smooth"``, ``"curved"``,
        ``"quadratic"``, ``"cubic"``, ``"wide_mlp"``; or a matrix ``(n_features, n_latents)``; or a
        `Mixing`.
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    random_state
        Seed or generator.
    options
        Of the named constructor.
    """
    if not isinstance(mixing, str):
        own = mixing if isinstance(mixing, Mixing) else Mixing([Layer(np.asarray(mixing))])
        wanted = (n_latents, own.n_features if n_features is None else n_features)
        if (own.n_latents, own.n_features) != wanted:
            raise ValueError(
                f"The 'mixing' must map {wanted[0]} latents to {wanted[1]} features. "
                f"Got one from {own.n_latents} to {own.n_features} instead."
            )
        return own
    if mixing == "linear":
        mixing = "well_conditioned"
    if mixing in _RANDOM_WEIGHTS:
        return linear_mixing(n_latents, n_features, mixing, random_state, **options)
    constructors = {
        "tanh": tanh_mixing,
        "tanh_mlp": tanh_mlp_mixing,
        "leaky_relu": leaky_relu_mixing,
        "network": network_mixing,
        "smooth": smooth_mixing,
        "curved": curved_mixing,
        "quadratic": partial(polynomial_mixing, degree=2),
        "cubic": partial(polynomial_mixing, degree=3),
        "wide_mlp": wide_mlp_mixing,
    }
    if mixing not in constructors:
        allowed = ", ".join(repr(name) for name in (*_RANDOM_WEIGHTS, *constructors))
        raise ValueError(
            f"The 'mixing' must be one of {allowed}, a matrix or a Mixing. Got {mixing!r} instead."
        )
    return constructors[mixing](n_latents, n_features, random_state, **options)


def _gaussian(rng: np.random.Generator, n_rows: int, n_columns: int) -> Matrix:
    return rng.standard_normal((n_rows, n_columns))


def _mildly_stretched(rng: np.random.Generator, n: int) -> Matrix:
    """Draw a matrix with singular values between 0.7 and 1.4."""
    stretch = np.exp(rng.uniform(np.log(0.7), np.log(1.4), n))
    return (haar_orthonormal(rng, n, n) * stretch) @ haar_orthonormal(rng, n, n)


def _conditioned(rng: np.random.Generator, n_rows: int, n_columns: int) -> Matrix:
    basis = haar_orthonormal(rng, n_rows, n_columns)
    return basis @ invertible_uniform(rng, 0.5, n_columns, lambda largest: 0.1 * largest)


def _well_conditioned(rng: np.random.Generator, n_rows: int, n_columns: int) -> Matrix:
    matrix = _conditioned(rng, n_rows, n_columns)
    return matrix / np.abs(matrix).max(axis=0)


_POWERS = {2: "square", 3: "cube"}
_RANDOM_WEIGHTS = {
    "gaussian": _gaussian,
    "well_conditioned": _well_conditioned,
    "orthonormal": haar_orthonormal,
}


def _check_sizes(n_latents: int, n_features: int | None) -> int:
    n_features = n_latents if n_features is None else n_features
    if n_latents < 1:
        raise ValueError(f"'n_latents' must be at least 1. Got {n_latents} instead.")
    if n_features < n_latents:
        raise ValueError(
            "'n_features' must be at least 'n_latents', or the latents cannot be recovered from "
            f"the observations. Got {n_features} features for {n_latents} latents."
        )
    return n_features


def _checked_rows(rows: ArrayLike, name: str, n_columns: int) -> Matrix:
    rows = np.asarray(rows, dtype=float)
    if rows.ndim != 2 or rows.shape[1] != n_columns:
        raise ValueError(
            f"'{name}' must have shape (n_samples, {n_columns}). Got shape {rows.shape} instead."
        )
    return rows
