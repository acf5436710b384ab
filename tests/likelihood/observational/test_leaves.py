"""Two latents with the same cause: the sparse structure hides a leaf, and it is found again."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from crlearn.graph import layers
from crlearn.likelihood.observational._edges import StructureSearch
from crlearn.likelihood.observational._leaves import with_hidden_leaves
from crlearn.likelihood.observational._model import Structure
from crlearn.likelihood.search._edges import adjacency_of

pytestmark = pytest.mark.usefixtures("one_thread")

Matrix = NDArray[np.floating]
TRUE = ((), (0,), (0,), (1,))


@pytest.fixture(scope="module")
def world() -> tuple[Matrix, Matrix]:
    """Whitened rows and the encoder: 1 and 2 are squares of 0 with noise, 3 is the square of 1."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((2000, 4)) * [1.0, 0.6, 0.6, 0.5]
    Z[:, 1] += Z[:, 0] ** 2
    Z[:, 2] += Z[:, 0] ** 2
    Z[:, 3] += 0.3 * Z[:, 1] ** 2
    Z -= Z.mean(axis=0)
    y = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / len(Z))).T
    return y, np.linalg.lstsq(y, Z, rcond=None)[0].T


def test_a_hidden_leaf_is_found(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    difference, mixture = H[1] - H[2], H[1] + H[2]
    sparse = Structure.start(np.array([H[0], difference, mixture, H[3]]), ((), (), (0,), (1, 2)))
    search = StructureSearch(y, 3.0)
    start = search.settled(sparse, 100)
    found = with_hidden_leaves(search, start)
    assert [len(layer) for layer in layers(adjacency_of(found.structure.graph))] == [2, 1, 1]
    assert found.structure.n_edges == 3


def test_a_structure_without_hidden_leaves_is_left_alone(world: tuple[Matrix, Matrix]) -> None:
    y, H = world
    search = StructureSearch(y, 3.0)
    true = search.settled(Structure.start(H, TRUE), 100)
    assert with_hidden_leaves(search, true) is true
