"""Exogenous noise: families that share their mean and standard deviation and differ in shape."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import equinox as eqx
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from crlearn.tags import stored

_FREEDOM = 5  # of Student's t
_T_CONSTANT = float(
    gammaln((_FREEDOM + 1) / 2) - gammaln(_FREEDOM / 2) - 0.5 * np.log(np.pi * (_FREEDOM - 2))
)


def as_leaf(number: ArrayLike) -> NDArray[np.floating]:
    """Make an array, so that compiled programs take it as an argument and not as a constant."""
    return np.asarray(number, dtype=float)


def check_axes(module: eqx.Module, axes: Mapping[str, int]) -> None:
    """Refuse arrays of a module that have another number of axes than they should."""
    for name, n_axes in axes.items():
        if np.ndim(getattr(module, name)) != n_axes:
            raise ValueError(
                f"The '{name}' of {type(module).__name__} must have {n_axes} axes. "
                f"Got shape {np.shape(getattr(module, name))} instead."
            )


class Noise(eqx.Module):
    """A distribution with the given mean and standard deviation (`scale`)."""

    scale: NDArray[np.floating] = eqx.field(converter=as_leaf, default=1.0)
    mean: NDArray[np.floating] = eqx.field(converter=as_leaf, default=0.0)

    has_density: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_axes(self, {"scale": 0, "mean": 0})
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"The scale of noise must be positive. Got {self.scale} instead.")

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.floating]:
        """Draw `size` independent values."""
        return self.mean + self.scale * self._standard_sample(rng, size)

    def log_density(self, value: Any) -> Any:
        """Logarithm of the density at a value; JAX can trace it."""
        xp = value.__array_namespace__()
        return self._standard_log_density((value - self.mean) / self.scale) - xp.log(self.scale)

    def with_variance(self, variance: float) -> Self:
        """Return the same family and mean with another variance."""
        return replace(self, scale=np.sqrt(variance))

    def with_mean(self, mean: ArrayLike) -> Self:
        """Return the same family and scale around another mean."""
        return replace(self, mean=mean)

    def scaled(self, factor: float) -> Self:
        """Return the distribution of the values times a positive factor."""
        return replace(self, scale=factor * self.scale, mean=factor * self.mean)

    @abc.abstractmethod
    def _standard_sample(self, rng: np.random.Generator, size: int) -> NDArray[np.floating]:
        """Draw values of mean zero and variance one."""

    @abc.abstractmethod
    def _standard_log_density(self, value: Any) -> Any:
        """Logarithm of the density of mean zero and variance one."""


@stored("distribution/gaussian")
class Gaussian(Noise):
    """Normal distribution."""

    def _standard_sample(self, rng: np.random.Generator, size: int) -> NDArray[np.floating]:
        return rng.standard_normal(size)

    def _standard_log_density(self, value: Any) -> Any:
        return -0.5 * value**2 - 0.5 * np.log(2 * np.pi)


@stored("distribution/laplace")
class Laplace(Noise):
    """Double exponential distribution: symmetric, heavier tails than the Gaussian."""

    def _standard_sample(self, rng: np.random.Generator, size: int) -> NDArray[np.floating]:
        return rng.laplace(scale=np.sqrt(0.5), size=size)

    def _standard_log_density(self, value: Any) -> Any:
        return -np.sqrt(2) * abs(value) - 0.5 * np.log(2)


@stored("distribution/exponential")
class Exponential(Noise):
    """Exponential distribution moved to the mean: skewed, with a sharp lower end.

    Below the lower end ``mean - scale`` the log-density is minus infinity and its gradient zero.
    """

    def _standard_sample(self, rng: np.random.Generator, size: int) -> NDArray[np.floating]:
        return rng.standard_exponential(size) - 1

    def _standard_log_density(self, value: Any) -> Any:
        xp = value.__array_namespace__()
        return xp.where(value >= -1, -(value + 1), -xp.inf)


@stored("distribution/gumbel")
class Gumbel(Noise):
    """Extreme-value distribution: smooth and skewed to the right."""

    def _standard_sample(self, rng: np.random.Generator, size: int) -> NDArray[np.floating]:
        return (rng.gumbel(size=size) - np.euler_gamma) * np.sqrt(6) / np.pi

    def _standard_log_density(self, value: Any) -> Any:
        xp = value.__array_namespace__()
        raw = value * np.pi / np.sqrt(6) + np.euler_gamma
        return -raw - xp.exp(-raw) + np.log(np.pi / np.sqrt(6))


@stored("distribution/uniform")
class Uniform(Noise):
    """Uniform distribution: no tails; minus infinity beyond sqrt(3) standard deviations."""

    def _standard_sample(self, rng: np.random.Generator, size: int) -> NDArray[np.floating]:
        return rng.uniform(-np.sqrt(3), np.sqrt(3), size)

    def _standard_log_density(self, value: Any) -> Any:
        xp = value.__array_namespace__()
        return xp.where(abs(value) <= np.sqrt(3), -np.log(2 * np.sqrt(3)) + 0 * value, -xp.inf)


@stored("distribution/student-t")
class StudentT(Noise):
    """Student's t distribution with five degrees of freedom: few values far out."""

    def _standard_sample(self, rng: np.random.Generator, size: int) -> NDArray[np.floating]:
        return rng.standard_t(_FREEDOM, size) * np.sqrt((_FREEDOM - 2) / _FREEDOM)

    def _standard_log_density(self, value: Any) -> Any:
        xp = value.__array_namespace__()
        return _T_CONSTANT - (_FREEDOM + 1) / 2 * xp.log1p(value**2 / (_FREEDOM - 2))


@stored("distribution/fixed")
class Fixed(Noise):
    """No noise at all: always zero. What a do-intervention leaves; it has no density."""

    has_density: ClassVar[bool] = False

    def _standard_sample(self, rng: np.random.Generator, size: int) -> NDArray[np.floating]:
        return np.zeros(size)

    def _standard_log_density(self, value: Any) -> Any:
        raise TypeError("A constant has no density.")


NOISE_FAMILIES: dict[str, type[Noise]] = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "exponential": Exponential,
    "gumbel": Gumbel,
    "uniform": Uniform,
    "student_t": StudentT,
}


def make_noise(family: str, scale: float = 1.0, mean: float = 0.0) -> Noise:
    """Noise by name.

    Parameters
    ----------
    family
        ``"gaussian"``, ``"laplace"``, ``"exponential"`` or ``"gumbel"``.
    scale, mean
        Standard deviation and mean, whatever the family.
    """
    if family not in NOISE_FAMILIES:
        allowed = ", ".join(repr(name) for name in NOISE_FAMILIES)
        raise ValueError(f"The 'noise' must be one of {allowed}. Got {family!r} instead.")
    return NOISE_FAMILIES[family](scale=scale, mean=mean)
