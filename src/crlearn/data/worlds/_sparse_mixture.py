"""Latents that switch off, behind a piecewise affine mixing: a degenerate mixture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from numbers import Real
from typing import Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.data._dataset import Dataset, Truth
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.model._graphs import make_graph
from crlearn.data.model._mixing import Mixing, make_mixing, network_mixing
from crlearn.data.model._scm import make_scm
from crlearn.data.worlds._checks import check_choice, check_count, check_range, check_share
from crlearn.data.worlds._world import observe

Matrix = NDArray[np.floating]
Activation = Literal["leaky_relu", "smooth_leaky_relu", "sigmoid"]

_MOST_DRAWS = 1000


def make_sparse_mixture(
    n_latents: int = 10,
    n_features: int | None = None,
    n_samples: int = 10_000,
    *,
    active: Literal["one", "half", "three_quarters"] | int = "half",
    blocks: Sequence[int] | None = None,
    delta: float = 0.0,
    inactive_scale: float = 0.0,
    mean_scale: float = 0.0,
    rotation: float = 0.0,
    rotated_share: float = 1.0,
    edges_per_node: float = 1.0,
    graph: str | ArrayLike | nx.DiGraph = "er_k",
    weight_range: tuple[float, float] = (0.2, 1.0),
    noise: str = "gaussian",
    activation: Activation = "leaky_relu",
    n_layers: int = 10,
    slope: float | ArrayLike | None = None,
    slope_range: tuple[float, float] = (0.6, 1.0),
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
        Dimensions; `n_features` is `n_latents` by default. With more features X lies on a piecewise
        flat surface, and the mixing is still one to one.
    n_samples
        Number of rows.
    active
        How many latents are active in each component. ``5 n_latents`` sets are drawn and repeated
        ones dropped, such that each latent is active in some component and none in all.
    blocks
        Sizes of blocks of consecutive latents that are only active together, such as ``(1, 1, 3)``
        for five latents; ``truth.blocks`` has their columns. `active` then counts blocks, not
        latents: ``"half"`` is half of the blocks, and each block is on somewhere without each
        other one. None for latents that go their own ways.
    delta
        A latent is switched off to its mean plus delta times its standard deviation.
    inactive_scale
        Standard deviation of a latent where it is not active, relative to where it is. With 0 it
        is a constant; with more no component is degenerate, and the theory promises the latents up
        to an affine map only.
    mean_scale
        Each component has means of its own, drawn for every latent, active or not, from a normal
        distribution with this many standard deviations of the latent. With an `inactive_scale` of
        0 a latent is then switched off to another value in each component, which the theory
        excludes.
    rotation
        Angle in degrees by which the basis in which latents are switched off deviates from the
        standard basis. The variables of the causal model are switched off first and rotated then:
        row by row, ``truth.Z`` is ``U @ R``, and only U has entries that are switched off. R turns
        each plane of two axes by this angle, one plane after the other: ``R = R(n-2, n-1) ...
        R(0, 2) R(0, 1)``, where ``R(i, j)`` has cosines at [i, i] and [j, j], minus the sine at
        [i, j] and the sine at [j, i]. ``truth.active``, ``truth.noise`` and ``truth.graph`` are
        about U, which is ``truth.Z`` if the rotation is 0. The paper uses 0, 15, 30 and 45; beyond
        0 its theory promises the latents up to an affine map only.
    rotated_share
        Share of the components that are rotated; the others keep the standard basis. Between 0 and
        1 there are two bases, and the theory promises an affine map inside each component only.
    edges_per_node, graph
        See `make_graph`: exactly ``edges_per_node * n_latents`` edges in a random order by default.
    weight_range
        Range of the magnitudes of the weights of the linear mechanisms.
    noise
        Family of the noise, which has mean zero and unit variance: ``"gaussian"`` is the theory's,
        ``"exponential"`` and ``"gumbel"`` are the paper's violations.
    activation
        Of the mixing, see `network_mixing`: ``"leaky_relu"`` is the theory's,
        ``"smooth_leaky_relu"`` and ``"sigmoid"`` are the paper's violations.
    n_layers, slope, slope_range, bias_scale
        Of the mixing, see `network_mixing`. Without a `slope`, that of each layer is drawn from
        `slope_range`.
    mixing
        Replaces all of this, see `make_mixing`.
    measurement_noise
        Standard deviation of the Gaussian noise that is added to each feature.
    random_state
        Seed or generator.

    Notes
    -----
    ``active="one"`` violates the genericity that the theory asks for (Assumption 3.4), as Example
    E.2 of the paper does in two dimensions. Components are lines along the axes that cross in one
    point, which lies `delta` standard deviations from the mean of every one of them. The crossing
    cuts each line into two rays. Exchange the upper rays of two latents, stretched by the ratio of
    their standard deviations, and leave the other rays alone: the map is continuous, one to one on
    the lines and affine on each ray, and samples have the same distribution afterwards; but it is
    affine on neither of the two lines. With three latents or more it is part of a one-to-one
    piecewise affine map of the whole space; in the plane it is not, as rays have an order there.
    Components of full rank never violate this assumption: two of them that had the same
    Mahalanobis distance everywhere would be one.

    References
    ----------
    Xu, Lachapelle and Magliacane, Identifiability of potentially degenerate Gaussian mixture models
    with piecewise affine mixing, 2026.
    """
    _check_numbers(rotation, inactive_scale, mean_scale)
    check_share(rotated_share, "rotated_share")
    check_range(slope_range, "slope_range", positive=True)
    check_choice(activation, "activation", ("leaky_relu", "smooth_leaky_relu", "sigmoid"))
    model_seed, mask_seed, mixing_seed, sample_seed = independent_seeds(random_state, 4)
    means_seed, bases_seed = independent_seeds(mask_seed, 2)
    model_rng = np.random.default_rng(model_seed)
    scm = make_scm(
        make_graph(graph, n_latents, model_rng, edges_per_node=edges_per_node),
        "linear",
        noise=noise,
        mechanism_options={"weight_range": weight_range},
        random_state=model_rng,
    )
    deviations = np.sqrt(np.diag(scm.covariance()))
    masks = _activity_masks(n_latents, active, blocks, mask_seed)
    if mixing is None:
        mixing_rng = np.random.default_rng(mixing_seed)
        slopes = mixing_rng.uniform(*slope_range, n_layers) if slope is None else slope
        mixing = network_mixing(
            n_latents,
            n_features,
            mixing_rng,
            activation=activation,
            n_layers=n_layers,
            slope=slopes,
            bias_scale=bias_scale,
        )
    mixing = make_mixing(mixing, n_latents, n_features, mixing_seed)
    sample_rng = np.random.default_rng(sample_seed)
    full, exogenous = scm.sample(n_samples, sample_rng)
    component = sample_rng.integers(len(masks), size=n_samples)
    on = masks[component]
    Z = np.where(on, full, delta * deviations + inactive_scale * full)
    if mean_scale:
        means = np.random.default_rng(means_seed).standard_normal(masks.shape)
        Z += (mean_scale * deviations * means)[component]
    if rotation:
        turned = _random_share(len(masks), rotated_share, bases_seed)[component]
        Z[turned] = Z[turned] @ _rotation_matrix(n_latents, rotation)
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
            blocks=None if blocks is None else _columns(blocks),
        ),
    )


def _check_numbers(rotation: Any, inactive_scale: Any, mean_scale: Any) -> None:
    if not (isinstance(rotation, Real) and np.isfinite(float(rotation))):
        raise ValueError(
            f"'rotation' must be a finite number, an angle in degrees. Got {rotation!r} instead."
        )
    for name, scale in (("inactive_scale", inactive_scale), ("mean_scale", mean_scale)):
        if not (isinstance(scale, Real) and 0 <= float(scale) < np.inf):
            raise ValueError(
                f"'{name}' must be a finite number that is not negative. Got {scale!r} instead."
            )


def _rotation_matrix(n: int, degrees: float) -> Matrix:
    """Turn every plane of two axes by the same angle, one after the other."""
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    turn, rotation = np.array([[cosine, -sine], [sine, cosine]]), np.eye(n)
    for plane in combinations(range(n), 2):
        rotation[plane, :] = turn @ rotation[plane, :]
    return rotation


def _random_share(n: int, share: float, seed: int) -> NDArray[np.bool_]:
    """Choose a share of n things at random."""
    return np.random.default_rng(seed).permutation(n) < round(share * n)


def _activity_masks(
    n_latents: int, active: str | int, blocks: Sequence[int] | None, seed: int
) -> NDArray[np.bool_]:
    """Draw which latents are active in each component, block by block if there are any."""
    if blocks is None:
        return _masks_of_units(n_latents, _n_active(active, n_latents, "latent"), "latent", seed)
    for size in blocks:
        check_count(size, "blocks")
    if sum(blocks) != n_latents:
        raise ValueError(
            f"'blocks' must hold sizes that add up to {n_latents}, the number of latents. "
            f"Got {list(blocks)}, which add up to {sum(blocks)}."
        )
    n_active = _n_active(active, len(blocks), "block")
    return np.repeat(_masks_of_units(len(blocks), n_active, "block", seed), blocks, axis=1)


def _n_active(active: str | int, n_units: int, unit: str) -> int:
    counts = {"one": 1, "half": n_units // 2, "three_quarters": 3 * n_units // 4}
    if isinstance(active, str) and active not in counts:
        raise ValueError(
            f"'active' must be 'one', 'half', 'three_quarters' or a number. Got {active!r} instead."
        )
    count = counts[active] if isinstance(active, str) else active
    if not 1 <= count < n_units:
        raise ValueError(
            f"'active' must leave at least one {unit} on and one off. Got {count} active of "
            f"{n_units}."
        )
    return count


def _masks_of_units(n_units: int, n_active: int, unit: str, seed: int) -> NDArray[np.bool_]:
    rng = np.random.default_rng(seed)
    first = np.arange(n_units) < n_active
    for _ in range(_MOST_DRAWS):
        drawn = rng.permuted(np.tile(first, (5 * n_units, 1)), axis=1)
        masks = np.unique(drawn, axis=0)
        is_varied = masks.any(axis=0).all() and not masks.all(axis=0).any()
        if is_varied and (unit == "latent" or _are_apart(masks)):
            return masks
    raise ValueError(
        f"No sets of {n_active} active {unit}s out of {n_units} were found in which each "
        f"{unit} is sometimes on and sometimes off."
    )


def _are_apart(masks: NDArray[np.bool_]) -> bool:
    """Whether each unit is on somewhere without each other one (Assumption 3.8b).

    Asked of blocks, which else would not be the finest that can be told apart; sets of single
    latents have always been drawn without it, and nearly all of them comply.
    """
    alone = masks.T.astype(int) @ ~masks
    return bool((alone + np.eye(len(alone)) > 0).all())


def _columns(sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the columns of consecutive blocks."""
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(tuple(range(start, end)) for start, end in pairwise(ends))
