"""Latents whose noise and mechanisms are smooth functions of a continuous auxiliary vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from crlearn.data._dataset import Dataset, Truth
from crlearn.data._random import RandomState
from crlearn.data.model._mechanisms import MLP, STEP_HEIGHTS
from crlearn.data.model._mixing import Mixing
from crlearn.data.model._noise import make_noise
from crlearn.data.worlds._changes import SIZES, Changes, Steps
from crlearn.data.worlds._post_nonlinear import Bend, latents_of
from crlearn.data.worlds._world import observe

Matrix = NDArray[np.floating]

_TERMS = 12  # of a random function
_ROUGHNESS = 3.0  # spread of its frequencies: about two waves across [-1, 1]
_REFERENCE_ROWS = 4096  # at which functions are standardised and gates placed


@dataclass(frozen=True, eq=False)
class SmoothFunction:
    """Random function of a vector in [-1, 1]^k: a sum of cosines, brought between two ends.

    It is standardised over the cube before the normal distribution function takes it to (0, 1), so
    that it fills the range between the ends.
    """

    frequencies: Matrix
    phases: NDArray[np.floating]
    shift: float
    scale: float
    low: float
    high: float

    @classmethod
    def random(
        cls, dimension: int, ends: tuple[float, float], rng: np.random.Generator
    ) -> SmoothFunction:
        """Draw a function."""
        frequencies = _ROUGHNESS * rng.standard_normal((_TERMS, dimension))
        phases = rng.uniform(0, 2 * np.pi, _TERMS)
        raw = _cosines(uniform_rows(_REFERENCE_ROWS, dimension, rng), frequencies, phases)
        return cls(frequencies, phases, float(raw.mean()), float(raw.std()), *ends)

    def __call__(self, U: Matrix) -> NDArray[np.floating]:
        """Return one value a row."""
        standard = (_cosines(U, self.frequencies, self.phases) - self.shift) / self.scale
        return self.low + (self.high - self.low) * ndtr(standard)


@dataclass(frozen=True, eq=False)
class Gate:
    """Smooth factor between 0 and 1 that is exactly 0 on a share of the cube."""

    function: SmoothFunction
    closed_below: float
    open_above: float

    @classmethod
    def random(cls, dimension: int, quiet: float, rng: np.random.Generator) -> Gate:
        """Draw a gate; half of where it is not closed, it is open."""
        function = SmoothFunction.random(dimension, (0.0, 1.0), rng)
        values = function(uniform_rows(_REFERENCE_ROWS, dimension, rng))
        closed, opened = np.quantile(values, [quiet, (1 + quiet) / 2])
        # Where all is quiet, no value of the function may open the gate.
        return (
            cls(function, 1.0, 2.0) if quiet == 1 else cls(function, float(closed), float(opened))
        )

    def __call__(self, U: Matrix) -> NDArray[np.floating]:
        """Return one factor a row."""
        share = (self.function(U) - self.closed_below) / (self.open_above - self.closed_below)
        share = np.clip(share, 0, 1)
        return share**3 * (10 - 15 * share + 6 * share**2)  # two derivatives at both ends


@dataclass(frozen=True, eq=False)
class ChangingLatents:
    """What each latent is, given the auxiliary vector: its noise and its mechanism.

    Attributes
    ----------
    graph
        Causal graph.
    means, log_scales
        Of the noise, one function for each latent.
    steps, heights, gates
        Mechanism of each latent: steps, the height of each of them, and a common factor that may
        vanish; None for latents without parents, and for mechanisms that never vanish.
    fixed
        Parts of the mechanisms that do not change; None for latents without one.
    """

    graph: NDArray[np.bool_]
    means: Sequence[SmoothFunction]
    log_scales: Sequence[SmoothFunction]
    steps: Steps
    heights: Sequence[Sequence[SmoothFunction]]
    gates: Sequence[Gate | None]
    fixed: Steps

    @property
    def dimension(self) -> int:
        """Number of entries of the auxiliary vector."""
        return self.means[0].frequencies.shape[1]

    def sample(
        self, U: Matrix, noise: str, bends: Sequence[Bend] | None, rng: np.random.Generator
    ) -> tuple[Matrix, Matrix]:
        """Draw latents and their noise, one row for each row of U."""
        standard = np.column_stack([make_noise(noise).sample(rng, len(U)) for _ in self.means])
        means = np.column_stack([mean(U) for mean in self.means])
        scales = np.exp(np.column_stack([log_scale(U) for log_scale in self.log_scales]))
        noises = means + scales * standard
        effect = lambda j, parents: self._effect(j, parents, U)  # noqa: E731
        return latents_of(self.graph, noises, effect, bends), noises

    def _effect(self, j: int, parents: Matrix, U: Matrix) -> NDArray[np.floating]:
        effect, step, fixed, gate = np.zeros(len(U)), self.steps[j], self.fixed[j], self.gates[j]
        if step is not None:
            heights = np.column_stack([height(U) for height in self.heights[j]])
            effect = (np.tanh(parents @ step.hidden.T + step.bias) * heights).sum(axis=1)
        if gate is not None:
            effect = effect * gate(U)
        return effect if fixed is None else effect + fixed(parents)


def random_changing_latents(
    graph: NDArray[np.bool_],
    steps: Steps,
    fixed: Steps,
    dimension: int,
    *,
    changes: Changes,
    quiet: Sequence[float],
    fixed_signs: bool,
    noise_mean: tuple[float, float],
    noise_scale: tuple[float, float],
    rng: np.random.Generator,
) -> ChangingLatents:
    """Draw how noise and mechanisms change with an auxiliary vector of some dimension."""
    n_latents = len(steps)
    log_range = (float(np.log(noise_scale[0])), float(np.log(noise_scale[1])))

    def functions(ends: tuple[float, float]) -> list[SmoothFunction]:
        return [SmoothFunction.random(dimension, ends, rng) for _ in range(n_latents)]

    means, log_scales = functions(noise_mean), functions(log_range)
    if changes == "size":
        heights = [_common_size(step, dimension, rng) for step in steps]
        gates: list[Gate | None] = [None] * n_latents
    else:
        heights = [_own_heights(step, dimension, fixed_signs, rng) for step in steps]
        gates = [Gate.random(dimension, share, rng) if share else None for share in quiet]
    return ChangingLatents(graph, means, log_scales, steps, heights, gates, fixed)


def sample_changing(
    latents: ChangingLatents,
    mixing: Mixing,
    n_rows: int,
    *,
    noise: str,
    bends: Sequence[Bend] | None,
    measurement_noise: float,
    random_state: RandomState,
) -> Dataset:
    """Draw auxiliary vectors, the latents that go with them, and what is seen of these."""
    rng = np.random.default_rng(random_state)
    U = uniform_rows(n_rows, latents.dimension, rng)
    Z, noises = latents.sample(U, noise, bends, rng)
    X = observe(mixing, Z, measurement_noise, rng)
    targets = np.ones((1, Z.shape[1]), dtype=bool)
    truth = Truth(Z, noises, latents.graph, targets, mixing, measurement_noise=measurement_noise)
    return Dataset(X, U, truth=truth)


def uniform_rows(n_rows: int, dimension: int, rng: np.random.Generator) -> Matrix:
    """Draw auxiliary vectors, uniform on [-1, 1]^k."""
    return rng.uniform(-1, 1, size=(n_rows, dimension))


def _own_heights(
    step: MLP | None, dimension: int, fixed_signs: bool, rng: np.random.Generator
) -> list[SmoothFunction]:
    """Draw a function for the height of each step."""
    low, high = STEP_HEIGHTS
    signs = [] if step is None else np.sign(step.output)
    return [
        SmoothFunction.random(
            dimension, (sign * low, sign * high) if fixed_signs else (-high, high), rng
        )
        for sign in signs
    ]


def _common_size(
    step: MLP | None, dimension: int, rng: np.random.Generator
) -> list[SmoothFunction]:
    """Draw one function that all heights follow."""
    if step is None:
        return []
    size = SmoothFunction.random(dimension, SIZES, rng)
    return [replace(size, low=height * size.low, high=height * size.high) for height in step.output]


def _cosines(U: Matrix, frequencies: Matrix, phases: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.cos(U @ frequencies.T + phases).sum(axis=1)
