"""What the methods for interventions share: reading environments, checks and units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.likelihood import (
    GoodnessOfFit,
    Graph,
    Moments,
    NoisyFit,
    NonlinearFit,
    refine_nonlinear,
)
from crlearn.result import Check

Matrix = NDArray[np.floating]

FITS = 1e-3  # p-value below which linear latents are given up
_INVISIBLE = 0.01


def visibility_check(moments: Moments, labels: NDArray[Any]) -> Check:
    """Check that every environment differs from the first, the reference, in mean or covariance."""
    p_values = np.array([_p_value_of_equality(moments, e) for e in range(1, len(moments.sizes))])
    hidden = labels[1:][p_values > _INVISIBLE]
    return Check(
        "interventions are visible",
        len(hidden) == 0,
        "environments that cannot be told from the reference: "
        + (", ".join(map(str, hidden[:8])) or "none"),
    )


def _p_value_of_equality(moments: Moments, e: int) -> float:
    """Return the p-value of the hypothesis that environment e is like the reference."""
    n = moments.n_variables
    weights = np.zeros(len(moments.sizes))
    weights[[0, e]] = moments.sizes[[0, e]]
    apart = moments.sizes[[0, e]] @ np.linalg.slogdet(moments.covariances[[0, e]])[1]
    together = weights.sum() * np.linalg.slogdet(moments.pooled(weights))[1]
    return float(chi2.sf(together - apart, n + n * (n + 1) // 2))


def fit_check(name: str, fit: GoodnessOfFit, *, is_linear: bool) -> Check:
    """Say how the linear model fits; if it was given up, the test says nothing of the answer."""
    ratio = f"likelihood ratio {fit.ratio:.0f} with {fit.freedom} degrees of freedom"
    detail = f"{ratio}, p = {fit.p_value:.2g}"
    if is_linear:
        return Check(name, fit.p_value >= FITS, detail)
    return Check(name, None, f"{detail} for linear latents; nonlinear ones were fitted")


def fit_details(found: NonlinearFit | None, noisy: NoisyFit | None) -> dict[str, Any]:
    """Return what the record of a fit says of its model."""
    return {
        "mechanisms": "linear" if found is None else "nonlinear",
        "noise": "gaussian" if noisy is None and not (found and found.any_noise) else "any",
        "bic": None if found is None else found.bic,
    }


def with_any_noise(
    rows: Sequence[Matrix],
    found: NonlinearFit,
    starts: Sequence[tuple[Matrix, Graph]],
    hard: bool,
) -> NonlinearFit:
    """Fit nonlinear mechanisms once more if their noises are not Gaussian.

    Least squares are biased then, so that other starts may be better than what they found. Soft
    interventions leave mixtures open, which densities would close in a way that means nothing.
    """
    if not hard:
        return found
    noisy = refine_nonlinear(rows, found.pool, [(found.H, found.graph), *starts], hard=True)
    if noisy is None:
        return found
    return replace(found, H=noisy.H, graph=noisy.graph, bic=noisy.bic, any_noise=True)
