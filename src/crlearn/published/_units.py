"""Published cuts are absolute numbers in the units of X: what these may be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crlearn.inputs import Scaling

_LARGEST, _SMALLEST = 1e75, 1e-75  # squares of squares stay finite


def refuse_extreme_units(X: NDArray[np.floating]) -> None:
    """Refuse columns whose squares a computer cannot hold."""
    scaling = Scaling.of(X)
    varying = scaling.scale[~scaling.constant]
    if ((varying > _LARGEST) | (varying < _SMALLEST)).any():
        raise ValueError(
            "The published algorithm works in the units of X, and columns must have standard "
            f"deviations between {_SMALLEST:g} and {_LARGEST:g}. Got {varying.min():.2g} to "
            f"{varying.max():.2g}: give X in other units."
        )
