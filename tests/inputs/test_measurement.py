from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_multi_domain
from crlearn.exceptions import IdentifiabilityError
from crlearn.inputs._measurement import common_span, measure


@pytest.fixture(scope="module")
def world() -> Any:
    return make_multi_domain(n_latents=3, n_features=30, n_samples=1000, random_state=0)


def distance(span: Any, mixing: Any) -> float:
    """How far the columns of the mixing lie outside the span."""
    return float(((mixing - span @ (span.T @ mixing)) ** 2).sum())


def test_span_and_noise_variance(world: Any):
    found = measure(world.X, 3)
    assert found.noise_variance * found.unit**2 == pytest.approx(2, rel=0.02)
    assert distance(found.span, world.truth.mixing.matrix) < 0.005
    assert all(check.passed for check in found.noise_checks())


def test_environments_make_the_span_more_precise():
    errors = []
    for seed in range(5):
        world: Any = make_multi_domain(
            n_features=60, n_samples=500, intervened_mean=0, observational=True, random_state=seed
        )
        plain = measure(world.X, 4)
        refined = common_span(plain.rows, world.y, plain.span, plain.noise_variance)
        np.testing.assert_allclose(refined.T @ refined, np.eye(4), atol=1e-10)
        errors.append([distance(span, world.truth.mixing.matrix) for span in (plain.span, refined)])
    plain_error, refined_error = np.mean(errors, axis=0)
    assert refined_error < 0.99 * plain_error


def test_more_features_than_rows(world: Any):
    few = measure(world.X[::150], 3)
    assert few.span.shape == (30, 3)
    np.testing.assert_allclose(few.span.T @ few.span, np.eye(3), atol=1e-10)


def test_what_is_known_is_used(world: Any):
    mixing = world.truth.mixing.matrix
    found = measure(world.X, 3, noise_variance=2.5, mixing=mixing)
    assert found.noise_variance * found.unit**2 == pytest.approx(2.5)
    assert distance(found.span, mixing) < 1e-20


def test_noise_that_is_not_alike_is_noticed(world: Any):
    X = world.X.copy()
    X[:, 0] += 6 * np.random.default_rng(0).standard_normal(len(X))
    checks = {check.name: check.passed for check in measure(X, 3).noise_checks()}
    assert checks["measurement noise"] is False


def test_latents_below_the_noise_are_noticed(world: Any):
    checks = {check.name: check.passed for check in measure(world.X, 4).noise_checks()}
    assert checks["latents stand out from the noise"] is False


def test_without_noise_there_is_nothing_to_test():
    Z = np.random.default_rng(0).standard_normal((50, 2))
    found = measure(Z @ np.ones((2, 5)) + Z @ np.eye(2, 5), 2)
    assert found.noise_variance == 0
    assert found.noise_checks()[0].passed is None


def test_giant_latents_are_noticed(world: Any):
    found = measure(world.X, 3)
    assert found.range_check(found.rows @ found.span).passed
    assert not found.range_check(found.rows @ found.span * 1e7).passed


def test_rows_that_have_run_away_are_named(world: Any):
    X = world.X.copy()
    X[:300] += 1e20 * np.arange(1, 301)[:, None]
    message = r"run away: X reaches 3.0e\+22, and 300 of its 3000 rows .* leaves 1 of the 3"
    with pytest.raises(IdentifiabilityError, match=message):
        measure(X, 3)


def test_more_latents_than_the_rank():
    with pytest.raises(IdentifiabilityError, match="rank of X, which is 1"):
        measure(np.outer(np.arange(10.0), np.ones(4)), 2)


def test_thousands_of_features(monkeypatch: pytest.MonkeyPatch):
    world: Any = make_multi_domain(n_latents=3, n_features=1100, n_samples=400, random_state=0)
    found = measure(world.X, 3)
    monkeypatch.setattr("crlearn.inputs._components.LARGEST_EXACT", 10**9)
    wanted = measure(world.X, 3)
    assert len(found.eigenvalues) < len(wanted.eigenvalues)
    assert distance(found.span, wanted.span) < 1e-12
    assert found.noise_variance == pytest.approx(wanted.noise_variance, rel=1e-10)
    assert [check.passed for check in found.noise_checks()] == [
        check.passed for check in wanted.noise_checks()
    ]


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_numbers_whose_squares_are_none_are_refused_unless_scaled(world: Any, scale: float):
    with pytest.raises(ValueError, match=r"between 1e-153 and 1e\+153 in size. Got numbers up to"):
        measure(world.X * scale, 3)
    plain, scaled = measure(world.X, 3, scale=True), measure(world.X * scale, 3, scale=True)
    assert scaled.noise_variance == pytest.approx(plain.noise_variance)
