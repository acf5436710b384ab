from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from crlearn.methods._observational_checks import (
    determination_check,
    luck_of_a_gaussian,
    nonlinearity_check,
)
from crlearn.result import Alternative


@dataclass(frozen=True)
class FakeFit:
    score: float = 500.0
    n_latents: int = 4

    @property
    def H(self) -> Any:  # noqa: N802
        return np.eye(self.n_latents)


def fit(*args: Any, **options: Any) -> Any:
    return FakeFit(*args, **options)


def test_a_gain_that_luck_could_give_is_none():
    luck = luck_of_a_gaussian(4)
    assert 10 < luck < 20
    assert luck_of_a_gaussian(2) < luck < luck_of_a_gaussian(10)
    assert nonlinearity_check(fit(luck + 1)).passed
    check = nonlinearity_check(fit(luck - 1))
    assert check.passed is False
    assert f"gain {luck - 1:.1f} nats over a Gaussian" in check.detail
    assert "cannot be recovered from observational data" in check.detail
    assert nonlinearity_check(fit(0.0, n_latents=1)).passed is None


def other(gap: float, agreement: float) -> Alternative:
    return Alternative(np.zeros((4, 4), dtype=bool), None, gap, agreement)


@pytest.mark.parametrize(("gap", "passed"), [(4.9, False), (5.1, True)])
def test_another_answer_within_five_nats_leaves_the_structure_open(gap: float, passed: bool):
    twin, far = other(0.1, 0.99), other(30.0, 0.2)
    check = determination_check(fit(), (twin, far, other(np.float64(gap), 0.6)))
    assert check.passed is passed  # only False itself is reported
    assert "agreement of noises 0.60, below 0.9" in check.detail
    assert f"{gap} nats behind, and 5 are asked for" in check.detail
    assert "500.0 nats better than a Gaussian" in check.detail
    assert ("result_.alternatives" in check.detail) is not passed


def test_structures_that_agree_leave_nothing_open():
    check = determination_check(fit(), (other(0.1, 0.95),))
    assert check.passed
    assert "all 1 competing structures" in check.detail
    assert determination_check(fit(n_latents=1), ()).passed is None
