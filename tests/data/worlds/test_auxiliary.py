from __future__ import annotations

import numpy as np
import pytest

from crlearn.data.worlds._auxiliary import Gate, SmoothFunction, uniform_rows


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("dimension", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_functions_fill_their_range(dimension, seed):
    values = SmoothFunction.random(dimension, (-2.0, 3.0), rng(seed))(
        uniform_rows(5000, dimension, rng(9))
    )
    assert -2 <= values.min() < -1.5
    assert 2.5 < values.max() <= 3


def test_functions_are_smooth():
    function = SmoothFunction.random(1, (0.0, 1.0), rng())
    values = function(np.linspace(-1, 1, 2001)[:, None])
    assert np.abs(np.diff(values)).max() < 0.02


@pytest.mark.parametrize("quiet", [0.1, 0.3, 0.7])
def test_gates_are_closed_on_a_share_and_open_elsewhere(quiet):
    factors = Gate.random(2, quiet, rng())(uniform_rows(20_000, 2, rng(1)))
    assert np.mean(factors == 0) == pytest.approx(quiet, abs=0.03)
    assert np.mean(factors == 1) == pytest.approx((1 - quiet) / 2, abs=0.03)
    assert factors.min() == 0
    assert factors.max() == 1


def test_a_gate_that_is_quiet_everywhere_never_opens():
    assert not Gate.random(1, 1.0, rng())(uniform_rows(20_000, 1, rng(1))).any()
