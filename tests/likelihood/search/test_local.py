from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlearn.likelihood.nodes._selected import AdditiveModel
from crlearn.likelihood.search._edges import (
    adjacency_of,
    best_graph_at,
    climb,
    graph_of,
    is_acyclic,
    neighbours,
)

POOL = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
TRUE = ((), (0,), (1,))
MIXING = np.array([[1.0, 0.3, 0.2], [0.0, 1.0, 0.4], [0.1, 0.0, 1.0]])


@pytest.fixture(scope="module")
def model() -> AdditiveModel:
    """z0 -> z1 -> z2 with bends, each latent cut off in one environment."""
    rng = np.random.default_rng(0)
    environments = []
    for e in range(4):
        z = rng.standard_normal((2000, 3)) * [1.0, 0.5, 0.5]
        z[:, 0] *= 1 + (e == 1)
        z[:, 1] += (e != 2) * np.abs(z[:, 0])
        z[:, 2] += (e != 3) * np.sin(2 * z[:, 1])
        environments.append(z @ MIXING.T)
    return AdditiveModel(environments, POOL, hard=True)


@given(st.integers(0, 2**6 - 1))
def test_acyclicity_agrees_with_networkx(bits: int):
    places = [(i, j) for i in range(3) for j in range(3) if i != j]
    adjacency = np.zeros((3, 3), dtype=bool)
    for k, place in enumerate(places):
        adjacency[place] = bits >> k & 1
    graph = graph_of(adjacency)
    assert is_acyclic(graph) == nx.is_directed_acyclic_graph(nx.DiGraph(adjacency))
    assert (adjacency_of(graph) == adjacency).all()


def test_neighbours_of_a_chain():
    found = list(neighbours(TRUE))
    assert len(found) == len(set(found)) == 5  # two removed, two turned, 0 -> 2 added
    assert all(is_acyclic(graph) for graph in found)
    assert ((), (), (1,)) in found
    assert ((1,), (), (1,)) in found
    assert ((), (0,), (0, 1)) in found


def test_the_best_graph_at_the_true_encoder(model: AdditiveModel):
    assert best_graph_at(model, np.linalg.inv(MIXING)) == TRUE


@pytest.mark.parametrize("start", [((), (), ()), ((), (0,), (0, 1)), ((1,), (), (0, 1))])
def test_climbing_reaches_the_true_graph(model: AdditiveModel, start: tuple[tuple[int, ...], ...]):
    near = np.linalg.inv(MIXING) + 0.05 * np.random.default_rng(1).standard_normal((3, 3))
    found = climb(model, near, start)
    assert found.graph == TRUE
    assert found.bic == pytest.approx(model.bic(model.value(found.H, TRUE)))
