"""Latents that are bent: ``z = phi(effect of the parents + noise)`` with an increasing phi."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crlearn.data.model._scm import SCM
from crlearn.graph import topological_order

Matrix = NDArray[np.floating]


@dataclass(frozen=True)
class Bend:
    """``slope t + height tanh(rate (t - place))``: increasing, smooth, onto all numbers."""

    slope: float
    height: float
    rate: float
    place: float

    def __call__(self, values: Matrix) -> Matrix:
        """Bend each value."""
        return self.slope * values + self.height * np.tanh(self.rate * (values - self.place))


def random_bends(n_latents: int, rng: np.random.Generator) -> list[Bend]:
    """Draw a function for each latent that is clearly bent on values of a few units."""
    ranges = ((0.3, 0.6), (1.0, 3.0), (0.5, 1.5), (-1.0, 1.0))
    numbers = [rng.uniform(*ends, size=n_latents) for ends in ranges]
    return [Bend(*map(float, of_latent)) for of_latent in zip(*numbers, strict=True)]


def sample_bent(
    scm: SCM, n_samples: int, rng: np.random.Generator, bends: Sequence[Bend]
) -> tuple[Matrix, Matrix]:
    """Draw latents, each bent before it causes others, and their noise."""
    noise = np.column_stack([node.noise.sample(rng, n_samples) for node in scm.nodes])
    effect = lambda j, parents: scm.nodes[j].without_noise(parents)  # noqa: E731
    return latents_of(scm.graph, noise, effect, bends), noise


def latents_of(
    graph: NDArray[np.bool_],
    noise: Matrix,
    effect: Callable[[int, Matrix], Matrix],
    bends: Sequence[Bend] | None = None,
) -> Matrix:
    """Compute latents from their noise, causes first; ``effect(j, parents)`` is added to it."""
    Z = np.zeros_like(noise)
    for j in topological_order(graph):
        straight = effect(j, Z[:, graph[:, j]]) + noise[:, j]
        Z[:, j] = straight if bends is None else bends[j](straight)
    return Z
