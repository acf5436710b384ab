from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

RowFunction = Callable[[NDArray[np.floating]], NDArray[np.floating]]


@pytest.fixture
def central_differences() -> Callable[..., NDArray[np.floating]]:
    """Derivative of a row-wise function along each coordinate, as the last axis."""

    def differentiate(
        function: RowFunction, points: NDArray[np.floating], step: float = 1e-5
    ) -> NDArray[np.floating]:
        steps = step * np.eye(points.shape[1])
        slopes = [(function(points + h) - function(points - h)) / (2 * step) for h in steps]
        return np.stack(slopes, axis=-1)

    return differentiate
