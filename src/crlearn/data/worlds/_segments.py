"""Worlds of nonlinear ICA and its causal kin: each segment has its own noise and mechanisms."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.data._dataset import Dataset
from crlearn.data._random import RandomState, independent_seeds, signed_uniform
from crlearn.data.model._graphs import make_graph
from crlearn.data.model._mechanisms import MLP, STEP_HEIGHTS, random_steps
from crlearn.data.model._mixing import Mixing, leaky_relu_mixing, make_mixing
from crlearn.data.model._node import Node
from crlearn.data.model._noise import make_noise
from crlearn.data.model._scm import SCM
from crlearn.data.worlds._world import Sizes, sample_environments


def make_latent_anm(
    n_latents: int = 3,
    n_features: int | None = None,
    n_samples: Sizes = 1000,
    *,
    n_segments: int = 40,
    graph: str | ArrayLike | nx.DiGraph = "chain",
    edge_probability: float = 0.5,
    quiet: float = 0.3,
    fixed_signs: bool = True,
    noise: str = "gaussian",
    noise_mean: tuple[float, float] = (-2.0, 2.0),
    noise_scale: tuple[float, float] = (0.1, 2.0),
    n_layers: int = 1,
    slope: float | ArrayLike = 0.2,
    mixing: str | ArrayLike | Mixing | None = None,
    measurement_noise: float = 0.0,
    random_state: RandomState = None,
) -> Dataset:
    """Nonlinear mixing, mechanisms and noise that change with an auxiliary variable.

    ``y`` is the number of the segment. The effect of a parent is a sum of two saturating steps,
    whose places are the same in all segments and whose heights are not. Every segment changes
    every latent: ``truth.targets`` is True throughout.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    n_samples
        Rows in each segment, one number or one for each.
    n_segments
        Number of segments; the theory asks for at least ``2 n_latents + 1``.
    graph, edge_probability
        See `make_graph`.
    quiet
        Share of the segments in which a latent has no mechanism, drawn for each latent; without
        any the latents are not identifiable.
    fixed_signs
        Whether the heights keep their signs over the segments. If they do not, the mechanisms
        average out, and methods that ignore them do well.
    noise, noise_mean, noise_scale
        Family, and ranges from which the mean and standard deviation of each latent in each segment
        are drawn.
    n_layers, slope
        Of the leaky-ReLU mixing, see `leaky_relu_mixing`.
    mixing
        Replaces the leaky-ReLU mixing, see `make_mixing`.
    measurement_noise
        Standard deviation of the Gaussian noise that is added to each feature.
    random_state
        Seed or generator.

    References
    ----------
    Towards identifiable latent additive noise models, arXiv:2403.15711.
    """
    _check_count(n_segments, "n_segments")
    _check_count(n_layers, "n_layers")
    _check_share(quiet)
    _check_range(noise_mean, "noise_mean")
    _check_range(noise_scale, "noise_scale", positive=True)
    model_seed, mixing_seed, sample_seed = independent_seeds(random_state, 3)
    rng = np.random.default_rng(model_seed)
    adjacency = make_graph(graph, n_latents, rng, edge_probability=edge_probability)
    steps = [random_steps(int(k), rng) if k else None for k in adjacency.sum(axis=0)]
    is_quiet = _quiet_segments(n_segments, n_latents, quiet, rng)
    means = rng.uniform(*noise_mean, size=(n_segments, n_latents))
    scales = rng.uniform(*noise_scale, size=(n_segments, n_latents))
    scms = []
    for u in range(n_segments):
        mechanisms = [
            None if step is None or is_quiet[u, j] else _other_heights(step, fixed_signs, rng)
            for j, step in enumerate(steps)
        ]
        families = [make_noise(noise, scales[u, j], means[u, j]) for j in range(n_latents)]
        scms.append(SCM(adjacency & ~is_quiet[u], [*map(Node, mechanisms, families)]))
    if mixing is None:
        mixing = leaky_relu_mixing(
            n_latents, n_features, mixing_seed, n_layers=n_layers, slope=slope
        )
    return sample_environments(
        scms,
        make_mixing(mixing, n_latents, n_features, mixing_seed),
        n_samples,
        graph=adjacency,
        targets=np.ones((n_segments, n_latents), dtype=bool),
        measurement_noise=measurement_noise,
        random_state=sample_seed,
    )


def make_segments(
    n_latents: int = 3,
    n_features: int | None = None,
    n_samples: Sizes = 1000,
    *,
    n_segments: int = 40,
    noise: str = "gaussian",
    noise_mean: tuple[float, float] = (-2.0, 2.0),
    noise_scale: tuple[float, float] = (0.1, 2.0),
    n_layers: int = 1,
    slope: float | ArrayLike = 0.2,
    mixing: str | ArrayLike | Mixing | None = None,
    measurement_noise: float = 0.0,
    random_state: RandomState = None,
) -> Dataset:
    """Nonlinear mixing of independent sources whose mean and variance change by segment.

    The world of nonlinear ICA and of the identifiable VAE: `make_latent_anm` without causal
    effects.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    n_samples
        Rows in each segment, one number or one for each.
    n_segments
        Number of segments; the theory asks for at least ``2 n_latents + 1``.
    noise, noise_mean, noise_scale
        Family of the sources, and ranges from which the mean and standard deviation of each
        source in each segment are drawn.
    n_layers, slope, mixing, measurement_noise, random_state
        See `make_latent_anm`.
    """
    return make_latent_anm(
        n_latents,
        n_features,
        n_samples,
        n_segments=n_segments,
        graph="empty",
        noise=noise,
        noise_mean=noise_mean,
        noise_scale=noise_scale,
        n_layers=n_layers,
        slope=slope,
        mixing=mixing,
        measurement_noise=measurement_noise,
        random_state=random_state,
    )


def _check_count(count: Any, name: str) -> None:
    if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
        raise ValueError(f"'{name}' must be an integer of at least 1. Got {count!r} instead.")


def _check_range(pair: Any, name: str, *, positive: bool = False) -> None:
    numbers = np.atleast_1d(np.asarray(pair, dtype=object)).tolist()
    if len(numbers) == 2 and all(isinstance(number, Real) for number in numbers):
        low, high = numbers
        if -np.inf < low <= high < np.inf and (low > 0 or not positive):
            return
    raise ValueError(
        f"'{name}' must be a pair (low, high) of {'positive ' if positive else ''}numbers with "
        f"low <= high. Got {pair!r} instead."
    )


def _check_share(quiet: float) -> None:
    if not 0 <= quiet <= 1:
        raise ValueError(f"'quiet' is a share and must lie between 0 and 1. Got {quiet} instead.")


def _quiet_segments(
    n_segments: int, n_latents: int, quiet: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return the matrix that is True at [u, j] if latent j has no mechanism in segment u."""
    first = np.arange(n_segments) < round(quiet * n_segments)
    return rng.permuted(np.tile(first[:, None], (1, n_latents)), axis=0)


def _other_heights(step: MLP, fixed_signs: bool, rng: np.random.Generator) -> MLP:
    drawn = signed_uniform(rng, *STEP_HEIGHTS, len(step.output))
    return replace(step, output=np.abs(drawn) * np.sign(step.output) if fixed_signs else drawn)
