"""Worlds of nonlinear ICA and its causal kin: each segment has its own noise and mechanisms."""

from __future__ import annotations

from functools import partial
from typing import Literal

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from crlearn.data._dataset import Dataset
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.model._graphs import make_graph
from crlearn.data.model._mixing import Mixing, leaky_relu_mixing, make_mixing
from crlearn.data.model._noise import make_noise
from crlearn.data.worlds._auxiliary import random_changing_latents, sample_changing
from crlearn.data.worlds._changes import (
    Changes,
    Invariant,
    invariant_parts,
    quiet_segments,
    quiet_shares,
    random_steps_on,
    resized,
    segment_model,
    vanishing,
)
from crlearn.data.worlds._checks import check_choice, check_count, check_range
from crlearn.data.worlds._post_nonlinear import random_bends, sample_bent
from crlearn.data.worlds._world import Sizes, sample_environments, samples_by_environment


def make_latent_anm(
    n_latents: int = 3,
    n_features: int | None = None,
    n_samples: Sizes = 1000,
    *,
    n_segments: int = 40,
    auxiliary: Literal["segments", "continuous"] = "segments",
    auxiliary_dim: int = 1,
    graph: str | ArrayLike | nx.DiGraph = "chain",
    edge_probability: float = 0.5,
    changes: Changes = "vanish",
    quiet: float | ArrayLike = 0.3,
    invariant: Invariant = (),
    fixed_signs: bool = True,
    post_nonlinear: bool = False,
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

    ``y`` is the number of the segment, or a continuous vector. The effect of a parent is a sum of
    two saturating steps, whose places are the same in all segments and whose heights are not. Every
    segment changes every latent: ``truth.targets`` is True throughout.

    The theory asks that the influence of the parents on a latent vanishes for some value of the
    auxiliary variable. `quiet` sees to that; ``quiet=0``, `invariant` and ``changes="size"``
    violate it.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    n_samples
        Rows in each segment, one number or one for each.
    n_segments
        Number of segments; the theory asks for at least ``2 n_latents + 1``.
    auxiliary, auxiliary_dim
        ``"segments"``, or ``"continuous"``: ``y`` is a matrix with `auxiliary_dim` columns, uniform
        on [-1, 1], and as many rows as all segments together would have. Mean and logarithm of the
        standard deviation of the noise, and the heights of the steps, are then smooth random
        functions of it that fill their ranges, and each mechanism is multiplied by a smooth factor
        that is exactly 0 on a share `quiet` of the values. ``truth.scms`` is None.
    graph, edge_probability
        See `make_graph`.
    changes
        ``"vanish"``: each height is drawn anew in each segment, and mechanisms vanish in the quiet
        ones. ``"size"``: none ever vanishes, `quiet` is not used; all heights of a mechanism are
        multiplied by one factor between 0.2 and 1.
    quiet
        Share of the segments in which a latent has no mechanism, drawn for each latent; one for
        all, or one for each. Latents without any are not identifiable.
    invariant
        Latents (``"all"``, or a list of their numbers) whose parents also have an effect that is
        the same in all segments, the quiet ones included: a further sum of steps. Latents without
        parents have none. With quiet segments no data can tell such a latent from one without it.
    fixed_signs
        Whether the heights keep their signs over the segments. If they do not, the mechanisms
        average out, and methods that ignore them do well.
    post_nonlinear
        Whether each latent is bent by an increasing smooth function of its own before it causes
        others and is mixed: ``z = phi(mechanism + noise)``. ``truth.Z`` holds the bent latents,
        ``truth.noise`` what was added, and ``truth.scms`` is None.
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
    check_count(n_segments, "n_segments")
    check_count(n_layers, "n_layers")
    check_count(auxiliary_dim, "auxiliary_dim")
    check_choice(auxiliary, "auxiliary", ("segments", "continuous"))
    check_choice(changes, "changes", ("vanish", "size"))
    shares = quiet_shares(quiet, n_latents)
    check_range(noise_mean, "noise_mean")
    check_range(noise_scale, "noise_scale", positive=True)
    model_seed, mixing_seed, sample_seed = independent_seeds(random_state, 3)
    rng = np.random.default_rng(model_seed)
    # What was added later draws from streams of its own: older worlds stay what they were.
    fixed_rng, size_rng, bend_rng = np.random.default_rng((model_seed, 1)).spawn(3)
    adjacency = make_graph(graph, n_latents, rng, edge_probability=edge_probability)
    steps = random_steps_on(adjacency, rng)
    fixed = invariant_parts(invariant, adjacency, fixed_rng)
    bends = random_bends(n_latents, bend_rng) if post_nonlinear else None
    if mixing is None:
        mixing = leaky_relu_mixing(
            n_latents, n_features, mixing_seed, n_layers=n_layers, slope=slope
        )
    mixing = make_mixing(mixing, n_latents, n_features, mixing_seed)
    if auxiliary == "continuous":
        changing = random_changing_latents(
            adjacency,
            steps,
            fixed,
            auxiliary_dim,
            changes=changes,
            quiet=shares,
            fixed_signs=fixed_signs,
            noise_mean=noise_mean,
            noise_scale=noise_scale,
            rng=rng,
        )
        return sample_changing(
            changing,
            mixing,
            sum(samples_by_environment(n_samples, n_segments)),
            noise=noise,
            bends=bends,
            measurement_noise=measurement_noise,
            random_state=sample_seed,
        )
    is_quiet = quiet_segments(n_segments, shares, rng)
    means = rng.uniform(*noise_mean, size=(n_segments, n_latents))
    scales = rng.uniform(*noise_scale, size=(n_segments, n_latents))
    if changes == "size":
        mechanisms = resized(steps, n_segments, size_rng)
    else:
        mechanisms = vanishing(steps, is_quiet, fixed_signs, rng)
    scms = [
        segment_model(adjacency, changing, fixed, [*map(partial(make_noise, noise), *moments)])
        for changing, *moments in zip(mechanisms, scales, means, strict=True)
    ]
    return sample_environments(
        scms,
        mixing,
        n_samples,
        graph=adjacency,
        targets=np.ones((n_segments, n_latents), dtype=bool),
        measurement_noise=measurement_noise,
        draw=None if bends is None else partial(sample_bent, bends=bends),
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
