from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from crlearn.data import make_linear_interventional
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.core._tests import Weights, overall_weights
from crlearn.likelihood.interventional._linear import LinearFit, LinearProblem, edge_p_values
from crlearn.likelihood.nodes._linear import expand, minimise

N = 3


def pool_of(n: int) -> np.ndarray:
    pool = np.zeros((n, n + 1), dtype=int)
    pool[np.arange(n), np.arange(n) + 1] = 1
    return pool


def drawn(seed: int, noise: str, n_rows: int = 500) -> tuple[LinearProblem, LinearFit]:
    """A world and the fit of its true graph, from its true encoder."""
    world = make_linear_interventional(
        N, N, n_rows, noise=noise, min_edge_effect=None, random_state=seed
    )
    assert world.truth is not None
    problem = LinearProblem(
        Moments.of([world.X[world.y == e] for e in range(N + 1)]), pool_of(N), hard=True
    )
    H = np.linalg.lstsq(world.X, world.truth.Z, rcond=None)[0].T
    H, value = minimise(H, problem.pools, problem.masks(world.truth.graph))
    return problem, LinearFit(H, world.truth.graph, value)


def test_ratios_keep_mean_and_variance():
    weights = Weights(2.0, 9.0)
    assert weights.calibrated(2.0 * 50, 50) == pytest.approx(50)
    one_sd = np.sqrt(2 * 9.0 * 50)
    assert weights.calibrated(2.0 * 50 + one_sd, 50) == pytest.approx(50 + np.sqrt(2 * 50))
    assert Weights().calibrated(61.5, 50) == pytest.approx(61.5)
    assert weights.calibrated(0.0, 50) >= 0


def test_weights_are_those_of_the_noise():
    rng = np.random.default_rng(0)
    normal = overall_weights(Moments.of([rng.standard_normal((20_000, 3)) for _ in range(4)]))
    assert normal.mean == pytest.approx(1, abs=0.03)
    assert normal.mean_square == pytest.approx(1, abs=0.06)
    heavy = overall_weights(Moments.of([rng.laplace(size=(20_000, 3)) for _ in range(4)]))
    assert heavy.mean == pytest.approx((3 + 3 + 3 * 2.5) / 9, abs=0.1)
    assert heavy.mean_square == pytest.approx((3 + 3 + 3 * 2.5**2) / 9, abs=0.5)
    assert overall_weights(Moments(np.array([9]), np.zeros((1, 2)), np.eye(2)[None])) == Weights()


def test_the_information_is_that_of_the_profile_likelihood():
    problem, fit = drawn(0, "gaussian", 200_000)
    masks = problem.masks(fit.adjacency)
    inverse = problem.linearised(fit.H, masks).inverse_information[: N * (N - 1), : N * (N - 1)]
    expected = np.linalg.inv(expand(fit.H, problem.pools, masks).hessian)
    np.testing.assert_allclose(inverse, expected, atol=0.03 * np.abs(expected).max())


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "exponential"])
def test_p_values_are_those_of_chance(noise: str):
    p_values, naive = [], []
    for seed in range(60):
        problem, fit = drawn(seed, noise)
        found = problem.goodness_of_fit(fit.value, problem.masks(fit.adjacency), fit.H)
        p_values.append(found.p_value)
        ratio = 2 * problem.n_samples * (fit.value - problem.moments.saturated)
        naive.append(chi2.sf(ratio, found.freedom))
    assert 0.4 < np.mean(p_values) < 0.6
    assert np.mean(np.array(p_values) < 0.05) <= 0.15
    if noise == "gaussian":
        np.testing.assert_allclose(p_values, naive, atol=0.12)
    else:
        assert np.mean(naive) < 0.35


def test_needless_edges_are_not_significant():
    """Whether noise is Gaussian or not; without the weights there are too many for the latter."""
    p_values, weights = [], []
    for seed in range(60):
        problem, fit = drawn(seed, "exponential")
        i, j = next(
            ((i, j) for i, j in np.ndindex(N, N) if i < j and not fit.adjacency[i, j]), (0, 0)
        )
        wider = fit.adjacency.copy()
        wider[i, j] = True
        if i == j or wider[j, i]:
            continue
        H, value = minimise(fit.H, problem.pools, problem.masks(wider))
        p_values.append(edge_p_values(problem, LinearFit(H, wider, value))[i, j])
        weights.append(problem.linearised(H, problem.masks(wider)).weight_of_edge((i, j)))
    assert len(p_values) > 20
    assert np.mean(np.array(p_values) < 0.05) <= 0.15
    assert np.mean(weights) > 1.05
