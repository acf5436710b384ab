"""The function that segments without a mechanism have in common, on functions made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.flows import functions_of, vanishing
from crlearn.flows.segments._vanishing import factors

N_SEGMENTS, N_ROWS, N_FEATURES = 30, 400, 4
COMMON = np.array([0.8, -0.5, 0.3, 0.0])


def segments(quiet: int, seed: int = 0, rank: int = 2, common: Any = COMMON) -> Any:
    """Functions that are the same in the first segments, and have random parts in the others."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(rank, N_FEATURES))
    features, values = [], []
    for u in range(N_SEGMENTS):
        x = rng.normal(size=(N_ROWS, N_FEATURES))
        own = 0.0 if u < quiet else (1.5 + 0.6 * rng.normal(size=rank)) @ directions
        t = x @ (common + own) + rng.uniform(0.3, 1.5) * rng.normal(size=N_ROWS)
        features.append(x - x.mean(axis=0))
        values.append(t - t.mean())
    return functions_of(features, values)


def test_the_common_function_is_found_though_most_segments_have_others():
    found = vanishing(segments(quiet=9), np.eye(N_FEATURES))
    assert found.coefficients == pytest.approx(COMMON, abs=0.05)
    assert (found.probabilities[:9] > 0.9).all()
    assert (found.probabilities[9:] > 0.5).sum() <= 1
    assert min(found.evidence, found.gap) > 5


@pytest.mark.parametrize("seed", range(3))
def test_without_such_segments_the_evidence_is_small(seed: int):
    found = vanishing(segments(quiet=0, seed=seed), np.eye(N_FEATURES))
    assert min(found.evidence, found.gap) < 5


def test_two_segments_alike_are_not_enough():
    found = vanishing(segments(quiet=2), np.eye(N_FEATURES))
    assert min(found.evidence, found.gap) < 5


def test_neighbours_that_are_alike_say_less():
    """Scattered segments without mechanism are evidence, a row of them beside each other is not."""
    rng = np.random.default_rng(0)
    functions = segments(quiet=9)
    scattered = vanishing(functions, np.eye(N_FEATURES), rng.normal(size=(N_SEGMENTS, 1)))
    together = vanishing(functions, np.eye(N_FEATURES), np.arange(N_SEGMENTS, dtype=float)[:, None])
    alone = vanishing(functions, np.eye(N_FEATURES))
    assert together.evidence < 0.5 * alone.evidence
    assert 0.5 * alone.evidence < scattered.evidence <= alone.evidence
    assert together.coefficients == pytest.approx(alone.coefficients)


def test_where_all_segments_have_one_function_the_mechanism_vanishes_everywhere():
    found = vanishing(segments(quiet=N_SEGMENTS), np.eye(N_FEATURES))
    assert found.rank == 0
    assert found.coefficients == pytest.approx(COMMON, abs=0.05)
    assert found.probabilities.tolist() == [1.0] * N_SEGMENTS
    assert found.evidence == np.inf


def test_functions_differ_in_as_many_directions_as_they_were_made_of():
    assert factors(segments(quiet=9)).rank == 2
    assert factors(segments(quiet=9, rank=1)).rank == 1


def test_a_function_that_all_segments_have_moves_the_answer_by_itself():
    """What the likelihood does not see: the answer takes it along, the segments stay."""
    more = np.array([0.0, 1.0, 0.0, -1.0])
    plain = vanishing(segments(quiet=9), np.eye(N_FEATURES))
    moved = vanishing(segments(quiet=9, common=COMMON + more), np.eye(N_FEATURES))
    assert plain.coefficients is not None
    assert moved.coefficients is not None
    assert moved.coefficients - plain.coefficients == pytest.approx(more, abs=0.02)
    assert (moved.probabilities > 0.5).tolist() == (plain.probabilities > 0.5).tolist()


def test_segments_that_know_nothing_decide_nothing():
    functions = segments(quiet=9)
    blind = functions._replace(
        precisions=np.concatenate([functions.precisions, 1e-9 * functions.precisions[:5]]),
        informations=np.concatenate([functions.informations, 1e-9 * functions.informations[:5]]),
    )
    found = vanishing(blind, np.eye(N_FEATURES))
    assert found.coefficients == pytest.approx(COMMON, abs=0.05)


def test_too_few_segments_have_nothing_in_common():
    functions = segments(quiet=9)
    few = functions._replace(
        precisions=functions.precisions[8:12], informations=functions.informations[8:12]
    )
    found = vanishing(few, np.eye(N_FEATURES))
    assert found.coefficients is None or found.evidence < 5
