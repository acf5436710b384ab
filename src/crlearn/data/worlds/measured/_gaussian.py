"""Interventions behind Gaussian noise of a size that is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from crlearn.data._dataset import Dataset
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.worlds._interventional import make_linear_interventional, make_multi_node
from crlearn.data.worlds._world import Sizes

LEAST_UNEVEN, MOST_UNEVEN = 0.3, 1.7  # times the size of a feature, where features differ


def make_noisy_interventional(
    n_latents: int = 5,
    n_features: int = 50,
    n_samples: Sizes = 5000,
    *,
    share: float = 0.2,
    uneven: bool = False,
    kind: Literal["single-node", "multi-node"] = "single-node",
    mechanism: str = "linear",
    intervention: Literal["hard", "soft"] = "hard",
    variance_factor: float = 5.0,
    intervened: Sequence[int] | None = None,
    random_state: RandomState = None,
) -> Dataset:
    """Linear mixing with measurement noise, under interventions.

    Parameters
    ----------
    n_latents, n_features, n_samples
        Dimensions, and rows of each environment, one number or one for each.
    share
        Standard deviation of the noise beside that of all entries of X without it.
    uneven
        Whether the noise of each feature is so many times that, drawn from U(0.3, 1.7).
    kind
        One intervention on each latent (`make_linear_interventional`), or interventions on sets of
        latents (`make_multi_node`).
    mechanism, intervention, variance_factor
        As for these worlds.
    intervened
        As for `make_linear_interventional`, with one intervention on each latent only.
    random_state
        Seed or generator.

    Examples
    --------
    >>> from crlearn.data import make_noisy_interventional
    >>> world = make_noisy_interventional(3, 20, 1000, share=0.5, random_state=0)
    >>> world.X.shape
    (4000, 20)
    """
    if not share >= 0:
        raise ValueError(f"'share' must be a number of at least 0. Got {share} instead.")
    if kind == "multi-node" and intervened is not None:
        raise ValueError("'intervened' is for kind='single-node': sets of latents are drawn.")
    world_seed, noise_seed = independent_seeds(random_state, 2)
    chosen: dict[str, Any] = {} if intervened is None else {"intervened": intervened}
    make = make_linear_interventional if kind == "single-node" else make_multi_node
    world = make(
        n_latents,
        n_features,
        n_samples,
        mechanism=mechanism,
        intervention=intervention,
        variance_factor=variance_factor,
        random_state=world_seed,
        **chosen,
    )
    rng = np.random.default_rng(noise_seed)
    sds = share * world.X.std() * np.ones(n_features)
    if uneven:
        sds *= rng.uniform(LEAST_UNEVEN, MOST_UNEVEN, n_features)
    truth = world.truth
    assert truth is not None
    return replace(
        world,
        X=world.X + sds * rng.standard_normal(world.X.shape),
        truth=replace(truth, measurement_noise=float(np.sqrt((sds**2).mean()))),
    )
