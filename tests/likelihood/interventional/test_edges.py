from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from crlearn.graph import complete_graph, graph_of, topological_order, transitive_closure
from crlearn.likelihood import Fit
from crlearn.likelihood.interventional._edges import (
    ExactPruning,
    edge_p_values,
    losses_of_edges,
    promised,
    prune,
    search_sparse_orders,
    standard_errors,
)

N = 4


def truth_of(world) -> Fit:
    return world.model.fitted(np.linalg.inv(world.mixing), graph_of(world.graph))


def with_all_edges(world) -> Fit:
    """The fit of the true order, from the true encoder."""
    order = topological_order(world.graph).tolist()
    return world.model.fitted(np.linalg.inv(world.mixing), complete_graph(order))


@pytest.mark.parametrize("intervention", ["hard", "soft"])
@pytest.mark.parametrize("seed", range(3))
def test_exact_covariances_need_the_true_edges_alone(exact, seed: int, intervention: str):
    world = exact(seed, intervention)
    full = with_all_edges(world)
    found = prune(world.model, full)
    assert found.score > full.score
    if intervention == "hard":
        assert (found.adjacency == world.graph).all()
    else:  # noises of parents have all of their ancestors' in them
        assert not (found.adjacency & ~transitive_closure(world.graph)).any()
    saturated = -world.model.n_rows * world.model.moments.saturated
    assert found.log_likelihood == pytest.approx(saturated, abs=1e-2)


@pytest.mark.parametrize("noise", ["gaussian", "exponential"])
def test_needless_edges_go_whatever_the_noise(drawn, noise: str):
    world = drawn(N, 2000, noise=noise)
    assert (prune(world.model, with_all_edges(world)).adjacency == world.graph).all()


def test_nothing_is_left_of_a_graph_without_edges(drawn):
    world = drawn(N, 1000, edge_probability=0.0)
    assert not world.graph.any()
    found = prune(
        world.model, world.model.fitted(np.linalg.inv(world.mixing), ((), (0,), (0, 1), (2,)))
    )
    assert found.n_edges == 0


@pytest.mark.parametrize("intervention", ["hard", "soft"])
@pytest.mark.parametrize("seed", range(3))
def test_pruned_fits_keep_what_they_promise(drawn, seed: int, intervention: str):
    world = drawn(N, 2000, intervention, seed=seed)
    full = with_all_edges(world)
    assert promised(world.model, full) == pytest.approx(prune(world.model, full).score, abs=2)


@pytest.mark.parametrize("seed", [5, 9])
def test_orders_are_chosen_by_what_is_left_of_them(drawn, seed: int):
    """Beside raised variance a reversed order has about the likelihood, but not with few edges."""
    world = drawn(N, 2000, "soft", seed=seed, variance_factor=5.0)
    truth = with_all_edges(world)
    found = search_sparse_orders(ExactPruning(world.model), truth)
    for other in found.alternatives:
        assert other.score <= found.score
        order = topological_order(other.adjacency).tolist()
        start = world.model.fitted(other.H, complete_graph(order))
        again = search_sparse_orders(ExactPruning(world.model), start)
        assert again.score == pytest.approx(found.score, abs=0.1)
        assert again.graph == found.graph
    assert any((found.adjacency & other.adjacency.T).any() for other in found.alternatives)


@pytest.mark.parametrize("intervention", ["hard", "soft"])
def test_losses_of_needless_edges_are_those_of_refitted_models(drawn, intervention: str):
    world = drawn(N, 2000, intervention, min_edge_effect=None)
    model, full = world.model, with_all_edges(world)
    losses = losses_of_edges(model, full)
    assert np.isinf(losses[~full.adjacency]).all()
    weak = np.argwhere(losses < 5)
    assert len(weak) > 0
    for i, j in weak:
        without = full.adjacency.copy()
        without[i, j] = False
        lost = full.log_likelihood - model.fitted(full.H, graph_of(without)).log_likelihood
        assert losses[i, j] == pytest.approx(lost, rel=0.2, abs=0.05)


@pytest.mark.parametrize("intervention", ["hard", "soft"])
def test_an_edge_that_is_left_out_has_the_p_value_of_the_model_with_it(drawn, intervention):
    world = drawn(N, 2000, intervention, min_edge_effect=None)
    model, full = world.model, with_all_edges(world)
    i, j = min(
        map(tuple, np.argwhere(full.adjacency)), key=lambda edge: losses_of_edges(model, full)[edge]
    )
    without = full.adjacency.copy()
    without[i, j] = False
    fit = model.fitted(full.H, graph_of(without))
    ratio = 2 * (full.log_likelihood - fit.log_likelihood)
    p_values = edge_p_values(model, fit)
    assert p_values[i, j] == pytest.approx(chi2.sf(ratio, 1), rel=0.3)
    assert p_values[j, i] == 1.0  # it would close a cycle


def test_edges_have_small_p_values_and_encoders_small_errors(exact):
    world = exact(2)
    fit = truth_of(world)
    p_values = edge_p_values(world.model, fit)
    assert (p_values[fit.adjacency] < 1e-6).all()
    assert (p_values[~fit.adjacency] > 0.99).all()  # moments are exact: nothing is to be gained
    few, many = (standard_errors(exact(2, n_samples=n).model, fit) for n in (1000, 100_000))
    assert (np.diag(few) == 0).all()
    np.testing.assert_allclose(few, 10 * many, rtol=1e-6)


def test_p_values_do_not_depend_on_whether_a_ratio_is_predicted(drawn, monkeypatch):
    """Ratios beyond doubt are predicted; where they are fitted, they say the same."""
    world = drawn(3, 300, seed=2)
    fit = truth_of(world)
    predicted = edge_p_values(world.model, fit)
    monkeypatch.setattr("crlearn.likelihood.interventional._edges._CLEAR", np.inf)
    fitted = edge_p_values(world.model, fit)
    assert ((predicted < 1e-6) == (fitted < 1e-6)).all()


@pytest.mark.parametrize("noise", ["gaussian", "exponential"])
def test_standard_errors_are_honest(drawn, noise: str):
    """The truth is (I + D) H, up to scales, with D as small as they say, heavy tails or not."""
    deviations = []
    for seed in range(20):
        world = drawn(3, 600, seed=seed, noise=noise)
        fit = truth_of(world)
        D = np.linalg.inv(fit.H @ world.mixing)
        D = D / np.diag(D)[:, None]
        off = ~np.eye(3, dtype=bool)
        deviations.append((D / np.where(off, standard_errors(world.model, fit), 1))[off])
    found = np.concatenate(deviations)
    assert 0.8 < np.std(found) < 1.25
    assert 0.02 < np.mean(np.abs(found) > 1.96) < 0.12


def test_heavy_tails_widen_standard_errors(drawn):
    """Without rows the same moments are taken for those of Gaussian ones."""
    world = drawn(3, 5000, seed=1, noise="exponential")
    fit, moments = truth_of(world), world.model.moments
    gaussian = replace(world.model, moments=replace(moments, sample=None))
    off = ~np.eye(3, dtype=bool)
    wider = (standard_errors(world.model, fit)[off] / standard_errors(gaussian, fit)[off]) ** 2
    np.testing.assert_allclose(wider, world.model.linearised(fit).weights_of_encoder())
    assert wider.mean() > 1.1


def test_an_edge_without_effect_is_not_significant(exact):
    world = exact(0)
    needless = np.argwhere(~world.graph & np.triu(np.ones((N, N), dtype=bool), 1))
    assert len(needless)
    for i, j in needless:
        wider = world.graph.copy()
        wider[i, j] = True
        fit = world.model.fitted(np.linalg.inv(world.mixing), graph_of(wider))
        assert edge_p_values(world.model, fit)[i, j] > 0.9
