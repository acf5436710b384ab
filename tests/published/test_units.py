from __future__ import annotations

import numpy as np
import pytest

from crlearn.published._units import refuse_extreme_units


@pytest.mark.parametrize("unit", [1e100, 1e-100])
def test_units_whose_squares_overflow_are_refused(unit: float):
    X = np.random.default_rng(0).normal(size=(20, 3)) * [1.0, unit, 1.0]
    with pytest.raises(ValueError, match=r"standard deviations between 1e-75 and 1e\+75"):
        refuse_extreme_units(X)


def test_other_units_and_constant_columns_are_not():
    X = np.random.default_rng(0).normal(size=(20, 3)) * [1e12, 1e-12, 0.0]
    refuse_extreme_units(X)
