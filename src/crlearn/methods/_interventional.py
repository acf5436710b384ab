"""What the methods for interventions share: reading environments, checks and units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.base import Environments, Scaling
from crlearn.likelihood import (
    GoodnessOfFit,
    Graph,
    Moments,
    NoisyFit,
    NonlinearFit,
    refine_nonlinear,
)
from crlearn.result import Check, LinearEncoder

Matrix = NDArray[np.floating]

FITS = 1e-3  # p-value below which linear latents are given up
_INVISIBLE = 0.01


def reference_of(environments: Environments) -> tuple[int, Check]:
    """Return the position of the observational environment, and how it was found."""
    name = "reference environment"
    if environments.reference is not None:
        label = environments.labels[environments.reference]
        return environments.reference, Check(name, True, f"{label}, as given")
    zero = np.flatnonzero(environments.labels == 0)
    if len(zero):
        return int(zero[0]), Check(name, True, "the one labelled 0")
    return 0, Check(
        name,
        False,
        f"none is labelled 0, so {environments.labels[0]} was taken; name it by reference=",
    )


def reference_first(environments: Environments) -> NDArray[np.intp]:
    """Return the positions of the environments, the reference first."""
    reference, _ = reference_of(environments)
    others = [e for e in range(len(environments)) if e != reference]
    return np.array([reference, *others], dtype=np.intp)


def by_environment(
    rows: Matrix, environments: Environments, order: NDArray[np.intp]
) -> list[Matrix]:
    """Return the rows of the environments in an order; none may have too few."""
    small = environments.counts <= rows.shape[1]
    if small.any():
        raise ValueError(
            f"Every environment needs more than {rows.shape[1]} rows, one for each latent and one "
            f"more. Too few are in: {', '.join(map(str, environments.labels[small][:8]))}."
        )
    return [rows[environments.codes == e] for e in order]


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


def fit_details(
    fit: GoodnessOfFit, found: NonlinearFit | None, noisy: NoisyFit | None
) -> dict[str, Any]:
    """Return what the record of a fit says of its model."""
    return {
        "mechanisms": "linear" if found is None else "nonlinear",
        "noise": "gaussian" if noisy is None and not (found and found.any_noise) else "any",
        "likelihood_ratio": fit.ratio,
        "degrees_of_freedom": fit.freedom,
        "p_value": fit.p_value,
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


def in_readable_units(matrix: Matrix, X: Matrix, environments: Environments) -> LinearEncoder:
    """Give each latent sd 1 in the reference environment, and a positive largest coefficient.

    Coefficients are compared for standardised features, so that units do not matter.
    """
    reference, _ = reference_of(environments)
    rows = X[environments.codes == reference]
    scale = (rows @ matrix.T).std(axis=0)
    standardised = matrix * Scaling.of(X).scale
    largest = np.abs(standardised).argmax(axis=1)
    signs = np.where(standardised[np.arange(len(matrix)), largest] < 0, -1.0, 1.0)
    matrix = matrix * (signs / np.where(scale > 0, scale, 1.0))[:, None]
    return LinearEncoder(matrix, Scaling.of(rows).mean)
