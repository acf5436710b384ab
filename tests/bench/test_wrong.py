from __future__ import annotations

from typing import Any

import numpy as np

from crlearn.bench._wrong import wrong_graphs
from crlearn.data import make_multi_domain


def test_one_edge_is_left_out_or_turned_around():
    world: Any = make_multi_domain(4, 10, 200, random_state=0)
    found: Any = wrong_graphs(world)
    graph = world.truth.graph
    less, turned = found["$graph_less_an_edge"], found["$graph_with_a_reversed_edge"]
    assert less.sum() == graph.sum() - 1
    (edge,) = np.argwhere(graph & ~less)
    assert turned[edge[1], edge[0]]
    np.testing.assert_array_equal(turned & ~less, turned & ~graph)


def test_it_is_the_edge_that_shows_most():
    """Edges 0 -> 1 -> 2; the first hardly does anything in the domains that leave 1 alone."""
    world: Any = make_multi_domain(3, 10, 500, random_state=0)
    Z = world.truth.Z.copy()
    rng = np.random.default_rng(0)
    Z[:, 1] = rng.standard_normal(len(Z))
    Z[:, 2] = 3 * Z[:, 1] + rng.standard_normal(len(Z))
    world.truth.Z.flags.writeable = True
    world.truth.Z[:] = Z
    less: Any = wrong_graphs(world)["$graph_less_an_edge"]
    assert np.argwhere(world.truth.graph & ~less).tolist() == [[1, 2]]


def test_an_edge_beside_another_way_is_none_of_them():
    """0 -> 2 is left alone: nothing that interventions move depends on it."""
    graph = np.triu(np.ones((3, 3), dtype=bool), k=1)
    world: Any = make_multi_domain(3, 10, 200, graph=graph, random_state=0)
    less: Any = wrong_graphs(world)["$graph_less_an_edge"]
    true = np.array(world.truth.graph)
    direct = np.argwhere(true & ~less)[0]
    assert not (true[direct[0]] & true[:, direct[1]]).any()


def test_no_edges():
    world = make_multi_domain(2, 5, 50, graph=np.zeros((2, 2)), random_state=0)
    assert wrong_graphs(world)["$graph_less_an_edge"] is None
