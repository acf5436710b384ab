"""Checks of Gaussian priors: whether they explain the environments, and whether latents are so."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from crlearn.methods.structural._checks import TOO_FEW, loss_check
from crlearn.result import Check
from crlearn.variational import Components, covariance_of, without_noise

Matrix = NDArray[np.floating]

_LEAST_VARIANCE = 1e-9  # relative to the largest, in which a shape can be seen
_LEVEL = 1e-3  # of all tests of a fit together


def explained_check(
    prior: Components, noisy: Matrix, noise: Matrix, codes: NDArray[np.integer], labels: Any
) -> tuple[Check, NDArray[np.floating]]:
    """Check that the prior explains each environment as well as a Gaussian for each does.

    A prior that does not look at environments is compared with these Gaussians where it is not
    known which of them a row has. Their likelihood is lowered by one nat for each parameter of one
    of them, as Akaike's criterion has it: that is what it would lose on new rows.

    Returns the check, and the nats a row by which Gaussians are better in each environment.
    """
    n, losses = noisy.shape[1], np.full(len(labels), np.nan)
    large = _large(codes, labels, n)
    parts = [noisy[codes == e] for e in large]
    counts = np.array([len(part) for part in parts])
    own = np.where(np.eye(len(large), dtype=bool), 0.0, -np.inf)
    alike = bool((prior.log_weights == prior.log_weights[0]).all())
    gaussians = Components(
        np.array([np.log(counts / counts.sum())] * len(large)) if alike else own,
        np.array([part.mean(axis=0) for part in parts]),
        np.array([without_noise(covariance_of(part), noise) for part in parts]),
    )
    for k, (e, part) in enumerate(zip(large, parts, strict=True)):
        there, here = np.full(len(part), k), np.full(len(part), e)
        gain = gaussians.log_likelihood(part, noise, there) - prior.log_likelihood(
            part, noise, here
        )
        losses[e] = gain.mean() - n * (n + 3) / 2 / len(part)
    return loss_check("a Gaussian for each environment", losses, labels), losses


def gaussian_check(noisy: Matrix, codes: NDArray[np.integer], labels: Any) -> Check:
    """Check that latents, with their noise, are Gaussian in each environment (Mardia's tests)."""
    name, large = "latents are Gaussian", _large(codes, labels, noisy.shape[1])
    if not large:
        return Check(name, None, TOO_FEW)
    p_values = [_p_value(noisy[codes == e]) for e in large]
    worst = int(np.argmin(p_values))
    p_value = min(len(large) * p_values[worst], 1.0)
    detail = (
        f"skewness and kurtosis in {labels[large[worst]]}, where they are largest: p = "
        f"{p_value:.2g} among all environments"
    )
    if p_value >= _LEVEL:
        return Check(name, True, detail)
    return Check(
        name,
        False,
        f"{detail}; posterior means are the best linear ones, others are better",
    )


def _large(codes: NDArray[np.integer], labels: Any, n: int) -> list[int]:
    """Return the environments with rows enough for a covariance."""
    counts = np.bincount(codes, minlength=len(labels))
    return [e for e in range(len(labels)) if counts[e] > 2 * n]


def _p_value(rows: Matrix) -> float:
    """Return the smaller p-value of skewness and kurtosis, for two tests.

    Directions in which nothing varies have no shape.
    """
    variances, axes = np.linalg.eigh(covariance_of(rows))
    varying = variances > _LEAST_VARIANCE * variances.max()
    n_rows, n = len(rows), int(varying.sum())
    standard = (rows - rows.mean(axis=0)) @ (axes[:, varying] / np.sqrt(variances[varying]))
    pairs = (standard[:, :, None] * standard[:, None, :]).reshape(n_rows, -1)
    skewness = ((standard.T @ pairs / n_rows) ** 2).sum() * n_rows / 6
    kurtosis = ((standard**2).sum(axis=1) ** 2).mean() - n * (n + 2)
    z = kurtosis / np.sqrt(8 * n * (n + 2) / n_rows)
    p_values = chi2.sf(skewness, n * (n + 1) * (n + 2) / 6), 2 * norm.sf(abs(z))
    return float(min(1.0, 2 * min(p_values)))
