from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from crlearn.variational import ShiftPrior

# z0 -> z1; environment 1 shifts z0, environment 2 shifts z1.
OWN = np.array([[False, False], [True, False], [False, True]])
CAUSES = np.array([[False, True], [False, False]])


@pytest.fixture(scope="module")
def truth() -> ShiftPrior:
    return replace(
        ShiftPrior.without_effects(OWN, CAUSES),
        slopes=np.array([[9.0, 2.0], [9.0, 9.0]]),
        mean=np.array([1.0, -1.0]),
        log_scale=np.log([0.5, 2.0]),
        shifts=np.array([[9.0, 9.0], [3.0, 9.0], [9.0, -4.0]]),
    )


@pytest.mark.parametrize(("code", "moved"), [(0, [0, 0]), (1, [3, 0]), (2, [0, -4])])
def test_only_targets_are_shifted(truth: ShiftPrior, code: int, moved: list[int]):
    z = np.random.default_rng(0).normal(size=(5, 2))
    found = truth.log_density(jnp.asarray(z), jnp.full(5, code))
    wanted = norm.logpdf(z[:, 0], 1 + moved[0], 0.5)
    wanted = wanted + norm.logpdf(z[:, 1], 2 * z[:, 0] - 1 + moved[1], 2.0)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_effects_carry_shifts_on(truth: ShiftPrior):
    found = truth.components()
    np.testing.assert_allclose(found.means, [[1, 1], [4, 7], [1, -3]])
    for covariance in found.covariances:
        np.testing.assert_allclose(covariance, [[0.25, 0.5], [0.5, 5.0]])


def test_the_most_likely_prior_of_its_own_moments_is_itself(truth: ShiftPrior):
    law = truth.components()
    found = ShiftPrior.without_effects(OWN, CAUSES).maximised(
        np.array([5.0, 7.0, 3.0]), law.means, law.covariances
    )
    assert found.slopes[0, 1] == pytest.approx(2)
    np.testing.assert_allclose(found.mean, truth.mean)
    np.testing.assert_allclose(np.exp(found.log_scale), [0.5, 2.0])
    np.testing.assert_allclose(found.shifts, np.where(OWN, truth.shifts, 0), atol=1e-9)


def test_a_target_of_every_environment_has_no_constant():
    own = np.ones((2, 1), dtype=bool)
    means, covariances = np.array([[2.0], [5.0]]), np.array([[[1.0]], [[3.0]]])
    found = ShiftPrior.without_effects(own, np.zeros((1, 1), bool)).maximised(
        np.array([1.0, 1.0]), means, covariances
    )
    np.testing.assert_allclose(found.components().means, means)
    np.testing.assert_allclose(found.components().covariances, [[[2.0]], [[2.0]]])


def test_a_complete_graph_has_any_covariance():
    rng, codes = np.random.default_rng(0), np.arange(600) % 2
    z = rng.normal(size=(600, 3)) @ rng.normal(size=(3, 3)) + 4 * codes[:, None]
    every = ShiftPrior.without_effects(np.ones((2, 3), bool), np.triu(np.ones((3, 3), bool), 1))
    found = every.at_moments(z, codes).components()
    within = np.mean([np.cov(z[codes == e].T, ddof=0) for e in range(2)], axis=0)
    np.testing.assert_allclose(found.covariances[0], within, rtol=1e-6)
    np.testing.assert_allclose(found.means, [z[codes == e].mean(axis=0) for e in range(2)])
