"""Worlds of the papers that need no environments: only the shape of the distribution helps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from numbers import Real
from typing import Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.data._dataset import Dataset, Truth
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.model._graphs import make_graph
from crlearn.data.model._mixing import Mixing, leaky_relu_mixing, make_mixing
from crlearn.data.model._scm import make_scm
from crlearn.data.worlds._world import make_world, observe

_MOST_DRAWS = 1000


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


def make_sparse_mixture(
    n_latents: int = 10,
    n_features: int | None = None,
    n_samples: int = 10_000,
    *,
    active: Literal["one", "half", "three_quarters"] | int = "half",
    delta: float = 0.0,
    rotation: float = 0.0,
    edges_per_node: float = 1.0,
    graph: str | ArrayLike | nx.DiGraph = "er_k",
    weight_range: tuple[float, float] = (0.2, 1.0),
    noise: str = "gaussian",
    n_layers: int = 10,
    slope: float | ArrayLike | None = None,
    bias_scale: float = 0.0,
    mixing: str | ArrayLike | Mixing | None = None,
    measurement_noise: float = 0.0,
    random_state: RandomState = None,
) -> Dataset:
    """Piecewise affine mixing of latents that switch off (the world of the degenerate mixtures).

    Each sample belongs to one of several components, and each component has its own set of
    latents that are active; the others sit at a fixed value. Which component a sample belongs to
    is not observed: there is no ``y``, and ``truth.active`` holds the answer. Switched-off
    latents have no density, so that ``truth.scms`` is None; ``truth.noise`` belongs to the
    latents before they were switched off.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    n_samples
        Number of rows.
    active
        How many latents are active in each component. ``5 n_latents`` sets are drawn and repeated
        ones dropped, such that each latent is active in some component and none in all.
    delta
        A latent is switched off to its mean plus delta times its standard deviation.
    rotation
        Angle in degrees by which the basis in which latents are switched off deviates from the
        standard basis. The variables of the causal model are switched off first and rotated then:
        row by row, ``truth.Z`` is ``U @ R``, and only U has entries that are switched off. R turns
        each plane of two axes by this angle, one plane after the other: ``R = R(n-2, n-1) ...
        R(0, 2) R(0, 1)``, where ``R(i, j)`` has cosines at [i, i] and [j, j], minus the sine at
        [i, j] and the sine at [j, i]. ``truth.active``, ``truth.noise`` and ``truth.graph`` are
        about U, which is ``truth.Z`` if the rotation is 0. The paper uses 0, 15, 30 and 45; beyond
        0 its theory promises the latents up to an affine map only.
    edges_per_node, graph
        See `make_graph`: exactly ``edges_per_node * n_latents`` edges in a random order by default.
    weight_range
        Range of the magnitudes of the weights of the linear mechanisms.
    noise
        Family of the noise, which has unit variance.
    n_layers, slope, bias_scale
        Of the leaky-ReLU mixing, see `leaky_relu_mixing`; the slopes are drawn from [0.6, 1] by
        default.
    mixing
        Replaces the leaky-ReLU mixing, see `make_mixing`.
    measurement_noise
        Standard deviation of the Gaussian noise that is added to each feature.
    random_state
        Seed or generator.

    References
    ----------
    Xu, Lachapelle and Magliacane, Identifiability of potentially degenerate Gaussian mixture models
    with piecewise affine mixing.
    """
    _check_angle(rotation)
    model_seed, mask_seed, mixing_seed, sample_seed = independent_seeds(random_state, 4)
    model_rng = np.random.default_rng(model_seed)
    scm = make_scm(
        make_graph(graph, n_latents, model_rng, edges_per_node=edges_per_node),
        "linear",
        noise=noise,
        mechanism_options={"weight_range": weight_range},
        random_state=model_rng,
    )
    masks = _activity_masks(n_latents, _n_active(active, n_latents), mask_seed)
    if mixing is None:
        mixing_rng = np.random.default_rng(mixing_seed)
        slopes = mixing_rng.uniform(0.6, 1.0, n_layers) if slope is None else slope
        mixing = leaky_relu_mixing(
            n_latents,
            n_features,
            mixing_rng,
            n_layers=n_layers,
            slope=slopes,
            bias_scale=bias_scale,
        )
    mixing = make_mixing(mixing, n_latents, n_features, mixing_seed)
    sample_rng = np.random.default_rng(sample_seed)
    full, exogenous = scm.sample(n_samples, sample_rng)
    on = masks[sample_rng.integers(len(masks), size=n_samples)]
    Z = np.where(on, full, delta * np.sqrt(np.diag(scm.covariance())))
    if rotation:
        Z = Z @ _rotation_matrix(n_latents, rotation)
    return Dataset(
        observe(mixing, Z, measurement_noise, sample_rng),
        truth=Truth(
            Z,
            exogenous,
            scm.graph,
            np.zeros((1, n_latents), dtype=bool),
            mixing,
            measurement_noise=measurement_noise,
            active=on,
        ),
    )


def _check_angle(rotation: Any) -> None:
    if not (isinstance(rotation, Real) and np.isfinite(float(rotation))):
        raise ValueError(
            f"'rotation' must be a finite number, an angle in degrees. Got {rotation!r} instead."
        )


def _rotation_matrix(n: int, degrees: float) -> NDArray[np.floating]:
    """Turn every plane of two axes by the same angle, one after the other."""
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    turn, rotation = np.array([[cosine, -sine], [sine, cosine]]), np.eye(n)
    for plane in combinations(range(n), 2):
        rotation[plane, :] = turn @ rotation[plane, :]
    return rotation


def _n_active(active: str | int, n_latents: int) -> int:
    counts = {"one": 1, "half": n_latents // 2, "three_quarters": 3 * n_latents // 4}
    if isinstance(active, str) and active not in counts:
        raise ValueError(
            f"'active' must be 'one', 'half', 'three_quarters' or a number. Got {active!r} instead."
        )
    count = counts[active] if isinstance(active, str) else active
    if not 1 <= count < n_latents:
        raise ValueError(
            f"'active' must leave at least one latent on and one off. Got {count} active of "
            f"{n_latents}."
        )
    return count


def _activity_masks(n_latents: int, n_active: int, seed: int) -> NDArray[np.bool_]:
    rng = np.random.default_rng(seed)
    first = np.arange(n_latents) < n_active
    for _ in range(_MOST_DRAWS):
        drawn = rng.permuted(np.tile(first, (5 * n_latents, 1)), axis=1)
        masks = np.unique(drawn, axis=0)
        if masks.any(axis=0).all() and not masks.all(axis=0).any():
            return masks
    raise ValueError(
        f"No sets of {n_active} active latents out of {n_latents} were found in which each "
        "latent is sometimes on and sometimes off."
    )
