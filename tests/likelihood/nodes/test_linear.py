from __future__ import annotations

import numpy as np
import pytest

from crlearn.graph import complete_graph, graph_of
from crlearn.likelihood._price import edge_prior, parameter_price
from crlearn.likelihood.core._encoder import moved
from crlearn.likelihood.core._moments import Moments, Pools
from crlearn.likelihood.nodes._linear import (
    LinearModel,
    _positive,
    alternatives,
    expand,
    minimise,
    objective,
    predicted,
)

SIZES = (50, 30, 80, 40)


def arbitrary(seed: int, n: int = 4) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Rows of unequal environments, pools (some empty), masks and an encoder, all at random."""
    rng = np.random.default_rng(seed)
    rows = [
        rng.standard_normal((size, n)) @ rng.standard_normal((n, n)) + rng.standard_normal(n)
        for size in SIZES
    ]
    pool = rng.integers(0, 3, (n, len(SIZES)))
    pool[0], pool[1] = 0, (0, 0, 1, 2)
    masks = (rng.random((n, 3, n)) < 0.5) * (1 - np.eye(n))[:, None]
    return rows, pool, masks, rng.standard_normal((n, n))


def partly_intervened(
    rng: np.random.Generator, intervened: list[int], *, free: bool = False
) -> tuple[LinearModel, np.ndarray]:
    """Rows of four latents, each a cause of those behind it, and the encoder behind them."""
    n, rows = 4, []
    effects = np.triu(rng.uniform(0.5, 1.5, (n, n)) * rng.choice([-1, 1], (n, n)), 1)
    mixing = rng.standard_normal((n, n))
    for hit in (None, *intervened):
        cut, sd = effects.copy(), np.ones(n)
        if hit is not None:
            cut[:, hit], sd[hit] = 0.0, 2.0
        noise = sd * rng.standard_normal((1000, n))
        rows.append(noise @ np.linalg.inv(np.eye(n) - cut) @ mixing.T)
    pool = np.insert(np.eye(n, dtype=np.intp)[:, intervened], 0, 0, axis=1)
    model = LinearModel(Moments.of(rows, free_means=free), pool, hard=True)
    return model, np.linalg.inv(mixing)


def brute_force(rows, pool, masks, H) -> float:
    """F from regressions on the rows themselves, with an intercept."""
    value = -np.log(abs(np.linalg.det(H)))
    n_rows = sum(map(len, rows))
    for j in range(len(H)):
        for p in range(masks.shape[1]):
            members = np.flatnonzero(pool[j] == p)
            if len(members) == 0:
                continue
            Z = np.vstack([rows[e] for e in members]) @ H.T
            given = np.column_stack([np.ones(len(Z)), Z[:, masks[j, p] > 0]])
            residual = Z[:, j] - given @ np.linalg.lstsq(given, Z[:, j], rcond=None)[0]
            value += 0.5 * len(Z) / n_rows * np.log(np.mean(residual**2))
    return value


def numerically(function, at: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Derivatives of a function of a vector."""
    moves = step * np.eye(len(at))
    return np.array([(function(at + move) - function(at - move)) / (2 * step) for move in moves])


@pytest.mark.parametrize("seed", range(5))
def test_objective_agrees_with_regressions_on_the_rows(seed: int):
    rows, pool, masks, H = arbitrary(seed)
    pools = Pools.of(Moments.of(rows), pool)
    expected = brute_force(rows, pool, masks, H)
    assert float(objective(H, pools, masks)) == pytest.approx(expected)
    assert expand(H, pools, masks).value == pytest.approx(expected)


def test_objective_takes_many_masks_at_once():
    rows, pool, _, H = arbitrary(0)
    pools = Pools.of(Moments.of(rows), pool)
    stack = np.stack([arbitrary(seed)[2] for seed in range(6)]).reshape(2, 3, 4, 3, 4)
    values = objective(H, pools, stack)
    assert values.shape == (2, 3)
    assert values[1, 2] == pytest.approx(float(objective(H, pools, stack[1, 2])))


@pytest.mark.parametrize("seed", range(5))
def test_gradient_and_hessian_are_exact(seed: int):
    rows, pool, masks, H = arbitrary(seed)
    pools = Pools.of(Moments.of(rows), pool)
    point = expand(H, pools, masks)
    nowhere = np.zeros(12)

    def value(step: np.ndarray) -> float:
        return float(objective(moved(H, step), pools, masks))

    np.testing.assert_allclose(point.gradient, numerically(value, nowhere), atol=1e-7)
    hessian = numerically(lambda step: numerically(value, step, 1e-4), nowhere, 1e-4)
    np.testing.assert_allclose(point.hessian, hessian, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(point.hessian, point.hessian.T, atol=1e-10)


def test_rescaled_rows_change_nothing():
    rows, pool, masks, H = arbitrary(1)
    pools = Pools.of(Moments.of(rows), pool)
    scaled = np.array([2.0, -0.3, 10.0, 1.0])[:, None] * H
    values = [float(objective(encoder, pools, masks)) for encoder in (H, scaled)]
    assert values[0] == pytest.approx(values[1])


def test_affine_changes_of_x_change_f_by_a_constant():
    rows, pool, masks, H = arbitrary(2)
    rng = np.random.default_rng(0)
    A, shift = rng.standard_normal((4, 4)), 10 * rng.standard_normal(4)
    before = float(objective(H, Pools.of(Moments.of(rows), pool), masks))
    elsewhere = Moments.of([x @ A.T + shift for x in rows])
    after = float(objective(H @ np.linalg.inv(A), Pools.of(elsewhere, pool), masks))
    assert after == pytest.approx(before + np.linalg.slogdet(A)[1])


@pytest.mark.parametrize("seed", range(3))
def test_minimise_never_goes_up(seed: int):
    rows, pool, masks, H = arbitrary(seed)
    pools = Pools.of(Moments.of(rows), pool)
    values = [float(objective(H, pools, masks))]
    for max_steps in (1, 2, 5, 100):
        found, value = minimise(H, pools, masks, max_steps=max_steps)
        assert value == pytest.approx(float(objective(found, pools, masks)))
        values.append(value)
    assert (np.diff(values) <= 1e-12).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)


@pytest.mark.parametrize("shifted", [False, True])
def test_the_truth_is_found_from_nearby(multi_node, shifted: bool):
    world = multi_node(3, shifted=shifted)
    pools = Pools.of(world.moments, world.targets)
    masks = np.zeros((4, 2, 4))
    masks[:, 0] = world.graph.T
    truth = np.linalg.inv(world.mixing)
    nearby = truth + 0.1 * np.random.default_rng(0).standard_normal((4, 4)) @ truth
    found, value = minimise(nearby, pools, masks)
    assert value == pytest.approx(world.moments.saturated, abs=1e-10)
    mixed = np.abs(found @ world.mixing)
    np.testing.assert_allclose(mixed / mixed.max(axis=1, keepdims=True), np.eye(4), atol=1e-4)
    assert np.abs(expand(found, pools, masks).gradient).max() < 1e-5


def test_predicted_lies_between_the_present_value_and_the_minimum():
    rows, pool, masks, H = arbitrary(4)
    pools = Pools.of(Moments.of(rows), pool)
    best, lowest = minimise(H, pools, masks)
    without = masks.copy()
    without[2] = 0
    _, lowest_without = minimise(best, pools, without)
    guess = predicted(best, pools, without)
    assert lowest <= lowest_without - 1e-12 <= guess <= float(objective(best, pools, without))


@pytest.mark.parametrize("seed", range(3))
def test_alternatives_of_all_latents_add_up_to_f(seed: int):
    rows, pool, masks, H = arbitrary(seed)
    pools = Pools.of(Moments.of(rows), pool)
    values, gradients = alternatives(H, pools, np.arange(4), masks)
    point = expand(H, pools, masks)
    assert values.sum() - np.linalg.slogdet(H)[1] == pytest.approx(point.value)
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(gradients.sum(axis=0)[off], point.gradient, atol=1e-12)


def test_variances_that_rounding_made_negative_cost_much():
    np.testing.assert_array_equal(_positive(np.array([2.0, -1e-17, 0.0])), [2.0, 1e100, 1e100])


class TestLinearModel:
    @pytest.mark.parametrize("hard", [True, False])
    def test_parents_matter_where_interventions_leave_them(self, exact, hard: bool):
        model = LinearModel(exact(0).model.moments, exact(0).model.pool, hard)
        masks = model.masks(((), (0,), (0, 1), ()))
        inside, outside = (1, 0) if not hard else (0, 1)
        assert masks[2, inside].tolist() == [1, 1, 0, 0]
        assert masks[1, inside].tolist() == [1, 0, 0, 0]
        assert not masks[:, outside].any()
        assert not masks[[0, 3]].any()

    @pytest.mark.parametrize("intervention", ["hard", "soft"])
    def test_values_of_nodes_add_up_to_f(self, exact, intervention: str):
        model, H = exact(1, intervention).model, arbitrary(0)[3]
        graph = ((), (0, 3), (0,), (2,))
        expected = float(objective(H, model.pools, model.masks(graph)))
        values = model.values(H, list(enumerate(graph)))
        assert values.sum() - np.linalg.slogdet(H)[1] == pytest.approx(expected)

    def test_an_edge_costs_its_coefficients_and_the_prior_over_graphs(self, exact):
        hard, soft = (exact(0, each).model for each in ("hard", "soft"))
        # Rows of one environment inside an intervention, of the other four outside.
        per_coefficient = parameter_price(100_000)
        np.testing.assert_allclose(hard.edge_price, parameter_price(4 * 100_000) + edge_prior(4))
        np.testing.assert_allclose(soft.edge_price, per_coefficient + edge_prior(4))
        twice = soft.pool.copy()
        twice[1, 1] = 2  # one more pool in which latent 1 has coefficients of its own
        price = LinearModel(soft.moments, twice, hard=False).edge_price
        np.testing.assert_allclose(price[:, 1], 2 * per_coefficient + edge_prior(4))
        np.testing.assert_allclose(price[:, 0], per_coefficient + edge_prior(4))

    def test_fits_are_counted_in_nats(self, exact):
        world = exact(2)
        found = world.model.fitted(np.linalg.inv(world.mixing), graph_of(world.graph))
        saturated = -world.model.n_rows * world.model.moments.saturated
        assert found.log_likelihood == pytest.approx(saturated, abs=1e-3)
        assert found.price == pytest.approx(world.graph.sum() * world.model.edge_price[0, 1])
        assert found.score == found.log_likelihood - found.price
        assert (found.mechanisms, found.any_noise) == ("linear", False)

    def test_the_truth_fits_and_wrong_targets_do_not(self, exact):
        world = exact(1)
        good = world.model.fitted(np.linalg.inv(world.mixing), graph_of(world.graph))
        test = world.model.goodness_of_fit(good)
        assert test.ratio == pytest.approx(0, abs=1e-3)
        assert test.p_value > 0.99
        swapped = world.model.pool.copy()
        swapped[[0, 1]] = 0
        swapped[0, [1, 2]] = [1, 2]  # both environments on one latent, none on the other
        wrong = LinearModel(world.model.moments, swapped, hard=True)
        order = ((), (0,), (0, 1), (0, 1, 2))
        bad = wrong.fitted(np.linalg.inv(world.mixing), order)
        for quick in (False, True):
            assert wrong.goodness_of_fit(bad, quick=quick).p_value < 1e-6

    def test_freedom_is_what_the_saturated_model_has_more(self, exact):
        """Three latents: 4 (3 + 6) moments; 6 entries of D, 2 x 3 x 2 means and variances."""
        world = exact(0, n=3)
        fit = world.model.fitted(np.linalg.inv(world.mixing), ((), (0,), (0, 1)))
        assert world.model.goodness_of_fit(fit).freedom == 36 - (6 + 12 + 3)

    @pytest.mark.parametrize(
        ("intervened", "hard", "free", "freedom"),
        [
            # In the other environment the cause of all has another mean and another variance: its
            # direction is 3 numbers, of 2 (4 + 10) moments; 14 are those of the reference.
            ([0], True, False, 28 - (14 + 3 + 2)),
            ([0], True, True, 20 - (10 + 3 + 1)),
            ([0], False, False, 28 - (14 + 3 + 2)),
            ([], True, False, 0),
        ],
    )
    def test_freedom_where_latents_are_not_intervened_on(self, intervened, hard, free, freedom):
        model, _ = partly_intervened(np.random.default_rng(0), intervened, free=free)
        model = LinearModel(model.moments, model.pool, hard)
        assert model.freedom(model.masks(complete_graph(range(4)))) == freedom

    @pytest.mark.parametrize("intervened", [[0], [3], [0, 1], [1, 3], [0, 1, 2]])
    def test_p_values_are_those_of_chance_where_latents_are_not_intervened_on(self, intervened):
        rng, p_values = np.random.default_rng(0), []
        for _ in range(60):
            model, H = partly_intervened(rng, intervened)
            fit = model.fitted(H, complete_graph(range(4)))
            p_values.append(model.goodness_of_fit(fit).p_value)
        assert 0.4 < np.mean(p_values) < 0.6
        assert np.mean(np.array(p_values) < 0.05) <= 0.15

    def test_a_search_ends_where_the_fit_is_good(self, exact):
        world = exact(0)
        masks = world.model.masks(graph_of(world.graph))
        best = world.model.moments.saturated
        assert world.model.is_good(best, masks, n_tries=1)
        assert not world.model.is_good(best + 0.01, masks, n_tries=100)
        assert LinearModel(world.model.moments, world.model.pool, hard=True).covered.all()

    def test_heavy_tails_need_more_tries_than_one(self, drawn):
        """Their ratios are large for the truth, too; a calibrated test may end the search later."""
        world = drawn(4, 2000, noise="exponential", seed=2)
        fit = world.model.fitted(np.linalg.inv(world.mixing), graph_of(world.graph))
        value, masks = -fit.log_likelihood / world.model.n_rows, world.model.masks(fit.graph)
        assert not world.model.is_good(value, masks, n_tries=1)
        assert world.model.is_good(value, masks, n_tries=6)
