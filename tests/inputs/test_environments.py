from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.exceptions import IdentifiabilityError
from crlearn.inputs import (
    by_environment,
    check_environment_sizes,
    names_after,
    read_environments,
    reference_first,
    reference_of,
    unused_label_checks,
)

Y = np.array(["wild", "b", "wild", "a", "b", "wild"])


def test_labels_are_read_in_order():
    environments = read_environments(Y, "wild")
    assert environments.labels.tolist() == ["a", "b", "wild"]
    assert environments.codes.tolist() == [2, 1, 2, 0, 1, 2]
    assert environments.counts.tolist() == [1, 2, 3]
    assert environments.reference == 2
    assert len(environments) == 3


def test_labels_that_cannot_be_read():
    with pytest.raises(ValueError, match="labels of one kind, all numbers or all strings"):
        read_environments(np.array(["a", 1, None], dtype=object))
    with pytest.raises(IdentifiabilityError, match=r"at least 2 environments. Got 1 \(7\)"):
        read_environments(np.full(5, 7))
    with pytest.raises(ValueError, match=r"'c' is not among the labels in y: a, b, wild"):
        read_environments(Y, "c")


def test_the_reference_is_named_or_labelled_zero_or_the_first():
    found, check = reference_of(read_environments(Y, "b"))
    assert (found, check.passed, check.detail) == (1, True, "b, as given")
    found, check = reference_of(read_environments(np.array([-1, 3, 0])))
    assert (found, check.passed) == (1, True)
    found, check = reference_of(read_environments(Y))
    assert (found, check.passed) == (0, False)
    assert "none is labelled 0 or has the name of one" in check.detail
    assert "a was taken; name it by reference=" in check.detail


@pytest.mark.parametrize(
    "name",
    [
        "control",
        "Ctrl",
        "Reference",
        "NT",
        "non-targeting",
        "WT",
        "wild type",
        "wildtype",
        "DMSO",
        "vehicle",
        "Untreated",
        "observational",
        "baseline",
        "unperturbed",
        "none",
        "0",
    ],
)
def test_a_reference_is_known_by_its_name(name: str):
    found, check = reference_of(read_environments(np.array(["BRCA1", name, "a control gene"])))
    labels = sorted(["BRCA1", name, "a control gene"])
    assert (labels[found], check.passed) == (name, True)
    assert check.detail == f"{name}, by its name"


def test_several_references_are_none():
    found, check = reference_of(read_environments(np.array(["BRCA1", "ctrl", "DMSO"])))
    assert (found, check.passed) == (0, False)
    assert check.detail.startswith("several have the name of one (DMSO, ctrl), so BRCA1 was taken")


def test_a_name_that_is_given_and_zero_come_first():
    assert reference_of(read_environments(np.array(["a", "control"]), "a"))[0] == 0
    assert reference_of(read_environments(np.array([1, 0, 2])))[1].detail == "the one labelled 0"


def test_rows_of_each_environment_with_the_reference_first():
    environments = read_environments(Y, "wild")
    order = reference_first(environments)
    assert order.tolist() == [2, 0, 1]
    rows = np.arange(6.0)[:, None]
    with pytest.raises(ValueError, match=r"more than 1 rows.* Too few are in: a\."):
        by_environment(rows, environments, order)
    environments = read_environments(np.where(Y == "a", "b", Y), "wild")
    parts = by_environment(rows, environments, reference_first(environments))
    assert [part[:, 0].tolist() for part in parts] == [[0, 2, 5], [1, 3, 4]]


def test_small_environments_are_named():
    environments = read_environments(Y)
    assert check_environment_sizes(environments, 0).passed
    check = check_environment_sizes(environments, 2)
    assert not check.passed
    assert check.detail.endswith("2 latents: a, b")


@pytest.mark.parametrize("y", [None, np.zeros(5, dtype=int), np.linspace(0, 1, 5)])
def test_no_labels_no_check(y: Any):
    assert unused_label_checks(y) == ()


@pytest.mark.parametrize("y", [[0, 1, 1], ["a", "b", "b"], [True, False, True]])
def test_labels_are_reported(y: Any):
    (check,) = unused_label_checks(np.array(y))
    assert check.passed is False
    assert "y has 2 labels and was not used" in check.detail
    assert "MultiNodeCRL" in check.detail


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        ([["a"], ["b"]], ("a", "b")),
        ([["a", "b"], []], ("a/b", "z1")),
        ([["a rather long label", "another one"], ["c"]], ("a rather long label/...", "c")),
        ([["a", "b"], ["a/b"], ["c"]], ("a/b (z0)", "a/b (z1)", "c")),
        ([["z1"], []], ("z1 (z0)", "z1 (z1)")),
        ([[1], [2]], None),
        ([["a"], [2]], None),
        ([[" "], ["b"]], None),
    ],
)
def test_latents_are_named_after_what_intervenes_on_them(sources: Any, names: Any):
    assert names_after(sources) == names
