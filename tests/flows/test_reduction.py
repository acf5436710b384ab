from __future__ import annotations

import numpy as np
import pytest

from crlearn.data import Mixing, curved_mixing, smooth_mixing, tanh_mlp_mixing, wide_mlp_mixing
from crlearn.flows import dimension_check, fold_check, folds, intrinsic_dimension


def latents(n: int, n_rows: int = 3000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n_rows, n))


def leading(X: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading principal components of the standardised columns, and their directions in X."""
    scale = X.std(axis=0)
    standardised = (X - X.mean(axis=0)) / scale
    directions = np.linalg.svd(standardised, full_matrices=False)[2][:n]
    return standardised @ directions.T, directions / scale


def share_turned_over(mixing: Mixing, Z: np.ndarray, directions: np.ndarray) -> float:
    positive = (np.linalg.det(directions @ mixing.jacobian(Z)) > 0).mean()
    return float(min(positive, 1 - positive))


def circle(noise: float = 0.0, n_rows: int = 2000) -> np.ndarray:
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, n_rows)
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    return X + noise * rng.normal(size=X.shape)


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_circle_on_a_line_folds(noise: float):
    X = circle(noise)
    check = fold_check(X[:, :1], X)
    assert check.passed is False
    assert "turned over" in check.detail


def test_an_arc_on_a_line_does_not():
    X = circle()
    X = X[X[:, 1] > 0.2]
    assert fold_check(X[:, :1], X).passed is True
    assert fold_check(np.arctan2(X[:, 1:], X[:, :1]), X).passed is True


@pytest.mark.parametrize(
    "mixing",
    [
        wide_mlp_mixing(3, 20, 0, width=64),
        curved_mixing(3, 6, 0, gain=0.5),
        curved_mixing(2, 4, 0, gain=0.5),
    ],
    ids=["wide", "curved-3", "curved-2"],
)
def test_the_share_is_that_of_rows_whose_jacobian_has_the_other_sign(mixing: Mixing):
    Z = latents(mixing.n_latents)
    X = mixing(Z)
    reduced, directions = leading(X, mixing.n_latents)
    found = folds(reduced, X)
    assert found is not None
    wanted = share_turned_over(mixing, Z, directions)
    assert found.share == pytest.approx(wanted, abs=0.08)


@pytest.mark.parametrize(
    "mixing",
    [smooth_mixing(5, 10, 0), tanh_mlp_mixing(5, 10, 0, gain=0.5), smooth_mixing(2, 2, 0)],
    ids=["smooth", "tanh_mlp", "square"],
)
def test_components_of_mild_mixings_do_not_fold(mixing: Mixing):
    X = mixing(latents(mixing.n_latents))
    assert fold_check(leading(X, mixing.n_latents)[0], X).passed is True


def test_noise_that_hides_folds_is_said():
    rng = np.random.default_rng(0)
    X = tanh_mlp_mixing(5, 10, 0, gain=0.5)(latents(5))
    X = X + 0.1 * X.std(axis=0) * rng.normal(size=X.shape)
    check = fold_check(leading(X, 5)[0], X)
    assert check.passed is None
    assert "noise" in check.detail


def test_few_rows_show_no_folds():
    X = circle(n_rows=100)
    assert fold_check(X[:, :1], X).passed is None


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_gaussian_rows_have_their_dimension(n: int):
    assert intrinsic_dimension(latents(n, 2000, seed=3)) == pytest.approx(n, abs=0.3)


def test_units_do_not_matter():
    X = curved_mixing(3, 6, 0)(latents(3))
    stretched = X * np.logspace(-3, 3, 6) + 10
    assert intrinsic_dimension(X) == pytest.approx(intrinsic_dimension(stretched), rel=1e-6)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_mixing_that_keeps_all_latents_passes(n: int):
    for mixing in (curved_mixing(n, 2 * n, 0), smooth_mixing(n, 2 * n, 0)):
        check = dimension_check(mixing(latents(n)), n)
        assert check.passed is True, check
    assert check.name == f"X holds {n} numbers"


@pytest.mark.parametrize("seed", range(3))
def test_a_mixing_that_keeps_three_of_five_latents_is_refused(seed: int):
    Z = latents(5, seed=seed)
    check = dimension_check(curved_mixing(3, 10, seed)(Z[:, :3]), 5)
    assert check.passed is False
    assert "lost some latents" in check.detail


def test_more_latents_than_said_are_seen():
    check = dimension_check(curved_mixing(5, 10, 0)(latents(5)), 2)
    assert check.passed is False
    assert "more latents" in check.detail


def test_rows_that_repeat_do_not_count():
    few = np.repeat(latents(2, 50), 20, axis=0)
    assert dimension_check(few, 2).passed is None
    X = curved_mixing(2, 4, 0)(np.repeat(latents(2, 1000), 2, axis=0))
    assert dimension_check(X, 2).passed is True
