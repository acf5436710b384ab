"""Interventions behind Poisson counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crlearn.data._dataset import Dataset, Truth
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.model._interventions import Intervention
from crlearn.data.model._layer import Layer
from crlearn.data.model._mixing import Mixing
from crlearn.data.model._scm import SCM
from crlearn.data.worlds._interventional import make_linear_interventional, make_multi_node
from crlearn.data.worlds._world import Sizes, sample_environments
from crlearn.data.worlds.measured._gaussian import LEAST_UNEVEN, MOST_UNEVEN

Vector = NDArray[np.floating]


def make_count_interventional(
    n_latents: int = 5,
    n_features: int = 50,
    n_samples: Sizes = 5000,
    *,
    mean_count: float = 5.0,
    spread: float = 0.3,
    shift: float = 0.0,
    kind: Literal["single-node", "multi-node"] = "single-node",
    mechanism: str = "linear",
    intervention: Literal["hard", "soft"] = "hard",
    variance_factor: float = 5.0,
    random_state: RandomState = None,
) -> Dataset:
    """Poisson counts whose rates are linear in the latents, under interventions.

    Given the latents, features are independent. Rates are ``G z + c``: latents without effect
    leave a feature at a mean count c that is drawn for it, `mean_count` times U(0.3, 1.7). They
    are clipped at zero, which is rare unless `spread` or `shift` is large.

    Parameters
    ----------
    n_latents, n_features, n_samples
        Dimensions, and rows of each environment.
    mean_count
        Mean of c.
    spread
        Standard deviation of a rate beside its c, in the environment where it is largest.
    shift
        What an intervention adds to its target, in standard deviations of the target in the
        observational environment; the sign is drawn for each latent. It moves means of counts, and
        so their noise.
    kind
        One intervention on each latent (`make_linear_interventional`), or interventions on sets of
        latents (`make_multi_node`).
    mechanism, intervention, variance_factor
        As for these worlds.
    random_state
        Seed or generator.

    Examples
    --------
    >>> from crlearn.data import make_count_interventional
    >>> world = make_count_interventional(3, 20, 1000, mean_count=2, random_state=0)
    >>> bool((world.X >= 0).all() and (world.X == world.X.round()).all())
    True
    """
    for name, value in (("mean_count", mean_count), ("spread", spread)):
        if not value > 0:
            raise ValueError(f"'{name}' must be a positive number. Got {value} instead.")
    world_seed, sample_seed, count_seed = independent_seeds(random_state, 3)
    make = make_linear_interventional if kind == "single-node" else make_multi_node
    base = make(
        n_latents,
        n_features,
        n_samples,
        mechanism=mechanism,
        intervention=intervention,
        variance_factor=variance_factor,
        random_state=world_seed,
    )
    rng = np.random.default_rng(count_seed)
    truth = base.truth
    assert truth is not None
    assert truth.graph is not None
    sds = truth.Z[np.asarray(base.y) == 0].std(axis=0)
    world = sample_environments(
        _shifted(truth, shift * sds * rng.choice([-1.0, 1.0], n_latents)),
        truth.mixing,
        n_samples,
        graph=truth.graph,
        targets=truth.targets,
        random_state=sample_seed,
    )
    typical = mean_count * rng.uniform(LEAST_UNEVEN, MOST_UNEVEN, n_features)
    return _counted(world, typical, spread, rng)


def _shifted(truth: Truth, shifts: Vector) -> list[SCM]:
    """Return the model of each environment, its targets shifted."""
    assert truth.scms is not None
    models = []
    for scm, targets in zip(truth.scms, truth.targets, strict=True):
        moved = np.flatnonzero(targets)
        if len(moved):
            scm = scm.intervene(Intervention(moved.tolist(), "shift", shift=shifts[moved].tolist()))
        models.append(scm)
    return models


def _counted(world: Dataset, typical: Vector, spread: float, rng: np.random.Generator) -> Dataset:
    """Return a world whose features are counts, `typical` ones where latents have no effect."""
    truth = world.truth
    assert truth is not None
    matrix = truth.mixing.matrix
    assert matrix is not None
    labels = np.asarray(world.y)
    sds = np.max([world.X[labels == e].std(axis=0) for e in np.unique(labels)], axis=0)
    rates = Mixing([Layer(matrix * (spread * typical / sds)[:, None], typical)])
    counts = rng.poisson(np.maximum(rates(truth.Z), 0.0)).astype(float)
    noise = float(np.sqrt(counts.mean()))
    return replace(world, X=counts, truth=replace(truth, mixing=rates, measurement_noise=noise))
