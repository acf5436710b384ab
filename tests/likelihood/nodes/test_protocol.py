from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.core._encoder import moved, off_diagonal
from crlearn.likelihood.core._moments import Moments, Pools
from crlearn.likelihood.nodes._linear import expand
from crlearn.likelihood.nodes._protocol import Node, assemble
from crlearn.likelihood.nodes._selected import SelectedModel

N = 3
GRAPH = ((), (0, 2), (0,))


def encoder(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((N, N))


class Curved:
    """A quadratic function of the rows of D that belong to a latent and its parents."""

    def __init__(self, rng: np.random.Generator, rows: tuple[int, ...]) -> None:
        size = len(rows) * N
        root = rng.standard_normal((size, size))
        self.rows, self.constant = rows, float(rng.standard_normal())
        self.slope, self.bend = rng.standard_normal(size), root + root.T

    def __call__(self, D: np.ndarray) -> float:
        d = D[list(self.rows)].ravel()
        return self.constant + float(self.slope @ d + 0.5 * d @ self.bend @ d)

    @property
    def node(self) -> Node:
        return Node(self.constant, self.rows, self.slope.reshape(-1, N), self.bend)


@pytest.fixture
def parts() -> list[Curved]:
    rng = np.random.default_rng(1)
    return [Curved(rng, (j, *parents)) for j, parents in enumerate(GRAPH)]


def test_an_expansion_is_the_sum_of_its_nodes_and_the_volume(parts: list[Curved]):
    H = encoder()

    def total(step: np.ndarray) -> float:
        D = np.zeros((N, N))
        D[off_diagonal(N)] = step
        volume = -np.linalg.slogdet(moved(H, step))[1]
        return float(volume + sum(part(D) for part in parts))

    point = assemble(H, [part.node for part in parts])
    size, h = N * (N - 1), 1e-4
    assert point.value == pytest.approx(total(np.zeros(size)))
    moves = h * np.eye(size)
    slopes = [(total(move) - total(-move)) / (2 * h) for move in moves]
    np.testing.assert_allclose(point.gradient, slopes, atol=1e-5)
    curved = [
        [(total(a + b) - total(a - b) - total(b - a) + total(-a - b)) / (4 * h * h) for b in moves]
        for a in moves
    ]
    np.testing.assert_allclose(point.hessian, curved, atol=1e-4)


def test_the_order_of_nodes_does_not_matter(parts: list[Curved]):
    H = encoder()
    nodes = [part.node for part in parts]
    one, other = assemble(H, nodes), assemble(H, nodes[::-1])
    assert one.value == pytest.approx(other.value)
    np.testing.assert_allclose(one.hessian, other.hessian)


def test_gaussian_nodes_give_the_expansion_of_the_linear_model():
    """Without parents both models are the same one, node by node."""
    rng = np.random.default_rng(2)
    rows = [rng.standard_normal((200, N)) @ rng.standard_normal((N, N)) for _ in range(3)]
    pool = np.array([[0, 1, 0], [0, 0, 1], [0, 1, 1]])
    H = encoder()
    nodes = SelectedModel(rows, pool, hard=True).nodes(H, [(j, ()) for j in range(N)])
    expected = expand(H, Pools.of(Moments.of(rows), pool), np.zeros((N, 2, N)))
    found = assemble(H, nodes)
    assert found.value == pytest.approx(expected.value)
    np.testing.assert_allclose(found.gradient, expected.gradient, atol=1e-12)
    np.testing.assert_allclose(found.hessian, expected.hessian, atol=1e-12)
