"""Causal mechanisms: how a latent depends on its parents.

A mechanism maps an array whose last axis holds the parents to an array without that axis. It is
written against the array interface that numpy and JAX share, so that the same few lines draw a
million samples in numpy and are differentiated by JAX.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from numpy.typing import NDArray

from crlearn.data._random import RandomState, invertible_uniform, signed_uniform
from crlearn.data.model import _autodiff
from crlearn.data.model._noise import as_leaf, check_axes
from crlearn.tags import stored

STEP_HEIGHTS = (1.0, 3.0)
_STEEPNESS = 6.0  # of soft kinks


class Mechanism(eqx.Module):
    """A function of the parents: ``(..., k)`` in, ``(...)`` out."""

    # Number of axes of each array, so that a malformed one cannot broadcast to a giant.
    _axes: ClassVar[dict[str, int]] = {}

    def __check_init__(self) -> None:
        check_axes(self, self._axes)

    @abc.abstractmethod
    def __call__(self, parents: Any) -> Any:
        """Return the effect of the parents."""


@stored("mechanism/linear")
class Linear(Mechanism):
    """Weighted sum of the parents."""

    _axes: ClassVar[dict[str, int]] = {"weights": 1}

    weights: NDArray[np.floating] = eqx.field(converter=as_leaf)

    def __call__(self, parents: Any) -> Any:
        """Return the effect of the parents."""
        return parents @ self.weights


@stored("mechanism/quadratic-form")
class QuadraticForm(Mechanism):
    """``sqrt(p' M'M p)``, the length of ``M p``; the gradient at its kink ``p = 0`` is zero."""

    _axes: ClassVar[dict[str, int]] = {"matrix": 2}

    matrix: NDArray[np.floating] = eqx.field(converter=as_leaf)

    def __call__(self, parents: Any) -> Any:
        """Return the effect of the parents."""
        xp = parents.__array_namespace__()
        square = ((parents @ self.matrix.T) ** 2).sum(-1)
        # The inner `where` keeps the infinite slope of the root out of the gradient.
        return xp.where(square > 0, xp.sqrt(xp.where(square > 0, square, 1.0)), 0.0)


@stored("mechanism/norm-squared")
class NormSquared(Mechanism):
    """Sum of the squared parents."""

    def __call__(self, parents: Any) -> Any:
        """Return the effect of the parents."""
        return (parents**2).sum(-1)


@stored("mechanism/tanh-cubic")
class TanhCubic(Mechanism):
    """``sum_k weights_k (amplitude tanh(rate p_k) + cubic (rate p_k)^3)``."""

    _axes: ClassVar[dict[str, int]] = {"weights": 1, "amplitude": 0, "rate": 0, "cubic": 0}

    weights: NDArray[np.floating] = eqx.field(converter=as_leaf)
    amplitude: NDArray[np.floating] = eqx.field(converter=as_leaf, default=1.0)
    rate: NDArray[np.floating] = eqx.field(converter=as_leaf, default=3.0)
    cubic: NDArray[np.floating] = eqx.field(converter=as_leaf, default=1.0)

    def __call__(self, parents: Any) -> Any:
        """Return the effect of the parents."""
        xp = parents.__array_namespace__()
        argument = self.rate * parents
        return (self.amplitude * xp.tanh(argument) + self.cubic * argument**3) @ self.weights


@stored("mechanism/sine")
class Sine(Mechanism):
    """``sum_k weights_k sin(rate p_k)``."""

    _axes: ClassVar[dict[str, int]] = {"weights": 1, "rate": 0}

    weights: NDArray[np.floating] = eqx.field(converter=as_leaf)
    rate: NDArray[np.floating] = eqx.field(converter=as_leaf, default=1.0)

    def __call__(self, parents: Any) -> Any:
        """Return the effect of the parents."""
        xp = parents.__array_namespace__()
        return xp.sin(self.rate * parents) @ self.weights


def _softplus(units: Any) -> Any:
    return units.__array_namespace__().logaddexp(units, 0.0)


# By name: a name can be stored in a file.
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda units: units.__array_namespace__().maximum(units, 0.0),
    "tanh": lambda units: units.__array_namespace__().tanh(units),
    "abs": abs,
    "cube": lambda units: units**3,
    "softplus": _softplus,
    "cos": lambda units: units.__array_namespace__().cos(units),
}


@stored("mechanism/mlp")
class MLP(Mechanism):
    """``output @ activation(hidden @ p + bias) + output_bias``, for one of `ACTIVATIONS`."""

    _axes: ClassVar[dict[str, int]] = {"hidden": 2, "bias": 1, "output": 1, "output_bias": 0}

    hidden: NDArray[np.floating] = eqx.field(converter=as_leaf)
    bias: NDArray[np.floating] = eqx.field(converter=as_leaf)
    output: NDArray[np.floating] = eqx.field(converter=as_leaf)
    output_bias: NDArray[np.floating] = eqx.field(converter=as_leaf, default=0.0)
    activation: str = eqx.field(static=True, default="relu")

    def __check_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"The 'activation' of an MLP mechanism must be one of "
                f"{', '.join(map(repr, ACTIVATIONS))}. Got {self.activation!r} instead."
            )

    def __call__(self, parents: Any) -> Any:
        """Return the effect of the parents."""
        units = ACTIVATIONS[self.activation](parents @ self.hidden.T + self.bias)
        return units @ self.output + self.output_bias


@stored("mechanism/scaled")
class Scaled(Mechanism):
    """Another mechanism times a factor."""

    _axes: ClassVar[dict[str, int]] = {"factor": 0}

    mechanism: Mechanism
    factor: NDArray[np.floating] = eqx.field(converter=as_leaf)

    def __call__(self, parents: Any) -> Any:
        """Return the effect of the parents."""
        return self.factor * self.mechanism(parents)


class Custom(Mechanism):
    """A user's function of one vector of parents, written with ``jax.numpy``."""

    function: Callable[[Any], Any]

    def __call__(self, parents: Any) -> Any:
        """Return the effect of the parents."""
        if isinstance(parents, np.ndarray):
            rows = _autodiff.values(self.function, np.atleast_2d(parents))
            return rows.reshape(parents.shape[:-1])
        return self.function(parents)


def as_mechanism(mechanism: Callable[[Any], Any], n_parents: int) -> Mechanism:
    """Check that a callable takes that many parents and returns one number; wrap a user's own."""
    if not isinstance(mechanism, Mechanism):
        mechanism = Custom(mechanism)
    try:
        shape = _output_shape(mechanism, n_parents)
    except Exception as error:
        raise ValueError(
            f"The mechanism {mechanism} cannot be applied to {_counted_parents(n_parents)}: "
            f"{error}. A mechanism takes an array of shape ({n_parents},), one entry a parent, "
            "and returns one number; write it with jax.numpy, so that it can be differentiated."
        ) from error
    if shape != ():
        raise ValueError(
            f"The mechanism {mechanism} must return one number for {_counted_parents(n_parents)}. "
            f"It returned an array of shape {shape} instead."
        )
    return mechanism


def _counted_parents(n_parents: int) -> str:
    return "1 parent" if n_parents == 1 else f"{n_parents} parents"


def _output_shape(mechanism: Mechanism, n_parents: int) -> tuple[int, ...]:
    if isinstance(mechanism, Custom):
        return _autodiff.output_shape(mechanism.function, n_parents)
    return np.shape(mechanism(np.zeros(n_parents)))


def random_mechanism(
    kind: str | Callable[[Any], Any],
    n_parents: int,
    random_state: RandomState = None,
    **options: Any,
) -> Mechanism:
    """Draw a mechanism of a kind.

    Parameters
    ----------
    kind
        ``"linear"``, ``"quadratic"``, ``"norm_squared"``, ``"tanh_cubic"``, ``"tanh_sum"``,
        ``"sin"``, ``"mlp"`` (ReLU), ``"tanh_mlp"``, ``"abs"``, ``"cubic"``, ``"softplus"``,
        ``"fourier"`` (random Fourier functions), ``"mixed"`` (a kind for each latent), or
        a callable, which is used as it is.
    n_parents
        Number of parents, at least one.
    random_state
        Seed or generator.
    options
        Of the kind: ``weight_range=(low, high)`` for linear, tanh_cubic and sin (weights are
        uniform in that range with random sign), ``amplitude``, ``rate`` and ``cubic`` for
        tanh_cubic, ``rate`` for sin, ``smallest_singular_value`` for quadratic, ``n_units`` for
        the two MLPs, ``n_terms`` for tanh_sum.
    """
    if callable(kind):
        return as_mechanism(kind, n_parents)
    if kind not in _RANDOM_MECHANISMS:
        allowed = ", ".join(repr(name) for name in _RANDOM_MECHANISMS)
        raise ValueError(
            f"The 'mechanism' must be one of {allowed}, or a callable. Got {kind!r} instead."
        )
    return _RANDOM_MECHANISMS[kind](n_parents, np.random.default_rng(random_state), **options)


def _random_linear(
    n_parents: int, rng: np.random.Generator, weight_range: tuple[float, float] = (0.5, 1.5)
) -> Mechanism:
    return Linear(signed_uniform(rng, *weight_range, n_parents))


def _random_quadratic(
    n_parents: int, rng: np.random.Generator, smallest_singular_value: float = 0.1
) -> Mechanism:
    return QuadraticForm(invertible_uniform(rng, 1.0, n_parents, lambda _: smallest_singular_value))


def _random_norm_squared(n_parents: int, rng: np.random.Generator) -> Mechanism:
    return NormSquared()


def _random_tanh_cubic(
    n_parents: int,
    rng: np.random.Generator,
    weight_range: tuple[float, float] = (0.0, 1.0),
    amplitude: float = 1.0,
    rate: float = 3.0,
    cubic: float = 1.0,
) -> Mechanism:
    return TanhCubic(signed_uniform(rng, *weight_range, n_parents), amplitude, rate, cubic)


def random_steps(n_parents: int, rng: np.random.Generator, n_terms: int = 2) -> MLP:
    """Draw a sum of `n_terms` smooth steps along each parent."""
    rates = signed_uniform(rng, 0.6, 1.6, n_terms * n_parents)
    along_one_parent = np.repeat(np.eye(n_parents), n_terms, axis=0)
    return MLP(
        hidden=rates[:, None] * along_one_parent,
        bias=rng.uniform(-1, 1, len(rates)),
        output=signed_uniform(rng, *STEP_HEIGHTS, len(rates)),
        activation="tanh",
    )


def _random_sine(
    n_parents: int,
    rng: np.random.Generator,
    weight_range: tuple[float, float] = (0.5, 1.5),
    rate: float = 1.0,
) -> Mechanism:
    return Sine(signed_uniform(rng, *weight_range, n_parents), rate)


def _random_mlp(n_parents: int, rng: np.random.Generator, n_units: int = 32) -> Mechanism:
    """ReLU network with PyTorch's default initialisation, as in the score-based papers."""
    input_bound, unit_bound = n_parents**-0.5, n_units**-0.5
    return MLP(
        hidden=rng.uniform(-input_bound, input_bound, (n_units, n_parents)),
        bias=rng.uniform(-input_bound, input_bound, n_units),
        output=rng.uniform(-unit_bound, unit_bound, n_units),
        output_bias=rng.uniform(-unit_bound, unit_bound),
    )


def _random_tanh_mlp(n_parents: int, rng: np.random.Generator, n_units: int = 8) -> Mechanism:
    """Tanh network with normal weights: clearly nonlinear on parents of unit variance."""
    return MLP(
        hidden=rng.standard_normal((n_units, n_parents)),
        bias=rng.standard_normal(n_units),
        output=rng.standard_normal(n_units),
        activation="tanh",
    )


def _sum_over_parents(activation: str, n_parents: int, rng: np.random.Generator) -> MLP:
    """Draw a weighted sum of one function of each parent."""
    return MLP(
        hidden=np.eye(n_parents),
        bias=np.zeros(n_parents),
        output=signed_uniform(rng, 0.5, 1.5, n_parents),
        activation=activation,
    )


def _random_abs(n_parents: int, rng: np.random.Generator) -> Mechanism:
    return _sum_over_parents("abs", n_parents, rng)


def _random_cubic(n_parents: int, rng: np.random.Generator) -> Mechanism:
    """Sum of cubes, a third of each: about as large as the parents."""
    return Scaled(_sum_over_parents("cube", n_parents, rng), 1 / 3)


def _random_softplus(n_parents: int, rng: np.random.Generator, n_units: int = 4) -> Mechanism:
    """Sum of nearly kinked functions of directions of all parents."""
    directions = rng.standard_normal((n_units, n_parents))
    directions *= _STEEPNESS / np.linalg.norm(directions, axis=1, keepdims=True)
    return MLP(
        hidden=directions,
        bias=_STEEPNESS * rng.uniform(-0.5, 0.5, n_units),
        output=signed_uniform(rng, 1.0, 2.0, n_units) / _STEEPNESS,
        activation="softplus",
    )


def _random_fourier(n_parents: int, rng: np.random.Generator, n_units: int = 8) -> Mechanism:
    """Draw about a sample of a Gaussian process with length scale one and deviation 1.5."""
    return MLP(
        hidden=rng.standard_normal((n_units, n_parents)),
        bias=rng.uniform(0, 2 * np.pi, n_units),
        output=1.5 * np.sqrt(2 / n_units) * rng.standard_normal(n_units),
        activation="cos",
    )


def _random_mixed(n_parents: int, rng: np.random.Generator) -> Mechanism:
    return _RANDOM_MECHANISMS[str(rng.choice(_MIXED))](n_parents, rng)


_MIXED = ("norm_squared", "sin", "tanh_mlp", "abs", "cubic", "softplus", "fourier")
_RANDOM_MECHANISMS: dict[str, Callable[..., Mechanism]] = {
    "linear": _random_linear,
    "quadratic": _random_quadratic,
    "norm_squared": _random_norm_squared,
    "tanh_cubic": _random_tanh_cubic,
    "tanh_sum": random_steps,
    "sin": _random_sine,
    "mlp": _random_mlp,
    "tanh_mlp": _random_tanh_mlp,
    "abs": _random_abs,
    "cubic": _random_cubic,
    "softplus": _random_softplus,
    "fourier": _random_fourier,
    "mixed": _random_mixed,
}
