from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crlearn.flows import NodeRegressions
from crlearn.methods._flow_checks import (
    coverage_check,
    guarantee_of,
    restarts_check,
    structure_checks,
    training_checks,
)
from crlearn.train import Training

FIT = Training(None, 1.0, {"epoch": np.arange(3)}, "max_epochs", 0, 0)
TWO_EACH = np.array([[0, 0], [1, 0], [0, 1], [1, 0], [0, 1]], dtype=bool)


def test_guarantees():
    two = guarantee_of(TWO_EACH, None, linear=False, least_effect=0.005)
    assert (two.latents, two.graph) == ("elementwise", "exact")
    assert "two different ones for each latent" in two.text
    assert "causes that explain less than 1% of" in two.text
    one = guarantee_of(TWO_EACH[:4], None, linear=False, least_effect=None)
    assert "is enough under such an assumption" in one.text
    assert "the graph as it was given" in one.text
    assert guarantee_of(TWO_EACH[:3], None, linear=True, least_effect=0.02).latents == "scale"
    some = guarantee_of(TWO_EACH[:2], ("a", "b"), linear=False, least_effect=0.005)
    assert (some.latents, some.graph) == ("span", "none")
    assert "no environment intervenes on b, which is recovered only mixed" in some.text


def test_coverage():
    assert coverage_check(np.array([True, True]), None).passed
    check = coverage_check(np.array([True, False]), None)
    assert not check.passed
    assert check.detail.endswith("z1")


@pytest.mark.parametrize(
    ("agreements", "gaps", "passed", "said"),
    [
        ((), (), None, "one restart"),
        ((0.5, 0.95), (0.2, 0.3), True, "the same latents"),
        ((0.5,), (0.01,), False, "the data do not decide"),
        ((0.5,), (0.5,), None, "more would tell"),
    ],
)
def test_restarts(agreements: Any, gaps: Any, passed: bool | None, said: str):
    check = restarts_check(replace(FIT, agreements=agreements, gaps=gaps))
    assert check.passed is passed
    assert said in check.detail


def test_training():
    def passed(**changes: Any) -> list[bool | None]:
        return [check.passed for check in training_checks(replace(FIT, **changes))]

    assert passed() == [True, True]
    assert passed(stopped="interrupted") == [False, True]
    assert passed(retried=1) == [True, False]
    assert passed(skipped_steps=2) == [True, False]


def checks(*, soft: float = 0.0, unannounced: bool = False) -> Any:
    """Of a chain; z1 comes first in the answer."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, 3, 2))
    z[:, 1, 0] *= 3
    z[:, [0, 1], 1] += z[:, [0, 1], 0]
    z[:, 2, 1] = soft * z[:, 2, 0] + 3 * z[:, 2, 1]
    own = np.array([[0, 0], [1, 0], [0, not unannounced]], dtype=bool)
    before = np.array([[0, 1], [0, 0]], dtype=bool)
    regressions = NodeRegressions(z, np.array([0.6, 0.3, 0.1]), linear=True)
    labels, columns = np.array(["control", "a", "b"]), np.array([1, 0])
    return structure_checks(regressions, own, before, labels, columns, None)


def test_structure():
    assert [check.passed for check in checks()] == [True, True]
    cut_off, stays = checks(soft=3.0)
    assert not cut_off.passed
    assert cut_off.detail.startswith("where z0 is intervened on (b)")
    assert stays.passed
    cut_off, stays = checks(unannounced=True)
    assert not stays.passed
    assert stays.detail.startswith("the residual of z0 changes most, in b, by")
    assert "that the latent has in control; up to 5% passes" in stays.detail
