from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from crlearn.methods.observational._checks import (
    directions_check,
    luck_of_a_gaussian,
    noise_checks,
    nonlinearity_check,
    of_tied_latents,
    tied_by_bends,
)
from crlearn.result import Guarantee


@dataclass(frozen=True)
class FakeFit:
    score: float = 500.0
    n_latents: int = 4
    adjacency: Any = None
    parameters: Any = ()  # shapes: a fit with Gaussian noise
    straight_p_values: Any = None

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


def of_edges(*edges: tuple[int, int], p_values: Any = None, n: int = 3, **options: Any) -> Any:
    adjacency = np.zeros((n, n), dtype=bool)
    adjacency[tuple(np.transpose(edges))] = True
    given = None if p_values is None else np.array(p_values)
    return fit(n_latents=n, adjacency=adjacency, straight_p_values=given, **options)


@pytest.mark.parametrize(
    ("found", "tied"),
    [
        (of_edges((0, 1), (1, 2), p_values=[0, 0, 0]), [True, True, True]),
        (of_edges((0, 1), p_values=[0, 0, 0]), [True, True, False]),
        (of_edges((0, 1), (1, 2), p_values=[0, 0, 0.5]), [True, True, False]),
        (of_edges((0, 1), (1, 2), p_values=[0, 0.5, 0]), [False, False, True]),
        (of_edges((0, 1), (0, 2), p_values=[0, 0.5, 0]), [True, False, True]),
        (of_edges((0, 1)), [True, True, False]),  # behind measurement noise
    ],
)
def test_latents_that_nonlinear_effects_tie_to_others(found: Any, tied: list[bool]):
    assert tied_by_bends(found).tolist() == tied


FULL = Guarantee("layers", "layers", "each latent up to layers")


def test_the_guarantee_is_that_of_the_latents_that_bends_tie():
    found = of_edges((0, 1), (0, 2), p_values=[0, 0, 0.5])
    (check,) = directions_check(found)
    assert check.passed is False
    assert check.detail.endswith("of z2: z2 may be in any layer")
    left = of_tied_latents(FULL, found).given([check])
    assert (left.latents, left.graph) == ("span", "none")
    assert left.text.startswith("of z0, z1 alone: each latent up to layers.")
    assert "mixed with z2" in left.text


def test_a_latent_that_stands_alone_is_named():
    """It could be a linear effect, or one of several that are proportional."""
    found = of_edges((0, 1), p_values=[0, 0, 0])
    (check,) = directions_check(found)
    assert check.passed is None
    assert check.detail.startswith("no nonlinear effect on or of z2,")
    left = of_tied_latents(FULL, found).given([check])
    assert (left.latents, left.graph) == ("layers", "layers")
    assert "This is seen of z0, z1; that z2 is in the last layer holds if" in left.text


def test_all_bent_mechanisms_leave_the_guarantee_as_it_is():
    for p_values in ([0, 0, 1e-5], None):
        found = of_edges((0, 1), (1, 2), p_values=p_values)
        (check,) = directions_check(found)
        assert check.passed
        assert of_tied_latents(FULL, found) is FULL
    alone = fit(n_latents=1, adjacency=np.zeros((1, 1), dtype=bool))
    assert directions_check(alone)[0].passed
    assert of_tied_latents(FULL, alone) is FULL


def test_nothing_is_guaranteed_where_no_bend_is_seen():
    found = of_edges((0, 1), (1, 2), p_values=[0, 0.5, 0.01])
    assert not tied_by_bends(found).any()
    assert of_tied_latents(FULL, found).given(directions_check(found)).latents == "none"


def test_linear_mechanisms_are_allowed_where_noises_are_not_gaussian():
    found = of_edges((0, 1), parameters={})
    assert directions_check(found) == ()


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
