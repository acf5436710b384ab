"""Posterior means of latents and noises, with measurement noise that is known to be there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crlearn import ObservationalCRL, load
from crlearn.data import make_observational
from crlearn.exceptions import AssumptionWarning
from crlearn.methods.observational._posterior import MechanismsPosterior
from crlearn.metrics import mac_matched, r2


@pytest.fixture(scope="module")
def world() -> Any:
    return make_observational(
        2, 12, 1500, mechanism="norm_squared", measurement_noise=0.4, random_state=3
    )


@pytest.fixture(scope="module")
def model(world: Any) -> Any:
    return ObservationalCRL(2, n_starts=3, random_state=0).fit(world.X)


def test_noise_is_taken_off(model: Any, world: Any):
    assert isinstance(model.result_.encoder, MechanismsPosterior)
    np.testing.assert_allclose(model.result_.details["noise_sds"], 0.4, rtol=0.1)
    noisy = np.linalg.lstsq(world.truth.mixing.matrix, world.X.T, rcond=None)[0].T
    # Latents are found up to layers: what all of them say of each true one.
    assert r2(world.truth.Z, model.transform(world.X)) > r2(world.truth.Z, noisy)
    truth = world.truth.noise
    by_the_true_map = noisy - np.column_stack([0 * noisy[:, 0], (world.truth.Z - truth)[:, 1]])
    assert mac_matched(truth, model.noises(world.X)) > mac_matched(truth, by_the_true_map) - 0.05


def test_intervals_hold_latents_as_often_as_they_say(model: Any, world: Any):
    found = model.posterior(world.X)
    cause = world.truth.Z[:, 0]
    sign = np.sign(np.corrcoef(cause, found.mean[:, 0])[0, 1])
    target = sign * (cause - cause.mean()) / cause.std()
    low, high = found.interval(0.9)
    inside = ((low[:, 0] < target) & (target < high[:, 0])).mean()
    assert 0.85 < inside < 0.95


def test_the_expected_correlation_of_noises_is_what_is_reached(model: Any, world: Any):
    found = model.result_.encoder.posterior_of_noises(world.X)
    seen = found.mean.var(axis=0)
    expected = np.sqrt(seen / (seen + found.variance.mean(axis=0)))
    assert mac_matched(world.truth.noise, found.mean) == pytest.approx(expected.mean(), abs=0.03)
    check = next(c for c in model.result_.checks if c.name.startswith("noises stand out"))
    assert f"correlations of {expected.mean():.2f}" in check.detail


def test_rows_have_one_answer(model: Any, world: Any):
    np.testing.assert_array_equal(model.transform(world.X)[:7], model.transform(world.X[:7]))
    np.testing.assert_array_equal(model.noises(world.X)[:7], model.noises(world.X[:7]))


def test_posteriors_are_saved(model: Any, world: Any, tmp_path: Any):
    model.save(tmp_path / "model.crl")
    again: Any = load(tmp_path / "model.crl")
    np.testing.assert_array_equal(again.transform(world.X), model.transform(world.X))
    np.testing.assert_array_equal(again.noises(world.X), model.noises(world.X))
    np.testing.assert_array_equal(
        again.posterior(world.X).variance, model.posterior(world.X).variance
    )


def test_units_are_readable(model: Any, world: Any):
    # Without noise latents have sd 1; their posterior means vary less.
    total = model.transform(world.X).var(axis=0) + model.posterior(world.X).variance.mean(axis=0)
    np.testing.assert_allclose(total, 1, atol=0.05)


def test_without_noise_nothing_is_taken_off(world: Any):
    clean = replace(world, X=world.truth.mixing(world.truth.Z))
    model: Any = ObservationalCRL(2, n_starts=2, random_state=0).fit(clean.X)
    assert not isinstance(model.result_.encoder, MechanismsPosterior)
    found = model.posterior(clean.X)
    np.testing.assert_array_equal(found.mean, model.transform(clean.X))
    np.testing.assert_array_equal(found.variance, 0)


def test_noise_may_be_left_in(world: Any):
    model: Any = ObservationalCRL(2, noise="none", n_starts=2, random_state=0)
    with pytest.warns(AssumptionWarning) as caught:
        model.fit(world.X)
    assert any("rank of X" in str(warning.message) for warning in caught)
    assert not isinstance(model.result_.encoder, MechanismsPosterior)
    assert "noise_sds" not in model.result_.details


def test_noise_is_one_of_three_words():
    with pytest.raises(ValueError, match="The 'noise' parameter of ObservationalCRL must be"):
        ObservationalCRL(noise="some").fit(np.eye(5))


def counts(extra: float = 0.0) -> Any:
    """Poisson counts of ten features, whose rates are linear in two latents, or more scattered."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2000, 2))
    latents = np.column_stack([noise[:, 0], noise[:, 0] ** 2 + noise[:, 1]])
    rates = np.maximum(2400 + latents @ rng.uniform(-240, 240, (2, 10)), 0)
    scatter = rng.gamma(1 / extra, extra, rates.shape) if extra else 1.0
    return rng.poisson(rates * scatter), noise


def test_counts():
    X, noise = counts()
    model: Any = ObservationalCRL(2, noise="poisson", n_starts=3, random_state=0).fit(X)
    assert not model.result_.failed_checks
    assert any(check.name == "noise is Poisson" for check in model.result_.checks)
    np.testing.assert_allclose(model.result_.details["noise_sds"], np.sqrt(X.mean(axis=0)))
    assert model.layers_ == [[1], [0]]
    assert mac_matched(noise, model.noises(X)) > 0.9


def test_counts_that_scatter_more_are_noticed():
    model = ObservationalCRL(2, noise="poisson", n_starts=2, random_state=0)
    with pytest.warns(AssumptionWarning) as caught:
        model.fit(counts(0.002)[0])
    assert any("noise is Poisson: fails" in str(warning.message) for warning in caught)
