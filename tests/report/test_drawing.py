from __future__ import annotations

import numpy as np
import pytest

from crlearn.data import erdos_renyi, y_graph
from crlearn.report._drawing import (
    Drawing,
    Edge,
    _bend,
    _clearance,
    _curve,
    graph_drawing,
    graphs_beside_each_other,
    layered_layout,
)

CHAIN = np.eye(3, k=1, dtype=bool)


@pytest.mark.parametrize("seed", range(5))
def test_causes_stand_above_their_effects_and_nodes_apart(seed: int):
    adjacency = erdos_renyi(9, 0.4, seed)
    positions = layered_layout(adjacency)
    for i, j in np.argwhere(adjacency):
        assert positions[i, 1] > positions[j, 1]
    assert len(np.unique(positions, axis=0)) == 9


def test_children_of_a_y_stand_beside_each_other():
    positions = layered_layout(y_graph())
    assert len(set(positions[:, 1])) == 3


def test_cycles_are_put_on_a_circle():
    cycle = np.roll(np.eye(4, dtype=bool), 1, axis=1)
    positions = layered_layout(cycle)
    assert np.linalg.norm(positions, axis=1) == pytest.approx(np.ones(4))


@pytest.mark.parametrize("seed", range(5))
def test_edges_keep_clear_of_other_nodes(seed: int):
    adjacency = erdos_renyi(6, 0.5, seed)
    positions = layered_layout(adjacency)
    for i, j in np.argwhere(adjacency):
        edge = Edge(int(i), int(j))
        curve = _curve(edge, positions, _bend(edge, positions))
        assert np.allclose(curve[[0, -1]], positions[[i, j]])
        assert _clearance(curve, np.delete(positions, [i, j], axis=0)) > 0.15  # radius of a node


def test_a_drawing_names_its_edges(parse):
    svg = parse(graph_drawing(Drawing("true graph", CHAIN, ["a", "b", "<c>"])).svg)
    assert svg.all("svg")[0]["aria-label"] == "true graph: nodes a, b, <c>; edges a → b, b → <c>."
    assert {"a", "b", "<c>", "true graph"} <= set(svg.text)


def test_long_names_stand_in_boxes_that_do_not_touch():
    none = np.zeros((3, 3), dtype=bool)
    short = graph_drawing(Drawing("g", none, ["a", "b", "c"]))
    long = graph_drawing(Drawing("g", none, ["knock-out of A", "knock-out of B", "control"]))
    assert long.width > short.width
    apart = np.diff(np.sort(layered_layout(none, breadth=3.0)[:, 0]))
    assert apart == pytest.approx([3.0, 3.0])


def test_a_graph_without_edges_says_so(parse):
    plot = graph_drawing(Drawing("true graph", np.zeros((1, 1), dtype=bool), ["z0"]))
    assert "true graph: no edges" in parse(plot.svg).text


def test_undirected_edges_are_no_arrows(parse):
    svg = parse(graph_drawing(Drawing("g", CHAIN | CHAIN.T, ["a", "b", "c"])).svg)
    assert "edges a – b, b – c" in (svg.all("svg")[0]["aria-label"] or "")


def test_right_wrong_and_missed_edges_look_different():
    found = np.zeros((3, 3), dtype=bool)
    found[0, 1] = found[2, 1] = True
    names = ["a", "b", "c"]
    plot = graphs_beside_each_other(Drawing("true", CHAIN, names), Drawing("found", found, names))
    for mark in ("right", "wrong", "missed", "stroke-dasharray"):
        assert mark in plot.svg


def test_large_graphs_are_counted_not_listed(parse):
    adjacency = np.triu(np.ones((12, 12), dtype=bool), k=1)
    svg = parse(graph_drawing(Drawing("g", adjacency, [f"z{i}" for i in range(12)])).svg)
    assert svg.all("svg")[0]["aria-label"] == "g: 12 nodes, 66 edges."
