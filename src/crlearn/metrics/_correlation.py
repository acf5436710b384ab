"""How well recovered variables correlate with the true ones, one by one."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata

from crlearn.metrics._check import Matrix, check_choice, check_samples

Method = Literal["pearson", "spearman"]

# A column whose spread is below this part of its size is a constant plus rounding.
_ROUNDING = 1e-13


def correlation_matrix(Z: ArrayLike, Z_hat: ArrayLike, method: Method = "pearson") -> Matrix:
    """Return the absolute correlations of true (rows) with recovered variables (columns).

    A constant column has correlation 0 with everything.

    Parameters
    ----------
    Z
        True variables, shape (n_samples, n_latents).
    Z_hat
        Recovered variables, shape (n_samples, n_recovered).
    method
        ``"pearson"``, or ``"spearman"`` (correlation of ranks: unchanged by monotone maps).
    """
    check_choice(method, ("pearson", "spearman"), "method")
    true, recovered = check_samples(Z, Z_hat)
    if method == "spearman":
        true, recovered = rankdata(true, axis=0), rankdata(recovered, axis=0)
    return np.clip(np.abs(standardize(true).T @ standardize(recovered)), 0.0, 1.0)


def match(Z: ArrayLike, Z_hat: ArrayLike, method: Method = "pearson") -> NDArray[np.intp]:
    """Return the one-to-one matching that has the largest total absolute correlation.

    Returns
    -------
    pairs
        Shape (min(n_latents, n_recovered), 2): index of the true variable, ascending, and of the
        recovered variable that is matched to it.
    """
    return best_pairs(correlation_matrix(Z, Z_hat, method))


def mcc(Z: ArrayLike, Z_hat: ArrayLike, method: Method = "pearson") -> float:
    """Return the mean correlation coefficient: mean absolute correlation after optimal matching.

    True variables left without a partner count 0; surplus recovered variables are ignored. The
    result is between 0 and 1 and does not change with order, sign, scale or shift of the columns.

    See Also
    --------
    chance_level : what an uninformative answer reaches; well above 0.

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.random.default_rng(0).normal(size=(100, 3))
    >>> round(mcc(Z, -5 * Z[:, [2, 0, 1]]), 6)
    1.0
    """
    correlations = correlation_matrix(Z, Z_hat, method)
    return matched_total(correlations) / len(correlations)


def mac(noise: ArrayLike, noise_hat: ArrayLike) -> float:
    """Return the mean absolute correlation of the columns in the order given.

    The measure of Welch et al. (2024) for exogenous noises. True columns beyond the recovered ones
    count 0.
    """
    correlations = correlation_matrix(noise, noise_hat)
    return ordered_total(correlations) / len(correlations)


def mac_matched(noise: ArrayLike, noise_hat: ArrayLike) -> float:
    """Return the mean absolute correlation after optimal matching: `mcc`, by MAC's name."""
    return mcc(noise, noise_hat)


def standardize(columns: Matrix) -> Matrix:
    """Return the columns centred and with unit norm; constant columns become zero."""
    largest = np.abs(columns).max(axis=0)
    relative = columns / np.where(largest > 0, largest, 1.0)
    centred = relative - relative.mean(axis=0)
    norm = np.linalg.norm(centred, axis=0)
    constant = norm <= _ROUNDING * np.sqrt(len(columns))
    return np.where(constant, 0.0, centred / np.where(constant, 1.0, norm))


def best_pairs(similarity: Matrix) -> NDArray[np.intp]:
    """Return the (row, column) pairs, one to one, with the largest total similarity."""
    return np.stack(linear_sum_assignment(similarity, maximize=True), axis=1)


def matched_total(similarity: Matrix) -> float:
    """Return the total similarity of the best one-to-one matching of rows to columns."""
    rows, columns = best_pairs(similarity).T
    return float(similarity[rows, columns].sum())


def ordered_total(similarity: Matrix) -> float:
    """Return the total similarity of each row to the column of the same index."""
    return float(similarity.diagonal().sum())
