from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.inputs._poisson import Counts, are_counts, check_counts

N_ROWS = 4000


def drawn(
    seed: int = 0, *, mean: float = 5.0, law: str = "poisson", rows: int = N_ROWS
) -> tuple[list[np.ndarray], np.ndarray]:
    """Counts of two latents in three environments, and their loadings."""
    rng = np.random.default_rng(seed)
    loadings = mean * 0.1 * rng.normal(size=(15, 2)).clip(-2, 2)
    parts = []
    for e in range(3):
        Z = rng.normal(size=(rows, 2)) * (1, 1 + e / 2) + (e, 0)
        rates = (mean + Z @ loadings.T).clip(0)
        if law == "negative binomial":
            rates = rng.gamma(20, rates / 20)
        if law == "exposure":
            rates = rates * rng.uniform(0.8, 1.2, (rows, 1))
        binomial = law == "binomial"
        n_trials = np.full(rates.shape, 30)
        parts.append((rng.binomial(n_trials, rates / 30) if binomial else rng.poisson(rates)) * 1.0)
    return parts, loadings


def span_of(counts: Counts, loadings: np.ndarray) -> np.ndarray:
    return np.linalg.qr(loadings / counts.unit[:, None])[0]


def test_whole_numbers_of_at_least_zero_are_counts():
    assert are_counts(np.array([[0.0, 3.0]]))
    assert not are_counts(np.array([[0.0, 0.5]]))
    assert not are_counts(np.array([[-1.0, 3.0]]))
    check_counts(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"Got 1.5 in row 1, column 0.*noise='gaussian'"):
        check_counts(np.array([[1.0, 2.0], [1.5, 0.0]]))


def test_moments_by_hand():
    """One feature's noise in each environment is its mean there over that of all rows."""
    counts = Counts.of([np.array([[1.0, 2.0], [3.0, 2.0]]), np.array([[0.0, 8.0], [4.0, 4.0]])])
    np.testing.assert_allclose(counts.unit**2, [2, 4])
    np.testing.assert_allclose(counts.noise, [[1, 0.5], [1, 1.5]])
    # Variances 1 and 0, less means 2 and 2, over units 2 and 4, and one for the noise.
    np.testing.assert_allclose(counts.covariances.diagonals[0], [1 / 2 - 2 / 2 + 1, -2 / 4 + 1])
    assert counts.covariances.matrices is not None
    # Deviations -2 and 2, 2 and -2: a covariance of -4 over the roots of 2 and 4.
    np.testing.assert_allclose(counts.covariances.matrices[1, 0, 1], -4 / np.sqrt(8))
    span = np.array([[0.6], [0.8]])
    np.testing.assert_allclose(counts.noise_along(span)[:, 0, 0], [0.36 + 0.32, 0.36 + 0.96])


def test_covariances_are_those_of_the_rates_and_one():
    parts, loadings = drawn(rows=100_000)
    counts = Counts.of(parts)
    assert counts.covariances.matrices is not None
    for e, found in enumerate(counts.covariances.matrices):
        scaled = loadings / counts.unit[:, None]
        expected = (scaled * (1, (1 + e / 2) ** 2)) @ scaled.T + np.eye(15)
        np.testing.assert_allclose(found, expected, atol=0.05)


def test_the_span_is_found():
    parts, loadings = drawn()
    counts = Counts.of(parts)
    found = counts.factors(2)
    truth = span_of(counts, loadings)
    assert np.linalg.svd(truth.T @ found.span)[1].min() > 0.99


@pytest.mark.parametrize("mean", [0.3, 5.0, 50.0])
def test_poisson_noise_passes(mean: float):
    p_values = []
    for seed in range(20):
        parts, loadings = drawn(seed, mean=mean, rows=500)
        counts = Counts.of(parts)
        found: Any = counts._dispersion(span_of(counts, loadings))
        p_values.append(found.p_value)
    assert min(p_values) > 1e-3
    assert 0.25 < np.mean(p_values) < 0.75


@pytest.mark.parametrize(
    ("law", "passed"),
    [("poisson", True), ("negative binomial", False), ("exposure", False), ("binomial", False)],
)
def test_other_counts_fail(law: str, passed: bool):
    counts = Counts.of(drawn(law=law)[0])
    check = counts.dispersion_check(counts.factors(2).span)
    assert check.name == "noise is Poisson"
    assert check.passed is passed


def test_nothing_beside_the_latents_tests_nothing():
    parts, _ = drawn()
    counts = Counts.of([part[:, :2] for part in parts])
    assert counts.dispersion_check(counts.factors(2).span).passed is None
