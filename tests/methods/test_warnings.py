"""Each check of each estimator: simulated data on which it holds, and data on which it fails.

Everything goes through `fit`. A check that a result states is in the table below, or on the list of
those that cannot fail.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from crlearn import (
    IVAE,
    BetaVAE,
    EmpiricalBayesCRL,
    GaussianPriorCRL,
    ICABaseline,
    LatentANM,
    LinearInterventionCRL,
    MultiNodeCRL,
    NonlinearInterventionCRL,
    ObservationalCRL,
    PCABaseline,
    SparseMixtureCRL,
    StructuralPriorCRL,
    VaDE,
)
from crlearn.data import (
    Intervention,
    make_count_interventional,
    make_coupled_interventional,
    make_latent_anm,
    make_linear_interventional,
    make_multi_domain,
    make_multi_node,
    make_observational,
    make_segments,
    make_sparse_mixture,
    make_world,
)
from crlearn.estimators import ESTIMATORS
from crlearn.exceptions import AssumptionWarning
from crlearn.metrics import evaluate
from crlearn.published import (
    EBCRL,
    GSCALEI,
    LSCALEI,
    PDGMM,
    UMNICRL,
    ContrastiveCRL,
    LatentANMVAE,
    ScoreLayers,
)

Fit = Callable[[], Any]
LARGE_STEP_OF_LOG_ODDS = 0.3  # as below, where cycles are penalised exponentially
LARGE_STEP_OF_MECHANISMS = 2.0  # as below, where effects of effects add up
LARGE_STEP_OF_CODES = 1000.0  # some steps overflow; normalised codes stay finite with smaller ones
LARGE_STEP = 4.0  # most restarts diverge; with a tenth of it none does


def far_from_zero(X: Any) -> Any:
    """Add an offset beside which rounding leaves four digits of what varies."""
    return X + 1e12


def with_noise(X: Any, size: float = 0.3) -> Any:
    """Add measurement noise, as a share of each column's sd."""
    return X + size * X.std(axis=0) * np.random.default_rng(0).standard_normal(X.shape)


def with_noise_that_features_share(X: Any) -> Any:
    """Add noise that is the same in all features, and very little that is not."""
    rng = np.random.default_rng(0)
    return with_noise(X, 0.02) + 0.3 * X.std() * rng.standard_normal((len(X), 1))


def with_far_rows(world: Any, size: float) -> tuple[Any, Any]:
    """Move one row in a hundred by so many sd in a random direction inside the span."""
    rng, X, mixing = np.random.default_rng(0), world.X.copy(), world.truth.mixing.matrix
    moved = np.sort(rng.choice(len(X), len(X) // 100, replace=False))
    directions = rng.standard_normal((len(moved), mixing.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    X[moved] += size * directions * world.truth.Z.std(axis=0) @ mixing.T
    return X, moved


def with_own_means(world: Any) -> Any:
    """Shift each environment by a vector of its own inside the span."""
    mixing = world.truth.mixing.matrix
    shifts = 2 * np.random.default_rng(0).standard_normal((world.y.max() + 1, mixing.shape[1]))
    return world.X + (shifts @ mixing.T)[world.y]


def halved(y: Any, label: int, new: int) -> Any:
    """Call every other row of an environment by a new name."""
    y = y.copy()
    y[np.flatnonzero(y == label)[::2]] = new
    return y


# Baselines


def pca(change: Callable[[Any], Any] = lambda X: X) -> Any:
    world = make_world(2, 3, n_samples=50, random_state=0)
    return PCABaseline().fit(change(world.X))


def ica(change: Callable[[Any], Any] = lambda X: X, noise: str = "laplace", **options: Any) -> Any:
    world = make_world(3, 4, graph="empty", noise=noise, n_samples=500, random_state=0)
    return ICABaseline(random_state=0, **options).fit(change(world.X))


def nothing_in_common(estimator: Any) -> Any:
    """Fit features that are independent, in three environments."""
    X = np.random.default_rng(0).standard_normal((600, 10))
    return estimator.fit(X, np.arange(600) % 3)


# Variational autoencoders


def beta_vae(change: Callable[[Any], Any] = lambda X: X, **options: Any) -> Any:
    world = make_segments(2, n_samples=60, n_segments=6, random_state=0)
    settings = {"width": 8, "depth": 1, "max_epochs": 50, "random_state": 0}
    return BetaVAE(2, **{**settings, **options}).fit(change(world.X))


def beta_vae_much_at_once() -> Any:
    return beta_vae(far_from_zero, n_restarts=8, max_epochs=2, learning_rate=LARGE_STEP)


def vade(change: Callable[[Any], Any] = lambda X: X, **options: Any) -> Any:
    world = make_segments(2, n_samples=200, n_segments=6, random_state=0)
    settings = {"n_components": 6, "width": 16, "depth": 1, "max_epochs": 50, "random_state": 0}
    return VaDE(2, **{**settings, **options}).fit(change(world.X))


def vade_much_at_once() -> Any:
    return vade(far_from_zero, n_restarts=8, max_epochs=2, learning_rate=LARGE_STEP / 2)


def vade_of_one_latent() -> Any:
    """Three features of one Gaussian latent, for two latents."""
    latent = np.random.default_rng(1).standard_normal((1200, 1))
    return vade(lambda X: with_noise(latent[:, [0, 0, 0]], 0.05), n_components=1)


def vade_of_noise() -> Any:
    """Six features that have nothing in common, for two latents."""
    return vade(lambda X: np.random.default_rng(0).standard_normal((1200, 6)), max_epochs=20)


def vade_of_points() -> Any:
    """Rows are at six places, and nowhere else."""
    places = np.random.default_rng(0).standard_normal((6, 2))
    return vade(lambda X: places[np.arange(len(X)) % 6])


def ivae() -> Any:
    world = make_segments(2, n_samples=200, n_segments=10, random_state=7)
    model = IVAE(2, width=16, depth=2, max_epochs=400, n_restarts=4, random_state=0)
    return model.fit(world.X, world.y)


def much_at_once() -> Any:
    """Compiling takes most of the time, so that one fit shows all."""
    world: Any = make_segments(2, n_samples=60, n_segments=6, random_state=0)
    y = world.y % 2
    y[:2] = 2  # a third environment, of two rows
    model = IVAE(
        2,
        width=8,
        depth=1,
        max_epochs=2,
        n_restarts=8,
        learning_rate=LARGE_STEP,
        random_state=0,
    )
    return model.fit(far_from_zero(world.X), y)


# One intervention on each latent


@cache
def interventions() -> Any:
    return make_linear_interventional(3, 5, 600, random_state=0)


def single_node(
    X: Any = None, y: Any = None, n_latents: int | None = None, noise: str = "auto"
) -> Any:
    world = interventions()
    X, y = (world.X if X is None else X), (world.y if y is None else y)
    model = LinearInterventionCRL(n_latents, mechanisms="linear", noise=noise, random_state=0)
    return model.fit(X, y)


def one_latent_without_intervention() -> Any:
    world = interventions()
    rows = world.y < 3
    return single_node(world.X[rows], world.y[rows], n_latents=3)


def one_intervention_left_out() -> Any:
    world = make_linear_interventional(3, 15, 600, random_state=0)
    rows = world.y != 2
    assert world.y is not None
    return single_node(with_noise(world.X)[rows], world.y[rows])


def an_environment_in_other_units() -> Any:
    """What changes all latents at once is no intervention on one."""
    world = interventions()
    return single_node(np.where((world.y == 2)[:, None], 1.5 * world.X, world.X))


def bent(units: float = 1.0) -> Any:
    """Quadratic mechanisms, and an environment in other units."""
    world: Any = make_linear_interventional(
        2, 4, 800, mechanism="quadratic", graph="chain", random_state=0
    )
    X = np.where((world.y == 2)[:, None], units * world.X, world.X)
    return LinearInterventionCRL(2, random_state=0).fit(X, world.y)


def soft_interventions(
    estimator: Any, make: Any, n_rows: int, *, seed: int, n_latents: int = 3
) -> Any:
    """So few rows that reversed causes fit about as well, or weak ones are missed."""
    world = make(n_latents, 10, n_rows, intervention="soft", variance_factor=5.0, random_state=seed)
    model = estimator(n_latents, interventions="soft", mechanisms="linear", random_state=0)
    return model.fit(world.X, world.y)


def counted(kind: Any, change: Callable[[Any], Any] = lambda X: X) -> Any:
    world = make_count_interventional(3, 15, 4000, mean_count=50, kind=kind, random_state=1)
    estimator: Any = LinearInterventionCRL if kind == "single-node" else MultiNodeCRL
    model = estimator(3, mechanisms="linear", noise="poisson", random_state=0)
    return model.fit(change(world.X), world.y)


def overdispersed(X: Any) -> Any:
    """Counts of counts: beside the latents their variance is twice their mean."""
    return np.random.default_rng(0).poisson(X)


def held_by_two_environments() -> Any:
    """Two environments hold different latents, and are said to intervene on the same one."""
    world = make_linear_interventional(3, 5, 600, intervention="do", random_state=0)
    return single_node_with(world, {1: "a", 2: "b", 3: "b"})


def two_environments_on_two_latents() -> Any:
    """They are said to intervene on the same one."""
    world: Any = interventions()
    rows = (world.y == 1) | (world.y == 2)
    return single_node_with(world.subset(rows), {1: "a", 2: "a"})


def single_node_with(world: Any, targets: Any) -> Any:
    model = LinearInterventionCRL(3, mechanisms="linear", targets=targets, random_state=0)
    return model.fit(world.X, world.y)


# Interventions on sets of latents


def held_combinations() -> Any:
    """Environments hold one combination of latents more than there are latents."""
    world: Any = make_multi_node(
        3, 5, 600, target_sets=np.vstack([np.eye(3), [0, 1, 1]]), intervention="do", random_state=0
    )
    Z = world.truth.Z.copy()
    Z[world.y == 4, 2] = np.random.default_rng(0).standard_normal((world.y == 4).sum())
    Z[world.y == 4, 1] = 1 - Z[world.y == 4, 2]
    model = MultiNodeCRL(3, mechanisms="linear", random_state=0)
    return model.fit(world.truth.mixing(Z), world.y)


@cache
def sets() -> Any:
    return make_multi_node(n_latents=3, n_features=5, n_samples=1000, random_state=0)


def multi_node(X: Any = None, y: Any = None, noise: str = "auto") -> Any:
    world = sets()
    X, y = (world.X if X is None else X), (world.y if y is None else y)
    return MultiNodeCRL(3, mechanisms="linear", noise=noise, random_state=0).fit(X, y)


def an_environment_that_is_mixed_otherwise() -> Any:
    world, rng = sets(), np.random.default_rng(0)
    mixing = world.truth.mixing.matrix
    other = world.truth.Z @ (np.eye(3) + 0.3 * rng.standard_normal((3, 3))) @ mixing.T
    return multi_node(np.where((world.y == 2)[:, None], other, world.X))


def bent_sets(units: float = 1.0) -> Any:
    world: Any = make_multi_node(2, 4, 800, mechanism="quadratic", graph="chain", random_state=0)
    X = np.where((world.y == 2)[:, None], units * world.X, world.X)
    return MultiNodeCRL(2, random_state=0).fit(X, world.y)


# Any smooth mixing


@cache
def smooth() -> Any:
    return make_coupled_interventional(
        2, 2, 1000, graph="chain", mixing="smooth", mixing_gain=1.0, random_state=2
    )


def behind_smooth_maps(X: Any = None, y: Any = None, **options: Any) -> Any:
    world = smooth()
    X, y = (world.X if X is None else X), (world.y if y is None else y)
    settings = {"n_steps": 400, "n_restarts": 2, "random_state": 0}
    return NonlinearInterventionCRL(**{**settings, **options}).fit(X, y)


def much_at_once_behind_smooth_maps() -> Any:
    """Nothing but noise, two labels at random for two latents, and no reference."""
    X = far_from_zero(np.random.default_rng(0).standard_normal((600, 2)))
    return behind_smooth_maps(X, 1 + np.arange(600) % 2, n_steps=100, random_state=1)


def another_environment_changes_both_latents() -> Any:
    world = smooth()
    return behind_smooth_maps(np.where((world.y == 3)[:, None], 2 * world.X[:, ::-1], world.X))


def two_soft_interventions() -> Any:
    """The effect still follows its cause, in two ways; one way alone could be another latent."""
    rng, y = np.random.default_rng(0), np.arange(2400) % 4
    cause = rng.standard_normal(2400) * np.where(y == 1, 3, 1)
    noise = rng.standard_normal(2400) * np.where(y >= 2, 0.5, 1)
    strength = np.array([2.0, 2.0, 1.5, -1.5])[y]
    Z = np.column_stack([cause, strength * np.abs(cause) + noise])
    known = {"targets": {1: 0, 2: 1, 3: 1}, "graph": [[0, 1], [0, 0]]}
    return behind_smooth_maps(Z + 0.3 * np.tanh(Z[:, ::-1]), y, n_restarts=1, **known)


def hardly_trained(X: Any) -> Any:
    return behind_smooth_maps(
        X, n_latents=2, reduction="linear", n_steps=3, n_restarts=1, random_state=0
    )


def a_strip_that_is_bent_back() -> Any:
    position, across = smooth().truth.Z.T
    angle = 4 * np.tanh(position / 2)
    return hardly_trained(np.column_stack([np.cos(angle), np.sin(angle) / 4, across]))


# Mechanisms that change by segment


def changing_mechanisms(quiet: float = 0.4) -> Any:
    world = make_latent_anm(2, n_samples=300, n_segments=20, quiet=quiet, random_state=1)
    return LatentANM(n_steps=600, n_restarts=2, random_state=0).fit(world.X, world.y)


def steps_for(mechanisms: str) -> Any:
    """Mechanisms are sums of steps."""
    world = make_latent_anm(3, n_samples=300, n_segments=20, quiet=0.4, random_state=1)
    model = LatentANM(mechanisms=mechanisms, n_steps=300, n_restarts=1, random_state=0)
    return model.fit(world.X, world.y)


def segments_that_are_all_alike() -> Any:
    """Nothing tells one rotation of the latents from another; one segment has six rows."""
    X, y = np.random.default_rng(1).standard_normal((7200, 4)), np.arange(7200) % 12
    y[:6] = 99
    model = LatentANM(n_steps=150, n_restarts=3, random_state=0)
    return model.fit(far_from_zero(X), y)


def a_strip_of_segments_that_is_bent_back() -> Any:
    world: Any = make_latent_anm(2, n_samples=200, n_segments=10, random_state=1)
    angle = 4 * np.tanh(world.truth.Z[:, 0] / 2)
    X = np.column_stack([np.cos(angle), np.sin(angle) / 4, world.truth.Z[:, 1]])
    model = LatentANM(2, reduction="linear", n_steps=3, n_restarts=1, random_state=0)
    return model.fit(X, world.y)


# Observational data


def chain(n: int = 400) -> Any:
    """Rows of two latents, the second of which is the square of the first plus noise."""
    noise = np.random.default_rng(0).normal(size=(n, 2)) * [2.0, 0.3]
    return np.column_stack([noise[:, 0], noise[:, 0] ** 2 + noise[:, 1]])


def measured(n: int = 400) -> Any:
    """Rows of three noisy features of two latents."""
    return with_noise(chain(n) @ [[1.0, 0.0, 1.0], [0.0, 1.0, 0.5]])


def seen_by_many(n: int = 800) -> Any:
    """Rows of ten features of two latents."""
    return chain(n) @ np.random.default_rng(1).normal(size=(2, 10))


def two_gaussian_noises_beside_another() -> Any:
    rng = np.random.default_rng(0)
    cause, noise = rng.laplace(size=3000), rng.normal(size=(3000, 2))
    X = np.column_stack([cause, cause**2 + noise[:, 0], 2 * np.abs(cause) + noise[:, 1]])
    return ObservationalCRL(3, n_starts=2, random_state=0).fit(X)


def noise_that_grows_with_its_cause() -> Any:
    cause, noise = np.random.default_rng(0).normal(size=(2, 600)) * [[2.0], [0.3]]
    return observational(np.column_stack([cause, cause**2 + noise * np.sqrt(0.3 + cause**2)]))


def observational(X: Any = None, y: Any = None, **options: Any) -> Any:
    return ObservationalCRL(2, random_state=0, **options).fit(chain() if X is None else X, y)


def a_weak_effect(size: float = 0.13) -> Any:
    noise = np.random.default_rng(0).normal(size=(400, 2))
    return observational(np.column_stack([noise[:, 0], size * noise[:, 0] ** 2 + noise[:, 1]]))


# Noisy measurements of known domains


def domains(**options: Any) -> Any:
    settings = {"n_latents": 3, "n_features": 12, "n_samples": 400, "random_state": 0}
    return make_multi_domain(**{**settings, "observational": True, **options})


def denoised(estimator: Any, world: Any = None, **options: Any) -> Any:
    world = domains() if world is None else world
    known = {"graph": world.truth.graph, "targets": world.known_targets, "random_state": 0}
    return estimator(**{**known, **options}).fit(world.X, world.y)


def features_far_from_zero(estimator: Any) -> Any:
    world = domains()
    model = estimator(graph=world.truth.graph, targets=world.known_targets)
    return model.fit(far_from_zero(world.X), world.y)


def noise_that_is_not_alike(estimator: Any) -> Any:
    world = domains()
    X = world.X.copy()
    X[:, 0] += 6 * np.random.default_rng(0).standard_normal(len(X))
    return estimator(graph=world.truth.graph, targets=world.known_targets).fit(X, world.y)


def hardly_any_noise(estimator: Any) -> Any:
    return denoised(estimator, domains(measurement_noise=3e-6))


def one_latent_too_many(estimator: Any) -> Any:
    world = domains()
    graph = np.zeros((4, 4), dtype=bool)
    graph[:3, :3] = world.truth.graph
    targets = np.pad(world.known_targets, ((0, 0), (0, 1)))
    return estimator(graph=graph, targets=targets).fit(world.X, world.y)


def a_latent_that_no_environment_hits(estimator: Any) -> Any:
    world = domains()
    rows, targets = world.y != 3, world.known_targets[:3]
    model = estimator(graph=world.truth.graph, targets=targets)
    return model.fit(world.X[rows], world.y[rows])


def a_target_that_nothing_happens_to(estimator: Any) -> Any:
    world = domains()
    y, targets = halved(world.y, 0, 9), np.vstack([world.known_targets, [[0, 0, 1]]])
    return estimator(graph=world.truth.graph, targets=targets).fit(world.X, y)


def two_latents_that_are_always_targets_together(estimator: Any) -> Any:
    """What is a target in the same environments can be rotated."""
    world = domains()
    y, targets = np.where(world.y == 2, 1, world.y), {0: [], 1: [0, 1], 3: [2]}
    model = estimator(graph=world.truth.graph, targets=targets, random_state=0)
    return model.set_params(interventions="soft").fit(world.X, y)


def small_environment_of_a_known_mixing(estimator: Any) -> Any:
    world = domains()
    kept = (world.y != 3) | (np.cumsum(world.y == 3) <= 3)
    model = estimator(
        graph=world.truth.graph, targets=world.known_targets, mixing=world.truth.mixing.matrix
    )
    return model.fit(world.X[kept], world.y[kept])


def latents_in_units_of_their_own(estimator: Any) -> Any:
    world = domains()
    model = estimator(graph=world.truth.graph, targets=world.known_targets)
    return model.fit(10 * world.X, world.y)


# Published algorithms


def by_scores(estimator: Any, make: Any, change: Any = lambda X, y: (X, y)) -> Any:
    world = make()
    return estimator(3, scores="gaussian", random_state=0).fit(*change(world.X, world.y))


def layers(X: Any = None, y: Any = None) -> Any:
    X = chain(200) if X is None else X
    return ScoreLayers(2, threshold="test", random_state=0).fit(X, y)


def gaussian_latents() -> Any:
    return layers(np.random.default_rng(0).normal(size=(200, 2)))


def two_hard_each(change: Any = lambda X, y: (X, y), **options: Any) -> Any:
    """One-hot score differences behind tanh; the world is one of independent latents."""
    world: Any = make_coupled_interventional(2, 4, 500, graph="empty", random_state=0)
    X, y = change(world.X, world.y)
    settings = {"decoder": "tanh", "scores": "gaussian", "n_steps": 1000, "random_state": 0}
    return GSCALEI(**{**settings, **options}).fit(X, y)


def much_at_once_for_networks() -> Any:
    """A network that is hardly trained, without one of the environments, in too large steps."""
    world: Any = make_coupled_interventional(2, 4, 100, graph="empty", random_state=0)
    rows = (world.y < 4) & ((world.y != 3) | (np.cumsum(world.y == 3) <= 2))
    model = GSCALEI(2, scores=lambda X, environment: X * environment, n_steps=3, random_state=0)
    return model.fit(far_from_zero(world.X[rows]), world.y[rows] + 1)


@cache
def moved_means() -> Any:
    moved = [Intervention(i, "hard", mean=1.5, variance_factor=0.5) for i in range(2)]
    graph, mixing = np.array([[0, 1], [0, 0]]), "leaky_relu"
    return make_world(
        2, 4, 1500, graph=graph, mixing=mixing, interventions=[None, *moved], random_state=0
    )


def contrastive(**options: Any) -> Any:
    settings = {"width": 64, "max_epochs": 60, "random_state": 0}
    return ContrastiveCRL(**{**settings, **options}).fit(moved_means().X, moved_means().y)


def contrastive_much_at_once() -> Any:
    """Labels at random, an environment of two rows, and steps that are too large."""
    X, y = far_from_zero(moved_means().X), np.arange(len(moved_means().X)) % 2
    y[:2] = 2
    model = ContrastiveCRL(
        width=4, max_epochs=2, n_restarts=4, learning_rate=LARGE_STEP_OF_LOG_ODDS, random_state=0
    )
    return model.fit(X, y + 1)


def latent_anm(seed: int = 3, mechanisms: str = "mlp", **options: Any) -> Any:
    world = make_latent_anm(2, n_segments=10, n_samples=200, random_state=seed, **options)
    settings: Any = {"width": 16, "depth": 2, "max_epochs": 200, "learning_rate": 0.01}
    model = LatentANMVAE(2, mechanisms=mechanisms, random_state=0, **settings)
    return model.fit(world.X, world.y)


def latent_anm_much_at_once() -> Any:
    """Few segments, one of them of two rows, and steps that are too large."""
    world: Any = make_latent_anm(2, n_segments=6, n_samples=60, random_state=0)
    y = world.y % 2
    y[:2] = 2
    settings: Any = {"width": 8, "depth": 1, "max_epochs": 2, "n_restarts": 8, "random_state": 0}
    model = LatentANMVAE(2, learning_rate=LARGE_STEP_OF_MECHANISMS, **settings)
    return model.fit(far_from_zero(world.X), y)


def switching_off(X: Any = None, **options: Any) -> Any:
    if X is None:
        X = make_sparse_mixture(4, n_samples=3000, n_layers=3, random_state=0).X
    settings = {"width": 8, "n_steps": 200, "n_sparsity_steps": 3000, "learning_rate": 2e-3}
    return PDGMM(**{"random_state": 0, **settings, **options}).fit(X)


def switching_off_much_at_once() -> Any:
    X = far_from_zero(np.random.default_rng(0).standard_normal((600, 2)))
    return switching_off(
        X, width=4, n_steps=20, n_sparsity_steps=100, learning_rate=LARGE_STEP_OF_CODES
    )


def latents_that_never_switch_off() -> Any:
    X = np.random.default_rng(0).standard_normal((3000, 3))
    return switching_off(X, width=2, n_steps=100, n_sparsity_steps=1000)


def a_multiplier_that_is_too_large() -> Any:
    return switching_off(width=2, n_steps=20, n_sparsity_steps=2000, learning_rate=2e-2)


def sparse_mixture(**options: Any) -> Any:
    settings = {"n_samples": 3000, "n_layers": 1, "slope": 0.8, "active": 2, "random_state": 0}
    world: Any = make_sparse_mixture(3, **settings)
    model = SparseMixtureCRL(**{"slab": "gaussian", "n_steps": 300, "random_state": 0, **options})
    return model.fit(world.X)


def affine_mixture(X: Any = None, n_latents: int = 4, **options: Any) -> Any:
    if X is None:
        settings = {"n_samples": 6000, "n_layers": 1, "slope": 1.0, "random_state": 0}
        X = make_sparse_mixture(n_latents, **{**settings, **options}).X
    return SparseMixtureCRL(mixing="affine", random_state=0).fit(X)


def a_surface_that_is_bent_back() -> Any:
    world: Any = make_sparse_mixture(
        2, n_samples=2000, n_layers=1, slope=1.0, active=1, random_state=0
    )
    angle = 4 * np.tanh(world.truth.Z[:, 0] / 2)
    X = np.column_stack([np.cos(angle), np.sin(angle) / 4, world.truth.Z[:, 1]])
    return SparseMixtureCRL(2, reduction="linear", slab="gaussian", n_steps=3, random_state=0).fit(
        X
    )


def components_in_two_bases() -> Any:
    """There are more hyperplanes that hold many rows than latents."""
    return affine_mixture(n_latents=10, rotated_share=0.5, rotation=45.0, n_samples=20_000)


not_iterated = partial(EBCRL, max_iter=0)
hardly_fitted = partial(StructuralPriorCRL, n_steps=5)


def much_at_once_for_a_prior() -> Any:
    """Large offsets, a latent too many, a target that nothing happens to, a reversed graph."""
    world = domains()
    graph = np.zeros((4, 4), dtype=bool)
    graph[:3, :3] = world.truth.graph.T
    targets = np.pad(np.vstack([world.known_targets, [[0, 0, 1]]]), ((0, 0), (0, 1)))
    model = hardly_fitted(graph=graph, targets=targets, center=True, random_state=0)
    return model.fit(far_from_zero(world.X), halved(world.y, 0, 9))


def one_latent_too_many_for_a_prior() -> Any:
    return one_latent_too_many(partial(StructuralPriorCRL, n_steps=400, random_state=0))


def two_targets_that_nothing_tells_apart() -> Any:
    """Two of three latents are targets in the same environment, which moves no mean."""
    world = domains(graph="empty", intervened_mean=0.0)
    y, targets = np.where(world.y == 2, 1, world.y), {0: [], 1: [0, 1], 3: [2]}
    known = {"graph": np.zeros((3, 3)), "targets": targets}
    return hardly_fitted(**known, random_state=0).fit(world.X, y)


def gaussian_prior(world: Any = None, prior: str = "shift", **options: Any) -> Any:
    return denoised(GaussianPriorCRL, shifted() if world is None else world, prior=prior, **options)


@cache
def shifted(shape: str = "gaussian") -> Any:
    """A linear chain whose latents are shifted in turn."""
    shifts = [Intervention(j, "shift", shift=6.0) for j in range(3)]
    return make_world(
        3,
        12,
        400,
        graph="chain",
        noise=shape,
        interventions=[None, *shifts],
        mixing="orthonormal",
        measurement_noise=1.0,
        targets="known",
        random_state=0,
    )


def a_small_environment() -> Any:
    world = domains()
    kept = (world.y != 3) | (np.cumsum(world.y == 3) <= 3)
    return GaussianPriorCRL(3).fit(world.X[kept], world.y[kept])


def two_shifts_that_nothing_tells_apart() -> Any:
    world = domains(graph="empty")
    y, targets = np.where(world.y == 2, 1, world.y), {0: [], 1: [0, 1], 3: [2]}
    model = GaussianPriorCRL(graph=np.zeros((3, 3)), targets=targets, prior="shift", random_state=0)
    return model.fit(world.X, y)


HOLD: dict[str, Fit] = {
    "PCABaseline": pca,
    "ICABaseline": ica,
    "BetaVAE": beta_vae,
    "VaDE": vade,
    "IVAE": ivae,
    "LinearInterventionCRL": single_node,
    "MultiNodeCRL": multi_node,
    "NonlinearInterventionCRL": behind_smooth_maps,
    "LatentANM": changing_mechanisms,
    "ObservationalCRL": observational,
    "EmpiricalBayesCRL": lambda: denoised(EmpiricalBayesCRL),
    "StructuralPriorCRL": lambda: denoised(StructuralPriorCRL, n_steps=200),
    "GaussianPriorCRL": gaussian_prior,
    "LSCALEI": lambda: by_scores(LSCALEI, interventions),
    "UMNICRL": lambda: by_scores(UMNICRL, sets),
    "GSCALEI": two_hard_each,
    "ContrastiveCRL": contrastive,
    "ScoreLayers": layers,
    "EBCRL": lambda: denoised(EBCRL, max_iter=200),
    "LatentANMVAE": latent_anm,
    "PDGMM": switching_off,
    "SparseMixtureCRL": sparse_mixture,
}

FAIL: dict[tuple[str, str], Fit] = {
    ("PCABaseline", "columns vary"): lambda: pca(far_from_zero),
    ("PCABaseline", "number of latents"): lambda: nothing_in_common(PCABaseline()),
    ("ICABaseline", "number of latents"): lambda: nothing_in_common(ICABaseline(random_state=0)),
    ("ICABaseline", "columns vary"): lambda: ica(far_from_zero),
    ("ICABaseline", "the rotation converged"): lambda: ica(noise="gaussian", max_iter=3),
    ("BetaVAE", "columns vary"): beta_vae_much_at_once,
    ("BetaVAE", "training stayed finite"): beta_vae_much_at_once,
    ("BetaVAE", "every latent is used"): lambda: beta_vae(beta=1000.0),
    ("VaDE", "columns vary"): vade_much_at_once,
    ("VaDE", "training stayed finite"): vade_much_at_once,
    ("VaDE", "every latent is used"): vade_of_one_latent,
    ("VaDE", "restarts agree"): vade_of_noise,
    ("VaDE", "no component is degenerate"): vade_of_points,
    ("IVAE", "columns vary"): much_at_once,
    ("IVAE", "enough environments"): much_at_once,
    ("IVAE", "environment sizes"): much_at_once,
    ("IVAE", "latents are independent given y"): much_at_once,
    ("IVAE", "training stayed finite"): much_at_once,
    ("IVAE", "restarts agree"): much_at_once,
    ("LinearInterventionCRL", "columns vary"): lambda: single_node(
        far_from_zero(interventions().X)
    ),
    ("LinearInterventionCRL", "reference environment"): lambda: single_node(
        y=interventions().y + 1
    ),
    (
        "LinearInterventionCRL",
        "every latent is intervened on, or in nonlinear mechanisms",
    ): one_latent_without_intervention,
    ("LinearInterventionCRL", "interventions are visible"): lambda: single_node(
        y=halved(np.where(interventions().y == 3, 2, interventions().y), 0, 3)
    ),
    ("LinearInterventionCRL", "number of latents"): one_intervention_left_out,
    ("LinearInterventionCRL", "single-node interventions fit"): an_environment_in_other_units,
    ("LinearInterventionCRL", "rank of X"): lambda: single_node(
        with_noise(interventions().X), n_latents=3, noise="none"
    ),
    (
        "LinearInterventionCRL",
        "measurement noise is independent across features",
    ): lambda: single_node(with_noise_that_features_share(interventions().X), n_latents=3),
    ("LinearInterventionCRL", "latents stand out from the noise"): lambda: single_node(
        with_noise(interventions().X, 10), n_latents=3
    ),
    ("LinearInterventionCRL", "answer does not hang on few rows"): lambda: single_node(
        with_far_rows(interventions(), 20)[0]
    ),
    ("LinearInterventionCRL", "structure is determined by the data"): lambda: soft_interventions(
        LinearInterventionCRL, make_linear_interventional, 1000, seed=8
    ),
    ("LinearInterventionCRL", "no missing edge is in doubt"): lambda: soft_interventions(
        LinearInterventionCRL, make_linear_interventional, 5000, seed=1, n_latents=5
    ),
    ("LinearInterventionCRL", "noise is Poisson"): lambda: counted("single-node", overdispersed),
    ("MultiNodeCRL", "noise is Poisson"): lambda: counted("multi-node", overdispersed),
    ("MultiNodeCRL", "number of latents"): lambda: nothing_in_common(MultiNodeCRL(random_state=0)),
    ("LinearInterventionCRL", "held latents are targets"): held_by_two_environments,
    ("LinearInterventionCRL", "environments differ in one latent"): (
        two_environments_on_two_latents
    ),
    ("MultiNodeCRL", "held latents are targets"): held_combinations,
    ("MultiNodeCRL", "columns vary"): lambda: multi_node(far_from_zero(sets().X)),
    ("MultiNodeCRL", "reference environment"): lambda: multi_node(y=sets().y + 1),
    ("MultiNodeCRL", "interventions are visible"): lambda: multi_node(y=halved(sets().y, 0, 9)),
    (
        "MultiNodeCRL",
        "interventions on sets of latents fit",
    ): an_environment_that_is_mixed_otherwise,
    ("MultiNodeCRL", "no missing edge is in doubt"): lambda: soft_interventions(
        MultiNodeCRL, make_multi_node, 1000, seed=2
    ),
    ("MultiNodeCRL", "rank of X"): lambda: multi_node(with_noise(sets().X), noise="none"),
    ("MultiNodeCRL", "measurement noise is independent across features"): lambda: multi_node(
        with_noise_that_features_share(sets().X)
    ),
    ("MultiNodeCRL", "latents stand out from the noise"): lambda: multi_node(
        with_noise(sets().X, 10)
    ),
    ("MultiNodeCRL", "answer does not hang on few rows"): lambda: multi_node(
        with_far_rows(sets(), 20)[0]
    ),
    ("MultiNodeCRL", "structure is determined by the data"): lambda: soft_interventions(
        MultiNodeCRL, make_multi_node, 300, seed=5
    ),
    **{
        ("NonlinearInterventionCRL", check): much_at_once_behind_smooth_maps
        for check in (
            "columns vary",
            "reference environment",
            "every latent is intervened on",
            "restarts agree",
        )
    },
    (
        "NonlinearInterventionCRL",
        "mechanisms stay where nobody intervenes",
    ): another_environment_changes_both_latents,
    ("NonlinearInterventionCRL", "interventions cut latents off"): two_soft_interventions,
    ("NonlinearInterventionCRL", "X holds 2 numbers"): lambda: hardly_trained(
        with_noise(smooth().X @ [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    ),
    ("NonlinearInterventionCRL", "the reduction does not fold"): a_strip_that_is_bent_back,
    **{
        ("LatentANM", check): segments_that_are_all_alike
        for check in (
            "columns vary",
            "segment sizes",
            "noises vary enough over segments",
            "restarts agree",
        )
    },
    ("LatentANM", "mechanisms vanish in some segments"): lambda: changing_mechanisms(quiet=0.0),
    ("LatentANM", "mechanisms are linear"): lambda: steps_for("linear"),
    ("LatentANM", "mechanisms are polynomial"): lambda: steps_for("polynomial"),
    ("LatentANM", "the reduction does not fold"): a_strip_of_segments_that_is_bent_back,
    ("ObservationalCRL", "number of latents"): lambda: nothing_in_common(
        ObservationalCRL(n_starts=1, random_state=0)
    ),
    ("EmpiricalBayesCRL", "number of latents"): lambda: nothing_in_common(EmpiricalBayesCRL()),
    ("ObservationalCRL", "rank of X"): lambda: observational(measured(), noise="none"),
    ("ObservationalCRL", "measurement noise is independent across features"): lambda: observational(
        with_noise_that_features_share(seen_by_many())
    ),
    ("ObservationalCRL", "latents stand out from the noise"): lambda: observational(
        with_noise(seen_by_many(), 20)
    ),
    ("ObservationalCRL", "noises stand out from the measurement noise"): lambda: observational(
        with_noise(seen_by_many(), 1.5)
    ),
    (
        "ObservationalCRL",
        "noises of a layer can be told apart",
    ): two_gaussian_noises_beside_another,
    (
        "ObservationalCRL",
        "mechanisms are nonlinear along every direction",
    ): lambda: a_weak_effect(0.1),
    ("ObservationalCRL", "noise is independent of its causes"): noise_that_grows_with_its_cause,
    ("ObservationalCRL", "columns vary"): lambda: observational(far_from_zero(chain())),
    ("ObservationalCRL", "data are not Gaussian"): lambda: observational(
        np.random.default_rng(0).normal(size=(200, 2))
    ),
    ("ObservationalCRL", "structure is determined by the data"): a_weak_effect,
    ("ObservationalCRL", "one environment"): lambda: observational(y=np.arange(400) % 3),
    **{
        (name, check): partial(fit, estimator)
        for name, estimator in (("EmpiricalBayesCRL", EmpiricalBayesCRL), ("EBCRL", not_iterated))
        for check, fit in {
            "columns vary": features_far_from_zero,
            "targets are known": lambda estimator: estimator(3).fit(domains().X, domains().y),
            "environment sizes": small_environment_of_a_known_mixing,
            "measurement noise": noise_that_is_not_alike,
            "latents stand out from the noise": one_latent_too_many,
            "size of the latents": hardly_any_noise,
            "every latent is a target": a_latent_that_no_environment_hits,
            "interventions are visible": a_target_that_nothing_happens_to,
        }.items()
    },
    ("EmpiricalBayesCRL", "targets and graph fit the data"): lambda: denoised(
        EmpiricalBayesCRL, graph=domains().truth.graph.T
    ),
    ("EmpiricalBayesCRL", "unmixing is determined by the data"): partial(
        two_latents_that_are_always_targets_together, EmpiricalBayesCRL
    ),
    ("EmpiricalBayesCRL", "unmixing is precise"): partial(
        two_latents_that_are_always_targets_together, EmpiricalBayesCRL
    ),
    ("EmpiricalBayesCRL", "means without intervention are zero"): lambda: denoised(
        EmpiricalBayesCRL, domains(base_mean_sd=3.0, observational=False, n_samples=1000)
    ),
    ("EmpiricalBayesCRL", "signs are determined"): lambda: denoised(
        EmpiricalBayesCRL, domains(intervened_mean=0.0)
    ),
    **{
        ("StructuralPriorCRL", check): much_at_once_for_a_prior
        for check in (
            "columns vary",
            "every latent is a target",
            "interventions are visible",
            "targets and graph fit the data",
        )
    },
    **{
        ("StructuralPriorCRL", check): two_targets_that_nothing_tells_apart
        for check in (
            "signs are determined",
            "unmixing is determined by the data",
            "each environment is explained",
            "restarts agree",
        )
    },
    ("StructuralPriorCRL", "measurement noise"): partial(noise_that_is_not_alike, hardly_fitted),
    **{
        ("StructuralPriorCRL", check): one_latent_too_many_for_a_prior
        for check in ("latents stand out from the noise", "every latent is measured")
    },
    ("StructuralPriorCRL", "targets are known"): lambda: hardly_fitted(3).fit(
        domains().X, domains().y
    ),
    ("StructuralPriorCRL", "one environment is observational"): lambda: denoised(
        partial(hardly_fitted, mixing="nonlinear"), domains(observational=False)
    ),
    **{
        ("GaussianPriorCRL", check): partial(fit, GaussianPriorCRL)
        for check, fit in {
            "columns vary": features_far_from_zero,
            "measurement noise": noise_that_is_not_alike,
            "latents stand out from the noise": one_latent_too_many,
            "size of the latents": hardly_any_noise,
            "every latent is a target": a_latent_that_no_environment_hits,
            "interventions are visible": a_target_that_nothing_happens_to,
        }.items()
    },
    ("GaussianPriorCRL", "number of latents"): lambda: nothing_in_common(GaussianPriorCRL()),
    ("GaussianPriorCRL", "environment sizes"): a_small_environment,
    ("GaussianPriorCRL", "targets and graph fit the data"): lambda: gaussian_prior(
        graph=np.zeros((3, 3))
    ),
    ("GaussianPriorCRL", "unmixing is determined by the data"): two_shifts_that_nothing_tells_apart,
    ("GaussianPriorCRL", "unmixing is precise"): two_shifts_that_nothing_tells_apart,
    ("GaussianPriorCRL", "means without intervention are zero"): lambda: gaussian_prior(
        domains(base_mean_sd=3.0, observational=False, n_samples=1000), "conditional"
    ),
    ("GaussianPriorCRL", "signs are determined"): lambda: gaussian_prior(
        domains(intervened_mean=0.0), "conditional"
    ),
    ("GaussianPriorCRL", "each environment is explained"): lambda: gaussian_prior(domains()),
    ("GaussianPriorCRL", "latents are Gaussian"): lambda: gaussian_prior(shifted("laplace")),
    ("EBCRL", "latents lie within the knots"): partial(latents_in_units_of_their_own, not_iterated),
    ("EBCRL", "the iterations have settled"): lambda: denoised(EBCRL, max_iter=3),
    **{
        (estimator.__name__, check): partial(by_scores, estimator, make, change)
        for estimator, make in ((LSCALEI, interventions), (UMNICRL, sets))
        for check, change in {
            "columns vary": lambda X, y: (far_from_zero(X), y),
            "rank of X": lambda X, y: (with_noise(X), y),
            "reference environment": lambda X, y: (X, y + 1),
        }.items()
    },
    ("UMNICRL", "latents show in the scores"): lambda: by_scores(
        UMNICRL, sets, lambda X, y: (100 * X, y)
    ),
    **{
        ("GSCALEI", check): much_at_once_for_networks
        for check in (
            "columns vary",
            "reference environment",
            "environment sizes",
            "two environments for each latent",
            "X is reconstructed",
            "score differences are one-hot",
        )
    },
    ("GSCALEI", "rank of X"): lambda: two_hard_each(
        lambda X, y: (np.tanh(with_noise(np.arctanh(X))), y), n_latents=2
    ),
    **{
        ("ContrastiveCRL", check): contrastive_much_at_once
        for check in (
            "columns vary",
            "reference environment",
            "environment sizes",
            "interventions are visible",
            "latents are Gaussian",
            "noises are uncorrelated",
            "training stayed finite",
        )
    },
    **{
        ("LatentANMVAE", check): latent_anm_much_at_once
        for check in (
            "columns vary",
            "enough segments",
            "environment sizes",
            "training stayed finite",
            "restarts agree",
        )
    },
    ("LatentANMVAE", "gates close in some segment"): lambda: latent_anm(quiet=0.0, seed=2),
    ("LatentANMVAE", "noises are Gaussian"): lambda: latent_anm(noise="laplace"),
    ("LatentANMVAE", "noises do not depend on causes"): lambda: latent_anm(
        seed=11, mechanisms="linear"
    ),
    **{
        ("PDGMM", check): switching_off_much_at_once
        for check in ("columns vary", "X is reconstructed", "training stayed finite")
    },
    ("PDGMM", "every latent is kept"): a_multiplier_that_is_too_large,
    ("PDGMM", "every latent switches off"): latents_that_never_switch_off,
    ("SparseMixtureCRL", "columns vary"): lambda: affine_mixture(
        far_from_zero(np.random.default_rng(0).standard_normal((500, 2)))
    ),
    ("SparseMixtureCRL", "latents switch off"): lambda: affine_mixture(
        np.random.default_rng(0).standard_normal((3000, 3))
    ),
    ("SparseMixtureCRL", "rows of a component fill its span"): components_in_two_bases,
    ("SparseMixtureCRL", "latents that are on are Gaussian"): lambda: affine_mixture(
        noise="exponential"
    ),
    ("SparseMixtureCRL", "components differ where they meet"): lambda: affine_mixture(
        active="one", delta=1.0
    ),
    ("SparseMixtureCRL", "hyperplanes are found again"): components_in_two_bases,
    ("SparseMixtureCRL", "the reduction does not fold"): a_surface_that_is_bent_back,
    ("ScoreLayers", "columns vary"): lambda: layers(far_from_zero(chain(200))),
    ("ScoreLayers", "rank of X"): lambda: layers(measured(200)),
    ("ScoreLayers", "data are not Gaussian"): gaussian_latents,
    ("ScoreLayers", "layers show in the scores"): gaussian_latents,
    ("ScoreLayers", "one environment"): lambda: layers(y=np.arange(200) % 3),
}

# Checks that no data can make fail, and why.
NEVER = {
    ("ObservationalCRL", "noise is Gaussian"): "noises have densities of their own where it would",
    ("VaDE", "mixing and mixture are as assumed"): "it says what no check can tell",
    ("LinearInterventionCRL", "means of environments"): "it says that linear mechanisms are given "
    "means of their own, and whether they fit then is another check",
    ("MultiNodeCRL", "means of environments"): "as in LinearInterventionCRL",
    ("LinearInterventionCRL", "environment sizes"): "small environments are refused",
    ("MultiNodeCRL", "environment sizes"): "small environments are refused",
    ("NonlinearInterventionCRL", "environment sizes"): "small environments are refused",
    ("NonlinearInterventionCRL", "reduction"): "it says what was done and what is lost by it",
    (
        "NonlinearInterventionCRL",
        "training came to its end",
    ): "only users interrupt it (see the tests of that method)",
    (
        "NonlinearInterventionCRL",
        "training stayed finite",
    ): "steps are small, and rows are in fixed units",
    ("LatentANM", "reduction"): "it says what was done and what is lost by it",
    (
        "LatentANM",
        "training came to its end",
    ): "only users interrupt it (see the tests of that method)",
    ("LatentANM", "training stayed finite"): "steps are small, and rows are in fixed units",
    ("SparseMixtureCRL", "reduction"): "it says what was done and what is lost by it",
    ("SparseMixtureCRL", "number of latents"): "it says how many were looked for and found",
    (
        "SparseMixtureCRL",
        "training came to its end",
    ): "only users interrupt it (see the tests of flows)",
    ("SparseMixtureCRL", "training stayed finite"): "steps are small, and rows are in fixed units",
    ("StructuralPriorCRL", "environment sizes"): "small environments are refused",
    (
        "StructuralPriorCRL",
        "training came to its end",
    ): "only users interrupt it (see the tests of that method)",
    (
        "StructuralPriorCRL",
        "training stayed finite",
    ): "steps are small, and rows are in fixed units",
    ("LSCALEI", "environment sizes"): "small environments are refused",
    ("UMNICRL", "environment sizes"): "small environments are refused",
    (
        "GSCALEI",
        "training stayed finite",
    ): "steps are small, and rows and scores are in fixed units",
}


@pytest.mark.parametrize("name", HOLD)
def test_all_checks_hold(name: str):
    """Warnings are errors here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionWarning)
        model = HOLD[name]()
    assert type(model).__name__ == name
    shown = {check for method, check in FAIL if method == name}
    never = {check for method, check in NEVER if method == name}
    stated = {check.name for check in model.result_.checks}
    assert stated <= shown | never, "a check that is not shown to fail"


@cache
def said(fit: Fit) -> list[str]:
    """Return the warnings of a fit, which several tests may share."""
    with pytest.warns(AssumptionWarning) as caught:
        fit()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(("name", "check"), FAIL, ids=[f"{n}-{c}" for n, c in FAIL])
def test_the_check_fails(name: str, check: str):
    assert any(text.startswith(f"{name}: {check}: fails") for text in said(FAIL[name, check]))


def test_every_estimator_is_here():
    assert set(HOLD) == set(ESTIMATORS)


def check_of(model: Any, name: str) -> Any:
    return next(check for check in model.result_.checks if check.name == name)


@pytest.mark.parametrize("fit", [single_node, multi_node], ids=["single nodes", "sets"])
def test_hardly_any_measurement_noise_is_harmless(fit: Any):
    world = interventions() if fit is single_node else sets()
    options = {"n_latents": 3} if fit is single_node else {}
    model = fit(with_noise(world.X, 0.001), noise="none", **options)
    check = check_of(model, "rank of X")
    assert check.passed
    assert "X has rank 5, and 3 latents" in check.detail


@pytest.mark.parametrize("size", [0.001, 0.1])
@pytest.mark.parametrize("fit", [single_node, multi_node], ids=["single nodes", "sets"])
def test_measurement_noise_that_is_taken_off_is_no_reason_to_warn(fit: Any, size: float):
    world = interventions() if fit is single_node else sets()
    options = {"n_latents": 3} if fit is single_node else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionWarning)
        model = fit(with_noise(world.X, size), **options)
    assert check_of(model, "measurement noise is independent across features").passed
    assert check_of(model, "latents stand out from the noise").passed


@pytest.mark.parametrize("size", [0.001, 0.02])
def test_measurement_noise_of_observational_data_is_no_reason_to_warn(size: float):
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionWarning)
        model = observational(with_noise(seen_by_many(), size))
    assert check_of(model, "measurement noise is independent across features").passed
    assert check_of(model, "noises stand out from the measurement noise").passed
    assert check_of(model, "latents stand out from the noise").passed


@pytest.mark.parametrize("kind", ["single-node", "multi-node"])
def test_counts_are_no_reason_to_warn(kind: str):
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionWarning)
        model = counted(kind)
    assert check_of(model, "noise is Poisson").passed


@pytest.mark.parametrize(
    ("fit", "name"),
    [(bent, "single-node interventions fit"), (bent_sets, "interventions on sets of latents fit")],
    ids=["single nodes", "sets"],
)
def test_nonlinear_fits_are_tested_by_their_residuals(fit: Any, name: str):
    right = check_of(fit(), name)
    assert right.passed
    assert "nonlinear ones were fitted" in right.detail
    with pytest.warns(AssumptionWarning, match=f"{name}: fails"):
        wrong = fit(units=1.5)
    assert "nonlinear ones were fitted" in check_of(wrong, name).detail
    assert wrong.result_.guarantee.latents == "none"


@pytest.mark.parametrize(
    ("fit", "make"), [(single_node, interventions), (multi_node, sets)], ids=["single", "sets"]
)
def test_means_of_environments_may_be_anything(fit: Any, make: Any):
    """Batches: what is recovered is what is recovered without them."""
    world = make()
    plain, shifted = fit(), fit(with_own_means(world))
    assert "means of environments" not in {check.name for check in plain.result_.checks}
    assert check_of(shifted, "means of environments").passed
    metrics = ["mcc", "shd"]
    expected, found = (evaluate(model, world, metrics) for model in (plain, shifted))
    assert found["shd"] == expected["shd"] == 0
    assert found["mcc"] == pytest.approx(expected["mcc"], abs=1e-3)


@pytest.mark.parametrize("fit", [bent, bent_sets], ids=["single nodes", "sets"])
def test_means_that_quadratic_effects_shift_are_no_batches(fit: Any):
    model = fit()
    assert model.result_.details["mechanisms"] == "nonlinear"
    assert model.result_.adjacency.sum() == 1


def test_rows_that_stand_far_out_are_named():
    X, moved = with_far_rows(interventions(), 20)
    with pytest.warns(AssumptionWarning, match="answer does not hang on few rows: fails") as caught:
        single_node(X)
    listed = ", ".join(map(str, moved[:8]))
    said = f"{len(moved)} of {len(X)} fitted rows stand far out ({listed}, ...)"
    assert any(said in str(warning.message) for warning in caught)


def test_far_rows_of_heavy_tails_do_not_matter():
    world: Any = make_linear_interventional(3, 5, 1000, noise="laplace", random_state=0)
    check = check_of(single_node(world.X, world.y), "answer does not hang on few rows")
    assert check.passed
    assert "without them the answer is the same" in check.detail


@pytest.mark.parametrize("noise", ["laplace", "uniform", "student_t"])
def test_noise_of_each_family_is_fitted(noise: str):
    world = make_observational(2, n_samples=500, noise=noise, random_state=0)
    result = observational(world.X).result_
    assert result.details["noise"] == "any"
    assert "each exogenous noise up to scale" in str(result.guarantee)
    assert not result.failed_checks
