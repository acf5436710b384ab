from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crlearn.metrics._comparison import Comparison, Unavailable
from crlearn.result import Guarantee, LinearDecoder, LinearEncoder, Result

CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
Z = np.random.default_rng(0).normal(size=(50, 3))


def comparison(columns, *, mixing: Any = None, encoder: Any = None, **result):
    """Recovered latents are the given columns of the true ones."""
    truth: Any = SimpleNamespace(
        Z=Z,
        noise=Z,
        graph=CHAIN,
        targets=np.eye(3, dtype=bool),
        mixing=SimpleNamespace(matrix=mixing),
        blocks=None,
        measurement_noise=0.0,
        scms=(),
        score_jacobian=lambda Z: Z[:, :, None] * np.eye(3),
    )
    Z_hat = np.random.default_rng(1).normal(size=(50, len(columns)))
    for j, column in enumerate(columns):
        if column is not None:
            Z_hat[:, j] = -2 * Z[:, column]
    encoder = encoder or LinearEncoder(np.eye(len(columns), 3), np.zeros(3))
    found = Result(encoder, Guarantee("scale", "exact", "text"), **result)
    return Comparison(truth, found, Z, Z_hat)


def matrix(n_nodes, *edges):
    adjacency = np.zeros((n_nodes, n_nodes), dtype=bool)
    for edge in edges:
        adjacency[edge] = True
    return adjacency


def test_graph_is_read_through_the_matching():
    found = comparison([2, 0, 1], adjacency=matrix(3, (1, 2), (2, 0)))
    assert found.matching.tolist() == [[0, 1], [1, 2], [2, 0]]
    graph, graph_hat = found.graphs
    np.testing.assert_array_equal(graph, CHAIN)
    np.testing.assert_array_equal(graph_hat, CHAIN)


@pytest.mark.parametrize(
    ("level", "targets", "expected"),
    [
        ("parents", [0, 1, 2], [[0, 0], [1, 1], [2, 2]]),
        ("surrounding", [2, 1, 0], [[0, 2], [1, 1], [2, 0]]),
        ("ancestors", [0, 0, 2], [[0, 1], [1, 0], [2, 2]]),
        ("scale", [0, 1, 2], [[0, 1], [1, 0], [2, 2]]),
    ],
    ids=["one environment each", "another order", "two latents alike", "nothing may be mixed"],
)
def test_latents_that_may_be_mixed_are_matched_by_what_intervenes(
    level: Any, targets: list[int], expected: list[list[int]]
):
    """By their values the first two are each other's."""
    found = comparison([1, 0, 2], targets=np.eye(3, dtype=bool)[:, targets])
    result = replace(found.result, guarantee=Guarantee(level, "closure", "text"))
    assert replace(found, result=result).matching.tolist() == expected


@pytest.mark.parametrize("y", [None, np.linspace(0, 1, 50), np.linspace(0, 1, 100).reshape(50, 2)])
def test_numbers_are_no_environments(y):
    found = replace(comparison([0, 1, 2]), y=y)
    with pytest.raises(Unavailable, match="the dataset has no environments"):
        _ = found.labels


def test_missing_latents_are_isolated_nodes():
    graph, graph_hat = comparison([2, 1], adjacency=matrix(2, (1, 0))).graphs
    np.testing.assert_array_equal(graph, CHAIN)
    np.testing.assert_array_equal(graph_hat, matrix(3, (1, 2)))


def test_surplus_latents_are_isolated_nodes_of_the_truth():
    graph, graph_hat = comparison([None, 0, 1, 2], adjacency=matrix(4, (0, 3), (1, 2))).graphs
    np.testing.assert_array_equal(graph, matrix(4, (0, 1), (1, 2)))
    np.testing.assert_array_equal(graph_hat, matrix(4, (3, 2), (0, 1)))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([1, 0, 2], np.eye(3)[[1, 0, 2]]),
        ([0, 2], np.eye(3)[[0, 2, 1]] * [1, 0, 1]),
    ],
)
def test_targets_are_read_through_the_matching(columns, expected):
    found = comparison(columns, targets=np.eye(3, len(columns), dtype=bool))
    targets, targets_hat = found.targets
    np.testing.assert_array_equal(targets, np.eye(3))
    np.testing.assert_array_equal(targets_hat, expected)


def test_linear_maps_are_in_true_order():
    mixing = np.eye(3)
    found = comparison([2, 0, 1], mixing=mixing, encoder=LinearEncoder(np.eye(3)[[2, 0, 1]], Z[0]))
    encoder, true_mixing = found.linear_maps
    np.testing.assert_array_equal(encoder, np.eye(3))
    np.testing.assert_array_equal(true_mixing, mixing)
    np.testing.assert_allclose(found.mixing_hat, np.eye(3)[:, [2, 0, 1]], atol=1e-12)


def test_stated_quantities_come_first():
    stated = {
        "layers": [[0, 1], [2]],
        "blocks": [[0], [1, 2]],
        "noise_encoder": lambda X: X + 1,
    }
    decoder = LinearDecoder(np.ones((3, 3)), np.zeros(3))
    found = comparison([0, 1, 2], adjacency=CHAIN, decoder=decoder, **stated)
    np.testing.assert_array_equal(found.mixing_hat, np.ones((3, 3)))
    assert found.layers_hat == [[0, 1], [2]]
    assert found.blocks_hat == [[0], [1, 2]]
    assert found.recovers_noise
    np.testing.assert_array_equal(found.noise_hat, Z + 1)


def test_layers_default_to_those_of_the_graph():
    found = comparison([0, 1, 2], adjacency=CHAIN)
    assert [np.asarray(layer).tolist() for layer in found.layers_hat] == [[2], [1], [0]]
    assert [np.asarray(layer).tolist() for layer in found.layers] == [[2], [1], [0]]
    assert not found.recovers_noise


def test_jacobians_are_compared_in_the_coordinates_of_the_estimate():
    encoder, mixing = np.random.default_rng(2).normal(size=(2, 3, 3))
    at = Z @ (encoder @ mixing).T
    stated = {"encoder": encoder, "at": at, "values": np.zeros((50, 3, 3))}
    found = comparison([0, 1, 2], mixing=mixing, details={"jacobians": stated})
    exact, estimated = found.jacobians
    loadings = encoder @ mixing
    np.testing.assert_allclose(loadings.T @ exact @ loadings, Z[:, :, None] * np.eye(3), atol=1e-9)
    assert estimated is stated["values"]


def test_each_latent_is_a_block_where_the_world_has_none():
    found = comparison([0, 1, 2])
    assert list(found.blocks) == [(0,), (1,), (2,)]
    truth: Any = found.truth
    truth.blocks = ((0, 2), (1,))
    assert found.blocks == ((0, 2), (1,))


NONLINEAR: Any = SimpleNamespace(n_latents=3)


@pytest.mark.parametrize(
    ("found", "name", "reason"),
    [
        (comparison([0, 1, 2]), "graphs", "recovers no graph"),
        (comparison([0, 1, 2]), "layers_hat", "recovers no graph"),
        (comparison([0, 1, 2], adjacency=CHAIN | CHAIN.T), "graphs", "cycles or undirected edges"),
        (comparison([0, 1, 2]), "targets", "recovers no targets"),
        (
            comparison([0, 1, 2], targets=CHAIN[:2]),
            "targets",
            "knows 2 environments",
        ),
        (comparison([0, 1, 2]), "noise_hat", "no exogenous noises"),
        (comparison([0, 1, 2]), "blocks_hat", "no blocks"),
        (comparison([0, 1, 2]), "linear_maps", "true mixing is not linear"),
        (comparison([0, 1, 2]), "jacobians", "does not state Jacobians"),
        (comparison([0, 1, 2]), "mixing", "true mixing is not linear"),
        (comparison([0, 1, 2], encoder=NONLINEAR), "linear_maps", "no linear encoder of X"),
        (comparison([0, 1, 2], encoder=NONLINEAR), "mixing_hat", "no linear encoder of X"),
        (comparison([0, 1], mixing=np.eye(3)), "linear_maps", "recovers 2 latents and there are 3"),
        (
            comparison(
                [0, 1, 2], mixing=np.eye(3), encoder=LinearEncoder(np.diag([1.0, 1, 0]), Z[0])
            ),
            "linear_maps",
            "depends on no true latent",
        ),
    ],
)
def test_what_is_not_there_is_said(found, name, reason):
    with pytest.raises(Unavailable, match=reason):
        getattr(found, name)
