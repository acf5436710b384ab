from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr

from crlearn.likelihood import Moments
from crlearn.published.umni._targets import (
    independence_p_values,
    partial_correlations,
    recovered_targets,
    targets_agree,
)


def test_targets_are_where_the_conditional_changes():
    # Latent 1 given latent 0: the same line in environments 0 and 1, another one in 2 and 3.
    rng = np.random.default_rng(0)
    rows = []
    for scale, slope in ((1.0, 1.0), (3.0, 1.0), (1.0, 0.2), (3.0, 0.2)):
        z = scale * rng.normal(size=(2000, 1))
        rows.append(np.hstack([z, slope * z + rng.normal(size=(2000, 1))]))
    closure = np.array([[False, True], [False, False]])
    moments = Moments.of(rows)
    expected = [[0, 0], [1, 0], [0, 1], [1, 1]]
    np.testing.assert_array_equal(recovered_targets(np.eye(2), closure, moments), expected)
    # A mixture with an ancestor changes nothing.
    mixed = np.array([[1.0, 0.0], [-0.7, 2.0]])
    np.testing.assert_array_equal(recovered_targets(mixed, closure, moments), expected)


def test_agreement_of_targets_and_combinations():
    targets = np.array([[0, 0], [1, 0], [1, 1]], dtype=bool)
    edge = np.array([[False, True], [False, False]])
    assert targets_agree(targets, np.array([[1, 0], [0, 1]]), edge)
    assert not targets_agree(targets, np.array([[1, 0], [0, 1]]), np.zeros_like(edge))
    assert targets_agree(targets, np.array([[1, -1], [0, 1]]), np.zeros_like(edge))
    assert not targets_agree(targets, np.array([[1, 1], [0, 0]]), edge)


def test_partial_correlations_and_their_p_values():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 3)) @ np.array([[1.0, 0.5, 0.3], [0, 1, 0.1], [0, 0, 1]])
    closure = np.triu(np.ones((3, 3), dtype=bool), 1)
    found = partial_correlations(np.cov(Z.T, bias=True), closure)
    residuals = [Z[:, i] - np.poly1d(np.polyfit(Z[:, 0], Z[:, i], 1))(Z[:, 0]) for i in (1, 2)]
    assert found[1, 2] == pytest.approx(pearsonr(*residuals)[0])
    p_values = independence_p_values(np.eye(3)[None], closure, [Moments.of([Z])])
    assert p_values[0, 1] == pytest.approx(pearsonr(Z[:, 0], Z[:, 1])[1], abs=1e-3)
    assert np.isnan(p_values[1, 0])
