"""Edges are dropped and added; cycles are refused; what is true is left alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from crlearn.likelihood.observational._edges import (
    Move,
    StructureSearch,
    _absorbing,
    telling_rows,
)
from crlearn.likelihood.observational._model import Structure, complete

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


def test_losses_tell_needed_edges_from_others(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    search = StructureSearch(y, 3.0)
    sparse = Structure.start(H, Y_GRAPH).shaped(y).fitted(y)
    assert min(loss for loss, _ in search.ranked_losses(sparse)) > 50
    dense = Structure.start(H, complete(4)).shaped(y).fitted(y)
    for loss, move in search.ranked_losses(dense):
        if move.cause not in Y_GRAPH[move.effect]:
            assert loss < 0


def test_what_a_lost_parent_does_beside_others_is_absorbed(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    # Latent 2 is counted with a third of latent 3 in it, and its causes are right.
    mixed = H.copy()
    mixed[2] += 0.3 * mixed[3]
    structure = Structure.start(mixed, ((), (0,), (1, 3), (1,))).shaped(y)
    without = Move("drop", 3, 2).apply(structure)
    assert without is not None
    found = _absorbing(without, structure.graph, y).H[2]
    true = H[2] / np.linalg.norm(H[2])
    assert np.abs(found @ true) > 0.999


def test_missing_edges_are_added(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    search = StructureSearch(y, 3.0)
    poor = search.settled(Structure.start(H, ((), (0,), (1,), ())), 40)
    assert search.improved(poor).structure.graph == Y_GRAPH
    assert any(other is poor for other in search.not_taken)


def test_a_polish_changes_nothing_where_there_are_no_units(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    search = StructureSearch(y, 3.0)
    true = search.priced(Structure.start(H, Y_GRAPH).shaped(y))
    assert search.polished(true) is true


def test_a_polish_is_never_worse(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    search = StructureSearch(y, 3.0)
    dense = search.priced(Structure.start(H, complete(4), units=True))
    assert search.polished(dense).cost < dense.cost


def test_what_has_an_edge_too_many_is_no_rival(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    search = StructureSearch(y, 3.0)
    search.improved(search.settled(Structure.start(H, Y_GRAPH), 100))
    assert all(other.structure.n_edges < 3 for other in search.not_taken)


def test_no_cause_is_ranked_that_would_close_a_cycle(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    search, structure = StructureSearch(y, 3.0), Structure.start(H, Y_GRAPH).shaped(y)
    gains = search._ranked_gains(structure)
    edges = {(move.cause, move.effect) for _, move in gains}
    assert edges == {(0, 2), (0, 3), (2, 3), (3, 2)}
    sinks = {(move.cause, move.effect) for _, move in search._gains_of_sinks(structure)}
    assert sinks <= {(2, 3), (3, 2)}


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


def test_rows_are_spread_evenly() -> None:
    y = np.arange(-4.5, 5)[:, None] / 5
    assert telling_rows(y, 20) is y
    assert telling_rows(y, 4)[:, 0].tolist() == y[[0, 3, 6, 9], 0].tolist()


def test_rows_far_out_are_among_those_that_tell() -> None:
    y = np.random.default_rng(0).standard_normal((5000, 3))
    y[[17, 2500, 4321]] *= [[30.0], [80.0], [50.0]]
    some = telling_rows(y, 500)
    assert len(some) == 500
    assert len(np.unique(some, axis=0)) == 500
    assert {tuple(row) for row in y[[17, 2500, 4321]]} <= {tuple(row) for row in some}
    assert np.sum(np.linalg.norm(some, axis=1) > 10) == 3


def test_rows_without_tails_are_spread_evenly() -> None:
    y = np.random.default_rng(0).uniform(-1, 1, (5000, 3))
    assert np.array_equal(telling_rows(y, 500), y[np.linspace(0, 4999, 500).astype(int)])


def test_few_rows_are_far_out() -> None:
    y = np.random.default_rng(0).standard_normal((5000, 3))
    y[::10] *= 100
    some = np.linalg.norm(telling_rows(y, 500), axis=1)
    assert np.all(np.sort(np.linalg.norm(y, axis=1))[-10:] == np.sort(some)[-10:])
    assert np.mean(some > 10) < 0.15
