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
    EmpiricalBayesCRL,
    ICABaseline,
    LinearInterventionCRL,
    MultiNodeCRL,
    ObservationalCRL,
    PCABaseline,
)
from crlearn.data import (
    make_linear_interventional,
    make_multi_domain,
    make_multi_node,
    make_segments,
    make_world,
)
from crlearn.estimators import ESTIMATORS
from crlearn.exceptions import AssumptionWarning
from crlearn.published import EBCRL, LSCALEI, UMNICRL, ScoreLayers

Fit = Callable[[], Any]
LARGE_STEP = 4.0  # most restarts diverge; with a tenth of it none does


def far_from_zero(X: Any) -> Any:
    """Add an offset beside which rounding leaves four digits of what varies."""
    return X + 1e12


def halved(y: Any, label: int, new: int) -> Any:
    """Call every other row of an environment by a new name."""
    y = y.copy()
    y[np.flatnonzero(y == label)[::2]] = new
    return y


# Baselines


def pca(change: Callable[[Any], Any] = lambda X: X) -> Any:
    world = make_world(2, 3, n_samples=50, random_state=0)
    return PCABaseline(2).fit(change(world.X))


def ica(change: Callable[[Any], Any] = lambda X: X, noise: str = "laplace", **options: Any) -> Any:
    world = make_world(3, 4, graph="empty", noise=noise, n_samples=500, random_state=0)
    return ICABaseline(3, random_state=0, **options).fit(change(world.X))


# Identifiable VAE


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


def single_node(X: Any = None, y: Any = None, n_latents: int | None = None) -> Any:
    world = interventions()
    X, y = (world.X if X is None else X), (world.y if y is None else y)
    return LinearInterventionCRL(n_latents, mechanisms="linear", random_state=0).fit(X, y)


def one_latent_without_intervention() -> Any:
    world = interventions()
    rows = world.y < 3
    return single_node(world.X[rows], world.y[rows], n_latents=3)


def an_environment_in_other_units() -> Any:
    """What changes all latents at once is no intervention on one."""
    world = interventions()
    return single_node(np.where((world.y == 2)[:, None], 1.5 * world.X, world.X))


# Interventions on sets of latents


@cache
def sets() -> Any:
    return make_multi_node(n_latents=3, n_features=5, n_samples=1000, random_state=0)


def multi_node(X: Any = None, y: Any = None) -> Any:
    world = sets()
    X, y = (world.X if X is None else X), (world.y if y is None else y)
    return MultiNodeCRL(3, mechanisms="linear", random_state=0).fit(X, y)


def an_environment_that_is_mixed_otherwise() -> Any:
    world, rng = sets(), np.random.default_rng(0)
    other = world.X @ (np.eye(5) + 0.3 * rng.standard_normal((5, 5)))
    return multi_node(np.where((world.y == 2)[:, None], other, world.X))


# Observational data


def chain(n: int = 400) -> Any:
    """Rows of two latents, the second of which is the square of the first plus noise."""
    noise = np.random.default_rng(0).normal(size=(n, 2)) * [2.0, 0.3]
    return np.column_stack([noise[:, 0], noise[:, 0] ** 2 + noise[:, 1]])


def observational(X: Any = None, y: Any = None) -> Any:
    return ObservationalCRL(2, random_state=0).fit(chain() if X is None else X, y)


def rows_and_their_mirror_images() -> Any:
    """Whatever causes what, the reverse fits as well."""
    noise = np.random.default_rng(0).normal(size=(200, 2))
    rows = np.column_stack([noise[:, 0], 0.5 * noise[:, 0] ** 2 + noise[:, 1]])
    rows -= rows.mean(axis=0)
    white = rows @ np.linalg.inv(np.linalg.cholesky(np.cov(rows.T)).T)
    return observational(np.concatenate([white, white[:, ::-1]]))


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


not_iterated = partial(EBCRL, max_iter=0)


HOLD: dict[str, Fit] = {
    "PCABaseline": pca,
    "ICABaseline": ica,
    "IVAE": ivae,
    "LinearInterventionCRL": single_node,
    "MultiNodeCRL": multi_node,
    "ObservationalCRL": observational,
    "EmpiricalBayesCRL": lambda: denoised(EmpiricalBayesCRL),
    "LSCALEI": lambda: by_scores(LSCALEI, interventions),
    "UMNICRL": lambda: by_scores(UMNICRL, sets),
    "ScoreLayers": layers,
    "EBCRL": lambda: denoised(EBCRL, max_iter=200),
}

FAIL: dict[tuple[str, str], Fit] = {
    ("PCABaseline", "columns vary"): lambda: pca(far_from_zero),
    ("ICABaseline", "columns vary"): lambda: ica(far_from_zero),
    ("ICABaseline", "the rotation converged"): lambda: ica(noise="gaussian", max_iter=3),
    ("IVAE", "columns vary"): much_at_once,
    ("IVAE", "enough environments"): much_at_once,
    ("IVAE", "environment sizes"): much_at_once,
    ("IVAE", "latents are independent given y"): much_at_once,
    ("IVAE", "training stayed finite"): much_at_once,
    ("LinearInterventionCRL", "columns vary"): lambda: single_node(
        far_from_zero(interventions().X)
    ),
    ("LinearInterventionCRL", "reference environment"): lambda: single_node(
        y=interventions().y + 1
    ),
    (
        "LinearInterventionCRL",
        "every latent is intervened on",
    ): one_latent_without_intervention,
    ("LinearInterventionCRL", "interventions are visible"): lambda: single_node(
        y=halved(np.where(interventions().y == 3, 2, interventions().y), 0, 3)
    ),
    ("LinearInterventionCRL", "single-node interventions fit"): an_environment_in_other_units,
    ("MultiNodeCRL", "columns vary"): lambda: multi_node(far_from_zero(sets().X)),
    ("MultiNodeCRL", "reference environment"): lambda: multi_node(y=sets().y + 1),
    ("MultiNodeCRL", "interventions are visible"): lambda: multi_node(y=halved(sets().y, 0, 9)),
    (
        "MultiNodeCRL",
        "interventions on sets of latents fit",
    ): an_environment_that_is_mixed_otherwise,
    ("ObservationalCRL", "columns vary"): lambda: observational(far_from_zero(chain())),
    ("ObservationalCRL", "data are not Gaussian"): lambda: observational(
        np.random.default_rng(0).normal(size=(200, 2))
    ),
    ("ObservationalCRL", "structure is determined by the data"): rows_and_their_mirror_images,
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
    ("EmpiricalBayesCRL", "means without intervention are zero"): lambda: denoised(
        EmpiricalBayesCRL, domains(base_mean_sd=3.0, observational=False, n_samples=1000)
    ),
    ("EmpiricalBayesCRL", "signs are determined"): lambda: denoised(
        EmpiricalBayesCRL, domains(intervened_mean=0.0)
    ),
    ("EBCRL", "latents lie within the knots"): partial(latents_in_units_of_their_own, not_iterated),
    ("EBCRL", "the iterations have settled"): lambda: denoised(EBCRL, max_iter=3),
    **{
        (estimator.__name__, check): partial(by_scores, estimator, make, change)
        for estimator, make in ((LSCALEI, interventions), (UMNICRL, sets))
        for check, change in {
            "columns vary": lambda X, y: (far_from_zero(X), y),
            "reference environment": lambda X, y: (X, y + 1),
        }.items()
    },
    ("UMNICRL", "latents show in the scores"): lambda: by_scores(
        UMNICRL, sets, lambda X, y: (100 * X, y)
    ),
    ("ScoreLayers", "columns vary"): lambda: layers(far_from_zero(chain(200))),
    ("ScoreLayers", "data are not Gaussian"): gaussian_latents,
    ("ScoreLayers", "layers show in the scores"): gaussian_latents,
    ("ScoreLayers", "one environment"): lambda: layers(y=np.arange(200) % 3),
}

# Checks that no data can make fail, and why.
NEVER = {
    ("every estimator", "rank of X"): "columns of rank zero are refused",
    ("LinearInterventionCRL", "environment sizes"): "small environments are refused",
    ("MultiNodeCRL", "environment sizes"): "small environments are refused",
    ("LSCALEI", "environment sizes"): "small environments are refused",
    ("UMNICRL", "environment sizes"): "small environments are refused",
}


@pytest.mark.parametrize("name", HOLD)
def test_all_checks_hold(name: str):
    """Warnings are errors here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionWarning)
        model = HOLD[name]()
    assert type(model).__name__ == name
    shown = {check for method, check in FAIL if method == name}
    never = {check for method, check in NEVER if method in (name, "every estimator")}
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
