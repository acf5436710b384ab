"""What all autoencoders share: how long they are trained, and codes that are white."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crlearn.result import LinearDecoder, LinearEncoder
from crlearn.train import Settings

Matrix = NDArray[np.floating]


def settings_for(
    n_rows: int, n_steps: int, batch_size: int, learning_rate: float, n_restarts: int = 1
) -> Settings:
    """Return settings of a training in about `n_steps` steps."""
    steps_per_epoch = max(1, int(0.9 * n_rows) // batch_size)
    return Settings(
        max_epochs=max(1, round(n_steps / steps_per_epoch)),
        batch_size=batch_size,
        learning_rate=learning_rate,
        patience=None,
        n_restarts=n_restarts,
    )


def white(codes: Matrix) -> tuple[LinearEncoder, LinearDecoder]:
    """Return the map that gives codes variance one and no correlations, and its inverse."""
    mean = codes.mean(axis=0)
    variances, directions = np.linalg.eigh(np.cov(codes.T).reshape(len(mean), -1))
    scale = np.sqrt(np.maximum(variances, 1e-12 * max(variances.max(), 1e-300)))
    # Symmetric, so that each code stays as close to itself as it can.
    return (
        LinearEncoder((directions / scale) @ directions.T, mean),
        LinearDecoder((directions * scale) @ directions.T, mean),
    )
