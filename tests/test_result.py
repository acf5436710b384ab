from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any, cast

import numpy as np
import pytest

from crlearn.result import (
    Alternative,
    Check,
    GoodnessOfFit,
    Guarantee,
    LinearDecoder,
    LinearEncoder,
    Result,
)

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
    assert "graph: 1 edge\n" in str(result)


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


@pytest.mark.parametrize("passed", [True, False])
def test_checks_take_the_bools_of_numpy(passed: bool):
    check = Check("rank of X", cast(Any, np.bool_(passed)), "rank 3")
    assert check.passed is passed
    assert Result(ENCODER, GUARANTEE, checks=(check,)).failed_checks == (() if passed else (check,))


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 1e9), (1e306, 0.0)])
def test_linear_decoder_survives_large_means_and_large_numbers(scale: float, offset: float):
    rng = np.random.default_rng(0)
    X = scale * rng.uniform(-1, 1, size=(700, 2)) + offset
    encoder = LinearEncoder(np.array([[1.0, 1.0], [0.0, 1.0]]) / scale, X[0])
    back = LinearDecoder.undoing(encoder, X)(encoder(X))
    np.testing.assert_allclose((back - offset) / scale, (X - offset) / scale, atol=1e-6)


def other(gap: float, agreement: float) -> Alternative:
    return Alternative(np.zeros((2, 2), dtype=bool), ((0, 1),), gap, agreement)


def test_alternatives_are_close_within_five_nats():
    result = Result(ENCODER, GUARANTEE, alternatives=(other(1.0, 0.99), other(4.9, 0.2)))
    assert len(result.close_alternatives) == 2
    assert result.evidence_gap == 4.9  # the nearest is the same answer
    said = "alternatives: 2 competing structures, 2 within 5 nats, 1 of these with another answer"
    assert said in str(result)
    far = Result(ENCODER, GUARANTEE, alternatives=(other(5.1, 0.2),))
    assert far.close_alternatives == ()
    assert Result(ENCODER, GUARANTEE).evidence_gap is None
    assert "alternatives" not in str(Result(ENCODER, GUARANTEE))


def test_tests_of_the_model_and_of_its_edges():
    result = Result(
        ENCODER,
        GUARANTEE,
        adjacency=np.array([[False, True], [False, False]]),
        edge_p_values=np.array([[1.0, 0.004], [1.0, 1.0]]),
        goodness_of_fit=GoodnessOfFit(12.34, 9, 0.2),
        layers=((1,), (0,)),
    )
    assert result.edge_tests == {(0, 1): 0.004}
    assert "graph: 1 edge, the weakest with p = 0.004" in str(result)
    assert "goodness of fit: likelihood ratio 12.3, 9 degrees of freedom, p = 0.2" in str(result)
    assert "layers: childless latents first: z1; z0" in str(result)


def test_edges_of_a_closure_that_were_not_tested_have_no_p_value():
    untested = Result(
        ENCODER,
        GUARANTEE,
        adjacency=np.array([[False, True], [False, False]]),
        edge_p_values=np.ones((2, 2)),
    )
    assert untested.edge_tests == {}
    assert "weakest" not in str(untested)


def test_a_result_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Result(ENCODER, GUARANTEE).seconds = 1.0  # type: ignore[misc]


def test_versions_are_recorded():
    assert {"crlearn", "jax", "numpy", "scipy", "scikit-learn"} == set(
        Result(ENCODER, GUARANTEE).versions
    )
