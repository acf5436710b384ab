from __future__ import annotations

import numpy as np
import pytest

from crlearn.graph import Graph
from crlearn.likelihood import Fit
from crlearn.methods._alternatives import alternatives_of, contradicts, determination_check
from crlearn.result import Alternative

CHAIN: Graph = ((), (0,), (1,))
TURNED = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


def alternative(
    H: np.ndarray, graph: Graph, behind: float = 1.0, answer: Graph = CHAIN
) -> Alternative:
    other = Fit(H, graph, -behind)
    return alternatives_of(Fit(np.eye(3), answer, 0.0, alternatives=(other,)))[0]


def test_the_same_latents_in_other_units_and_another_order_agree():
    moved = np.diag([2.0, -1.0, 0.5])[[2, 0, 1]]
    found = alternative(moved, ((2,), (), (1,)))  # the chain in the order of the rows
    assert found.agreement == pytest.approx(1)
    assert found.adjacency.tolist() == [[False, True, False], [False, False, True], [False] * 3]
    assert not found.is_reversed
    assert not found.is_another_answer


def test_latents_that_are_mixed_are_another_answer():
    found = alternative(TURNED, CHAIN)
    assert found.agreement == pytest.approx((1 + 2 / np.sqrt(2)) / 3)
    assert found.is_another_answer


def test_causes_in_another_order_are_another_answer_whatever_the_latents():
    found = alternative(np.eye(3), ((1,), (2,), ()))
    assert found.agreement == pytest.approx(1)
    assert found.is_reversed
    assert found.is_another_answer


def test_the_best_come_first_and_none_is_ahead():
    others = tuple(Fit(np.eye(3), CHAIN, score) for score in (-7.0, 2.0, -3.0))
    found = alternatives_of(Fit(np.eye(3), CHAIN, 0.0, alternatives=others))
    assert [other.gap for other in found] == [0, 3, 7]


@pytest.mark.parametrize(
    ("edges", "is_reversed"),
    [([(0, 1)], False), ([(0, 2)], False), ([(2, 0)], True), ([(1, 0)], True), ([], False)],
)
def test_descendants_that_are_ancestors_contradict(edges: list, is_reversed: bool):
    """The chain 0 -> 1 -> 2 has an indirect cause, too."""
    other = np.zeros((3, 3), dtype=bool)
    for edge in edges:
        other[edge] = True
    chain = np.eye(3, k=1, dtype=bool)
    assert contradicts(chain, other) is is_reversed
    assert contradicts(other, chain) is is_reversed


def other(gap: float, agreement: float, *, is_reversed: bool = False) -> Alternative:
    return Alternative(np.zeros((4, 4), dtype=bool), None, gap, agreement, is_reversed)


@pytest.mark.parametrize(("gap", "passed"), [(4.9, False), (5.1, True)])
@pytest.mark.parametrize(
    ("agreement", "is_reversed", "said"),
    [(0.6, False, "0.60, below 0.9"), (0.97, True, "0.97, its causes are in another order")],
)
def test_another_answer_within_five_nats_leaves_the_structure_open(
    gap: float, passed: bool, agreement: float, is_reversed: bool, said: str
):
    twin, far = other(0.1, 0.99), other(30.0, 0.2)
    rival = other(np.float64(gap), agreement, is_reversed=is_reversed)
    check = determination_check(4, (twin, far, rival))
    assert check.passed is passed  # only False itself is reported
    assert f"agreement {said}" in check.detail
    assert f"{gap} nats behind, and 5 are asked for" in check.detail
    assert ("result_.alternatives" in check.detail) is not passed


def test_structures_that_agree_leave_nothing_open():
    check = determination_check(4, (other(0.1, 0.95),))
    assert check.passed
    assert "1 competing structures, all the same answer" in check.detail


def test_a_single_latent_has_no_structure():
    check = determination_check(1, (other(0.1, 0.2),))
    assert check.passed
    assert "a single latent has no competing structure" in check.detail


def test_nothing_was_met():
    check = determination_check(4, (), subject="rotation")
    assert check.passed
    assert str(check) == "rotation is determined by the data: holds (no competing rotation was met)"
