"""Targets of environments, and what hard interventions on them tell: stages 3 and 4 of UMNI-CRL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from crlearn.likelihood import Moments
from crlearn.published.lscale._estimator import unmix
from crlearn.scores import zero_test

Matrix = NDArray[np.floating]
Integers = NDArray[np.intp]
Graph = NDArray[np.bool_]


def recovered_targets(encoder: Matrix, closure: Graph, moments: Moments) -> Graph:
    """Return which environments intervene on which latents, ``(m + 1, n)``.

    Combinations tell it only up to ancestors. But a latent is a target where its distribution given
    its ancestors changes, mixed with them or not. There are two such distributions: environments
    are sorted by how far they are from the reference, and the split with the largest likelihood is
    taken, by linear Gaussian regression; every latent is a target somewhere. With nonlinear
    mechanisms it is an approximation, as a linear regression changes wherever the ancestors do.
    """
    latent, n_environments = moments.transformed(encoder), len(moments.sizes)
    targets = np.zeros((n_environments, len(encoder)), dtype=bool)
    alone = np.eye(n_environments, dtype=bool)
    with_reference = alone | alone[0]
    for t in range(len(encoder)):
        family = np.append(np.flatnonzero(closure[:, t]), t)
        single = _deviance(latent, family, alone)
        distance = _deviance(latent, family, with_reference) - single - single[0]
        place = np.argsort(np.argsort(np.where(alone[0], -np.inf, distance)))
        splits = place >= np.arange(1, n_environments)[:, None]
        value = _deviance(latent, family, splits) + _deviance(latent, family, ~splits)
        targets[:, t] = splits[value.argmin()]
    return targets


def _deviance(moments: Moments, family: Integers, groups: Graph) -> Matrix:
    """Return N log(variance) of the last of a family given the others, in groups ``(g, m + 1)``."""
    weights = groups * moments.sizes
    covariances = moments.pooled(weights)[:, family][:, :, family]
    log_variance = np.linalg.slogdet(covariances)[1]
    log_variance -= np.linalg.slogdet(covariances[:, :-1, :-1])[1]
    return weights.sum(axis=1) * log_variance


def targets_agree(targets: Graph, combinations: Integers, closure: Graph) -> bool:
    """Return whether each combination leaves its latent, and beside it only ancestors of it."""
    left = targets[1:].T.astype(np.intp) @ combinations != 0
    itself = np.eye(len(closure), dtype=bool)
    return bool(left[itself].all() and not left[~(closure | itself)].any())


# Stages 3 and 4: hard interventions


def hard_encoder(encoder: Matrix, closure: Graph, targets: Graph, moments: Moments) -> Matrix:
    """Stage 3: take the ancestors out of each latent, by regression where it is a target."""
    weights = targets.T * moments.sizes
    weights = weights / weights.sum(axis=1, keepdims=True)
    return unmix(encoder, closure, np.tensordot(weights, moments.covariances, 1))


def independence_p_values(encoders: Matrix, closure: Graph, moments: Sequence[Moments]) -> Matrix:
    """Stage 4: test each latent's independence of each ancestor given the others.

    By Fisher's z of the partial correlation in the reference. Its variance is that of a sample of
    Gaussian latents or, if there are halves, what these show: the encoder's noise is in it then.
    """
    whole, *halves = [
        np.arctanh(partial_correlations(encoder @ sample.covariances[0] @ encoder.T, closure))
        for encoder, sample in zip(encoders, moments, strict=True)
    ]
    n_given = closure.sum(axis=0) - 1
    freedom = np.clip(moments[0].sizes[0] - n_given - 3, 0, None)
    p_values = 2 * norm.sf(np.abs(whole) * np.sqrt(freedom))
    if halves:
        for t, j in np.argwhere(closure):
            p_values[t, j] = zero_test(whole[t, j], [half[t, j] for half in halves]).p_value
    return np.where(closure, p_values, np.nan)


def partial_correlations(covariance: Matrix, closure: Graph) -> Matrix:
    """Return each latent's correlation with each ancestor given the others; zero elsewhere."""
    correlations = np.zeros_like(covariance)
    for j in range(len(covariance)):
        above = np.flatnonzero(closure[:, j])
        family = np.append(above, j)
        precision = np.linalg.inv(covariance[np.ix_(family, family)])
        scale = np.sqrt(precision.diagonal())
        correlations[above, j] = -precision[-1, :-1] / (scale[-1] * scale[:-1])
    return correlations
