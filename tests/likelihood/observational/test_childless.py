"""A latent without effects is found as a cause, whatever of its own causes it is counted with."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from crlearn.likelihood.observational._childless import best_combination
from crlearn.likelihood.observational._edges import Move, StructureSearch
from crlearn.likelihood.observational._model import Structure
from crlearn.likelihood.search._edges import Graph

pytestmark = pytest.mark.usefixtures("one_thread")

Matrix = NDArray[np.floating]


@pytest.fixture(scope="module")
def line() -> Matrix:
    """Two causes, their effect, and what depends on it through a curve without a linear part."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((1500, 4)) * [1.0, 1.0, 0.6, 0.9]
    Z[:, 2] += np.sin(Z[:, 0]) + 0.3 * Z[:, 1] ** 2
    Z -= Z.mean(axis=0)
    Z /= Z.std(axis=0)
    Z[:, 3] += 0.5 * np.cos(2 * Z[:, 2])
    return (Z - Z.mean(axis=0)) / Z.std(axis=0)


@pytest.mark.parametrize("taken", [(0.0, 0.0), (0.7, 0.0), (-0.8, 0.5), (1.5, -1.0)])
def test_the_combination_that_matters_is_found(line: Matrix, taken: tuple[float, float]) -> None:
    sink = line[:, 2] + line[:, :2] @ taken
    found = best_combination(line[:, 3], sink, line[:, :2])
    assert found is not None
    np.testing.assert_allclose(found.taken, [-taken[0], -taken[1]], atol=0.15)
    assert found.gain < -50


def test_one_cause_is_enough(line: Matrix) -> None:
    found = best_combination(line[:, 3], line[:, 2] + 0.9 * line[:, 0], line[:, :1])
    assert found is not None
    np.testing.assert_allclose(found.taken, [-0.9], atol=0.15)


def test_nothing_is_gained_where_there_is_nothing(line: Matrix) -> None:
    noise = np.random.default_rng(1).standard_normal(len(line))
    found = best_combination(noise, line[:, 2], line[:, :2])
    assert found is None or found.gain > -3


def test_what_the_causes_do_is_not_the_sink(line: Matrix) -> None:
    effect = np.random.default_rng(1).standard_normal(len(line)) + np.cos(2 * line[:, 0])
    assert best_combination(effect, line[:, 2], line[:, :2]) is None


def test_a_sink_is_counted_with_its_own_causes() -> None:
    structure = Structure.start(np.eye(4), ((), (), (0, 1), ()))
    moved = Move("add", 2, 3, ((0, 1.0), (1, 1.0))).apply(structure)
    assert moved is not None
    assert moved.graph == ((), (), (0, 1), (2,))
    np.testing.assert_allclose(moved.H[2], [3**-0.5, 3**-0.5, 3**-0.5, 0])


@pytest.mark.parametrize(
    "graph", [((), (), (0,), ()), ((), (), (0, 1), (), (2,))], ids=["lost a cause", "no sink"]
)
def test_a_move_is_of_no_use_where_its_sink_has_changed(graph: Graph) -> None:
    move = Move("add", 2, 3, ((0, 1.0), (1, 1.0)))
    assert move.apply(Structure.start(np.eye(len(graph)), graph)) is None


def test_an_edge_that_the_encoder_hides_is_added(line: Matrix) -> None:
    y = line @ np.linalg.inv(np.linalg.cholesky(line.T @ line / len(line))).T
    H = np.linalg.lstsq(y, line, rcond=None)[0].T
    H[2] += 1.5 * H[0] - H[1]
    search = StructureSearch(y, 3.0)
    poor = search.priced(Structure.start(H, ((), (), (0, 1), ())).shaped(y))
    assert search.improved(poor, first=("add",)).structure.graph == ((), (), (0, 1), (2,))
