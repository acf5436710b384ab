"""Worlds with known truth: any model, any interventions, any mixing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.data._dataset import Dataset, Truth
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.model._graphs import make_graph
from crlearn.data.model._interventions import Intervention
from crlearn.data.model._mixing import Mixing, make_mixing
from crlearn.data.model._scm import SCM, make_scm

Sizes = int | Sequence[int]
Secrecy = Literal["hidden", "known"]
Matrix = NDArray[np.floating]


def make_world(
    n_latents: int,
    n_features: int | None = None,
    n_samples: Sizes = 1000,
    *,
    graph: str | ArrayLike | nx.DiGraph = "er",
    mechanism: str | Callable[[Any], Any] | Sequence[Any] = "linear",
    noise: str | Sequence[str] = "gaussian",
    noise_scale: float | ArrayLike = 1.0,
    interventions: Sequence[Intervention | None] = (None,),
    mixing: str | ArrayLike | Mixing = "well_conditioned",
    measurement_noise: float = 0.0,
    rescale: Literal["standard", "minmax"] | None = None,
    targets: Secrecy = "hidden",
    graph_options: Mapping[str, Any] | None = None,
    mechanism_options: Mapping[str, Any] | None = None,
    mixing_options: Mapping[str, Any] | None = None,
    random_state: RandomState = None,
) -> Dataset:
    """Draw a world: a model, what each environment does to it, and a mixing.

    Model, mixing and samples use separate streams of the same seed: the model of a seed does not
    depend on the number of samples or on the mixing.

    Parameters
    ----------
    n_latents, n_features
        Dimensions; `n_features` is `n_latents` by default.
    n_samples
        Rows in each environment, one number or one for each.
    graph
        See `make_graph`.
    mechanism
        See `make_scm`.
    noise, noise_scale
        Family and standard deviation of the noise, once or once for each latent.
    interventions
        One entry for each environment: an `Intervention`, or None for an environment that is left
        alone. The rows of the environments follow each other, and ``y`` holds their labels: 0, 1,
        ... if the first is left alone, 1, 2, ... if not, since label 0 stands for the
        observational environment. With a single environment there is no ``y``.
    mixing
        See `make_mixing`.
    measurement_noise
        Standard deviation of the Gaussian noise that is added to each feature.
    rescale
        Rescale each latent before its children are computed (see `SCM.rescaled`), by the sample
        of the first environment; interventions act on the rescaled model.
    targets
        ``"known"`` also gives the targets as ``known_targets``.
    graph_options, mechanism_options, mixing_options
        Options of `make_graph`, `random_mechanism` and `make_mixing`.
    random_state
        Seed or generator.

    Examples
    --------
    >>> from crlearn.data import Intervention, make_world
    >>> knock_down = Intervention(targets=1, kind="hard", variance_factor=0.1)
    >>> make_world(3, 5, graph="chain", interventions=[None, knock_down], random_state=0)
    Dataset(2000 samples x 5 features, 2 environments, 3 known latents)
    """
    model_seed, mixing_seed, sample_seed = independent_seeds(random_state, 3)
    model_rng = np.random.default_rng(model_seed)
    base = make_scm(
        make_graph(graph, n_latents, model_rng, **(graph_options or {})),
        mechanism,
        noise=noise,
        noise_scale=noise_scale,
        mechanism_options=mechanism_options,
        random_state=model_rng,
    )
    if rescale is not None:
        first_size = samples_by_environment(n_samples, len(interventions))[0]
        # `simulate` starts with the same seed, so that this is the first environment's sample.
        base, _ = base.rescaled(base.sample(first_size, sample_seed)[1], rescale)
    return simulate(
        base,
        make_mixing(mixing, n_latents, n_features, mixing_seed, **(mixing_options or {})),
        n_samples,
        interventions=interventions,
        measurement_noise=measurement_noise,
        targets=targets,
        random_state=sample_seed,
    )


def simulate(
    scm: SCM,
    mixing: Mixing,
    n_samples: Sizes = 1000,
    *,
    interventions: Sequence[Intervention | None] = (None,),
    measurement_noise: float = 0.0,
    targets: Secrecy = "hidden",
    random_state: RandomState = None,
) -> Dataset:
    """Sample a model of one's own in several environments.

    Parameters
    ----------
    scm, mixing
        The observational model and the map from latents to features.
    n_samples
        Rows in each environment, one number or one for each.
    interventions, measurement_noise, targets
        See `make_world`.
    random_state
        Seed or generator.
    """
    if not interventions:
        raise ValueError(
            "'interventions' must have one entry for each environment (None for one that is left "
            "alone). Got no entries."
        )
    _check_interventions(interventions)
    if targets not in ("hidden", "known"):
        raise ValueError(f"'targets' must be 'hidden' or 'known'. Got {targets!r} instead.")
    scms = [scm if change is None else scm.intervene(change) for change in interventions]
    return sample_environments(
        scms,
        mixing,
        n_samples,
        graph=scm.graph,
        targets=target_matrix(interventions, scm.n_latents),
        targets_are_known=targets == "known",
        first_label=0 if interventions[0] is None else 1,
        measurement_noise=measurement_noise,
        random_state=random_state,
    )


def _check_interventions(interventions: Sequence[Any]) -> None:
    for change in interventions:
        if not isinstance(change, Intervention | None):
            raise ValueError(
                "'interventions' must hold one Intervention for each environment, or None for one "
                f"that is left alone. Got {change!r}; write Intervention(targets=...)."
            )


def sample_environments(
    scms: Sequence[SCM],
    mixing: Mixing,
    n_samples: Sizes,
    *,
    graph: NDArray[np.bool_],
    targets: NDArray[np.bool_],
    targets_are_known: bool = False,
    first_label: int = 0,
    measurement_noise: float = 0.0,
    draw: Callable[[SCM, int, np.random.Generator], tuple[Matrix, Matrix]] | None = None,
    random_state: RandomState = None,
) -> Dataset:
    """Sample one model for each environment and mix them all in the same way.

    With a `draw` of one's own the latents are what it makes of a model, which does not have their
    density then and is not kept.
    """
    sizes = samples_by_environment(n_samples, len(scms))
    rng = np.random.default_rng(random_state)
    sample = SCM.sample if draw is None else draw
    draws = [sample(scm, size, rng) for scm, size in zip(scms, sizes, strict=True)]
    Z, noise = (np.concatenate(parts) for parts in zip(*draws, strict=True))
    labels = np.arange(first_label, first_label + len(scms))
    return Dataset(
        observe(mixing, Z, measurement_noise, rng),
        np.repeat(labels, sizes) if len(scms) > 1 else None,
        known_targets=targets if targets_are_known else None,
        truth=Truth(
            Z,
            noise,
            graph,
            targets,
            mixing,
            tuple(scms) if draw is None else None,
            measurement_noise,
        ),
    )


def observe(
    mixing: Mixing, Z: Matrix, measurement_noise: float, rng: np.random.Generator
) -> Matrix:
    """Mix the latents and add measurement noise."""
    if not measurement_noise >= 0:
        raise ValueError(
            f"'measurement_noise' is a standard deviation and must not be negative. "
            f"Got {measurement_noise} instead."
        )
    X = mixing(Z)
    if measurement_noise:
        X += measurement_noise * rng.standard_normal(X.shape)
    return X


def target_matrix(
    interventions: Sequence[Intervention | None], n_latents: int
) -> NDArray[np.bool_]:
    """Return the matrix that is True at [e, j] if environment e intervenes on latent j."""
    matrix = np.zeros((len(interventions), n_latents), dtype=bool)
    for e, intervention in enumerate(interventions):
        if intervention is not None:
            matrix[e, list(intervention.target_indices)] = True
    return matrix


def samples_by_environment(n_samples: Sizes, n_environments: int) -> list[int]:
    """Return the number of rows of each environment."""
    given = np.asarray(n_samples)
    if given.ndim == 0:
        given = np.full(n_environments, given)
    if given.shape != (n_environments,):
        raise ValueError(
            f"'n_samples' must be one number, or one for each of the {n_environments} "
            f"environments. Got {len(given)} numbers instead."
        )
    if given.dtype.kind not in "iu" or given.min() < 1:
        raise ValueError(f"'n_samples' must hold positive integers. Got {n_samples!r} instead.")
    return given.tolist()
