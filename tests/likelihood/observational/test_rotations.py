"""Pairs of latents that are mixtures of the right ones are rotated back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crlearn.graph import Graph
from crlearn.likelihood.observational._edges import EdgeSearch
from crlearn.likelihood.observational._model import RelevanceModel, has_hidden_units
from crlearn.likelihood.observational._rotations import Rotation, rotations_of, with_rotations
from crlearn.likelihood.search._local import LEAST_GAIN

CHAIN = ((), (0,), (1,))
FORK = ((), (), (0,), (1,))


def one_by_one(function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    return [function(item) for item in items]


@pytest.fixture(scope="module")
def fork() -> tuple[RelevanceModel, np.ndarray]:
    """Whitened rows of two roots, each with a child, and the encoder."""
    Z = np.random.default_rng(0).standard_normal((500, 4)) * [1.0, 1.0, 0.4, 0.4]
    Z[:, 2] += np.sin(2 * Z[:, 0])
    Z[:, 3] += Z[:, 1] ** 2
    Z -= Z.mean(axis=0)
    y = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / len(Z))).T
    return RelevanceModel(y), np.linalg.lstsq(y, Z, rcond=None)[0].T


class TestWithRotations:
    def test_roots_that_were_mixed_are_rotated_back(self, fork: Any):
        model, H = fork
        mixed = H.copy()
        mixed[0], mixed[1] = (H[0] + H[1]) / np.sqrt(2), (H[0] - H[1]) / np.sqrt(2)
        search = EdgeSearch(model)
        dense = model.scored(model.shaped(model.start(mixed, ((), (), (0, 1), (0, 1)))))
        found = with_rotations(search, dense, one_by_one, 4)
        true = search.refitted(model.start(H, FORK))
        assert found.n_edges == 2
        assert found.score == pytest.approx(true.score, abs=1.0)

    def test_an_edge_is_reversed(self, chain: Any):
        """Moves of single edges cannot: the effect is not its cause's noise."""
        model, search = chain.model, EdgeSearch(chain.model)
        wrong = search.refitted(model.start(chain.H[[1, 0, 2]], ((), (0,), (0,))))
        found = with_rotations(search, wrong, one_by_one, 4)
        true = search.refitted(model.start(chain.H, CHAIN))
        assert wrong.score < true.score - 50
        assert found.score == pytest.approx(true.score, abs=1.0)
        assert [len(layer) for layer in found.layers] == [1, 1, 1]

    def test_the_truth_is_left_alone(self, fork: Any):
        model, H = fork
        search = EdgeSearch(model)
        true = search.refitted(model.start(H, FORK))
        found = with_rotations(search, true, one_by_one, 4)
        assert found.graph == FORK
        assert 0 <= found.score - true.score < LEAST_GAIN


class TestRotation:
    def test_it_connects_the_pair_with_all_around_it(self):
        model = RelevanceModel(np.random.default_rng(0).standard_normal((50, 4)))
        fit = model.start(np.eye(4), ((), (0,), (0,), (2,)))
        rotated, changed = Rotation(1, 2, np.pi / 4).apply(model, fit)
        assert rotated.graph == ((), (0,), (0, 1), (1, 2))
        assert changed == [1, 2, 3]
        assert [shape.n_parents for shape in rotated.parameters] == [0, 1, 2, 2]
        assert rotated.parameters[0] is fit.parameters[0]
        np.testing.assert_array_equal(rotated.H[[0, 3]], np.eye(4)[[0, 3]])

    def test_noises_are_rotated_in_their_own_units(self):
        """Sums and differences are of noises of variance one."""
        y = np.random.default_rng(0).standard_normal((50, 2))
        y = (y - y.mean(axis=0)) / y.std(axis=0) * [1.0, 3.0]
        model = RelevanceModel(y)
        rotated, _ = Rotation(0, 1, np.pi / 4).apply(model, model.start(np.eye(2), ((), ())))
        np.testing.assert_allclose(rotated.H, np.array([[3, 1], [-3, 1]]) / np.sqrt(10))

    def test_a_quarter_reverses_an_edge(self, chain: Any):
        fit = chain.model.start(np.eye(3), ((), (0,), ()))
        rotated, _ = Rotation(0, 1, np.pi / 2).apply(chain.model, fit)
        np.testing.assert_allclose(rotated.H, [[0, 1, 0], [-1, 0, 0], [0, 0, 1]], atol=1e-12)
        assert rotated.graph == ((), (0,), ())

    @pytest.mark.parametrize("hidden_units", [False, True])
    def test_mechanisms_stay_as_rich_as_they_were(self, network: Any, hidden_units: bool):
        fit = network.model.start(network.H, ((), (), (0, 1)), hidden_units=hidden_units)
        rotated, _ = Rotation(0, 1, np.pi / 4).apply(network.model, fit)
        assert rotated.graph == ((), (0,), (0, 1))
        assert has_hidden_units(rotated) is hidden_units


@pytest.mark.parametrize(
    ("graph", "pairs", "n_rotations"),
    [
        (((), (0,), (1,)), {(0, 1), (1, 2)}, 6),  # an indirect path from 0 to 2
        (((), (), ()), {(0, 1), (0, 2), (1, 2)}, 6),  # no edge to reverse
        (((1,), ()), {(1, 0)}, 3),  # the cause comes first
        (((), (0,), (0, 1)), {(0, 1), (1, 2)}, 6),
    ],
)
def test_pairs_without_an_indirect_path(graph: Graph, pairs: set, n_rotations: int):
    rotations = list(rotations_of(graph))
    assert {(each.first, each.second) for each in rotations} == pairs
    assert len(rotations) == n_rotations
