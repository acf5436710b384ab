from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from crlearn import (
    EmpiricalBayesCRL,
    ICABaseline,
    LinearInterventionCRL,
    MultiNodeCRL,
    ObservationalCRL,
    PCABaseline,
    load,
)
from crlearn.data import (
    Dataset,
    make_multi_domain,
    make_noisy_interventional,
    make_observational,
)
from crlearn.exceptions import AssumptionWarning, IdentifiabilityError
from crlearn.inputs import count_latents, resolve_n_latents

NAME = "number of latents"


def rows(n: int, d: int, share: float, *, uneven: bool = True, seed: int = 0) -> Any:
    """Return latents that cause each other, mixed, with noise beside them."""
    X = make_observational(n, d, 2000, graph="er", mechanism="mlp", random_state=seed).X
    rng = np.random.default_rng(seed)
    sds = share * X.std() * (rng.uniform(0.3, 1.7, d) if uneven else np.ones(d))
    return X + sds * rng.standard_normal(X.shape)


@pytest.mark.parametrize("uneven", [False, True], ids=["one variance", "one for each feature"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.3])
@pytest.mark.parametrize(("n", "d"), [(3, 20), (10, 20), (8, 100)])
def test_the_number_is_found(n: int, d: int, share: float, uneven: bool):
    found = count_latents(rows(n, d, share, uneven=uneven))
    assert (found.value, found.check.passed) == (n, True)
    assert (found.beside[:-1] > 1).all()
    assert found.beside[-1] <= 1
    assert len(found.beside) == len(found.changes) == n + 1


def test_changes_between_environments_show_what_variances_do_not():
    world = make_noisy_interventional(10, 20, 2000, share=0.3, random_state=2)
    assert count_latents(world.X).value < 10
    found = count_latents(world.X, world.y)
    assert (found.value, found.check.passed) == (10, True)
    assert found.changes[-2] > 1 > found.changes[-1]


@pytest.mark.parametrize("likely", [2, 5, 6, 9])
def test_a_likely_number_is_where_the_search_begins(likely: int):
    world = make_noisy_interventional(5, 20, 1000, share=0.3, random_state=0)
    usual, found = (count_latents(world.X, world.y, likely=k) for k in (0, likely))
    assert (found.value, found.check) == (usual.value, usual.check)
    looked_at = np.isfinite(found.beside)
    np.testing.assert_array_equal(found.beside[looked_at], usual.beside[looked_at])
    assert looked_at.sum() == min(6, 7 - min(likely, 5))


def test_a_likely_number_in_one_environment():
    X = rows(5, 20, 0.1)
    usual, found = (count_latents(X, likely=k) for k in (0, 5))
    assert found.check == usual.check


def test_columns_that_only_differ_between_environments():
    world: Any = make_noisy_interventional(3, 20, 1000, share=0.3, random_state=0)
    X = np.column_stack([world.X, world.y])
    assert count_latents(X, world.y).value == 3


def test_means_of_environments_are_no_latents():
    X, codes = rows(3, 20, 0.1), np.arange(2000) % 5
    shifts = np.random.default_rng(1).standard_normal((5, 20))
    assert count_latents(X + shifts[codes], codes).value == 3


def test_thousands_of_features_and_few_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 3)) @ rng.standard_normal((3, 2500))
    found = count_latents(X + rng.standard_normal(X.shape))
    assert (found.value, found.check.passed) == (3, True)


def test_a_weak_latent_is_not_seen_and_that_is_said():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((1000, 4)) * [8.0, 2.0, 0.4, 0.05]
    X = Z @ rng.standard_normal((4, 20)) + rng.standard_normal((1000, 20))
    found = count_latents(X)
    assert (found.value, found.check.passed) == (3, False)
    assert "there may be more, too weak to be told from the noise" in found.check.detail


def test_nothing_stands_out():
    found = count_latents(np.random.default_rng(0).standard_normal((500, 12)))
    assert (found.value, found.check.passed) == (1, False)
    assert found.check.detail.startswith("none stands out")


def test_few_features_leave_the_number_open():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 4)) @ rng.standard_normal((4, 4))
    for rows in (X, rng.standard_normal((500, 4))):  # features with nothing in common, too
        found = count_latents(rows)
        assert (found.value, found.check.passed, found.stands_out) == (4, True, False)


def test_factors_that_a_few_features_cannot_contradict_are_warned_of():
    """Four latents without noise, whose covariance is nearly that of one factor and noise."""
    X = make_observational(4, n_samples=1000, graph="y", random_state=1).X
    found = count_latents(X)
    assert (found.value, found.check.passed) == (1, False)
    assert "(2 degrees of freedom), and as many latents as features" in found.check.detail
    with pytest.warns(AssumptionWarning, match=f"{NAME}: fails .*set n_latents"):
        assert ObservationalCRL(random_state=0).fit(X).result_.guarantee.latents == "none"
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionWarning)
        assert ObservationalCRL(4, random_state=0).fit(X).result_.n_latents == 4


@pytest.mark.parametrize(("d", "passed"), [(4, False), (5, True), (8, True)])
def test_one_latent_behind_noise_needs_five_features(d: int, passed: bool):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 1)) + 0.5 * rng.standard_normal((1000, d))
    found = count_latents(X)
    assert (found.value, found.check.passed) == (1, passed)


def test_no_number_explains_many_features():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 12)) @ rng.standard_normal((12, 12))
    with pytest.raises(IdentifiabilityError, match="does not stand out: no number up to 7"):
        PCABaseline().fit(X)
    assert PCABaseline(12).fit(X).result_.n_latents == 12


def test_a_number_that_is_given_stays():
    assert resolve_n_latents(np.eye(3), 2) == (2, (), {})
    assert resolve_n_latents(np.eye(3), None) == (None, (), {})


def noisy(kind: Any = "single-node") -> Dataset:
    return make_noisy_interventional(3, 20, 1000, share=0.2, kind=kind, random_state=0)


def domains() -> Dataset:
    return make_multi_domain(3, 20, 500, random_state=0)


def observed() -> Dataset:
    return make_observational(3, 20, 500, measurement_noise=0.02, random_state=0)


@pytest.mark.parametrize(
    ("model", "make"),
    [
        (LinearInterventionCRL("auto", mechanisms="linear", random_state=0), noisy),
        (LinearInterventionCRL(mechanisms="linear", random_state=0), noisy),
        (MultiNodeCRL(mechanisms="linear", random_state=0), lambda: noisy("multi-node")),
        (ObservationalCRL(n_starts=1, random_state=0), observed),
        (EmpiricalBayesCRL(), domains),
        (PCABaseline(), observed),
        (ICABaseline(random_state=0), observed),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
def test_linear_methods_count_and_keep_the_curve(model: Any, make: Any, tmp_path: Any):
    world = make()
    model.fit(world.X, world.y)
    assert model.result_.n_latents == 3
    (check,) = [check for check in model.result_.checks if check.name == NAME]
    assert check.passed
    model.save(tmp_path / "model.crl")
    kept = load(tmp_path / "model.crl").result_.details["latent_count"]
    for name in ("beside", "changes"):
        np.testing.assert_array_equal(kept[name], model.result_.details["latent_count"][name])


@pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
def test_environments_that_say_another_number():
    world: Any = noisy()
    some = world.y != 2
    settings = {"mechanisms": "linear", "random_state": 0}
    result = LinearInterventionCRL(**settings).fit(world.X[some], world.y[some]).result_
    (check,) = [check for check in result.failed_checks if check.name == NAME]
    assert check.detail.startswith("2 are taken, as environments say; X by itself says 3")
    result = LinearInterventionCRL("auto", **settings).fit(world.X[some], world.y[some]).result_
    failed = [check.name for check in result.failed_checks]
    assert "every latent is intervened on, or in nonlinear mechanisms" in failed
    assert NAME not in failed
    assert result.n_latents == 3
