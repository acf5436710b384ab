"""Linear mixing of nonlinear latents without environments: only their distribution helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from crlearn.data._dataset import Dataset
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.model._mixing import Mixing
from crlearn.data.worlds._world import make_world


def make_observational(
    n_latents: int = 4,
    n_features: int | None = None,
    n_samples: int = 1000,
    *,
    graph: str | ArrayLike | nx.DiGraph = "chain",
    edge_probability: float = 0.5,
    mechanism: str | Callable[[Any], Any] = "norm_squared",
    rescale: Literal["standard", "minmax"] | None = "standard",
    noise: str = "gaussian",
    noise_variance: tuple[float, float] = (0.1, 1.0),
    mixing: str | ArrayLike | Mixing = "gaussian",
    measurement_noise: float = 0.0,
    random_state: RandomState = None,
) -> Dataset:
    """Linear mixing of nonlinear latents, observational data only.

    There is one environment and no ``y``.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    n_samples
        Number of rows.
    graph, edge_probability
        See `make_graph`; the paper uses ``"chain"`` and ``"y"``.
    mechanism
        ``"norm_squared"`` in the paper; ``"sin"``, ``"tanh_mlp"``, or whatever `make_scm` takes.
    rescale
        What is done to each latent before its children are computed. ``"minmax"`` is the paper's:
        on [0, 1] a square is nearly linear, and a thousand samples cannot tell the true model
        from others. ``"standard"`` keeps the mechanisms visible.
    noise, noise_variance
        Family, and range from which the variance of each latent is drawn.
    mixing
        See `make_mixing`.
    measurement_noise
        Standard deviation of the Gaussian noise that is added to each feature.
    random_state
        Seed or generator.

    References
    ----------
    Welch, Zhang and Uhler, Identifiability guarantees for causal disentanglement from purely
    observational data, NeurIPS 2024.
    """
    variance_seed, world_seed = independent_seeds(random_state, 2)
    variances = np.random.default_rng(variance_seed).uniform(*noise_variance, size=n_latents)
    return make_world(
        n_latents,
        n_features,
        n_samples,
        graph=graph,
        mechanism=mechanism,
        noise=noise,
        noise_scale=np.sqrt(variances),
        mixing=mixing,
        measurement_noise=measurement_noise,
        rescale=rescale,
        graph_options={"edge_probability": edge_probability},
        random_state=world_seed,
    )
