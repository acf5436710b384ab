from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crlearn.likelihood import Fit
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.nodes._linear import LinearModel

POOL = np.array([[0, 0, 1, 0], [0, 0, 0, 2], [0, 1, 0, 0]])


@pytest.fixture
def fit() -> Fit:
    """The chain 2 -> 0 -> 1."""
    return Fit(
        H=np.arange(9.0).reshape(3, 3),
        graph=((2,), (0,), ()),
        log_likelihood=-100.0,
        price=7.0,
        pool=POOL,
        edge_p_values=np.arange(9.0).reshape(3, 3) / 10,
        standard_errors=np.arange(9.0).reshape(3, 3),
    )


def test_larger_scores_are_better(fit: Fit):
    assert fit.score == -107
    assert replace(fit, price=8.0).score < fit.score < replace(fit, log_likelihood=-99.0).score


def test_what_follows_from_the_graph(fit: Fit):
    assert fit.n_edges == 2
    assert np.argwhere(fit.adjacency).tolist() == [[0, 1], [2, 0]]
    assert fit.layers == ((1,), (0,), (2,))


def test_targets(fit: Fit):
    expected = [[False] * 3, [False, False, True], [True, False, False], [False, True, False]]
    assert fit.targets.tolist() == expected


def test_causes_first(fit: Fit):
    found = fit.causes_first()
    assert found.graph == ((), (0,), (1,))
    np.testing.assert_array_equal(found.H, fit.H[[2, 0, 1]])
    assert found.pool is not None
    assert found.edge_p_values is not None
    assert found.standard_errors is not None
    np.testing.assert_array_equal(found.pool, POOL[[2, 0, 1]])
    assert found.edge_p_values[0, 1] == 0.6  # 2 -> 0
    assert found.edge_p_values[1, 2] == 0.1  # 0 -> 1
    assert found.standard_errors[0, 1] == 6
    assert found.score == fit.score


def test_orders_are_undone_by_their_inverse(fit: Fit):
    there = fit.reordered([1, 2, 0])
    back = there.reordered(np.argsort([1, 2, 0]))
    assert back.graph == fit.graph
    np.testing.assert_array_equal(back.H, fit.H)
    np.testing.assert_array_equal(back.edge_p_values, fit.edge_p_values)  # type: ignore[arg-type]


def test_competing_structures_speak_of_the_same_latents(fit: Fit):
    other = replace(fit, graph=((), (0,), ()), price=3.5)
    found = replace(fit, alternatives=(other,)).reordered([2, 0, 1])
    (reordered,) = found.alternatives
    assert reordered.graph == ((), (), (1,))
    np.testing.assert_array_equal(reordered.H, found.H)


def test_what_is_not_known_stays_so():
    found = Fit(np.eye(2), ((1,), ()), 0.0).causes_first()
    assert found.pool is found.edge_p_values is found.standard_errors is None


def test_a_model_of_reordered_latents_agrees(multi_node):
    """Reordering changes names alone: the likelihood of a fit is that of the reordered one."""
    world = multi_node(0)
    graph = tuple(tuple(np.flatnonzero(column).tolist()) for column in world.graph.T)
    model = LinearModel(world.moments, world.targets, hard=True)
    found = model.fitted(np.linalg.inv(world.mixing), graph, max_steps=1).reordered([3, 1, 0, 2])
    assert isinstance(world.moments, Moments)
    assert found.pool is not None
    again = LinearModel(world.moments, found.pool, hard=True)
    value = again.fitted(found.H, found.graph, max_steps=0)
    assert value.log_likelihood == pytest.approx(found.log_likelihood, abs=1e-4)
