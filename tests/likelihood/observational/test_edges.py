"""Edges are dropped and added; cycles are refused; what is true is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crlearn.graph import Graph, complete_graph
from crlearn.likelihood.observational._edges import EdgeSearch, restructured
from crlearn.likelihood.observational._model import RelevanceModel, has_hidden_units
from crlearn.likelihood.search._local import LEAST_GAIN

CHAIN = ((), (0,), (1,))
COLLIDER = ((), (), (0, 1))
COMPLETE = complete_graph(range(3))


def edges(ranked: Any) -> set[tuple[int, int]]:
    return {edge for _, edge in ranked}


@pytest.fixture
def search(chain: Any) -> EdgeSearch:
    return EdgeSearch(chain.model)


class TestRestructured:
    Y_GRAPH = ((), (0,), (1,), (1,))

    @pytest.mark.parametrize(
        "graph",
        [
            ((), (0,), (1,), ()),
            ((), (0,), (1,), (0, 1)),
            ((), (0,), (1,), (0, 2)),
            ((), (), (0, 1), (0, 1, 2)),
        ],
        ids=["one less", "one more", "others", "several"],
    )
    def test_mechanisms_follow_the_graph(self, graph: Graph):
        fit = RelevanceModel(np.zeros((1, 4))).start(np.eye(4), self.Y_GRAPH)
        changed = restructured(fit, graph)
        assert changed.graph == graph
        assert [s.n_parents for s in changed.parameters] == [len(p) for p in graph]
        untouched = [j for j in range(4) if graph[j] == self.Y_GRAPH[j]]
        assert all(changed.parameters[j] is fit.parameters[j] for j in untouched)

    def test_precisions_stay_with_their_parents(self):
        fit = RelevanceModel(np.zeros((1, 4))).start(np.eye(4), ((), (), (), (0, 2)))
        shape = replace(fit.parameters[3], linear=np.array([5.0, 7.0]))
        fit = replace(fit, parameters=(*fit.parameters[:3], shape))
        found = restructured(fit, ((), (), (), (1, 2))).parameters[3].linear
        assert found[1] == 7
        assert found[0] not in (5, 7)

    def test_a_further_parent_brings_hidden_units(self, chain: Any):
        fit = chain.model.start(chain.H, CHAIN)
        assert has_hidden_units(restructured(fit, COMPLETE))
        assert not has_hidden_units(fit)


class TestRanking:
    def test_losses_tell_needed_edges_from_others(self, chain: Any, search: EdgeSearch):
        model = chain.model
        needed = search._losses(model.fitted(model.start(chain.H, CHAIN), 100))
        assert edges(needed) == {(0, 1), (1, 2)}
        assert min(loss for loss, _ in needed) > 50
        dense = search._losses(model.fitted(model.start(chain.H, COMPLETE), 100))
        assert edges([dense[0]]) == {(0, 2)}
        assert dense[0][0] < 0
        assert [loss for loss, _ in dense] == sorted(loss for loss, _ in dense)

    def test_gains_do_so_too(self, chain: Any, search: EdgeSearch):
        model = chain.model
        poor = model.shaped(model.start(chain.H, ((), (0,), ())))
        gains = {edge: -cost for cost, edge in search._gains(poor)}
        assert gains[1, 2] > 50
        rich = model.shaped(model.start(chain.H, CHAIN))
        assert all(cost > -LEAST_GAIN for cost, _ in search._gains(rich))

    def test_no_cause_is_ranked_that_would_close_a_cycle(self, chain: Any, search: EdgeSearch):
        fit = chain.model.start(chain.H, ((), (0,), ()))
        assert edges(search._gains(fit)) == {(0, 2), (1, 2), (2, 0), (2, 1)}
        assert edges(search._gains(chain.model.start(chain.H, CHAIN))) == {(0, 2)}


class TestSparsified:
    def test_a_dense_graph_loses_the_edges_that_it_does_not_need(
        self, chain: Any, search: EdgeSearch
    ):
        found = search.sparsified(chain.model.start(chain.H, COMPLETE))
        assert found.graph == CHAIN
        assert found.score == chain.model.scored(found).score

    def test_many_edges_are_dropped_at_once(self, gaussian: Any):
        search = EdgeSearch(gaussian.model)
        found = search.sparsified(gaussian.model.start(gaussian.H, COMPLETE))
        assert found.n_edges == 0
        assert not search.not_taken  # single edges were never tried

    def test_hidden_units_that_are_needed_stay(self, network: Any):
        search = EdgeSearch(network.model)
        start = network.model.start(network.H, COMPLETE, hidden_units=True)
        found = search.sparsified(start)
        assert found.graph == COLLIDER
        assert has_hidden_units(found)


class TestImproved:
    @pytest.mark.parametrize(
        "wrong",
        [((), (0,), ()), ((), (), (1,)), COMPLETE, ((), (0,), (0,))],
        ids=["an edge is missing", "another one is", "an edge too many", "a wrong cause"],
    )
    def test_wrong_graphs_are_mended(self, chain: Any, search: EdgeSearch, wrong: Graph):
        start = chain.model.scored(chain.model.shaped(chain.model.start(chain.H, wrong)))
        found = search.improved(start)
        assert found.graph == CHAIN
        assert found.score > start.score + LEAST_GAIN
        assert any(other is start for other in search.not_taken)

    def test_what_is_true_is_left_alone(self, chain: Any, search: EdgeSearch):
        true = search.refitted(chain.model.start(chain.H, CHAIN))
        assert search.improved(true) is true
        # What has an edge too many is no other explanation.
        assert all(other.n_edges < 2 for other in search.not_taken)

    def test_edges_are_added_only_if_wanted(self, chain: Any, search: EdgeSearch):
        model = chain.model
        poor = model.scored(model.shaped(model.start(chain.H, ((), (0,), ()))))
        assert search.improved(poor, adding=False) is poor
        assert search.improved(poor).graph == CHAIN

    def test_a_weak_edge_leaves_the_structure_without_it(self):
        y = np.random.default_rng(0).standard_normal((500, 2))
        y[:, 1] += 0.14 * y[:, 0] ** 2
        y = (y - y.mean(axis=0)) / y.std(axis=0)
        model = RelevanceModel(y)
        search = EdgeSearch(model)
        found = search.improved(search.refitted(model.start(np.eye(2), ((), (0,)))))
        assert found.graph == ((), (0,))
        (without,) = search.not_taken
        assert without.graph == ((), ())
        assert 0 < found.score - without.score < 10


class TestRefined:
    def test_nothing_changes_where_there_are_no_hidden_units(self, chain: Any, search: EdgeSearch):
        true = chain.model.scored(chain.model.start(chain.H, CHAIN))
        assert search.refined(true) is true

    def test_it_is_never_worse(self, network: Any):
        search = EdgeSearch(network.model)
        fit = network.model.start(network.H, COLLIDER, hidden_units=True)
        poor = network.model.scored(fit)
        better = search.refined(poor)
        assert better.score > poor.score + 10
        assert search.refined(better).score >= better.score


def test_what_a_lost_parent_does_beside_others_is_absorbed(chain: Any, search: EdgeSearch):
    """Latent 2 is counted with some of latent 0 in it, and its cause is right."""
    mixed = chain.H.copy()
    mixed[2] += 0.3 * mixed[0]
    fit = chain.model.shaped(chain.model.start(mixed, COMPLETE))
    assert abs(fit.H[2] @ chain.H[2]) < 0.99
    found = search._moved(fit, CHAIN)
    assert abs(found.H[2] @ chain.H[2]) > 0.999
    np.testing.assert_array_equal(found.H[:2], fit.H[:2])
