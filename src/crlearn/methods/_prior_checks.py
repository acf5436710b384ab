"""Checks of a structural prior on the rows it was not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

from crlearn.result import Check
from crlearn.variational import StructuralPrior

Matrix = NDArray[np.floating]

_LARGEST_LOSS = 0.1
# Less than a tenth of such a latent's variance is known from a row: the mixing ignores it.
_LARGEST_SHARE = 0.9
_RIDGE = 1e-3  # of covariances, for latents of about unit variance


def explanation_check(
    prior: StructuralPrior,
    fitted: tuple[Matrix, NDArray[np.integer]],
    fresh: tuple[Matrix, NDArray[np.integer]],
    labels: NDArray[Any],
) -> tuple[Check, NDArray[np.floating]]:
    """Check that the prior explains each environment as well as a Gaussian of its own does.

    Parameters
    ----------
    prior
        What was fitted.
    fitted, fresh
        Draws of latents and numbers of environments, of rows in the fit and of rows held out.
    labels
        Of the environments.

    Returns
    -------
    check
        Of the environment where the prior loses most.
    losses
        Nats a row by which a Gaussian is better, for each environment; nan where there are too few
        rows to tell.
    """
    name = "each environment is explained"
    losses = np.full(len(labels), np.nan)
    for e in range(len(labels)):
        known, new = fitted[0][fitted[1] == e], fresh[0][fresh[1] == e]
        if len(known) <= 2 * known.shape[1] or not len(new):
            continue
        covariance = np.cov(known.T).reshape(known.shape[1], -1) + _RIDGE * np.eye(known.shape[1])
        free = multivariate_normal(known.mean(axis=0), covariance).logpdf(new).mean()
        codes = jnp.full(len(new), e)
        own = np.asarray(prior.log_density(jnp.asarray(new, float), codes), dtype=float)
        losses[e] = free - own.mean()
    if np.isnan(losses).all():
        return Check(name, None, "no environment has enough rows to tell"), losses
    worst = int(np.nanargmax(losses))
    detail = (
        f"on rows held out a Gaussian of its own is {losses[worst]:.3f} nats a row better in "
        f"{labels[worst]}, where the graph and the targets explain least; up to {_LARGEST_LOSS} "
        "pass"
    )
    return Check(name, bool(losses[worst] <= _LARGEST_LOSS), detail), losses


def measured_check(
    mean: Matrix, variance: Matrix, codes: NDArray[np.integer], names: Sequence[str]
) -> tuple[Check, NDArray[np.floating]]:
    """Check that X says something of each latent, beyond what its environment says.

    Returns the check and the share of each latent's variance that its posterior leaves open.
    """
    between = np.array([mean[codes == e].mean(axis=0) for e in range(codes.max() + 1)])
    known = ((mean - between[codes]) ** 2).mean(axis=0)
    share = variance.mean(axis=0) / (variance.mean(axis=0) + known)
    hidden = np.flatnonzero(share > _LARGEST_SHARE)
    detail = (
        f"the noise hides {share.max():.2f} of the variance of {names[int(share.argmax())]}, the "
        f"most of all; up to {_LARGEST_SHARE} passes"
    )
    if len(hidden):
        listed = ", ".join(names[j] for j in hidden.tolist())
        detail += f", and the measurement ignores {listed}: it is too noisy, or training failed"
    return Check("every latent is measured", not len(hidden), detail), share
