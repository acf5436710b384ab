from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.inputs import unused_label_checks


@pytest.mark.parametrize("y", [None, np.zeros(5, dtype=int), np.linspace(0, 1, 5)])
def test_no_labels_no_check(y: Any):
    assert unused_label_checks(y) == ()


@pytest.mark.parametrize("y", [[0, 1, 1], ["a", "b", "b"], [True, False, True]])
def test_labels_are_reported(y: Any):
    (check,) = unused_label_checks(np.array(y))
    assert check.passed is False
    assert "y has 2 labels and was not used" in check.detail
    assert "MultiNodeCRL" in check.detail
