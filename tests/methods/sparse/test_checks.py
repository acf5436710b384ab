from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.methods.sparse._activity import Activity, Components, blocks_of
from crlearn.methods.sparse._checks import (
    exclusion_check,
    filling_check,
    gaussian_check,
    guarantee_of,
    latent_checks,
    number_check,
    stability_check,
    switching_check,
)
from crlearn.result import Check

Latents = tuple[np.ndarray, np.ndarray]


def switching(
    n_rows: int = 6000, share: float = 0.6, noise: Any = None, sets: Any = None
) -> Latents:
    """Return three latents that are 0 where they are off, and which are on."""
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((n_rows, 3)) if noise is None else noise(rng, (n_rows, 3))
    on = rng.random((n_rows, 3)) < share
    if sets is not None:
        on = np.array(sets, dtype=bool)[rng.integers(len(sets), size=n_rows)]
    return np.where(on, drawn, 0.0), on


def sets_of(on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sets of latents that are on together, the most frequent first, and that of rows."""
    sets, codes, counts = np.unique(on, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-counts)
    return sets[order], np.argsort(order)[codes.ravel()]


def test_latents_that_switch_off():
    Z, _ = switching()
    assert switching_check(Activity.of(Z, np.zeros(3))).passed


@pytest.mark.parametrize("shape", ["gaussian", "laplace", "two scales"])
def test_latents_that_do_not(shape: str):
    rng = np.random.default_rng(0)
    Z = {
        "gaussian": rng.normal(size=(6000, 1)),
        "laplace": rng.laplace(size=(6000, 1)),
        "two scales": rng.normal(size=(6000, 1)) * np.where(np.arange(6000) % 2, 0.5, 1)[:, None],
    }[shape]
    check = switching_check(Activity.of(Z, np.zeros(1)))
    assert not check.passed
    assert "z0" in check.detail


def test_components_fill_their_span():
    Z, on = switching()
    assert filling_check(Z, *sets_of(on), seed=0).passed


def test_components_in_two_bases():
    """Half of the rows lie on the diagonals of the first two latents."""
    Z, _ = switching(share=0.4)
    half = np.arange(len(Z)) % 2 == 0
    angle = np.pi / 4
    turn = np.eye(3)
    turn[:2, :2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    turned = np.where(half[:, None], Z @ turn, Z)
    check = filling_check(turned, *sets_of(np.abs(turned) > 1e-9), seed=0)
    assert check.passed is False


def test_a_component_needs_rows():
    Z, on = switching(n_rows=50)
    assert filling_check(Z, *sets_of(on), seed=0).passed is None


def test_gaussian_latents():
    assert gaussian_check(*switching()).passed
    skewed = switching(noise=lambda rng, shape: rng.exponential(size=shape) - 1)
    assert not gaussian_check(*skewed).passed


def test_latents_that_exclude_each_other_and_are_alike():
    """Crossing lines: upper halves of two lines may be exchanged."""
    alike = switching(sets=np.eye(3))
    assert not exclusion_check(*alike).passed


def test_latents_that_exclude_each_other_and_differ():
    """The third is on with the first only."""
    check = exclusion_check(*switching(sets=[[1, 0, 1], [0, 1, 0], [1, 0, 0]]))
    assert check.passed
    assert check.detail.startswith("2 pairs")


def test_latents_that_meet_need_not_differ():
    assert exclusion_check(*switching()).detail.startswith("0 pairs")


def test_hyperplanes_are_found_again():
    Z, _ = switching()
    assert stability_check(Z, ((0,), (1,), (2,)), seed=1).passed
    mixed = Z @ np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert not stability_check(mixed, ((0,), (1,), (2,)), seed=1).passed
    assert stability_check(mixed, ((0, 1), (2,)), seed=1).passed


def test_nothing_else_is_checked_of_latents_that_never_switch_off():
    Z = np.random.default_rng(0).normal(size=(2000, 2))
    components = Components.of(Z, Activity.of(Z, np.zeros(2)))
    checks = latent_checks(Z, components, blocks_of(components), seed=0)
    assert [check.name for check in checks] == ["latents switch off"]


def check_of(name: str, *, passed: bool) -> Check:
    return Check(name, passed, "made up")


def test_levels_of_the_guarantee():
    good = check_of("latents switch off", passed=True)
    assert guarantee_of("affine", ((0,), (1,)), [good]).latents == "scale"
    in_blocks = guarantee_of("affine", ((0, 1), (2,)), [good])
    assert in_blocks.latents == "blocks"
    assert "z0, z1." in in_blocks.text
    never_off = check_of("latents switch off", passed=False)
    other_basis = check_of("rows of a component fill its span", passed=False)
    for failed, level in ((never_off, "span"), (other_basis, "components")):
        guarantee = guarantee_of("piecewise_affine", ((0,), (1,)), [failed])
        assert guarantee.latents == level
        assert guarantee.given([failed]).latents == level


def test_numbers_of_latents_in_words():
    assert number_check(None, 3, 3).detail == "as many as X has dimensions asked for, 3 looked for"
    assert "20 asked for, 10 looked for, 5 of which are never on" in number_check(20, 10, 5).detail
