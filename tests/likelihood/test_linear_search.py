from __future__ import annotations

import numpy as np
import pytest

from crlearn.data import make_linear_interventional
from crlearn.graph import transitive_closure
from crlearn.likelihood._linear_search import (
    LinearProblem,
    edge_p_values,
    fit_linear,
    fit_without_order,
    rows_inside,
    standard_errors,
)
from crlearn.likelihood._pools import Moments

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
