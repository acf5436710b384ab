from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from crlearn.graph import graph_of
from crlearn.likelihood import Fit
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.core._tests import Weights, overall_weights
from crlearn.likelihood.interventional._edges import edge_p_values
from crlearn.likelihood.nodes._linear import LinearModel, expand

N = 3
N_WORLDS = 60


@pytest.fixture(scope="module")
def fitted(drawn):
    """Return a function that draws worlds and fits their true graph from their true encoder."""

    def fit(seed: int, noise: str, n_rows: int = 500) -> tuple[LinearModel, Fit]:
        world = drawn(N, n_rows, seed=seed, noise=noise, min_edge_effect=None)
        graph = graph_of(world.graph)
        return world.model, world.model.fitted(np.linalg.inv(world.mixing), graph)

    return fit


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


def test_the_information_is_that_of_the_profile_likelihood(fitted):
    model, fit = fitted(0, "gaussian", 200_000)
    inverse = model.linearised(fit).inverse_information[: N * (N - 1), : N * (N - 1)]
    expected = np.linalg.inv(expand(fit.H, model.pools, model.masks(fit.graph)).hessian)
    np.testing.assert_allclose(inverse, expected, atol=0.03 * np.abs(expected).max())


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "exponential"])
def test_p_values_are_those_of_chance(fitted, noise: str):
    p_values, naive = [], []
    for seed in range(N_WORLDS):
        model, fit = fitted(seed, noise)
        found = model.goodness_of_fit(fit)
        p_values.append(found.p_value)
        ratio = -2 * (fit.log_likelihood + model.n_rows * model.moments.saturated)
        naive.append(chi2.sf(ratio, found.freedom))
    assert 0.4 < np.mean(p_values) < 0.6
    assert np.mean(np.array(p_values) < 0.05) <= 0.15
    if noise == "gaussian":
        np.testing.assert_allclose(p_values, naive, atol=0.12)
    else:
        assert np.mean(naive) < 0.35


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_p_values_are_those_of_chance_where_means_are_free(drawn, noise: str):
    """Shifts that the mechanisms cannot explain change nothing: only products are tested."""
    p_values, shared = [], []
    for seed in range(N_WORLDS):
        world = drawn(N, 500, seed=seed, noise=noise, min_edge_effect=None)
        rows = [each + 3 * e for e, each in enumerate(world.rows)]
        for found, free in ((p_values, True), (shared, False)):
            model = LinearModel(Moments.of(rows, free_means=free), world.model.pool, hard=True)
            fit = model.fitted(np.linalg.inv(world.mixing), graph_of(world.graph))
            found.append(model.goodness_of_fit(fit).p_value)
    assert 0.4 < np.mean(p_values) < 0.6
    assert np.mean(np.array(p_values) < 0.05) <= 0.15
    assert max(shared) < 1e-3


def test_degrees_of_freedom_by_hand(drawn):
    """An edge between two latents in three environments, each latent cut off in one."""
    world = drawn(2, 100, graph="chain")
    # 9 covariances, 4 variances, 2 coefficients of the encoder and that of the edge
    without_means = 9 - 4 - 2 - 1
    for free, freedom in ((True, without_means), (False, without_means + 6 - 4)):
        model = LinearModel(Moments.of(world.rows, free_means=free), world.model.pool, hard=True)
        fit = model.fitted(np.linalg.inv(world.mixing), graph_of(world.graph))
        assert model.goodness_of_fit(fit).freedom == freedom
        n_features = 3 if free else 5
        assert model.linearised(fit).scores.shape[:2] == (3, n_features)


def test_needless_edges_are_not_significant(fitted):
    """Whether noise is Gaussian or not; without the weights there are too many for the latter."""
    p_values, weights = [], []
    for seed in range(N_WORLDS):
        model, fit = fitted(seed, "exponential")
        i, j = next(
            ((i, j) for i, j in np.ndindex(N, N) if i < j and not fit.adjacency[i, j]), (0, 0)
        )
        wider = fit.adjacency.copy()
        wider[i, j] = True
        if i == j or wider[j, i]:
            continue
        found = model.fitted(fit.H, graph_of(wider))
        p_values.append(edge_p_values(model, found)[i, j])
        weights.append(model.linearised(found).weight_of_edge((i, j)))
    assert len(p_values) > 20
    assert np.mean(np.array(p_values) < 0.05) <= 0.15
    assert np.mean(weights) > 1.05


@pytest.mark.parametrize(("noise", "is_heavy"), [("gaussian", False), ("laplace", True)])
def test_heavy_tails_make_encoders_less_certain(fitted, noise: str, is_heavy: bool):
    model, fit = fitted(3, noise, 20_000)
    weights = model.linearised(fit).weights_of_encoder()
    assert weights.shape == (N * (N - 1),)
    if is_heavy:
        assert weights.mean() > 1.2
    else:
        np.testing.assert_allclose(weights, 1, atol=0.15)
