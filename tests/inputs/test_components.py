from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.inputs import Scaling, check_columns, leading_components, whitening
from crlearn.inputs import _components as components

SHAPE = (2000, 1500)


@pytest.fixture(scope="module")
def low_rank() -> Any:
    rng = np.random.default_rng(0)
    scales = np.linspace(1, 3, 8)
    X = (scales * rng.standard_normal((SHAPE[0], 8))) @ rng.standard_normal((8, SHAPE[1]))
    return 100 * rng.random(SHAPE[1]) + X


def largest_angle(first: Any, second: Any) -> float:
    """Largest principal angle between the spans of two matrices' rows, in radians."""
    one, other = (np.linalg.qr(matrix.T)[0] for matrix in (first, second))
    outside = other - one @ (one.T @ other)
    return float(np.linalg.norm(outside, 2))


def exactly(X: Any, n: int | None, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(components, "LARGEST_EXACT", 10**9)
        return whitening(X, n)


@pytest.mark.parametrize("n_latents", [None, 8])
def test_the_span_is_that_of_the_whole_eigenproblem(
    low_rank: Any, n_latents: int | None, monkeypatch: pytest.MonkeyPatch
):
    found, checks = whitening(low_rank, n_latents)
    wanted, checks_then = exactly(low_rank, n_latents, monkeypatch)
    assert found.matrix.shape == wanted.matrix.shape == (8, SHAPE[1])
    assert largest_angle(found.matrix, wanted.matrix) < 1e-6
    np.testing.assert_allclose(found(low_rank), wanted(low_rank), atol=1e-6)
    assert checks == checks_then


def test_components_that_stand_out_from_noise(low_rank: Any, monkeypatch: pytest.MonkeyPatch):
    X = low_rank + 2 * np.random.default_rng(1).standard_normal(SHAPE)
    found, checks = whitening(X, 8)
    wanted, _ = exactly(X, 8, monkeypatch)
    assert largest_angle(found.matrix, wanted.matrix) < 1e-6
    assert "rank 18 or more" in checks[1].detail


def test_the_variance_beside_the_components_is_known(low_rank: Any):
    X = low_rank - low_rank.mean(axis=0) + 2 * np.random.default_rng(1).standard_normal(SHAPE)
    found = leading_components(lambda basis: X.T @ (X @ basis) / len(X), SHAPE, 8)
    wanted = np.linalg.svd(X, compute_uv=False) ** 2 / len(X)
    assert found is not None
    np.testing.assert_allclose(found.variances[:8], wanted[:8], rtol=1e-10)
    assert found.variances[8] == pytest.approx(wanted[8], rel=0.01)


def test_noise_alone_is_left_to_the_whole_eigenproblem():
    X = np.random.default_rng(0).standard_normal((1200, 1100))
    product = lambda basis: X.T @ (X @ basis) / len(X)  # noqa: E731
    assert leading_components(product, X.shape, None) is None
    assert check_columns(X, Scaling.of(X))[0] == 1100


def test_more_columns_than_rows(low_rank: Any, monkeypatch: pytest.MonkeyPatch):
    X = low_rank.T - low_rank.T.mean(axis=0)
    found, wanted = whitening(X, None)[0], exactly(X, None, monkeypatch)[0]
    assert largest_angle(found.matrix, wanted.matrix) < 1e-6


def test_same_data_same_bits(low_rank: Any):
    first, again = (whitening(low_rank, 8)[0].matrix for _ in range(2))
    np.testing.assert_array_equal(first, again)
