"""What speaks against layers from scores: Gaussian data, and scores in which no layers show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from crlearn.published.layers._leaves import Leaves
from crlearn.result import Check

Matrix = NDArray[np.floating]

# Level of the test for Gaussian data.
_GAUSSIAN = 0.01


def normality_check(rows: Matrix) -> Check:
    """Check that whitened rows are not Gaussian, by their third and fourth moments (Mardia)."""
    name, (n_rows, n) = "data are not Gaussian", rows.shape
    if n == 1:
        return Check(name, None, "a single latent has no mechanism to show")
    third = [(rows * column[:, None]).T @ rows / n_rows for column in rows.T]
    skewness = n_rows * (np.array(third) ** 2).sum() / 6
    p_of_skewness = float(chi2.sf(skewness, n * (n + 1) * (n + 2) / 6))
    kurtosis = ((rows**2).sum(axis=1) ** 2).mean() - n * (n + 2)
    p_of_kurtosis = 2 * float(norm.sf(abs(kurtosis) / np.sqrt(8 * n * (n + 2) / n_rows)))
    p_value = min(1.0, 2 * min(p_of_skewness, p_of_kurtosis))
    if p_value < _GAUSSIAN:
        return Check(name, True, f"skewness and kurtosis, p = {p_value:.2g}")
    moments = f"skewness and kurtosis are those of a Gaussian, p = {p_value:.2g}"
    return Check(
        name,
        False,
        f"{moments}: effects may be linear, and then latents and layers cannot be recovered from "
        "observational data; only the span can",
    )


def visibility_check(layers: Sequence[Leaves], *, tested: bool) -> Check:
    """Check that the scores tell leaves from other latents; `layers` are from the leaves up."""
    name, n_latents = "layers show in the scores", sum(x.directions.shape[1] for x in layers)
    if n_latents == 1:
        return Check(name, None, "there is one latent only")
    if not tested:
        return Check(name, None, "the published tolerance always finds a leaf and is no test")
    first = layers[0]
    if len(layers) > 1:
        passed, said = True, f"{len(layers)} layers; more leaves would deviate"
        return Check(name, passed, f"{said} by {first.next_deviation:.2g}{_p(first.next_p_value)}")
    return Check(
        name,
        False,
        f"all {n_latents} latents can be leaves (deviation {first.deviation:.2g}"
        f"{_p(first.p_value)}): effects may be linear, or the scores too noisy, and then there is "
        "no order to be recovered",
    )


def _p(p_value: float) -> str:
    return "" if np.isnan(p_value) else f", p = {p_value:.2g}"
