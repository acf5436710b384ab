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
    np.testing.assert_allclose(np.cov(rows.T) - found.noise, np.eye(3), atol=0.01)
    assert all(check.passed for check in found.checks)


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
