import networkx as nx
import numpy as np
import pytest

from crlearn.exceptions import MissingExtraError
from crlearn.graph import (
    cpdag,
    from_causallearn,
    from_networkx,
    to_causallearn,
    to_dowhy,
    to_networkx,
)

CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
COLLIDER_WITH_TAIL = np.array([[0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=bool)
GRAPHS = [
    CHAIN,
    cpdag(CHAIN),
    COLLIDER_WITH_TAIL,
    COLLIDER_WITH_TAIL.T,
    np.zeros((2, 2), dtype=bool),
]


@pytest.mark.parametrize("graph", GRAPHS)
def test_networkx_and_back(graph):
    np.testing.assert_array_equal(from_networkx(to_networkx(graph)), graph)


def test_networkx_names():
    graph = to_networkx(CHAIN, names=["a", "b", "c"])
    assert list(graph.edges) == [("a", "b"), ("b", "c")]
    np.testing.assert_array_equal(from_networkx(graph, names=["c", "b", "a"]), CHAIN[::-1, ::-1])


@pytest.mark.parametrize("names", [["a", "b"], ["a", "a", "b"]])
def test_names_must_be_distinct_and_complete(names):
    with pytest.raises(ValueError, match="one distinct name for each of the 3 nodes"):
        to_networkx(CHAIN, names)


@pytest.mark.parametrize("names", [["a"], ["a", "z"], ["a", "b", "b"]])
def test_names_must_be_the_nodes(names):
    with pytest.raises(ValueError, match=r"The nodes are \['a', 'b'\]"):
        from_networkx(nx.DiGraph([("a", "b")]), names)


@pytest.mark.parametrize("graph", GRAPHS)
def test_causallearn_and_back(graph):
    pytest.importorskip("causallearn")
    np.testing.assert_array_equal(from_causallearn(to_causallearn(graph)), graph)


def test_causallearn_reads_the_directions_as_meant():
    pytest.importorskip("causallearn")
    graph = to_causallearn(COLLIDER_WITH_TAIL, names=list("abcd"))
    parents = graph.get_parents(graph.get_node("c"))
    assert sorted(node.get_name() for node in parents) == ["a", "b"]
    by_name = from_causallearn(graph, names=list("dcba"))
    np.testing.assert_array_equal(by_name, COLLIDER_WITH_TAIL[::-1, ::-1])


def test_causallearn_result_of_a_search_is_unwrapped():
    pytest.importorskip("causallearn")
    wrapper = type("CausalGraph", (), {"G": to_causallearn(CHAIN)})()
    np.testing.assert_array_equal(from_causallearn(wrapper), CHAIN)


@pytest.mark.parametrize("marks", [[[0, 1], [1, 0]], [[0, 2], [1, 0]]])
def test_causallearn_edges_with_hidden_causes_are_refused(marks):
    pytest.importorskip("causallearn")
    graph = to_causallearn(np.zeros((2, 2)))
    graph.graph = np.array(marks)
    with pytest.raises(ValueError, match="bidirected or circle-marked"):
        from_causallearn(graph)


def test_missing_causallearn_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "causallearn.graph.GeneralGraph", None)
    with pytest.raises(MissingExtraError, match=r"crlearn\[graph\]"):
        to_causallearn(CHAIN)


@pytest.mark.parametrize(
    ("graph", "names", "edges"),
    [
        (CHAIN, None, [("z0", "z1"), ("z1", "z2")]),
        (CHAIN, ["gene A", "b", "c"], [("gene A", "b"), ("b", "c")]),
        (nx.DiGraph([("x", "y")]), None, [("x", "y")]),
    ],
)
def test_dowhy_text_is_gml(graph, names, edges):
    text = to_dowhy(graph, names)
    assert "\n" not in text
    parsed = nx.parse_gml(text)
    assert parsed.is_directed()
    assert list(parsed.edges) == edges


def test_dowhy_takes_no_cycles():
    with pytest.raises(ValueError, match="must be acyclic"):
        to_dowhy(cpdag(CHAIN))
