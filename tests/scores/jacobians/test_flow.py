from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.config import config_context
from crlearn.scores import FlowJacobians

RNG = np.random.default_rng(0)
BENT = RNG.normal(size=(3000, 2))
BENT[:, 1] = 0.5 * BENT[:, 1] + BENT[:, 0] ** 2


def small(**parameters: Any) -> FlowJacobians:
    settings: dict[str, Any] = {"n_layers": 2, "width": 8, "n_steps": 400, "batch_size": 256}
    return FlowJacobians(**{**settings, "learning_rate": 1e-2, "random_state": 0, **parameters})


def test_curvature_where_it_is_known():
    # log p = -z0^2 / 2 - 2 (z1 - z0^2)^2: its curvature along z1 is -4 everywhere.
    scores, jacobians = small(n_layers=4, width=16).fit(BENT).evaluate(BENT[:1000])
    residual = BENT[:1000, 1] - BENT[:1000, 0] ** 2
    inside = (np.abs(BENT[:1000, 0]) < 1) & (np.abs(residual) < 0.7)
    assert np.abs(np.median(jacobians[inside, 1, 1]) + 4) < 0.8
    wanted = -4 * residual[inside]
    assert np.corrcoef(scores[inside, 1], wanted)[0, 1] > 0.95
    slope = np.corrcoef(jacobians[inside, 0, 1], 8 * BENT[:1000][inside, 0])[0, 1]
    assert slope > 0.9


def test_jacobians_are_symmetric_slopes_of_the_scores():
    with config_context(precision="float64"):
        fitted = small(n_steps=20).fit(BENT)
        step = 1e-4
        jacobians = fitted.evaluate(BENT[:4])[1]
        for i, move in enumerate(step * np.eye(2)):
            ahead, behind = (fitted.evaluate(BENT[:4] + s * move)[0] for s in (1, -1))
            np.testing.assert_allclose(jacobians[:, i], (ahead - behind) / (2 * step), atol=1e-5)


def test_one_variable_is_gaussian():
    scores, jacobians = (
        small(n_layers=1, n_steps=100).fit(2 * BENT[:, :1] + 1).evaluate([[1.0], [3.0]])
    )
    np.testing.assert_allclose(jacobians[:, 0, 0], -0.25, atol=0.03)
    np.testing.assert_allclose(scores[:, 0], [0.0, -0.5], atol=0.05)


def test_same_seed_same_bits():
    with config_context(precision="float64"):
        first, again = (small(n_steps=20).fit(BENT).evaluate(BENT[:5])[1] for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_bad_input():
    with pytest.raises(ValueError, match="not fitted yet"):
        FlowJacobians().evaluate(BENT)
