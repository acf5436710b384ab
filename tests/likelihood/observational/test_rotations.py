"""Pairs of latents that are mixtures of the right ones are turned back."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from crlearn.likelihood.observational import _rotations as _pair_turns
from crlearn.likelihood.observational._edges import StructureSearch
from crlearn.likelihood.observational._model import Structure
from crlearn.likelihood.observational._rotations import Turn, turns_of, with_turned_pairs

pytestmark = pytest.mark.usefixtures("one_thread")

Matrix = NDArray[np.floating]
FORK = ((), (), (0,), (1,))


def one_by_one(function, items) -> list:
    return [function(item) for item in items]


@pytest.fixture(scope="module")
def fork() -> tuple[Matrix, Matrix]:
    """Whitened rows of two roots, each with a child, and the encoder."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((800, 4)) * [1.0, 1.0, 0.4, 0.4]
    Z[:, 2] += np.sin(2 * Z[:, 0])
    Z[:, 3] += Z[:, 1] ** 2
    Z -= Z.mean(axis=0)
    y = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / len(Z))).T
    return y, np.linalg.lstsq(y, Z, rcond=None)[0].T


@pytest.mark.parametrize("rows_to_rank", [2500, 200])
def test_roots_that_were_mixed_are_turned_back(
    fork: tuple[Matrix, Matrix], monkeypatch: pytest.MonkeyPatch, rows_to_rank: int
) -> None:
    monkeypatch.setattr(_pair_turns, "_ROWS_TO_RANK", rows_to_rank)
    y, H = fork
    mixed = H.copy()
    mixed[0], mixed[1] = (H[0] + H[1]) / np.sqrt(2), (H[0] - H[1]) / np.sqrt(2)
    search = StructureSearch(y, 3.0)
    dense = Structure.start(mixed, ((), (), (0, 1), (0, 1))).shaped(y)
    found = with_turned_pairs(search, search.priced(dense), one_by_one, 4)
    true = search.settled(Structure.start(H, FORK).shaped(y), 60)
    assert found.structure.n_edges == 2
    assert found.cost == pytest.approx(true.cost, abs=1.0)


def test_the_truth_is_left_alone(fork: tuple[Matrix, Matrix]) -> None:
    y, H = fork
    search = StructureSearch(y, 3.0)
    true = search.settled(Structure.start(H, FORK).shaped(y), 60)
    assert with_turned_pairs(search, true, one_by_one, 4) is true


def test_a_turn_connects_the_pair_with_all_around_it() -> None:
    structure = Structure.start(np.eye(4), ((), (0,), (0,), (2,)))
    turned, changed = Turn(1, 2, np.pi / 4).apply(structure, np.ones(4))
    assert turned.graph == ((), (0,), (0, 1), (1, 2))
    assert changed == [1, 2, 3]
    assert np.allclose(turned.H[1], [0, np.sqrt(0.5), np.sqrt(0.5), 0])
    assert [shape.n_parents for shape in turned.shapes] == [0, 1, 2, 2]


def test_a_quarter_turn_reverses_an_edge() -> None:
    structure = Structure.start(np.eye(2), ((), (0,)))
    turned, _ = Turn(0, 1, np.pi / 2).apply(structure, np.ones(2))
    assert np.allclose(turned.H, [[0, 1], [-1, 0]])
    assert turned.graph == ((), (0,))


def test_pairs_with_an_indirect_path_are_not_turned() -> None:
    pairs = {(turn.first, turn.second) for turn in turns_of(((), (0,), (1,)))}
    assert pairs == {(0, 1), (1, 2)}
    assert sum(1 for _ in turns_of(((), (), ()))) == 6
