"""What reductions of curved surfaces share: components, settings, codes that are white."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crlearn.inputs import Scaling, components_of
from crlearn.result import LinearDecoder, LinearEncoder
from crlearn.train import Settings

Matrix = NDArray[np.floating]

_MOST_COMPONENTS = 100  # that networks see


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


def leading_components(
    X: NDArray[np.floating], n_codes: int
) -> tuple[LinearEncoder, LinearDecoder, Matrix]:
    """Return the map to principal components, its inverse, and the squares of their units.

    The leading ones have variance one; those after them keep their sizes beside the last of these.
    Squares are shares of the variance of all.
    """
    span, rank, _ = components_of(X, None)
    if span.n_latents < n_codes:
        span, rank, _ = components_of(X, n_codes)  # says why there are too few
    kept = slice(min(span.n_latents, max(_MOST_COMPONENTS, n_codes)))
    variances = rank.variances[kept]
    unit = np.sqrt(np.maximum(variances, variances[n_codes - 1]))
    size = np.sqrt(variances)
    scaling = Scaling.of(X)
    directions = span.matrix[kept] * size[:, None] * scaling.scale
    before = LinearEncoder(span.matrix[kept] * (size / unit)[:, None], span.offset)
    after = LinearDecoder((directions * unit[:, None] * scaling.scale).T, span.offset)
    return before, after, unit**2 / variances.sum()


def share_lost(X: Matrix, back: Matrix) -> float:
    """Return the mean share of the features' variances that a way there and back loses."""
    size = np.abs(X).max(axis=0)
    size = np.where(size > 0, size, 1.0)  # squares of X itself may be too large for a number
    X, back = X / size, back / size
    variances, errors = X.var(axis=0), np.square(X - back).mean(axis=0)
    varying = variances > 0
    if not varying.any():
        return 0.0
    return float((errors[varying] / variances[varying]).mean())
