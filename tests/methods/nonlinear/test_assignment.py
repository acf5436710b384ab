from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.exceptions import IdentifiabilityError
from crlearn.methods.nonlinear._assignment import read_assignment

CHAIN = np.array([[0, 1], [0, 0]], dtype=bool)


def test_nothing_is_known():
    assignment, names = read_assignment([1, 2], None, 2)
    assert assignment.known == ((), None, None)
    assert assignment.graph is None
    assert names is None


def test_equal_targets_are_one_latent():
    assignment, names = read_assignment(["a", "b", "c"], {"a": "x", "c": "x", "b": "y"}, 3)
    assert assignment.known == ((), (0,), (1,), (0,))
    assert names == ("x", "y", "z2")


def test_some_are_known():
    assignment, names = read_assignment([1, 2, 3], {2: "x"}, 2)
    assert assignment.known == ((), None, (0,), None)
    assert names == ("x", "z1")


def test_numbers_are_no_names():
    assert read_assignment([1, 2], {1: 0, 2: 1}, 2)[1] is None


def test_latents_come_in_the_order_of_the_graph():
    targets: Any = {1: "effect", 2: "cause"}
    assignment, names = read_assignment([1, 2], targets, 2, CHAIN, ["cause", "effect"])
    assert assignment.known == ((), (1,), (0,))
    assert assignment.graph == ((), (0,))
    assert names == ("cause", "effect")


def test_what_cannot_be():
    with pytest.raises(ValueError, match=r"must name environments that are in y. Not there: 'd'"):
        read_assignment(["a"], {"d": 0}, 1)
    with pytest.raises(IdentifiabilityError, match="2 different targets, and there are 1 latents"):
        read_assignment([1, 2], {1: "x", 2: "y"}, 1)
    with pytest.raises(ValueError, match=r"every environment but the reference. It has none for 2"):
        read_assignment([1, 2], {1: 0}, 2, CHAIN)
    with pytest.raises(ValueError, match=r"must name nodes of the graph, 0, 1. Got 'x'"):
        read_assignment([1, 2], {1: 0, 2: "x"}, 2, CHAIN)
