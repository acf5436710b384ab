from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.scores import CubicSplines, ShiftedScore, StructuredScore
from crlearn.scores.structured._shifted import shifted_terms

CHAIN = np.eye(3, k=1, dtype=bool)
SHIFT = np.diag([2.0, 1.0, 0.0])


def chain(seed: int, doses: Any) -> Any:
    """Latents z1 = z0 + a shift + noise, ..., with these doses in each row."""
    z = np.random.default_rng(seed).standard_normal(doses.shape) + doses @ SHIFT
    for j in (1, 2):
        z[:, j] += z[:, j - 1]
    return z


def doses_of(*levels: float) -> Any:
    rows = [np.zeros((4000, 3))]
    for level in levels:
        rows += [np.tile([level, 0.0, 0.0], (2000, 1)), np.tile([0.0, level, 0.0], (2000, 1))]
    return np.vstack(rows)


def exact(z: Any, doses: Any) -> Any:
    left = z - doses @ SHIFT
    left[:, 1:] -= z[:, :-1]
    score = -left
    score[:, :-1] += left[:, 1:]
    return score


@pytest.fixture(scope="module")
def model() -> ShiftedScore:
    doses = doses_of(1.0, 3.0)
    return ShiftedScore.fit(chain(0, doses), doses, CHAIN, SHIFT, n_knots=5)


def test_a_latent_is_without_its_dose_beside_its_parents_and_its_effects_beside_it():
    latents = [term.latents for term in shifted_terms(CHAIN, 1)]
    assert (4, 0) in latents
    assert (1, 5) in latents
    assert {k % 3 for term in shifted_terms(CHAIN, 0, dense=True) for k in term.latents} == {
        0,
        1,
        2,
    }


@pytest.mark.parametrize("level", [1.0, 3.0, 2.0])
def test_one_score_for_all_doses(model: ShiftedScore, level: float):
    """Level 2 was not among the rows of the fit."""
    doses = doses_of(level)
    z = chain(1, doses)
    score, _ = model(z, doses)
    assert ((score - exact(z, doses)) ** 2).mean() < 0.05 * (exact(z, doses) ** 2).mean()


def test_better_than_to_be_told_the_targets_only(model: ShiftedScore):
    doses = doses_of(1.0, 3.0)
    z, fresh = chain(0, doses), chain(2, doses)
    splines = CubicSplines.spanning(z, 5)
    told = StructuredScore.fit(z, doses != 0, CHAIN, splines=splines, hard=False)
    truth = exact(fresh, doses)
    by_targets = ((told(fresh, doses != 0)[0] - truth) ** 2).mean()
    assert ((model(fresh, doses)[0] - truth) ** 2).mean() < 0.5 * by_targets


def test_slopes_and_jacobian(model: ShiftedScore):
    doses = doses_of(1.0)[::500]
    z = chain(3, doses)
    _, jacobian = model(z, doses, jacobian=True)
    np.testing.assert_allclose(model(z, doses)[1], np.einsum("ijj->ij", jacobian))
    for k in range(3):
        step = 1e-6 * np.eye(3)[k]
        numeric = (model(z + step, doses)[0] - model(z - step, doses)[0]) / 2e-6
        np.testing.assert_allclose(jacobian[:, :, k], numeric, atol=1e-5)


def test_weights_and_a_given_ridge():
    doses = doses_of(1.0)
    z = chain(4, doses)
    weights = (np.arange(len(z)) < 6000).astype(float)
    some = ShiftedScore.fit(z, doses, CHAIN, SHIFT, n_knots=4, ridge=1e-2, weights=weights)
    assert set(some.ridges) == {1e-2}
    every = ShiftedScore.fit(z, doses, CHAIN, SHIFT, n_knots=4, ridge=1e-2)
    assert not np.array_equal(some.coefficients[0], every.coefficients[0])
