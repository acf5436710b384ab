from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from crlearn.methods.observational._checks import (
    luck_of_a_gaussian,
    noise_checks,
    nonlinearity_check,
)


@dataclass(frozen=True)
class FakeFit:
    score: float = 500.0
    n_latents: int = 4
    adjacency: Any = None
    parameters: Any = ()  # shapes: a fit with Gaussian noise

    @property
    def H(self) -> Any:  # noqa: N802
        return np.eye(self.n_latents)


def fit(*args: Any, **options: Any) -> Any:
    return FakeFit(*args, **options)


def test_a_gain_that_luck_could_give_is_none():
    luck = luck_of_a_gaussian(4)
    assert 5 < luck < 10
    assert luck_of_a_gaussian(2) < luck < luck_of_a_gaussian(10)
    assert nonlinearity_check(fit(luck + 1)).passed
    check = nonlinearity_check(fit(luck - 1))
    assert check.passed is False
    assert f"gain {luck - 1:.1f} nats over a Gaussian" in check.detail
    assert "cannot be recovered from observational data" in check.detail
    alone = nonlinearity_check(fit(0.0, n_latents=1))
    assert alone.passed
    assert "no mechanism to show" in alone.detail


N_ROWS = 2000
CHAIN = np.array([[False, True], [False, False]])


def drawn(noise: str, seed: int = 0) -> tuple[Any, Any]:
    """Return a cause and its effect, and their noises, all of variance one."""
    rng = np.random.default_rng(seed)
    shape = (N_ROWS, 2)
    noises = {
        "gaussian": rng.normal(size=shape),
        "laplace": rng.laplace(size=shape) / np.sqrt(2),
        "uniform": rng.uniform(-np.sqrt(3), np.sqrt(3), size=shape),
        "skewed": rng.exponential(size=shape) - 1,
    }[noise]
    return np.column_stack([noises[:, 0], noises[:, 0] ** 2 + noises[:, 1]]), noises


@pytest.mark.parametrize("noise", ["laplace", "uniform", "skewed"])
def test_noise_of_another_shape_is_not_gaussian(noise: str):
    shape, independence = noise_checks(fit(adjacency=CHAIN), *drawn(noise))
    assert shape.passed is False
    assert "other noise is taken for effects" in shape.detail
    assert independence.passed


def test_gaussian_noise_is_seldom_taken_for_another():
    """At a level of one in a thousand, two of eighty are as rare as one in 300."""
    rejected = [
        check.name
        for seed in range(40)
        for check in noise_checks(fit(adjacency=CHAIN), *drawn("gaussian", seed))
        if not check.passed
    ]
    assert len(rejected) <= 1


def test_noise_that_grows_with_its_cause_depends_on_it():
    latents, noises = drawn("gaussian")
    noises[:, 1] *= np.abs(noises[:, 0])
    check = noise_checks(fit(adjacency=CHAIN), latents, noises)[1]
    assert check.passed is False
    assert "of the square of the noise of z1" in check.detail


def test_noise_that_shifts_with_its_cause_depends_on_it():
    latents, noises = drawn("gaussian")
    noises[:, 1] += 0.2 * noises[:, 0]
    check = noise_checks(fit(adjacency=CHAIN), latents, noises)[1]
    assert check.passed is False
    assert "of the noise of z1" in check.detail


def test_noise_may_depend_on_what_it_causes():
    """Latents below a noise are made of it."""
    latents, noises = drawn("gaussian")
    reverse = noise_checks(fit(adjacency=CHAIN.T), latents, noises)[1]
    assert noise_checks(fit(adjacency=CHAIN), latents, noises)[1].passed
    assert reverse.passed is False
    assert "z0" in reverse.detail


def test_a_single_noise_has_nothing_to_depend_on():
    _, noises = drawn("gaussian")
    one = fit(n_latents=1, adjacency=np.zeros((1, 1), dtype=bool))
    shape, independence = noise_checks(one, noises[:, :1], noises[:, :1])
    assert shape.passed
    assert independence.passed
    assert "nothing to depend on" in independence.detail
