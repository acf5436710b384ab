from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.inputs import read_environments, read_signal

CODES = np.repeat([0, 1, 2], 400)


def world(sd: float) -> np.ndarray:
    """Three latents in ten features, on a constant, and an eleventh that is constant."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(1200, 3)) * np.where(CODES[:, None] == [0, 1, 2], 2.0, 1.0)
    X = 5 + Z @ rng.normal(size=(3, 10)) + sd * rng.normal(size=(1200, 10))
    return np.column_stack([X, np.ones(1200)])


def signal(sd: float, n_latents: int | None = 3, **options: Any) -> Any:
    return read_signal(world(sd), read_environments(CODES), n_latents, 2, **options)


@pytest.mark.parametrize(("noise", "n_latents"), [(0.0, 3), (0.3, 2)])
def test_the_number_of_latents_is_the_rank_if_it_stands_out(noise: float, n_latents: int):
    """Two targets: where noise fills all dimensions, they are the limit."""
    assert signal(noise, None).n_latents == n_latents


def test_exact_mixtures_have_no_noise():
    found = signal(0.0)
    assert found.noise is None
    assert [check.name for check in found.checks] == ["columns vary", "rank of X"]
    assert all(check.passed for check in found.checks)


def test_noise_is_measured_where_x_fills_all_dimensions():
    found = signal(0.3)
    assert found.noise is not None
    np.testing.assert_allclose(found.feature_noise[:-1], 0.3, rtol=0.1)
    assert found.feature_noise[-1] == 0
    rows = found.encoder(world(0.3))
    assert found.noise.shape == (3, 3, 3)
    for noise in found.noise:
        np.testing.assert_allclose(np.cov(rows.T) - noise, np.eye(3), atol=0.01)
    assert all(check.passed for check in found.checks)


@pytest.mark.parametrize("n_latents", [3, None, "auto"])
def test_columns_that_only_differ_between_environments_are_left_out(n_latents: Any):
    X, environments = world(0.3), read_environments(CODES)
    found: Any = read_signal(np.column_stack([CODES, X]), environments, n_latents, 3)
    without: Any = read_signal(X, environments, n_latents, 3)
    assert (found.encoder.matrix[:, 0] == 0).all()
    np.testing.assert_allclose(found.feature_noise, np.insert(without.feature_noise, 0, 0.0))


@pytest.mark.parametrize("n_latents", [3, "auto"])
def test_totals_and_repeated_columns_make_no_exact_mixture(n_latents: Any):
    """Sums of noisy columns have no noise of their own: one of those that combine is left out."""
    X = world(0.3)
    wider = np.column_stack([X, X[:, 4], X[:, :10].sum(axis=1)])
    found = read_signal(wider, read_environments(CODES), n_latents, 2)
    without = read_signal(X, read_environments(CODES), n_latents, 2)
    assert found.n_latents == without.n_latents
    assert all(check.passed for check in found.checks)
    said = next(check for check in found.checks if check.name == "columns have noise of their own")
    assert "2 of 13 columns" in said.detail
    assert found.encoder.matrix[:, 12].tolist() == [0, 0, 0]
    assert (found.encoder.matrix[:, [4, 11]] == 0).all(axis=0).sum() == 1
    agreement = np.corrcoef(found.encoder(wider).T, without.encoder(X).T)[:3, 3:]
    np.testing.assert_allclose(np.abs(agreement).max(axis=0), 1, atol=1e-6)


def test_exact_mixtures_of_nearly_as_many_latents_as_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 8)) @ rng.normal(size=(8, 10))
    found = read_signal(X, read_environments(CODES), "auto", 2)
    assert found.n_latents == 8
    assert found.noise is None


def test_noise_may_be_left_in():
    found = signal(0.3, noise="none")
    assert found.noise is None
    assert [check.name for check in found.checks if not check.passed] == ["rank of X"]


def test_too_few_latents_are_no_noise():
    """Two of the three directions of exact features: the third one is none."""
    found = signal(0.0, 2)
    assert found.noise is None
    assert [check.name for check in found.checks if not check.passed] == ["rank of X"]


def test_noise_that_cannot_be_told_is_said():
    found = signal(0.0, noise="gaussian")
    (check,) = [check for check in found.checks if check.name == "measurement noise"]
    assert check.passed is None
    X = world(0.3)[:, :3]
    found = read_signal(X, read_environments(CODES), 3, 2, "gaussian")
    (check,) = [check for check in found.checks if check.name == "measurement noise"]
    assert "no more features than latents" in check.detail


ORDER = np.array([2, 0, 1])


def counts(mean: float = 60.0, n_features: int = 12) -> Any:
    """Counts of three latents, one of them far off in one environment; rates are returned, too."""
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], 4000)
    Z = rng.normal(size=(12_000, 3)) * np.where(codes[:, None] == [0, 1, 2], 2.0, 1.0)
    Z[codes == 1, 0] += 4
    rates = mean * (1 + 0.08 * Z @ rng.normal(size=(3, n_features)).clip(-1, 1)).clip(0)
    return rng.poisson(rates).astype(float), codes, rates


def poisson(X: Any, codes: Any, n_latents: Any = 3) -> Any:
    return read_signal(X, read_environments(codes, fewest=1), n_latents, 2, "poisson")


def test_noise_of_counts_is_known_in_each_environment():
    X, codes, rates = counts()
    found = poisson(X, codes)
    matrix = found.encoder.matrix
    np.testing.assert_allclose(found.feature_noise, np.sqrt(X.mean(axis=0)))
    for e in range(3):
        own = matrix @ np.diag(X[codes == e].mean(axis=0)) @ matrix.T
        np.testing.assert_allclose(found.noise[e], own, atol=1e-9)
        signal = np.cov(found.encoder(rates[codes == e]).T)
        total = np.cov(found.encoder(X[codes == e]).T)
        np.testing.assert_allclose(total - found.noise[e], signal, atol=0.15)
    assert np.abs(found.noise[0] - found.noise[1]).max() > 0.02
    np.testing.assert_array_equal(found.noise_in(ORDER), found.noise[ORDER])
    assert all(check.passed for check in found.checks)


def test_latents_of_counts_are_white_without_noise():
    X, codes, _ = counts()
    found = poisson(X, codes)
    pooled = found.noise.mean(axis=0)
    np.testing.assert_allclose(np.cov(found.encoder(X).T) - pooled, np.eye(3), atol=0.01)


def test_counts_of_a_single_environment():
    X, codes, _ = counts()
    found = poisson(X[codes == 0], np.zeros(4000, dtype=int))
    assert found.noise.shape == (1, 3, 3)
    assert all(check.passed for check in found.checks)


def test_latents_behind_counts_are_counted():
    X, codes, _ = counts()
    assert poisson(X, codes, "auto").n_latents == 3


def test_as_many_latents_as_counts_have_a_known_noise():
    X, codes, _ = counts(n_features=3)
    found = poisson(X, codes)
    (check,) = [check for check in found.checks if check.name == "noise is Poisson"]
    assert check.passed is None
    own = found.encoder.matrix @ np.diag(X[codes == 1].mean(axis=0)) @ found.encoder.matrix.T
    np.testing.assert_allclose(found.noise[1], own, atol=1e-9)


def test_counts_with_estimated_noise_are_told_of_the_other():
    X, codes, _ = counts()
    for wanted, n_hints in (("auto", 1), ("gaussian", 0)):
        found = read_signal(X, read_environments(codes), 3, 2, wanted)  # type: ignore[arg-type]
        assert sum(check.name == "X holds counts" for check in found.checks) == n_hints


def test_what_is_no_count_is_refused():
    X, codes, _ = counts()
    for wrong in (-1.0, 0.5):
        X[7, 2] = wrong
        with pytest.raises(ValueError, match=rf"noise='poisson'.*Got {wrong:g} in row 7, column 2"):
            poisson(X, codes)
