"""Worlds with interventions: those of the papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.data._dataset import Dataset
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.model._graphs import make_graph
from crlearn.data.model._interventions import Intervention
from crlearn.data.model._layer import Layer
from crlearn.data.model._mixing import Mixing, make_mixing
from crlearn.data.model._scm import SCM, make_scm
from crlearn.data.worlds._world import Secrecy, Sizes, simulate

GraphLike = str | ArrayLike | nx.DiGraph
MechanismLike = str | Callable[[Any], Any]
MixingLike = str | ArrayLike | Mixing
Kind = Literal["hard", "soft", "do"]

_MOST_DRAWS = 10_000
_ROWS_FOR_EDGES = 2000


def make_linear_interventional(
    n_latents: int = 5,
    n_features: int = 100,
    n_samples: Sizes = 1000,
    *,
    mechanism: MechanismLike = "linear",
    intervention: Kind | Sequence[Kind] = "hard",
    variance_factor: float = 0.25,
    value: float = 1.0,
    intervened: Sequence[int] | None = None,
    graph: GraphLike = "er",
    edge_probability: float = 0.5,
    noise: str = "gaussian",
    noise_variance: tuple[float, float] = (0.5, 1.5),
    min_edge_effect: float | None = 0.02,
    mixing: MixingLike = "well_conditioned",
    measurement_noise: float = 0.0,
    targets: Secrecy = "hidden",
    random_state: RandomState = None,
) -> Dataset:
    """Linear mixing, one intervention for each latent (the world of LSCALE-I).

    Environment 0 is observational; environment m = 1, ..., n_latents intervenes on latent m - 1.

    Parameters
    ----------
    n_latents, n_features
        Dimensions.
    n_samples
        Rows in each environment, by default ``n_latents + 1`` of them: one number or one for each.
    mechanism
        ``"linear"``, ``"quadratic"``, ``"mlp"``, or whatever `make_scm` takes.
    intervention
        ``"hard"``: the target loses its parents; ``"soft"``: their effect is halved; ``"do"``: the
        target is set to a value. One for all, or one for each environment but the observational
        one.
    variance_factor
        Of a hard or soft intervention, on the noise variance of its target. The paper uses 0.25
        and 5.
    value
        Of a target that is set.
    intervened
        The latent of each environment but the observational one: some may be repeated or missing.
        None: all, in order.
    graph, edge_probability
        See `make_graph`; by default each pair is an edge with probability one half.
    noise, noise_variance
        Family, and range from which the variance of each latent is drawn.
    min_edge_effect
        As in the paper, models are drawn again until every edge i -> j is visible: the
        intervention on j changes the score along i by at least this mean square. None keeps the
        first model.
    mixing
        See `make_mixing`.
    measurement_noise
        Standard deviation of the Gaussian noise that is added to each feature.
    targets
        ``"known"`` also gives the targets as ``known_targets``.
    random_state
        Seed or generator.

    References
    ----------
    Varıcı, Acartürk, Shanmugam, Kumar and Tajer, Score-based causal representation learning: linear
    and general transformations, JMLR 26, 2025.
    """
    latents = list(range(n_latents)) if intervened is None else list(intervened)
    single = _changes(latents, intervention, variance_factor, value)
    model_seed, mixing_seed, sample_seed = independent_seeds(random_state, 3)
    draw = _scm_drawer(n_latents, graph, edge_probability, mechanism, noise, noise_variance)
    return simulate(
        _first_with_visible_edges(draw, single, min_edge_effect, model_seed),
        make_mixing(mixing, n_latents, n_features, mixing_seed),
        n_samples,
        interventions=[None, *single],
        measurement_noise=measurement_noise,
        targets=targets,
        random_state=sample_seed,
    )


def make_multi_node(
    n_latents: int = 5,
    n_features: int = 10,
    n_samples: Sizes = 1000,
    *,
    target_sets: Literal["triangular", "general"] | ArrayLike = "triangular",
    n_interventions: int | None = None,
    mechanism: MechanismLike = "linear",
    intervention: Kind | Sequence[Kind] = "hard",
    variance_factor: float = 0.25,
    value: float = 1.0,
    graph: GraphLike = "er",
    edge_probability: float = 0.5,
    noise: str = "gaussian",
    noise_variance: tuple[float, float] = (0.5, 1.5),
    min_edge_effect: float | None = None,
    mixing: MixingLike = "well_conditioned",
    measurement_noise: float = 0.0,
    targets: Secrecy = "hidden",
    random_state: RandomState = None,
) -> Dataset:
    """Linear mixing, interventions on several latents at once (the world of UMNI-CRL).

    Environment 0 is observational; the others intervene on sets of latents whose 0/1 matrix has
    full rank, so that the effect of each latent can be told apart.

    Parameters
    ----------
    n_latents, n_features
        Dimensions.
    n_samples
        Rows in each environment, one number or one for each.
    target_sets
        ``"triangular"``: as in the paper, a unit triangular matrix of fair coins with its
        environments shuffled; ``"general"``: fair coins, drawn until the rank is full; or a
        matrix of one's own with one row for each interventional environment and one column for
        each latent.
    n_interventions
        Number of interventional environments, by default `n_latents`; more are possible only with
        ``"general"``.
    mechanism, intervention, variance_factor, value, graph, edge_probability, noise, noise_variance
        See `make_linear_interventional`.
    min_edge_effect
        See `make_linear_interventional`; here the paper keeps the first model.
    mixing, measurement_noise, targets, random_state
        See `make_linear_interventional`.

    References
    ----------
    Varıcı, Acartürk, Shanmugam and Tajer, Linear causal representation learning from unknown
    multi-node interventions, NeurIPS 2024.
    """
    model_seed, sets_seed, mixing_seed, sample_seed = independent_seeds(random_state, 4)
    sets = _target_sets(target_sets, n_latents, n_interventions, np.random.default_rng(sets_seed))
    wanted = [np.flatnonzero(row).tolist() for row in sets]
    interventions = _changes(wanted, intervention, variance_factor, value)
    draw = _scm_drawer(n_latents, graph, edge_probability, mechanism, noise, noise_variance)
    return simulate(
        _first_with_visible_edges(draw, interventions, min_edge_effect, model_seed),
        make_mixing(mixing, n_latents, n_features, mixing_seed),
        n_samples,
        interventions=[None, *interventions],
        measurement_noise=measurement_noise,
        targets=targets,
        random_state=sample_seed,
    )


def make_coupled_interventional(
    n_latents: int = 5,
    n_features: int = 10,
    n_samples: Sizes = 1000,
    *,
    mechanism: MechanismLike = "quadratic",
    variance_factors: tuple[float, ...] = (0.25, 4.0),
    intervened_means: tuple[float, float] = (0.0, 0.0),
    intervened: Sequence[int] | None = None,
    observational: bool = True,
    graph: GraphLike = "er",
    edge_probability: float = 0.5,
    noise: str = "gaussian",
    noise_variance: tuple[float, float] = (0.5, 1.5),
    min_edge_effect: float | None = 0.02,
    mixing: MixingLike = "tanh",
    mixing_gain: float | None = None,
    measurement_noise: float = 0.0,
    targets: Secrecy = "hidden",
    random_state: RandomState = None,
) -> Dataset:
    """Nonlinear mixing, two hard interventions for each latent (the world of GSCALE-I).

    Environment 0 is observational; environments 1, ..., n_latents intervene on the latents in
    order with the first variance factor, the next n_latents with the second, and so on.

    Parameters
    ----------
    n_latents, n_features
        Dimensions.
    n_samples
        Rows in each environment, one number or one for each.
    mechanism
        See `make_linear_interventional`.
    variance_factors
        Factors on the noise variance, one for each round of interventions.
    intervened_means
        Range of the magnitude of an intervened latent's mean; its sign is random.
    intervened
        The latents that are intervened on, in order; None: all of them.
    observational
        Whether there is an environment 0.
    graph, edge_probability, noise, noise_variance, min_edge_effect
        See `make_linear_interventional`.
    mixing
        ``"tanh"`` or ``"tanh_mlp"`` as in the paper, or whatever `make_mixing` takes.
    mixing_gain
        The mixing sees latents of this standard deviation (that of the observational environment);
        None: latents as they are.
    measurement_noise, targets, random_state
        See `make_linear_interventional`.

    References
    ----------
    Varıcı, Acartürk, Shanmugam, Kumar and Tajer, Score-based causal representation learning: linear
    and general transformations, JMLR 26, 2025.
    """
    model_seed, mixing_seed, sample_seed = independent_seeds(random_state, 3)
    latents = range(n_latents) if intervened is None else intervened
    means = _signed_means(intervened_means, len(variance_factors) * len(latents), model_seed)
    pairs = [(j, factor) for factor in variance_factors for j in latents]
    rounds = [
        Intervention(j, "hard", mean=mean, variance_factor=factor)
        for (j, factor), mean in zip(pairs, means, strict=True)
    ]
    draw = _scm_drawer(n_latents, graph, edge_probability, mechanism, noise, noise_variance)
    scm = _first_with_visible_edges(draw, rounds, min_edge_effect, model_seed)
    mixed = make_mixing(mixing, n_latents, n_features, mixing_seed)
    if mixing_gain is not None:
        spread = scm.sample(_ROWS_FOR_SPREAD, model_seed)[0].std(axis=0)
        mixed = Mixing([Layer(np.diag(mixing_gain / spread)), *mixed.layers])
    return simulate(
        scm,
        mixed,
        n_samples,
        interventions=[None, *rounds] if observational else rounds,
        measurement_noise=measurement_noise,
        targets=targets,
        random_state=sample_seed,
    )


def _signed_means(magnitudes: tuple[float, float], n: int, seed: int) -> list[float | None]:
    """Draw means with random signs; None where they stay as they are."""
    if not any(magnitudes):
        return [None] * n
    rng = np.random.default_rng(seed)
    return (rng.uniform(*magnitudes, n) * rng.choice([-1.0, 1.0], n)).tolist()


_ROWS_FOR_SPREAD = 10_000

_MULTI_DOMAIN_MECHANISMS: dict[str, dict[str, float]] = {
    "tanh": {"amplitude": 1.0, "rate": 3.0, "cubic": 0.0},
    "tanh5": {"amplitude": 5.0, "rate": 0.5, "cubic": 0.0},
    "mild": {"amplitude": 1.0, "rate": 0.2, "cubic": 1.0},
    "literal": {"amplitude": 1.0, "rate": 3.0, "cubic": 1.0},
}


def make_multi_domain(
    n_latents: int = 4,
    n_features: int = 100,
    n_samples: Sizes = 2000,
    *,
    mechanism: MechanismLike = "tanh5",
    intervention: Literal["hard", "soft", "shift"] = "hard",
    intervened_mean: float = 10.0,
    intervened_variance: float = 1.0,
    doses: Sequence[float] = (1.0,),
    domains_per_latent: int = 1,
    target_sets: Sequence[Sequence[int]] | None = None,
    observational: bool = False,
    graph: GraphLike = "chain",
    edge_probability: float = 0.5,
    max_parents: int | None = None,
    noise: str = "gaussian",
    noise_variance: float = 4.0,
    base_mean_sd: float = 0.0,
    mixing: MixingLike = "orthonormal",
    mixing_skew: float = 0.0,
    measurement_noise: float = 2.0**0.5,
    targets: Secrecy = "known",
    random_state: RandomState = None,
) -> Dataset:
    """Noisy linear measurement of many domains with known targets (the world of EB-CRL).

    Each domain replaces one latent by noise of its own, far from where the others put it, unless
    another kind of interventions is asked for. The domains are labelled 1, 2, ...; label 0 is the
    observational domain, which the paper does not have.

    Parameters
    ----------
    n_latents, n_features
        Dimensions.
    n_samples
        Rows in each domain, one number or one for each.
    mechanism
        ``"tanh5"``: 5 tanh(z / 2); ``"tanh"``: tanh(3 z), weak parents; ``"mild"``: tanh(z / 5) +
        (z / 5)^3; ``"literal"``: tanh(3 z) + (3 z)^3 as printed, under which the latents reach
        1e40 along a chain of four and no estimator can work; or whatever `make_scm` takes. The
        effects of several parents are added with weights uniform in [-1, 1].
    intervention
        ``"hard"``, as in the paper; ``"soft"``: the effect of the parents is halved, the mean moves
        by `intervened_mean`, and the noise has the variance `intervened_variance`; ``"shift"``:
        `intervened_mean` times a dose is added to the latent, and nothing else changes.
    intervened_mean, intervened_variance
        Of a latent in the domains that intervene on it; see `intervention`.
    doses
        Of shifts: each set of targets has a domain for each. If they are not all one,
        `known_targets` holds doses.
    domains_per_latent
        Domains that intervene on each latent, or each set of targets, alike.
    target_sets
        Latents that domains intervene on together, as ``[[0], [0, 1], [2]]``; None: each alone.
    observational
        Whether an observational domain comes first.
    graph, edge_probability
        See `make_graph`.
    max_parents
        Graphs are drawn until no latent has more; None keeps the first.
    noise, noise_variance
        Family and variance of the noise of every latent.
    base_mean_sd
        Standard deviation of the noise means, which are drawn once for each latent. If they are
        not zero and there is no observational domain, the means of the domains alone do not tell
        the latents apart.
    mixing
        See `make_mixing`; orthonormal columns in the paper.
    mixing_skew
        The mixing is multiplied by a unit matrix plus this times normal entries, and its columns
        are brought to unit norm: 0 leaves it as it is.
    measurement_noise
        Standard deviation of the Gaussian noise that is added to each feature.
    targets
        ``"known"`` also gives the targets as ``known_targets``.
    random_state
        Seed or generator.

    References
    ----------
    Wu, von Kügelgen and Blei, Multi-domain empirical Bayes for linearly-mixed causal
    representations, 2026.
    """
    model_seed, mixing_seed, sample_seed = independent_seeds(random_state, 3)
    rng = np.random.default_rng(model_seed)
    options = _MULTI_DOMAIN_MECHANISMS.get(mechanism) if isinstance(mechanism, str) else None
    scm = make_scm(
        _graph_with_few_parents(graph, n_latents, rng, edge_probability, max_parents),
        mechanism if options is None else "tanh_cubic",
        noise=noise,
        noise_scale=noise_variance**0.5,
        noise_mean=base_mean_sd * rng.standard_normal(n_latents),
        mechanism_options=options,
        random_state=rng,
    )
    _check_doses(intervention, doses)
    change: Any = {
        "hard": {"mean": intervened_mean, "variance": intervened_variance},
        "soft": {"effect": 0.5, "shift": intervened_mean, "variance": intervened_variance},
    }
    each = [
        (Intervention(targets, intervention, **change.get(intervention, {"shift": amount})), dose)
        for targets in ([[j] for j in range(n_latents)] if target_sets is None else target_sets)
        for dose, amount in ((dose, intervened_mean * dose) for dose in doses)
        for _ in range(domains_per_latent)
    ]
    domains = [made for made, _ in each]
    world = simulate(
        scm,
        _skewed(make_mixing(mixing, n_latents, n_features, mixing_seed), mixing_skew, mixing_seed),
        n_samples,
        interventions=[None, *domains] if observational else domains,
        measurement_noise=measurement_noise,
        targets=targets,
        random_state=sample_seed,
    )
    if world.known_targets is None or all(dose == 1 for dose in doses):
        return world
    levels = np.array([0.0] * observational + [dose for _, dose in each])
    return replace(world, known_targets=world.known_targets * levels[:, None])


def _check_doses(intervention: str, doses: Sequence[float]) -> None:
    if intervention not in ("hard", "soft", "shift"):
        raise ValueError(
            f"'intervention' must be 'hard', 'soft' or 'shift'. Got {intervention!r} instead."
        )
    good = len(doses) > 0 and np.isfinite(doses).all() and all(doses)
    if not good or (intervention != "shift" and tuple(doses) != (1.0,)):
        raise ValueError(
            "'doses' must be finite numbers, none zero, and are for intervention='shift'. Got "
            f"{doses!r} with intervention={intervention!r}."
        )


def _graph_with_few_parents(
    graph: GraphLike,
    n_latents: int,
    rng: np.random.Generator,
    edge_probability: float,
    max_parents: int | None,
) -> NDArray[np.bool_]:
    for _ in range(_MOST_DRAWS):
        drawn = make_graph(graph, n_latents, rng, edge_probability=edge_probability)
        if max_parents is None or drawn.sum(axis=0).max(initial=0) <= max_parents:
            return drawn
    raise ValueError(
        f"{_MOST_DRAWS} graphs were drawn, and in each some latent had more than "
        f"max_parents={max_parents} parents. Raise it, or ask for fewer edges."
    )


def _skewed(mixing: Mixing, skew: float, seed: int) -> Mixing:
    """Return a linear mixing whose columns lean towards each other."""
    if not skew:
        return mixing
    if mixing.matrix is None:
        raise ValueError("'mixing_skew' needs a linear mixing. Got one that is not linear.")
    n = mixing.n_latents
    lean = np.eye(n) + skew * np.random.default_rng([seed, 1]).standard_normal((n, n))
    columns = mixing.matrix @ lean
    return Mixing([Layer(columns / np.linalg.norm(columns, axis=0))])


def _changes(
    targets: Sequence[int | Sequence[int]],
    kind: Kind | Sequence[Kind],
    variance_factor: float,
    value: float,
) -> list[Intervention]:
    """Return one intervention for each of the targets."""
    kinds: list[Any] = [kind] * len(targets) if isinstance(kind, str) else list(kind)
    if len(kinds) != len(targets) or not set(kinds) <= {"hard", "soft", "do"}:
        raise ValueError(
            "'intervention' must be 'hard', 'soft' or 'do', or one of these for each of the "
            f"{len(targets)} environments but the observational one. Got {kind!r} instead; "
            "crlearn.data.make_world takes interventions of any kind."
        )
    return [
        Intervention(target, "do", value=value)
        if kind == "do"
        else Intervention(target, kind, variance_factor=variance_factor)
        for target, kind in zip(targets, kinds, strict=True)
    ]


def _scm_drawer(
    n_latents: int,
    graph: GraphLike,
    edge_probability: float,
    mechanism: MechanismLike,
    noise: str,
    noise_variance: tuple[float, float],
) -> Callable[[np.random.Generator], SCM]:
    def draw(rng: np.random.Generator) -> SCM:
        return make_scm(
            make_graph(graph, n_latents, rng, edge_probability=edge_probability),
            mechanism,
            noise=noise,
            noise_scale=np.sqrt(rng.uniform(*noise_variance, size=n_latents)),
            random_state=rng,
        )

    return draw


def _first_with_visible_edges(
    draw: Callable[[np.random.Generator], SCM],
    interventions: Sequence[Intervention],
    min_edge_effect: float | None,
    seed: int,
) -> SCM:
    rng = np.random.default_rng(seed)
    if min_edge_effect is None:
        return draw(rng)
    for _ in range(_MOST_DRAWS):
        scm = draw(rng)
        if _all_edges_visible(scm, interventions, min_edge_effect, rng):
            return scm
    raise ValueError(
        f"{_MOST_DRAWS} models were drawn, and in each some edge had an effect on the score below "
        f"min_edge_effect={min_edge_effect}. Lower it (None accepts every model), or ask for fewer "
        "edges, stronger mechanisms or stronger interventions."
    )


def _all_edges_visible(
    scm: SCM, interventions: Sequence[Intervention], threshold: float, rng: np.random.Generator
) -> bool:
    Z, _ = scm.sample(_ROWS_FOR_EDGES, rng)
    for intervention in interventions:
        if not scm.graph[:, intervention.target_indices].any():
            continue
        changed = scm.intervene(intervention)
        for j in intervention.target_indices:
            parents = list(scm.parents(j))
            difference = scm.factor_score(Z, j) - changed.factor_score(Z, j)
            if (np.mean(difference[:, parents] ** 2, axis=0) < threshold).any():
                return False
    return True


def _target_sets(
    wanted: str | ArrayLike,
    n_latents: int,
    n_interventions: int | None,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Return one row for each interventional environment, one column for each latent."""
    n_rows = n_latents if n_interventions is None else n_interventions
    if not isinstance(wanted, str):
        return _checked_target_sets(np.asarray(wanted), n_latents)
    if wanted == "triangular" and n_rows == n_latents:
        coins = rng.random((n_latents, n_latents)) < 0.5
        return rng.permutation(np.tril(coins, k=-1) | np.eye(n_latents, dtype=bool))
    if wanted == "general" and n_rows >= n_latents:
        while True:
            sets = rng.random((n_rows, n_latents)) < 0.5
            if sets.any(axis=1).all() and _full_rank(sets):
                return sets
    raise ValueError(
        "'target_sets' must be 'triangular' with exactly n_latents interventions, 'general' with "
        f"at least n_latents interventions, or a matrix. Got {wanted!r} with {n_rows} "
        f"interventions for {n_latents} latents."
    )


def _checked_target_sets(sets: NDArray[Any], n_latents: int) -> NDArray[np.bool_]:
    if sets.ndim != 2 or sets.shape[1] != n_latents or not sets.any(axis=1).all():
        raise ValueError(
            "'target_sets' must have one row for each interventional environment, none of them "
            f"empty, and {n_latents} columns, one for each latent. Got shape {sets.shape} "
            "instead."
        )
    if not _full_rank(sets != 0):
        raise ValueError(
            "'target_sets' must have rank n_latents, or some latents cannot be told apart. "
            f"Got rank {np.linalg.matrix_rank(sets.astype(float))} for {n_latents} latents."
        )
    return sets != 0


def _full_rank(sets: NDArray[np.bool_]) -> bool:
    return bool(np.linalg.matrix_rank(sets.astype(float)) == sets.shape[1])
