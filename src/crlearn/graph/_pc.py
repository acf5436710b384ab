"""The graph among observed variables, by PC with tests of partial correlations.

Meant for latents that were recovered first. A latent that is switched off in a row sits at a
constant there and says nothing about its causes, so that correlations can be taken over the rows in
which both latents of a pair are active.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.exceptions import import_extra
from crlearn.graph._check import BoolMatrix
from crlearn.graph._convert import from_causallearn

Matrix = NDArray[np.floating]

_LEAST_EIGENVALUE = 1e-8  # of correlations, which rounding and pairs of other rows can take below 0


def pc_cpdag(Z: ArrayLike, alpha: float = 0.01, *, active: ArrayLike | None = None) -> BoolMatrix:
    """Return the CPDAG that PC finds among the columns of `Z`; needs the extra ``graph``.

    Independence is tested by partial correlations (Fisher's z), so that mechanisms are taken to be
    linear and noises Gaussian. The search is that of causal-learn, with a skeleton that does not
    depend on the order of the columns [1]_. On finite samples its colliders can contradict each
    other; what comes out need then not be the CPDAG of any DAG.

    Parameters
    ----------
    Z
        One row a sample, one column a variable.
    alpha
        Level of the tests: an edge stays unless a test does not reject independence at this level.
    active
        Of the shape of `Z`: False where a variable is switched off. The correlation of two
        variables is then that over the rows in which both are active, and all tests use the
        smallest number of such rows as their sample size. Which variables are active must not
        depend on their values, as a selection by values would change correlations. None: all rows
        count.

    Returns
    -------
    adjacency
        ``adjacency[i, j]`` is True if i -> j or i - j: an undirected edge stands in both
        directions, as in `cpdag`.

    References
    ----------
    .. [1] D. Colombo and M. H. Maathuis, "Order-independent constraint-based causal structure
       learning", Journal of Machine Learning Research 15, 2014.

    Notes
    -----
    Correlations over other rows a pair vary more together than Fisher's z takes into account, so
    that with `active` tests reject more often than `alpha` says: at 0.01 the ends of a chain of
    three (weights 0.8) kept an edge in 6% of 300 simulations where each latent was off in half of
    the rows, in 13% where exactly one of the three was off in each row, and in 1% where none was.

    Examples
    --------
    Two causes of the third variable::

        noise = np.random.default_rng(0).normal(size=(1000, 3))
        Z = np.column_stack([noise[:, :2], noise.sum(axis=1)])
        pc_cpdag(Z).astype(int).tolist()  # [[0, 0, 1], [0, 0, 1], [0, 0, 0]]
    """
    pc = import_extra("causallearn.search.ConstraintBased.PC", "graph").pc
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1. Got {alpha} instead.")
    rows, is_active = _check_rows(Z, active)
    if rows.shape[1] == 1:
        return np.zeros((1, 1), dtype=bool)
    counts = _pair_counts(rows, is_active)
    correlations = _pairwise_correlations(rows, is_active, counts)
    stand_in = _rows_with(correlations, int(counts.min()))
    found = pc(stand_in, alpha=alpha, indep_test="fisherz", show_progress=False)
    return from_causallearn(found)


def _check_rows(Z: ArrayLike, active: ArrayLike | None) -> tuple[Matrix, BoolMatrix]:
    rows = np.asarray(Z, dtype=float)
    if rows.ndim != 2 or 0 in rows.shape or not np.isfinite(rows).all():
        raise ValueError(
            "Z must be a table of finite numbers, one row a sample. "
            f"Got shape {rows.shape} with {int((~np.isfinite(rows)).sum())} that are not finite."
        )
    if active is None:
        return rows, np.ones(rows.shape, dtype=bool)
    is_active = np.asarray(active)
    if is_active.dtype != bool or is_active.shape != rows.shape:
        raise ValueError(
            f"active must hold truth values and have the shape of Z, {rows.shape}. "
            f"Got {is_active.dtype} of shape {is_active.shape}."
        )
    return rows, is_active


def _pair_counts(rows: Matrix, active: BoolMatrix) -> NDArray[np.intp]:
    """Return the number of rows in which both variables of each pair are active."""
    counts = np.rint(active.T.astype(float) @ active.astype(float)).astype(np.intp)
    fewest = rows.shape[1] + 2  # what Fisher's z needs where all other variables are given
    if counts.min() < fewest:
        i, j = np.unravel_index(np.argmin(counts), counts.shape)
        raise ValueError(
            f"PC on {rows.shape[1]} columns needs at least {fewest} rows in which the two of a "
            f"pair are active. Got {counts[i, j]} for the columns {i} and {j}."
        )
    return counts


def _pairwise_correlations(rows: Matrix, active: BoolMatrix, counts: NDArray[np.intp]) -> Matrix:
    """Return correlations over the rows in which both variables of a pair are active."""
    on = active.astype(float)
    # Centred and scaled first, so that sums of products keep their digits.
    centre = (on * rows).sum(axis=0) / counts.diagonal()
    centred = on * (rows - centre)
    scale = np.sqrt((centred**2).sum(axis=0) / counts.diagonal())
    constant = np.flatnonzero(scale <= 1e-12 * np.maximum(np.abs(centre), 1e-300))
    if len(constant):
        raise ValueError(
            "Every column of Z must vary where it is active. Constant are the columns "
            f"{', '.join(map(str, constant))}."
        )
    centred = centred / scale
    # Means and variances of i are those of the rows in which j is active, too.
    mean = centred.T @ on / counts
    variance = (centred**2).T @ on / counts - mean**2
    covariance = centred.T @ centred / counts - mean * mean.T
    correlations = covariance / np.sqrt(np.maximum(variance * variance.T, 1e-300))
    return _nearest_definite(np.clip(correlations, -1.0, 1.0))


def _nearest_definite(correlations: Matrix) -> Matrix:
    """Return correlations that some data can have: those over other rows a pair need not be so."""
    values, vectors = np.linalg.eigh((correlations + correlations.T) / 2)
    if values.min() >= _LEAST_EIGENVALUE:
        return correlations
    mended = (vectors * np.maximum(values, _LEAST_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(mended.diagonal())
    return mended / np.outer(scale, scale)


def _rows_with(correlations: Matrix, n_rows: int) -> Matrix:
    """Return so many rows that have exactly these correlations: all that the tests see of data."""
    n_columns = len(correlations)
    rows = np.random.default_rng(0).standard_normal((n_rows, n_columns))
    orthonormal = np.linalg.qr(rows - rows.mean(axis=0))[0]
    return orthonormal @ np.linalg.cholesky(correlations).T * np.sqrt(n_rows)
