from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crlearn.data import make_multi_node
from crlearn.exceptions import IdentifiabilityError
from crlearn.graph import transitive_closure
from crlearn.likelihood import Fit, Moments
from crlearn.likelihood.interventional._edges import prune
from crlearn.likelihood.nodes._linear import LinearModel
from crlearn.likelihood.targets import competing_targets, find_targets, in_causal_order
from crlearn.likelihood.targets._search import _Answer, _from_lattice, _insertions, _repaired
from crlearn.metrics import match

N = 4


def solved(seed: int, **options: Any) -> tuple[Any, np.ndarray, LinearModel, Fit]:
    """Return a world, its recovered latents, the model and the fit without needless edges."""
    world: Any = make_multi_node(
        **{"n_latents": N, "n_features": N, "n_samples": 20_000, "random_state": seed, **options}
    )
    moments = Moments.of([world.X[world.y == e] for e in world.environments])
    mean = np.tensordot(moments.shares, moments.covariances, 1)
    whitener = np.linalg.inv(np.linalg.cholesky(mean))
    model, full = find_targets(moments.transformed(whitener), rng=np.random.default_rng(0))
    assert full.n_edges == N * (N - 1) // 2
    fit = in_causal_order(prune(model, full))
    assert fit.pool is not None
    return world, world.X @ whitener.T @ fit.H.T, replace(model, pool=fit.pool), fit


@pytest.mark.parametrize("n_interventions", [4, 7])
@pytest.mark.parametrize("seed", range(3))
def test_hard_interventions(seed: int, n_interventions: int):
    world, Z, model, fit = solved(seed, target_sets="general", n_interventions=n_interventions)
    order = match(world.truth.Z, Z)[:, 1]
    assert (fit.targets[:, order] == world.truth.targets).all()
    assert (fit.adjacency[np.ix_(order, order)] == world.truth.graph).all()
    correlation = np.corrcoef(world.truth.Z.T, Z[:, order].T)[:N, N:]
    assert np.abs(np.diag(correlation)).min() > 0.999
    assert model.goodness_of_fit(fit).p_value > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_competing_targets_are_others_and_worse_than_the_right_ones(seed: int):
    _, _, model, fit = solved(seed)
    others = competing_targets(model, fit)
    assert others
    assert all((other.pool != model.pool).any(axis=1).sum() == 1 for other in others)
    scores = [other.score for other in others]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] < fit.score


def test_competing_targets_hold_the_right_ones_where_one_latent_has_wrong_ones():
    _, _, model, fit = solved(0)
    wrong = model.pool.copy()
    e = next(
        e
        for e in range(1, wrong.shape[1])
        if np.linalg.matrix_rank(wrong ^ (np.arange(wrong.size) == e).reshape(wrong.shape)) == N
    )
    wrong[0, e] ^= 1
    others = competing_targets(replace(model, pool=wrong), fit)
    assert (others[0].pool == model.pool).all()


@pytest.mark.parametrize("seed", range(3))
def test_soft_interventions_give_the_closure(seed: int):
    world, _, _, fit = solved(seed, intervention="soft")
    # Latents are mixed with their ancestors, so they are told apart by their targets.
    order = [
        int(np.flatnonzero((fit.targets == row[:, None]).all(axis=0))[0])
        for row in world.truth.targets.T
    ]
    found = transitive_closure(fit.adjacency)[np.ix_(order, order)]
    assert (found == transitive_closure(world.truth.graph)).all()


@pytest.mark.parametrize("seed", range(4))
def test_exact_moments_are_solved_exactly(multi_node, seed: int):
    world = multi_node(seed)
    model, fit = find_targets(world.moments, rng=np.random.default_rng(0))
    assert fit.log_likelihood == pytest.approx(-model.n_rows * world.moments.saturated, abs=1e-2)
    assert sorted(model.pool.tolist()) == sorted(world.targets.tolist())
    pruned = prune(model, fit)
    order = [model.pool.tolist().index(row) for row in world.targets.tolist()]
    assert (pruned.adjacency[np.ix_(order, order)] == world.graph).all()
    mixed = np.abs(pruned.H[order] @ world.mixing)
    np.testing.assert_allclose(mixed / mixed.max(axis=1, keepdims=True), np.eye(N), atol=1e-3)


def test_same_seed_same_bits():
    _, first, *_ = solved(0)
    _, second, *_ = solved(0)
    assert (first == second).all()


def test_causes_come_first_and_then_targets_of_earlier_environments():
    pool = np.array([[0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]])
    fit = in_causal_order(Fit(np.eye(3), ((), (2,), ()), 0.0, pool=pool))
    assert fit.pool is not None
    assert fit.pool.tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert fit.graph == ((), (0,), ())
    np.testing.assert_array_equal(fit.H, np.eye(3)[[2, 1, 0]])


@pytest.mark.parametrize("place", [(0, 1), (2, 3), (1, 4)])
def test_single_wrong_targets_are_repaired(multi_node, place: tuple[int, int]):
    world = multi_node(1)
    wrong = world.targets.copy()
    wrong[place] ^= 1
    answer = _Answer.fitted(world.moments, wrong, np.linalg.inv(world.mixing))
    assert answer.goodness_of_fit.p_value < 1e-6
    found = _repaired(answer)
    assert found.goodness_of_fit.p_value > 0.9
    assert sorted(found.model.pool.tolist()) == sorted(world.targets.tolist())


def test_a_wrong_order_is_repaired(multi_node):
    world = multi_node(1)
    assert world.graph.any()
    order = [3, 0, 1, 2]
    start = np.linalg.inv(world.mixing)[order]
    answer = _Answer.fitted(world.moments, world.targets[order], start)
    assert answer.goodness_of_fit.p_value < 1e-6
    assert _repaired(answer).goodness_of_fit.p_value > 0.9


def test_insertions_are_all_moves_of_one_latent():
    found = [tuple(order) for order in _insertions(3)]
    assert sorted(found) == [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1)]


def test_short_vectors_of_the_lattice_are_a_start(multi_node):
    """Whatever it proposes has as many latents as there are dimensions, and full rank."""
    answers = [answer for seed in range(4) for answer in _from_lattice(multi_node(seed).moments)]
    assert answers
    assert all(np.linalg.matrix_rank(answer.model.pool) == N for answer in answers)
    assert max(answer.goodness_of_fit.p_value for answer in answers) > 0.9


def test_too_few_environments_are_refused(multi_node):
    moments = multi_node(0).moments
    few = Moments(moments.sizes[:4], moments.means[:4], moments.covariances[:4])
    with pytest.raises(IdentifiabilityError, match=r"4 latents need at least 4 .* Got 3"):
        find_targets(few, rng=np.random.default_rng(0))


def test_dependent_variables_are_refused(multi_node):
    moments = multi_node(0).moments
    flat = moments.covariances.copy()
    flat[1, 0] = flat[1, :, 0] = 0
    with pytest.raises(ValueError, match="linearly dependent"):
        find_targets(replace(moments, covariances=flat), rng=np.random.default_rng(0))


def test_environments_that_are_alike_do_no_harm():
    """Any targets will do; that nothing was intervened on is for the caller to say."""
    moments = Moments(np.full(5, 1000), np.zeros((5, N)), np.tile(np.eye(N), (5, 1, 1)))
    model, fit = find_targets(moments, rng=np.random.default_rng(0))
    assert np.isfinite(fit.H).all()
    assert np.linalg.matrix_rank(model.pool) == N
