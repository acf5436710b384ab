"""Edges are dropped, turned and added; cycles are refused; what is true is left alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from crlearn.likelihood._evidence import Structure, complete
from crlearn.likelihood._structure_search import Move, StructureSearch

pytestmark = pytest.mark.usefixtures("one_thread")

Matrix = NDArray[np.floating]
Y_GRAPH = ((), (0,), (1,), (1,))


@pytest.fixture(scope="module")
def world() -> tuple[Matrix, Matrix]:
    """Whitened rows of a Y graph with sines and squares, and the encoder."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((1000, 4)) * [1.0, 0.5, 0.5, 0.5]
    Z = noise.copy()
    Z[:, 1] += np.sin(2 * Z[:, 0])
    Z[:, 2] += Z[:, 1] ** 2
    Z[:, 3] += np.cos(2 * Z[:, 1])
    Z -= Z.mean(axis=0)
    y = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / 1000)).T
    return y, np.linalg.lstsq(y, Z, rcond=None)[0].T


def test_a_dense_graph_loses_the_edges_that_it_does_not_need(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    found = StructureSearch(y, 3.0).sparsified(Structure.start(H, complete(4)))
    assert found.structure.graph == Y_GRAPH


def test_missing_edges_are_added(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    search = StructureSearch(y, 3.0)
    poor = search.settled(Structure.start(H, ((), (0,), (1,), ())), 40)
    assert search.improved(poor).structure.graph == Y_GRAPH


def test_the_true_graph_is_left_alone(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    search = StructureSearch(y, 3.0)
    true = search.settled(Structure.start(H, Y_GRAPH), 100)
    assert search.improved(true).structure.graph == Y_GRAPH


def test_edges_have_their_price(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    structure = Structure.start(H, Y_GRAPH)
    cheap, dear = (
        StructureSearch(y, 0.0).priced(structure),
        StructureSearch(y, 5.0).priced(structure),
    )
    assert dear.cost == pytest.approx(cheap.cost + 15)


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        (Move("drop", 1, 3), ((), (0,), (1,), ())),
        (Move("turn", 1, 3), ((), (0, 3), (1,), ())),
        (Move("add", 0, 3), ((), (0,), (1,), (0, 1))),
        (Move("add", 3, 0), None),  # a cycle
        (Move("add", 1, 3), None),  # there already
        (Move("drop", 0, 3), None),  # not there
        (Move("add", 3, 1), None),  # the other way round there
    ],
)
def test_moves(move: Move, expected: tuple[tuple[int, ...], ...] | None) -> None:
    changed = move.apply(Structure.start(np.eye(4), Y_GRAPH))
    assert (changed and changed.graph) == expected
    if changed is not None:
        assert [s.n_parents for s in changed.shapes] == [len(p) for p in changed.graph]
