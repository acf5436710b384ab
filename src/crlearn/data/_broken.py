"""Worlds in which one assumption is broken, to see whether a method notices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crlearn.data._dataset import Dataset
from crlearn.data._interventional import make_linear_interventional, make_multi_node
from crlearn.data._observational import make_observational
from crlearn.data._random import RandomState, independent_seeds

Matrix = NDArray[np.floating]
Rng = np.random.Generator


def _nothing(world: Dataset, rng: Rng) -> Dataset:
    """Leave all as it is."""
    return world


def _noise(world: Dataset, rng: Rng, size: float) -> Dataset:
    """Add measurement noise, so many standard deviations of each feature."""
    return replace(
        world, X=world.X + size * world.X.std(axis=0) * rng.standard_normal(world.X.shape)
    )


def _curved(world: Dataset, rng: Rng) -> Dataset:
    """Bend each feature, as a detector does that saturates: the mixing is not linear."""
    scale = world.X.std(axis=0)
    return replace(world, X=np.tanh(world.X / scale) * scale)


def _batches(world: Dataset, rng: Rng) -> Dataset:
    """Move the latents of each environment by half a standard deviation."""
    moves = np.zeros_like(_latents(world))
    for label in world.environments:
        moves[world.y == label] = 0.5 * _scale(world) * rng.standard_normal(moves.shape[1])
    return _moved(world, moves)


def _outliers(world: Dataset, rng: Rng) -> Dataset:
    """Move one row of a hundred by ten standard deviations of the latents."""
    rows = rng.choice(world.n_samples, world.n_samples // 100, replace=False)
    moves = np.zeros_like(_latents(world))
    moves[rows] = 10 * _scale(world) * rng.standard_normal((len(rows), moves.shape[1]))
    return _moved(world, moves)


def _missing(world: Dataset, rng: Rng) -> Dataset:
    """Leave the last environment out: nobody intervenes on one of the latents."""
    assert world.y is not None
    assert world.truth is not None
    kept = world.subset(world.y != world.environments[-1])
    assert kept.truth is not None
    scms = kept.truth.scms
    truth = replace(
        kept.truth,
        targets=kept.truth.targets[:-1],
        scms=None if scms is None else scms[:-1],
    )
    return replace(kept, environments=world.environments[:-1], truth=truth)


def _mislabelled(world: Dataset, rng: Rng) -> Dataset:
    """Give one row of five the label of any row."""
    assert world.y is not None
    y = np.array(world.y)
    rows = rng.choice(len(y), len(y) // 5, replace=False)
    y[rows] = rng.permutation(y[rows])
    return replace(world, y=y)


BREAKS: MappingProxyType[str, Callable[[Dataset, Rng], Dataset]] = MappingProxyType(
    {
        "nothing": _nothing,
        "1% noise": lambda world, rng: _noise(world, rng, 0.01),
        "30% noise": lambda world, rng: _noise(world, rng, 0.3),
        "curved mixing": _curved,
        "batches": _batches,
        "outliers": _outliers,
        "missing environment": _missing,
        "wrong labels": _mislabelled,
    }
)


def make_broken(
    n_latents: int = 5,
    n_features: int = 20,
    n_samples: int = 5000,
    *,
    kind: Literal["single-node", "multi-node", "observational"] = "single-node",
    broken: str = "nothing",
    mechanism: str = "linear",
    intervention: Literal["hard", "soft"] = "hard",
    variance_factor: float = 0.25,
    noise: str = "gaussian",
    random_state: RandomState = None,
) -> Dataset:
    """Draw a world in which an assumption of the linear methods is broken, or none is.

    Parameters
    ----------
    n_latents, n_features, n_samples
        Dimensions, and rows of each environment.
    kind
        Of the data: one intervention on each latent (`make_linear_interventional`), interventions
        on sets of latents (`make_multi_node`), or none (`make_observational`, with standardised
        latents on a random graph).
    broken
        ``"nothing"``; ``"1% noise"`` and ``"30% noise"`` of each feature's standard deviation;
        ``"curved mixing"``: features saturate; ``"batches"``: latents of each environment are
        moved by half a standard deviation; ``"outliers"``: one row of a hundred stands ten standard
        deviations out; ``"missing environment"``: the last is left out; ``"wrong labels"``: one
        label of five is drawn anew.
    mechanism, intervention, variance_factor, noise
        Of the world; interventions are for those that have them.
    random_state
        Seed or generator.
    """
    if broken not in BREAKS:
        raise ValueError(
            f"'broken' must be one of {', '.join(map(repr, BREAKS))}. Got {broken!r} instead."
        )
    world_seed, break_seed = independent_seeds(random_state, 2)
    if kind == "observational":
        world = make_observational(
            n_latents,
            n_features,
            n_samples,
            graph="er",
            edge_probability=0.6,
            mechanism=mechanism,
            noise=noise,
            random_state=world_seed,
        )
    else:
        make = make_linear_interventional if kind == "single-node" else make_multi_node
        world = make(
            n_latents,
            n_features,
            n_samples,
            mechanism=mechanism,
            intervention=intervention,
            variance_factor=variance_factor,
            noise=noise,
            random_state=world_seed,
        )
    return BREAKS[broken](world, np.random.default_rng(break_seed))


def _latents(world: Dataset) -> Matrix:
    assert world.truth is not None
    return world.truth.Z


def _scale(world: Dataset) -> Matrix:
    return _latents(world).std(axis=0)


def _moved(world: Dataset, moves: Matrix) -> Dataset:
    """Move the latents, and with them what is seen of them."""
    assert world.truth is not None
    Z = world.truth.Z + moves
    return replace(world, X=world.truth.mixing(Z), truth=replace(world.truth, Z=Z))
