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
    assert str(result).endswith("\ngraph: 1 edge")


def test_names_of_the_latents_and_their_interventions():
    result = Result(
        ENCODER,
        GUARANTEE,
        adjacency=np.array([[False, True], [False, False]]),
        targets=np.array([[False, False], [True, True], [False, True]]),
        names=("iron", "salt"),
        environments=("control", "a", "b"),
    )
    assert result.graph is not None
    assert list(result.graph.edges) == [("iron", "salt")]
    assert result.interventions == {"iron": ["a"], "salt": ["a", "b"]}
    assert Result(ENCODER, GUARANTEE).interventions is None


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
    assert result.open_checks == (checks[1], checks[2])
    assert str(result).splitlines()[:4] == [
        "WARNING: 1 assumption fails on these data; 1 assumption could not be tested",
        "  enough environments: fails (2 of 5)",
        "  smoothness: untested (cannot be tested)",
        "guarantee: each variable up to scale; graph exact",
    ]
    assert "check: rank of X: holds (rank 3)" in str(result)
    assert list(result.summary())[:2] == ["verdict", "guarantee"]


def test_a_fit_without_a_guarantee_says_so_first():
    checks = (Check("rank of X", False, "rank 1"), Check("sizes", False, "2 of 5"))
    result = Result(ENCODER, Guarantee("none", "none", "none at all"), checks=checks)
    assert result.is_in_doubt
    said = "WARNING: nothing is guaranteed; 2 assumptions fail on these data\n"
    assert str(result).startswith(said)
    assert Result(ENCODER, Guarantee("none", "none", "none at all")).is_in_doubt


def test_a_fit_in_which_all_holds_says_so_first():
    checks = (Check("rank of X", True, "rank 3"), Check("sizes", True, "all"))
    result = Result(ENCODER, GUARANTEE, checks=checks)
    assert not result.is_in_doubt
    assert str(result).splitlines()[:2] == [
        "All 2 checks of assumptions passed",
        "guarantee: each variable up to scale; graph exact",
    ]
    assert "WARNING" not in str(Result(ENCODER, GUARANTEE))


class TestGuaranteeGivenChecks:
    HOLDS = Check("rank of X", True, "rank 3")
    FAILS = Check("sizes", False, "2 of 5")
    UNTESTED = Check("smoothness", None, "cannot be tested")

    def test_all_hold(self):
        assert GUARANTEE.given(()) is GUARANTEE
        assert GUARANTEE.given((self.HOLDS, self.HOLDS)) is GUARANTEE

    @pytest.mark.parametrize("broken", [FAILS, UNTESTED], ids=["failed", "untested"])
    def test_nothing_is_left_if_one_was_not_seen_to_hold(self, broken: Check):
        left = GUARANTEE.given((self.HOLDS, broken))
        assert (left.latents, left.graph) == ("none", "none")
        assert left.intended is GUARANTEE
        assert left.text.startswith("nothing is guaranteed")
        assert str(broken) in left.text
        assert str(self.HOLDS) not in left.text
        assert left.text.endswith(f"If they held: {GUARANTEE.text}")

    def test_all_that_did_not_hold_are_named(self):
        text = GUARANTEE.given((self.UNTESTED, self.HOLDS, self.FAILS)).text
        assert f"{self.UNTESTED}; {self.FAILS}." in text

    def test_what_a_guarantee_accounts_for_does_not_count_twice(self):
        partial = Guarantee("span", "none", "only the span", accounts_for=("sizes",))
        assert partial.given((self.HOLDS, self.FAILS)) is partial
        left = partial.given((self.FAILS, self.UNTESTED))
        assert left.latents == "none"
        assert left.intended is partial
        assert "sizes" not in left.text


@pytest.mark.parametrize(
    ("agreement", "is_reversed", "is_another"),
    [(0.95, False, False), (0.95, True, True), (0.89, False, True)],
)
def test_another_answer_has_other_latents_or_reversed_causes(
    agreement: float, is_reversed: bool, is_another: bool
):
    other = Alternative(np.zeros((2, 2), dtype=bool), None, 1.0, agreement, is_reversed)
    assert other.is_another_answer is is_another


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
