"""Worlds in which one assumption is broken, to see whether a method notices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crlearn.data._dataset import Dataset
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.worlds._interventional import (
    make_linear_interventional,
    make_multi_domain,
    make_multi_node,
)
from crlearn.data.worlds._observational import make_observational
from crlearn.data.worlds._segments import make_segments

Matrix = NDArray[np.floating]
Rng = np.random.Generator
Kind = Literal["single-node", "multi-node", "observational", "multi-domain", "segments"]

_DOMAIN_VARIANCE = 4.0  # of the noise of a latent, that of make_multi_domain
_MEASUREMENT_NOISE = 0.5  # a quarter of a latent's own sd
_BATCHES = 3
_SEGMENTS = 12  # the theory asks for 7 with three latents


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


def _known_batches(world: Dataset, rng: Rng) -> Dataset:
    """Move the features of each of three batches; environments have other shares of them."""
    batch = np.empty(world.n_samples, dtype=int)
    for rows in world._rows_by_environment():
        batch[rows] = rng.choice(_BATCHES, len(rows), p=rng.dirichlet(np.full(_BATCHES, 2.0)))
    moves = world.X.std(axis=0) * rng.standard_normal((_BATCHES, world.n_features))
    names = np.array([f"batch {k}" for k in range(_BATCHES)])
    return replace(world, X=world.X + moves[batch], covariates={"batch": names[batch]})


def _outliers(world: Dataset, rng: Rng) -> Dataset:
    """Move one row of a hundred by ten standard deviations of the latents."""
    rows = rng.choice(world.n_samples, world.n_samples // 100, replace=False)
    moves = np.zeros_like(_latents(world))
    moves[rows] = 10 * _scale(world) * rng.standard_normal((len(rows), moves.shape[1]))
    return _moved(world, moves)


def _missing(world: Dataset, rng: Rng) -> Dataset:
    """Leave the last environment out: nobody intervenes on one of the latents."""
    return _first(world, world.n_environments - 1)


def _few(world: Dataset, rng: Rng) -> Dataset:
    """Keep one environment of four."""
    return _first(world, world.n_environments // 4)


def _mislabelled(world: Dataset, rng: Rng) -> Dataset:
    """Give one row of five the label of any row."""
    assert world.y is not None
    y = np.array(world.y)
    rows = rng.choice(len(y), len(y) // 5, replace=False)
    y[rows] = rng.permutation(y[rows])
    return replace(world, y=y)


def _mistaken(world: Dataset, rng: Rng) -> Dataset:
    """Let the last environment move the first latent, too, which nobody says of it."""
    moves = np.zeros_like(_latents(world))
    moves[world.y == world.environments[-1], 0] = 2 * _scale(world)[0]
    return _moved(world, moves)


def _uneven(world: Dataset, rng: Rng) -> Dataset:
    """Add noise of another size to each feature, up to its standard deviation."""
    sizes = rng.uniform(0, 1, world.n_features) * world.X.std(axis=0)
    return replace(world, X=world.X + sizes * rng.standard_normal(world.X.shape))


def _related(world: Dataset, rng: Rng) -> Dataset:
    """Let each latent cause the next one, more in some environments than in others."""
    Z = np.array(_latents(world))
    for label in world.environments:
        rows = world.y == label
        for j in range(1, Z.shape[1]):
            Z[rows, j] += rng.uniform(0, 2) * Z[rows, j - 1]
    return _moved(world, Z - _latents(world))


BREAKS: MappingProxyType[str, Callable[[Dataset, Rng], Dataset]] = MappingProxyType(
    {
        "nothing": _nothing,
        "1% noise": lambda world, rng: _noise(world, rng, 0.01),
        "30% noise": lambda world, rng: _noise(world, rng, 0.3),
        "curved mixing": _curved,
        "batches": _batches,
        "known batches": _known_batches,
        "outliers": _outliers,
        "missing environment": _missing,
        "wrong labels": _mislabelled,
        "wrong targets": _mistaken,
        "uneven noise": _uneven,
        "related latents": _related,
        "few environments": _few,
    }
)


def make_broken(
    n_latents: int = 5,
    n_features: int = 20,
    n_samples: int = 5000,
    *,
    kind: Kind = "single-node",
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
        on sets of latents (`make_multi_node`), none (`make_observational`, with standardised
        latents on a random graph), ``"multi-domain"``: noisy measurements of domains with known
        targets (`make_multi_domain`, with an observational domain and so little noise that its
        latents can be had with a correlation of 0.97), or ``"segments"``: twelve segments of
        independent latents behind a nonlinear mixing (`make_segments`).
    broken
        ``"nothing"``; ``"1% noise"`` and ``"30% noise"`` of each feature's standard deviation;
        ``"curved mixing"``: features saturate; ``"batches"``: latents of each environment are
        moved by half a standard deviation; ``"known batches"``: rows of each environment come from
        three batches, whose features are moved by about a standard deviation, and ``covariates``
        tell which; ``"outliers"``: one row of a hundred stands ten standard
        deviations out; ``"missing environment"``: the last is left out; ``"few environments"``: one
        of four is kept; ``"wrong labels"``: one label of five is drawn anew; ``"wrong targets"``:
        the last environment also moves the first latent, and nobody says so; ``"uneven noise"``:
        each feature has noise of another size, up to its standard deviation;
        ``"related latents"``: each causes the next one, more in some environments than in others.
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
    common: dict[str, Any] = {"noise": noise, "random_state": world_seed}
    sizes = n_latents, n_features, n_samples
    if kind == "observational":
        world = make_observational(
            *sizes, graph="er", edge_probability=0.6, mechanism=mechanism, **common
        )
    elif kind == "multi-domain":
        world = make_multi_domain(
            *sizes,
            mechanism=mechanism,
            intervened_variance=variance_factor * _DOMAIN_VARIANCE,
            noise_variance=_DOMAIN_VARIANCE,
            measurement_noise=_MEASUREMENT_NOISE,
            observational=True,
            **common,
        )
    elif kind == "segments":
        world = make_segments(*sizes, n_segments=_SEGMENTS, **common)
    else:
        make = make_linear_interventional if kind == "single-node" else make_multi_node
        world = make(
            *sizes,
            mechanism=mechanism,
            intervention=intervention,
            variance_factor=variance_factor,
            **common,
        )
    return BREAKS[broken](world, np.random.default_rng(break_seed))


def _latents(world: Dataset) -> Matrix:
    assert world.truth is not None
    return world.truth.Z


def _scale(world: Dataset) -> Matrix:
    return _latents(world).std(axis=0)


def _moved(world: Dataset, moves: Matrix) -> Dataset:
    """Move the latents, and with them what is seen of them."""
    truth = world.truth
    assert truth is not None
    Z = truth.Z + moves
    X = truth.mixing(Z)
    if truth.measurement_noise:
        X = X + (world.X - truth.mixing(truth.Z))
    return replace(world, X=X, truth=replace(truth, Z=Z))


def _first(world: Dataset, n_environments: int) -> Dataset:
    """Keep so many environments, from the first on."""
    assert world.y is not None
    assert world.truth is not None
    labels = world.environments[:n_environments]
    kept = world.subset(np.isin(world.y, np.array(labels)))
    assert kept.truth is not None
    scms = kept.truth.scms
    truth = replace(
        kept.truth,
        targets=kept.truth.targets[:n_environments],
        scms=None if scms is None else scms[:n_environments],
    )
    known = world.known_targets
    known = None if known is None else known[:n_environments]
    return replace(kept, environments=labels, known_targets=known, truth=truth)
