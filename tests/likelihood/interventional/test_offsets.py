from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn import LinearInterventionCRL
from crlearn.data import make_broken
from crlearn.likelihood import Fit, pools_of
from crlearn.likelihood.interventional._offsets import moved_back
from crlearn.metrics import evaluate


def test_environments_are_moved_back():
    """A parabola tells how far child and parent were moved."""
    rng = np.random.default_rng(0)
    shifts = np.array([[0.0, 0.0], [0.0, 0.4], [0.5, -0.3]])
    pool = pools_of(np.array([0, 1]), 2)
    rows = []
    for e, shift in enumerate(shifts):
        cause = rng.standard_normal(2000) * (0.5 if e == 1 else 1.0)
        effect = (cause**2 if e < 2 else 0.0) + 0.3 * rng.standard_normal(2000)
        rows.append(np.column_stack([cause, effect]) + shift)
    found = moved_back(rows, Fit(np.eye(2), ((), (0,)), 0.0, pool=pool))
    taken = np.array([(each - now)[0] for each, now in zip(rows, found, strict=True)])
    assert taken[0] == pytest.approx(0)
    assert taken[1] == pytest.approx(shifts[1], abs=0.1)
    assert taken[2, 0] == pytest.approx(shifts[2, 0], abs=0.1)  # the effect is cut off there


def test_shifted_means_with_curved_mechanisms():
    clean, moved = (
        make_broken(5, 20, 2000, broken=broken, mechanism="quadratic", random_state=0)
        for broken in ("nothing", "batches")
    )
    model: Any = LinearInterventionCRL(5, random_state=0).fit(moved.X, moved.y)
    assert evaluate(model, clean.environment(0))["mcc"] > 0.99
    assert "means of environments" in {check.name for check in model.result_.checks}
