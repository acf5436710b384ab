"""X read as latents behind a linear measurement, with noise or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crlearn.inputs._count import NumberOfLatents, count_latents
from crlearn.inputs._environments import Environments
from crlearn.inputs._factors import Covariances, find_factors
from crlearn.inputs._span import Rank, Scaling, components_of
from crlearn.result import Check, LinearEncoder

Matrix = NDArray[np.floating]
NoiseName = Literal["auto", "gaussian", "none"]

_WEAKEST = 1e-3  # variance of a direction beside the strongest, where noise hides it


@dataclass(frozen=True, eq=False)
class Signal:
    """As many directions of X as there are latents, in which the latents together are white.

    Attributes
    ----------
    encoder
        The map to these directions.
    noise
        Covariance of the measurement noise in them; None: there is none.
    checks
        What is to be said about the columns and the noise.
    feature_noise
        Standard deviation of the noise of each feature, where there is noise.
    details
        How the number of latents was found, if it was.
    """

    encoder: LinearEncoder
    checks: tuple[Check, ...]
    noise: Matrix | None = None
    feature_noise: NDArray[np.floating] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.encoder.n_latents


def read_signal(
    X: Matrix,
    environments: Environments,
    n_latents: NumberOfLatents,
    n_targets: int,
    noise: NoiseName = "auto",
) -> Signal:
    """Return the directions of the latents, and the noise in them.

    Without a number of latents (None) the rank is taken, if it stands out; else noise fills all
    dimensions, and there is one for each target, which is compared with the number that the noise
    leaves (``"auto"``), where features are enough to tell it. By default there is noise if X fills
    all its dimensions and these are more than the latents.
    """
    given = None if isinstance(n_latents, str) else n_latents
    span, rank, checks = components_of(X, given)
    details: Mapping[str, Any] = {}
    if given is None and (n_latents is not None or not rank.stands_out):
        from_targets = n_latents is None
        count = count_latents(X, environments.codes, rank, refuse=not from_targets)
        counted = count.stands_out and not from_targets
        n = count.value if counted else min(n_targets, rank.value)
        span = LinearEncoder(span.matrix[:n], span.offset)
        if counted or (count.stands_out and n < rank.value):
            checks, details = (*checks, count.compared(n)), count.details
    signal = _read(X, environments, span, rank, checks, noise)
    return replace(signal, details=details)


def _read(
    X: Matrix,
    environments: Environments,
    span: LinearEncoder,
    rank: Rank,
    checks: tuple[Check, ...],
    noise: NoiseName,
) -> Signal:
    if noise == "none" or not _has_noise(rank, span.n_latents):
        if noise == "gaussian":
            checks = (*checks, _no_noise_to_tell(rank, span.n_latents))
        return Signal(span, (*checks, rank.check(span.n_latents)))
    return _behind_noise(X, environments, span.n_latents, checks)


def _has_noise(rank: Rank, n_latents: int) -> bool:
    return rank.value > n_latents and not rank.stands_out


def _no_noise_to_tell(rank: Rank, n_latents: int) -> Check:
    why = (
        "there are no more features than latents, so that noise cannot be told from them"
        if rank.n_varying <= n_latents
        else "X is an exact mixture of few latents"
    )
    return Check("measurement noise", None, f"{why}; none is taken off")


def _behind_noise(
    X: Matrix, environments: Environments, n_latents: int, checks: tuple[Check, ...]
) -> Signal:
    scaling = Scaling.of(X)
    varying, unit = ~scaling.constant, scaling.scale
    parts = [
        (X[environments.codes == e][:, varying] - scaling.mean[varying]) / unit[varying]
        for e in range(len(environments))
    ]
    covariances = Covariances.of(parts)
    factors = find_factors(covariances, n_latents, unit[varying])
    noise_checks = [factors.independence_check()]
    if n_latents > 1:
        fewer = find_factors(covariances, n_latents - 1, unit[varying])
        noise_checks.append(factors.visibility_check(fewer))
    rows = factors.encoder(np.concatenate(parts))
    values, axes = np.linalg.eigh(np.cov(rows.T, bias=True).reshape(2 * (n_latents,)))
    signal = np.maximum(values - 1, _WEAKEST * values.max())
    whiten = axes.T / np.sqrt(signal)[:, None]
    matrix = np.zeros((n_latents, X.shape[1]))
    matrix[:, varying] = whiten @ factors.encoder.matrix / unit[varying]
    feature_noise = np.zeros(X.shape[1])
    feature_noise[varying] = np.sqrt(factors.noise) * unit[varying]
    return Signal(
        LinearEncoder(matrix, scaling.mean),
        (*checks, *noise_checks),
        whiten @ whiten.T,
        feature_noise,
    )
