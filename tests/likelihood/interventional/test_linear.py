from __future__ import annotations

import numpy as np
import pytest

from crlearn.data import make_linear_interventional
from crlearn.graph import transitive_closure
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.interventional._linear import (
    LinearFit,
    LinearProblem,
    _changes,
    _complete,
    _inserted,
    _losses,
    best_order_at,
    better_order_at,
    edge_p_values,
    fit_linear,
    fit_without_order,
    rows_inside,
    standard_errors,
)
from crlearn.likelihood.nodes._linear import minimise, objective

N = 4


class Solved(LinearProblem):
    """A problem whose answer is known."""

    mixing: np.ndarray


def population(seed: int, intervention: str, n_samples: int = 100_000) -> tuple[Solved, np.ndarray]:
    """Exact covariances of a random world, as if from so many rows; and its graph."""
    rng = np.random.default_rng(seed)
    weights = np.triu(rng.uniform(0.5, 1.5, (N, N)) * rng.choice([-1, 1], (N, N)), 1)
    weights *= np.triu(rng.random((N, N)) < 0.6, 1)
    mixing = rng.standard_normal((N, N))
    covariances = []
    for e in range(N + 1):
        effects, noise = weights.copy(), np.ones(N)
        if e:
            effects[:, e - 1] *= 0.0 if intervention == "hard" else 0.5
            noise[e - 1] = 0.25
        to_z = np.linalg.inv(np.eye(N) - effects.T)
        covariances.append(mixing @ to_z @ np.diag(noise) @ to_z.T @ mixing.T)
    moments = Moments(np.full(N + 1, n_samples), np.zeros((N + 1, N)), np.array(covariances))
    pool = np.zeros((N, N + 1), dtype=int)
    pool[np.arange(N), np.arange(N) + 1] = 1
    whitener = np.linalg.inv(np.linalg.cholesky(np.mean(covariances, axis=0)))
    problem = Solved(moments.transformed(whitener), pool, intervention == "hard")
    object.__setattr__(problem, "mixing", whitener @ mixing)
    return problem, weights != 0


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    return np.abs(matrix) / np.abs(matrix).max(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(6))
def test_hard_interventions_are_solved_exactly(seed: int):
    problem, graph = population(seed, "hard")
    fit = fit_linear(problem, np.random.default_rng(0))
    assert (fit.adjacency == graph).all()
    np.testing.assert_allclose(unit_rows(fit.H @ problem.mixing), np.eye(N), atol=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_soft_interventions_are_solved_up_to_parents(seed: int):
    problem, graph = population(seed, "soft")
    fit = fit_linear(problem, np.random.default_rng(0))
    assert (transitive_closure(fit.adjacency) == transitive_closure(graph)).all()
    mixed = unit_rows(rows_inside(problem, fit) @ problem.mixing)
    assert np.abs(mixed[~(np.eye(N, dtype=bool) | graph.T)]).max(initial=0) < 1e-4


def test_the_model_without_order_finds_the_latents_of_hard_interventions():
    problem, _ = population(0, "hard")
    H = fit_without_order(problem, np.random.default_rng(0))
    np.testing.assert_allclose(unit_rows(H @ problem.mixing), np.eye(N), atol=1e-2)


def test_the_truth_fits_and_wrong_targets_do_not():
    problem, _ = population(1, "hard")
    fit = fit_linear(problem, np.random.default_rng(0))
    good = problem.goodness_of_fit(fit.value, problem.masks(fit.adjacency))
    assert good.ratio == pytest.approx(0, abs=1e-3)
    assert good.p_value > 0.99
    swapped = problem.pool.copy()
    swapped[[0, 1]] = 0
    swapped[0, [1, 2]] = [1, 2]  # both environments on one latent, none on the other
    wrong = LinearProblem(problem.moments, swapped, hard=True)
    bad = fit_linear(wrong, np.random.default_rng(0))
    assert wrong.goodness_of_fit(bad.value, wrong.masks(bad.adjacency)).p_value < 1e-6


def test_goodness_of_fit_is_calibrated():
    """Over linear Gaussian worlds the p-values are those of chance."""
    p_values = []
    for seed in range(20):
        world = make_linear_interventional(3, 3, 400, random_state=seed, min_edge_effect=None)
        rows = [world.X[world.y == e] for e in range(4)]
        pool = np.zeros((3, 4), dtype=int)
        pool[np.arange(3), np.arange(3) + 1] = 1
        problem = LinearProblem(Moments.of(rows), pool, hard=True)
        fit = fit_linear(problem, np.random.default_rng(0))
        p_values.append(problem.goodness_of_fit(fit.value, problem.masks(fit.adjacency)).p_value)
    assert 0.25 < np.mean(p_values) < 0.75
    assert np.mean(np.array(p_values) < 0.05) <= 0.2


def test_edges_have_small_p_values_and_encoders_small_errors():
    problem, _ = population(2, "hard")
    fit = fit_linear(problem, np.random.default_rng(0))
    p_values = edge_p_values(problem, fit)
    assert (p_values[fit.adjacency] < 1e-6).all()
    assert (p_values[~fit.adjacency] == 1).all()
    few, many = (standard_errors(population(2, "hard", n)[0], fit) for n in (1000, 100_000))
    assert (np.diag(few) == 0).all()
    np.testing.assert_allclose(few, 10 * many, rtol=1e-6)


def test_latents_without_an_intervention_leave_the_others_alone():
    problem, _ = population(3, "hard")
    keep = [0, 1, 2]  # the reference and two interventions
    whole = problem.moments
    moments = Moments(whole.sizes[keep], whole.means[keep], whole.covariances[keep])
    partial = LinearProblem(moments, problem.pool[:, keep], hard=True)
    assert partial.covered.tolist() == [True, True, False, False]
    fit = fit_linear(partial, np.random.default_rng(0))
    mixed = unit_rows(fit.H @ problem.mixing)
    np.testing.assert_allclose(mixed[:2], np.eye(N)[:2], atol=1e-3)


def drawn(n: int, n_samples: int, intervention: str = "hard") -> tuple[LinearProblem, np.ndarray]:
    """Rows of a random linear world; and its graph."""
    world = make_linear_interventional(
        n,
        n,
        n_samples,
        intervention="hard" if intervention == "hard" else "soft",
        min_edge_effect=None,
        random_state=0,
    )
    pool = np.zeros((n, n + 1), dtype=int)
    pool[np.arange(n), np.arange(n) + 1] = 1
    rows = [world.X[world.y == e] for e in range(n + 1)]
    assert world.truth is not None
    assert world.truth.graph is not None
    return LinearProblem(Moments.of(rows), pool, intervention == "hard"), world.truth.graph


@pytest.mark.parametrize("intervention", ["hard", "soft"])
def test_moves_in_an_order_cost_what_the_models_cost(intervention: str):
    problem, _ = population(0, intervention)
    H, order = np.random.default_rng(0).standard_normal((N, N)), [2, 0, 3, 1]

    def value(order: list[int]) -> float:
        return float(objective(H, problem.pools, problem.masks(_complete(order))))

    changes, _ = _changes(problem, H, order)
    expected = [
        [value(_inserted(order, start, end)) - value(order) for end in range(N)]
        for start in range(N)
    ]
    np.testing.assert_allclose(changes, expected, atol=1e-12)


def test_moves_lead_to_the_best_order_of_a_fixed_encoder():
    problem, _ = population(1, "hard")
    H = fit_without_order(problem, np.random.default_rng(0))
    values = [
        float(objective(H, problem.pools, problem.masks(_complete(order))))
        for order in (better_order_at(problem, H, [3, 2, 1, 0]), best_order_at(problem, H))
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-4)


@pytest.mark.parametrize("intervention", ["hard", "soft"])
def test_losses_of_needless_edges_are_those_of_refitted_models(intervention: str):
    problem, _ = drawn(4, 2000, intervention)
    H = fit_without_order(problem, np.random.default_rng(0))
    order = best_order_at(problem, H)
    H, value = minimise(H, problem.pools, problem.masks(_complete(order)))
    full = LinearFit(H, _complete(order), value)
    losses = _losses(problem, full)
    assert np.isinf(losses[~full.adjacency]).all()
    weak = np.argwhere(losses < 5)
    assert len(weak) > 0
    for i, j in weak:
        without = full.adjacency.copy()
        without[i, j] = False
        value = minimise(full.H, problem.pools, problem.masks(without))[1]
        exact = (value - full.value) * problem.n_samples
        assert losses[i, j] == pytest.approx(exact, rel=0.2, abs=0.05)


def test_many_latents_are_found():
    """Beyond ten latents starts and orders are found by changing one latent at a time."""
    problem, graph = drawn(12, 2000)
    fit = fit_linear(problem, np.random.default_rng(0))
    assert (fit.adjacency == graph).all()
    assert problem.goodness_of_fit(fit.value, problem.masks(fit.adjacency)).p_value > 1e-3
