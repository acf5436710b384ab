from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import FactorAnalysis

import crlearn.inputs._factors as factors_module
from crlearn.inputs import Scaling
from crlearn.inputs._factors import (
    Covariances,
    find_factors,
    find_factors_in_noise,
)
from crlearn.inputs._span import can_tell_noise

N_ROWS = 4000


def measured(
    seed: int = 0, *, n_latents: int = 3, n_features: int = 20, each: bool = True
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Three environments of factors behind noise; rows, loadings and noise variances."""
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(n_features, n_latents))
    noise = rng.uniform(0.2, 2, n_features) if each else np.full(n_features, 0.7)
    parts = [
        rng.normal(size=(N_ROWS, n_latents)) * (1 + e * np.eye(n_latents)[e]) @ loadings.T
        + rng.normal(size=(N_ROWS, n_features)) * np.sqrt(noise)
        + e
        for e in range(3)
    ]
    return parts, loadings, noise


def angle(span: np.ndarray, truth: np.ndarray) -> float:
    """Smallest cosine between two spans."""
    own, other = np.linalg.qr(span)[0], np.linalg.qr(truth)[0]
    return float(np.linalg.svd(own.T @ other)[1].min())


@pytest.mark.parametrize("each", [True, False])
def test_span_and_noise_are_found(each: bool):
    parts, loadings, noise = measured(each=each)
    found = find_factors(parts, 3)
    np.testing.assert_allclose(found.noise, noise, rtol=0.1)
    assert angle(found.encoder.matrix.T * found.noise[:, None], loadings) > 0.999


def test_noise_of_the_factors_has_variance_one():
    parts, _, _ = measured()
    found = find_factors(parts, 3)
    encoder = found.encoder.matrix
    np.testing.assert_allclose(encoder @ (found.noise[:, None] * encoder.T), np.eye(3), atol=1e-9)


def test_one_environment_is_factor_analysis():
    (rows, *_), _, _ = measured()
    found = find_factors([rows], 3)
    plain = FactorAnalysis(3, tol=1e-10, max_iter=5000, svd_method="lapack").fit(rows)
    np.testing.assert_allclose(found.noise, plain.noise_variance_, rtol=1e-3)


def test_likelihood_is_that_of_the_gaussian_model():
    parts, _, _ = measured(n_features=8)
    found = find_factors(parts, 2)
    loadings = found.span * np.sqrt(found.noise)[:, None]
    total = 0.0
    for rows in parts:
        covariance = np.cov(rows.T, bias=True)
        inside = found.encoder.matrix @ covariance @ found.encoder.matrix.T - np.eye(2)
        model = loadings @ inside @ loadings.T + np.diag(found.noise)
        trace = np.trace(np.linalg.solve(model, covariance))
        total -= 0.5 * len(rows) * (np.linalg.slogdet(model)[1] + trace)
    assert found.log_likelihood == pytest.approx(total)


def test_many_features_need_no_covariances(monkeypatch: pytest.MonkeyPatch):
    parts, _, _ = measured()
    small = find_factors(parts, 3)
    monkeypatch.setattr(factors_module, "MOST_ENTRIES", 1)
    large = find_factors(parts, 3)
    np.testing.assert_allclose(large.noise, small.noise, rtol=1e-5)
    assert large.largest_outside == pytest.approx(small.largest_outside, rel=0.05)


def test_units_of_features_do_not_matter():
    parts, _, _ = measured()
    units = np.logspace(-3, 3, 20)
    plain = find_factors(parts, 3)
    scaled = find_factors([rows / units for rows in parts], 3, units)
    np.testing.assert_allclose(scaled.noise * units**2, plain.noise, rtol=1e-4)


def test_few_features_have_one_variance():
    assert not can_tell_noise(5, 3)
    parts, _, _ = measured(n_features=5, each=False)
    found = find_factors(parts, 3)
    np.testing.assert_allclose(found.noise, 0.7, rtol=0.1)


def test_a_factor_that_is_missing_or_too_many_is_seen():
    parts, _, _ = measured()
    found = {n: find_factors(parts, n) for n in (1, 2, 3, 4)}
    assert found[3].independence_check().passed
    assert not found[2].independence_check().passed
    assert found[3].visibility_check(found[2]).passed
    assert not found[4].visibility_check(found[3]).passed


def test_factors_that_are_near_are_a_start():
    parts, _, _ = measured()
    covariances = Covariances.of(parts)
    near = find_factors(covariances, 3)
    for n, local in ((2, 0.01), (4, 10)):  # a factor too many has local optima
        found = find_factors(covariances, n, near=near)
        usual = find_factors(covariances, n).log_likelihood
        assert found.log_likelihood == pytest.approx(usual, abs=local)


@pytest.mark.parametrize("most_entries", [factors_module.MOST_ENTRIES, 1])
def test_covariances_of_columns_are_those_of_standardised_rows(
    most_entries: int, monkeypatch: pytest.MonkeyPatch
):
    """A constant column is left out; environments need not be in order."""
    monkeypatch.setattr(factors_module, "MOST_ENTRIES", most_entries)
    parts, _, _ = measured()
    X = np.insert(np.concatenate(parts), 3, 7.0, axis=1)
    codes = np.repeat(np.arange(3), N_ROWS)
    mixed = np.random.default_rng(0).permutation(len(X))
    found = Covariances.of_columns(X[mixed], codes[mixed], Scaling.of(X))
    rows = np.delete(
        (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1), 3, axis=1
    )
    wanted = Covariances.of([rows[codes == e] for e in range(3)])
    assert (found.matrices is None) == (most_entries == 1)
    basis = np.random.default_rng(1).normal(size=(20, 2))
    np.testing.assert_allclose(found.means, wanted.means, atol=1e-12)
    np.testing.assert_allclose(found.diagonals, wanted.diagonals, rtol=1e-10)
    np.testing.assert_allclose(found.along(basis), np.cov((rows @ basis).T, bias=True), rtol=1e-9)
    some = found.of_features(np.array([2, 5]))
    np.testing.assert_allclose(some.along(np.eye(2)), np.cov(rows[:, [2, 5]].T, bias=True))


def test_known_noise_gives_the_same_span():
    parts, loadings, noise = measured()
    found = find_factors_in_noise(Covariances.of(parts), 3, noise)
    assert angle(found.encoder.matrix.T * noise[:, None], loadings) > 0.999
    unknown = find_factors(parts, 3)
    assert (
        angle(found.span * np.sqrt(noise)[:, None], unknown.span * np.sqrt(unknown.noise)[:, None])
        > 0.9999
    )
    assert found.log_likelihood < unknown.log_likelihood
    assert found.log_likelihood == pytest.approx(unknown.log_likelihood, abs=30)


@pytest.mark.parametrize("most_entries", [factors_module.MOST_ENTRIES, 1])
def test_variances_that_are_added_are_those_of_noise(
    most_entries: int, monkeypatch: pytest.MonkeyPatch
):
    """Noise of all environments together, put in the place of their own."""
    monkeypatch.setattr(factors_module, "MOST_ENTRIES", most_entries)
    parts, loadings, noise = measured()
    rng = np.random.default_rng(1)
    own = np.array([noise * rng.uniform(0, 60, len(noise)) for _ in parts])
    louder = [
        rows + rng.normal(size=rows.shape) * np.sqrt(more)
        for rows, more in zip(parts, own, strict=True)
    ]
    plain, corrected = (
        find_factors_in_noise(covariances, 3, noise + own.mean(axis=0))
        for covariances in (
            Covariances.of(louder),
            Covariances.of(louder).plus(own.mean(axis=0) - own),
        )
    )
    unit = np.sqrt(plain.noise)[:, None]
    assert angle(corrected.span * unit, loadings) > angle(plain.span * unit, loadings)
    assert corrected.independence_check().passed


def test_more_is_taken_off_than_there_is():
    """Sampling errors may leave nothing in a direction: numbers stay finite."""
    parts, _, _ = measured()
    few = Covariances.of([rows[:30] for rows in parts])
    found = find_factors_in_noise(few.plus(-3 * few.diagonals), 3, few.diagonals.mean(axis=0))
    assert np.isfinite(found.span).all()
    assert np.isfinite(found.log_likelihood)
