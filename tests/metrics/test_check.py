from typing import Any

import numpy as np
import pytest

from crlearn.metrics import (
    block_recovery,
    correlation_matrix,
    frobenius,
    layer_recovery,
    mac,
    mac_matched,
    match,
    mcc,
    r2,
    r2_across_blocks,
    r2_within_blocks,
    relmse,
    scale_error,
    targets_right,
)
from crlearn.metrics._check import check_groups

GOOD = np.random.default_rng(0).normal(size=(20, 3))
UNKNOWN: Any = "unknown"
SAMPLE_METRICS = [
    correlation_matrix,
    match,
    mcc,
    mac,
    mac_matched,
    r2,
    relmse,
    lambda Z, Z_hat: layer_recovery(Z, Z_hat, [[0], [1, 2]]),
    lambda Z, Z_hat: block_recovery(Z, Z_hat, [[0], [1, 2]]),
    lambda Z, Z_hat: r2_within_blocks(Z, Z_hat, [[0], [1, 2]]),
    lambda Z, Z_hat: r2_across_blocks(Z, Z_hat, [[0], [1, 2]]),
]


def with_entry(value):
    bad = GOOD.copy()
    bad[3, 1] = value
    return bad


@pytest.mark.parametrize("metric", SAMPLE_METRICS)
@pytest.mark.parametrize(
    ("Z", "Z_hat", "message"),
    [
        (with_entry(np.nan), GOOD, "Z must be finite. Got 1 NaN or infinite"),
        (GOOD, with_entry(np.inf), "Z_hat must be finite. Got 1 NaN or infinite"),
        (GOOD[:, 0], GOOD, r"Z must be a non-empty two-dimensional array. Got shape \(20,\)"),
        (GOOD, GOOD[:, :0], r"Z_hat must be a non-empty .* Got shape \(20, 0\)"),
        (GOOD, GOOD[:10], "one row for each of the same samples. Got 20 and 10 rows"),
        (GOOD[:1], GOOD[:1], "at least 2 rows. Got 1"),
        (GOOD.astype(str), np.full((20, 3), "a"), "Z_hat must be a numeric array"),
    ],
)
def test_bad_samples_are_refused_by_every_metric(metric, Z, Z_hat, message):
    with pytest.raises(ValueError, match=message):
        metric(Z, Z_hat)


@pytest.mark.parametrize("metric", [frobenius, scale_error, targets_right])
def test_bad_matrices_are_refused(metric):
    with pytest.raises(ValueError, match="must be finite"):
        metric(GOOD, with_entry(np.nan))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: mcc(GOOD, GOOD, UNKNOWN),
            "method must be one of 'pearson', 'spearman'. Got",
        ),
        (lambda: relmse(GOOD, GOOD, UNKNOWN), "align must be one of .* Got 'unknown'"),
        (lambda: relmse(GOOD, GOOD, average=UNKNOWN), "average must be one of .* Got 'unknown'"),
        (lambda: frobenius(GOOD, GOOD, UNKNOWN), "align must be one of .* Got 'unknown'"),
    ],
)
def test_unknown_choices(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 3]], "from 0 to 2"),
        ([[-1]], "from 0 to 2"),
        ([[0, 1], [1]], "none twice"),
        ([[]], "from 0 to 2"),
        ([], "at least one"),
        ([[0.5]], "lists of column indices"),
        ([["a"]], "lists of column indices"),
        ([[[0], [1]]], "lists of column indices"),
    ],
)
def test_bad_groups(groups, message):
    with pytest.raises(ValueError, match=f"layers must .*{message}"):
        check_groups(groups, 3, "layers")


def test_groups_may_be_numbers_arrays_or_empty():
    groups = check_groups([0, np.array([2, 1]), []], 3, "layers")
    assert [group.tolist() for group in groups] == [[0], [2, 1], []]
