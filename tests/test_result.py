from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from crlearn.result import Check, Guarantee, LinearDecoder, LinearEncoder, Result

GUARANTEE = Guarantee("scale", "exact", "each variable up to scale; graph exact")
ENCODER = LinearEncoder(np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]]), np.array([1.0, 0.0, 0.0]))


def test_linear_encoder_on_hand_built_numbers():
    X = np.array([[1.0, 2.0, 3.0], [2.0, 0.0, 0.0]])
    np.testing.assert_array_equal(ENCODER(X), [[6, 2], [1, 0]])


def test_linear_decoder_undoes_the_encoder_on_the_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 2)) @ rng.normal(size=(2, 3)) + rng.normal(size=3)
    decoder = LinearDecoder.undoing(ENCODER, X)
    np.testing.assert_allclose(decoder(ENCODER(X)), X, atol=1e-12)


def test_graph_carries_the_names_of_the_latents():
    result = Result(ENCODER, GUARANTEE, adjacency=np.array([[False, True], [False, False]]))
    assert result.graph is not None
    assert list(result.graph.nodes) == ["z0", "z1"]
    assert list(result.graph.edges) == [("z0", "z1")]
    assert "graph: 1 edges" in str(result)


def test_no_graph_without_adjacency():
    assert Result(ENCODER, GUARANTEE).graph is None


def test_failed_checks_and_their_words():
    checks = (
        Check("rank of X", True, "rank 3"),
        Check("enough environments", False, "2 of 5"),
        Check("smoothness", None, "cannot be tested"),
    )
    result = Result(ENCODER, GUARANTEE, checks=checks)
    assert result.failed_checks == (checks[1],)
    assert "enough environments: fails (2 of 5)" in str(result)
    assert "smoothness: untested" in str(result)


def test_a_result_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Result(ENCODER, GUARANTEE).seconds = 1.0  # type: ignore[misc]


def test_versions_are_recorded():
    assert {"crlearn", "jax", "numpy", "scipy", "scikit-learn"} == set(
        Result(ENCODER, GUARANTEE).versions
    )
