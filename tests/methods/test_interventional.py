from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.graph import transitive_closure
from crlearn.inputs import Environments
from crlearn.likelihood import Dependence, Fit, Moments
from crlearn.methods._interventional import (
    doubt_check,
    fit_checks,
    known_relations,
    soft_guarantee,
    visibility_check,
)
from crlearn.result import GoodnessOfFit, Guarantee

LABELS = np.array(["control", "a", "b", "c"])


def check_of(*others: np.ndarray, seed: int = 0) -> tuple[bool | None, str]:
    rng = np.random.default_rng(seed)
    moments = Moments.of([rng.standard_normal((500, 2)), *others])
    check = visibility_check(moments, LABELS[: len(others) + 1])
    return check.passed, check.detail.rpartition(": ")[2]


def test_shifts_and_other_covariances_are_visible():
    rows = np.random.default_rng(1).standard_normal((500, 2))
    assert check_of(rows + np.array([1, 0]), rows * np.array([1, 2])) == (True, "none")


def test_environments_like_the_reference_are_named():
    rows = np.random.default_rng(1).standard_normal((1000, 2))
    assert check_of(rows[:500], 3 * rows[:500], rows[500:]) == (False, "a, c")


@pytest.mark.parametrize("numbers", [None, np.array([0, 2, 3, 4])], ids=["all", "some"])
def test_the_remedy_is_named_where_it_was_not_used(numbers: Any):
    environments = Environments(
        LABELS[:2], np.array([0, 0, 1, 1]), np.array([2, 2]), numbers=numbers
    )
    worst = Dependence(latent=0, environment=1, share=0.5, p_value=1e-9)
    test = GoodnessOfFit(ratio=100.0, freedom=1, p_value=0.0)
    fit = Fit(np.eye(1), ((),), 0.0, goodness_of_fit=test, dependence=worst)
    (check,) = fit_checks("they fit", fit, environments, np.array([0, 1]))
    assert not check.passed
    assert "z0 in environment a" in check.detail
    assert ("outliers='downweight'" in check.detail) == (numbers is None)


def doubt(missing: float, weakest: float, n_latents: int = 3) -> bool | None:
    """Whether 0 -> 2 is beyond doubt, where 0 -> 1 is the only edge."""
    p_values = np.ones((n_latents, n_latents))
    p_values[0, 1], p_values[0, 2] = weakest, missing
    fit = Fit(np.eye(n_latents), ((), (0,), *((),) * (n_latents - 2)), 0.0, edge_p_values=p_values)
    (check,) = doubt_check(fit, fit.adjacency, None)
    assert "z0 -> z2" in check.detail
    return check.passed


def test_a_missing_edge_is_in_doubt_if_chance_hardly_explains_it():
    assert doubt(0.2, 1e-5)
    assert not doubt(0.02, 1e-5)


def test_many_pairs_have_small_p_values_by_chance():
    assert doubt(0.02, 1e-5, n_latents=5)


def test_what_is_far_below_the_weakest_edge_is_none():
    assert doubt(0.02, 1e-30)
    assert doubt(0.02, 0.0)  # beyond what numbers can say


def test_without_an_edge_chance_alone_decides():
    p_values = np.array([[1, 0.01], [0.5, 1]])
    fit = Fit(np.eye(2), ((), ()), 0.0, edge_p_values=p_values)
    (check,) = doubt_check(fit, fit.adjacency, ["a", "b"])
    assert not check.passed
    assert "a -> b" in check.detail


def test_there_is_no_doubt_where_all_are_related():
    fit = Fit(np.eye(3), ((), (0,), (1,)), 0.0, edge_p_values=np.full((3, 3), 1e-3))
    (check,) = doubt_check(fit, transitive_closure(fit.adjacency), None)
    assert check.passed
    assert not doubt_check(Fit(np.eye(3), ((), (), ()), 0.0), fit.adjacency, None)


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_does_not_depend_on_which_latent_is_which(seed: int):
    rng = np.random.default_rng(seed)
    fit = Fit(np.eye(4), ((), (0,), (1,), ()), 0.0, edge_p_values=rng.uniform(0, 0.1, (4, 4)))
    other = fit.reordered(rng.permutation(4))
    one, two = (doubt_check(each, each.adjacency, None)[0] for each in (fit, other))
    assert one.passed == two.passed


class TestSoftInterventions:
    """A chain of four, mechanisms of which tell their parents apart or not."""

    CHAIN = ((), (0,), (1,), (2,))
    LINEAR = Guarantee(latents="parents", graph="closure", text="who is an ancestor of whom")

    def fit(self, *p_values: float) -> Fit:
        told = np.array(p_values) if p_values else None
        return Fit(np.eye(4), self.CHAIN, 0.0, straight_p_values=told)

    def relations(self, *p_values: float) -> set[tuple[int, int]]:
        found = known_relations(self.fit(*p_values), hard=False)
        return set(zip(*map(np.ndarray.tolist, np.nonzero(found)), strict=True))

    def test_edges_into_latents_whose_mechanisms_tell(self):
        edges = {(0, 1), (1, 2), (2, 3)}
        assert self.relations(0, 0, 0, 0) == edges
        assert self.relations(0, 0, 0.5, 0) == edges | {(0, 2)}
        assert self.relations() == edges | {(0, 2), (0, 3), (1, 3)}

    def test_hard_interventions_need_no_bends(self):
        assert np.array_equal(known_relations(self.fit(), hard=True), self.fit().adjacency)

    def test_the_guarantee_says_more_where_all_tell(self):
        full = soft_guarantee(self.LINEAR, self.fit(0, 0, 0, 0), None)
        assert (full.latents, full.graph) == ("surrounding", "exact")

    def test_it_names_the_others_where_some_do(self):
        some = soft_guarantee(self.LINEAR, self.fit(0, 0, 0.5, 0), ["a", "b", "c", "d"])
        assert (some.latents, some.graph) == ("parents", "closure")
        assert "edges to c stand for ancestors" in some.text

    def test_without_an_edge_nothing_was_seen(self):
        empty = Fit(np.eye(2), ((), ()), 0.0, straight_p_values=np.zeros(2))
        assert soft_guarantee(self.LINEAR, empty, None) is self.LINEAR

    def test_it_stays_where_none_was_tested_or_none_does(self):
        for fit in (self.fit(), self.fit(1, 1, 1, 1)):
            assert soft_guarantee(self.LINEAR, fit, None) is self.LINEAR
