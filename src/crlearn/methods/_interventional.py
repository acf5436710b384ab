"""What the methods for interventions say of their fits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.likelihood import FITS, Fit, Moments
from crlearn.result import Check

Matrix = NDArray[np.floating]

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


def fit_check(name: str, fit: Fit) -> Check:
    """Say how linear mechanisms fit; if they were given up, the test says nothing of the answer."""
    test = fit.goodness_of_fit
    assert test is not None
    ratio = f"likelihood ratio {test.ratio:.0f} with {test.freedom} degrees of freedom"
    detail = f"{ratio}, p = {test.p_value:.2g}"
    if fit.mechanisms == "linear":
        return Check(name, test.p_value >= FITS, detail)
    return Check(name, None, f"{detail} for linear latents; nonlinear ones were fitted")


def fit_details(fit: Fit) -> dict[str, Any]:
    """Return what the record of a fit says of its model."""
    return {
        "mechanisms": fit.mechanisms,
        "noise": "any" if fit.any_noise else "gaussian",
        "score": fit.score,
    }
