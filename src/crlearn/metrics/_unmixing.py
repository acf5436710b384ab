"""What a linear encoder leaves of the mixing: the errors of Varıcı et al. (2025).

Row i of ``encoder @ mixing`` says how the i-th recovered latent is made of the true latents. Its
scale cannot be known, so each row is brought to unit norm; then the entries that the theory allows
are set to zero, and the spectral norm of the rest is the error: 0 is perfect.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.graph import (
    GraphLike,
    adjacency_of,
    check_dag,
    graph_of,
    surrounding_parents,
    transitive_closure,
)
from crlearn.metrics._check import Matrix, check_matrix
from crlearn.metrics._correlation import best_pairs


def scale_error(encoder: ArrayLike, mixing: ArrayLike, *, match: bool = True) -> float:
    """Return the spectral norm of what each recovered latent has of any other true latent.

    Parameters
    ----------
    encoder
        Shape (n_latents, n_features), one row a recovered latent.
    mixing
        Shape (n_features, n_latents), one column a true latent.
    match
        Whether to match the rows to the true latents first. False: row i is for true latent i.
    """
    rows = unit_rows(encoder, mixing, match)
    return _spectral_norm_outside(np.eye(len(rows), dtype=bool), rows)


def parent_error(
    encoder: ArrayLike, mixing: ArrayLike, graph: GraphLike, *, match: bool = True
) -> float:
    """Return the spectral norm of what each recovered latent has of others than its parents.

    Parameters
    ----------
    encoder, mixing, match
        As for `scale_error`.
    graph
        True graph; latent i may be mixed with j if j -> i.
    """
    rows = unit_rows(encoder, mixing, match)
    own_or_parent = check_dag(graph, len(rows)).T | np.eye(len(rows), dtype=bool)
    return _spectral_norm_outside(own_or_parent, rows)


def ancestor_error(
    encoder: ArrayLike, mixing: ArrayLike, graph: GraphLike, *, match: bool = True
) -> float:
    """Return the spectral norm of what each recovered latent has of others than its ancestors.

    As `parent_error`, for methods that recover a latent only up to a mixture with all ancestors.
    """
    return parent_error(encoder, mixing, transitive_closure(graph), match=match)


def surrounding_error(
    encoder: ArrayLike, mixing: ArrayLike, graph: GraphLike, *, match: bool = True
) -> float:
    """Return the spectral norm of what each latent has of others than its surrounding parents.

    These are the parents that are parents of all its children, too: what soft interventions leave
    open where mechanisms are sufficiently nonlinear.

    Parameters
    ----------
    encoder, mixing, graph, match
        As for `parent_error`.
    """
    rows = unit_rows(encoder, mixing, match)
    surrounding = adjacency_of(surrounding_parents(graph_of(check_dag(graph, len(rows)))))
    return _spectral_norm_outside(surrounding.T | np.eye(len(rows), dtype=bool), rows)


def nested_error(
    encoder: ArrayLike, mixing: ArrayLike, graph: GraphLike, *, match: bool = True
) -> float:
    """Return the spectral norm of what each latent has of others that lack one of its children.

    Mixing-identifiability (Definition E.3 of Wu et al., 2026): latent i may be mixed with j only if
    all children of i are children of j, whether j is a parent of i or not.

    Parameters
    ----------
    encoder, mixing, graph, match
        As for `parent_error`.
    """
    rows = unit_rows(encoder, mixing, match)
    children = check_dag(graph, len(rows)).astype(int)
    lacking = children @ (1 - children).T  # [i, j]: children of i that j does not have
    return _spectral_norm_outside(lacking == 0, rows)


def unit_rows(encoder: ArrayLike, mixing: ArrayLike, match: bool) -> Matrix:
    """Return ``encoder @ mixing`` with rows of unit norm, in the order of the true latents."""
    rows = _composed(check_matrix(encoder, "encoder"), check_matrix(mixing, "mixing"))
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if not largest.all():
        raise ValueError(
            "Every row of encoder must depend on some true latent. "
            f"Row {int(np.argmin(largest))} of encoder @ mixing is zero."
        )
    rows = rows / largest
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    if not match:
        return rows
    return rows[best_pairs(np.abs(rows).T)[:, 1]]


def _composed(encoder: Matrix, mixing: Matrix) -> Matrix:
    if encoder.shape != mixing.T.shape:
        raise ValueError(
            "encoder must have shape (n_latents, n_features) and mixing the transposed shape. "
            f"Got {encoder.shape} and {mixing.shape}."
        )
    return encoder @ mixing


def _spectral_norm_outside(allowed: NDArray[np.bool_], rows: Matrix) -> float:
    return float(np.linalg.norm(np.where(allowed, 0.0, rows), ord=2))
