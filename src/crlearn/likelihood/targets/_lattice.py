"""Proposals for the targets, from a short basis of the integer combinations of environments.

Each intervention on latent j adds one and the same matrix M_j, of rank two at most, to the
precision of x. So the differences of the precisions to that of environment 0 are sums of few such
matrices, and lie in the lattice that they generate. Where the matrix of the targets has determinant
1 or -1, as triangular ones have, both lattices are the same, and a basis of short vectors is nearly
that of the M_j. The coordinates of the environments in it are nearly the targets: those of most
latents are zeros and ones, and for the others few additions of the rest make them so.

This sees latents that only sums and differences of many environments isolate, for which noise hides
that they are of low rank.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]

_LOVASZ = 0.99
_MOST_SWAPS_PER_SQUARE = 50
_RIDGE = 1e-12
_BEAM = 200
_MOST_ADDITIONS = 8
_PROPOSALS_PER_VECTOR = 10


def lattice_targets(precisions: Matrix) -> IntMatrix:
    """Return proposals for the targets of single latents, the most plausible first, ``(R, E)``.

    Parameters
    ----------
    precisions
        Of x in each environment, ``(E, n, n)``; environment 0 is observational. If their
        differences are linearly dependent, there are no proposals.
    """
    differences = (precisions[1:] - precisions[0]).reshape(len(precisions) - 1, -1)
    if np.linalg.matrix_rank(differences) < len(differences):
        return np.zeros((0, len(precisions)), dtype=np.intp)
    basis = reduced_basis(differences @ differences.T)
    coordinates = np.rint(np.linalg.inv(basis)).astype(np.intp)
    return np.insert(zero_one_combinations(coordinates.T), 0, 0, axis=1)


def reduced_basis(gram: Matrix) -> Matrix:
    """Return integers U for which the rows of U X are short, of a matrix X with X X' given.

    The algorithm of Lenstra, Lenstra and Lovasz.
    """
    m = len(gram)
    root = np.linalg.cholesky(gram + _RIDGE * np.trace(gram) * np.eye(m))
    basis = np.eye(m)
    along, lengths = _orthogonalised(basis @ root)
    k = 1
    for _ in range(_MOST_SWAPS_PER_SQUARE * m * m):
        if k == m:
            break
        for j in range(k - 1, -1, -1):
            times = np.rint(along[k, j])
            basis[k] -= times * basis[j]
            along[k] -= times * along[j]
        if lengths[k] >= (_LOVASZ - along[k, k - 1] ** 2) * lengths[k - 1]:
            k += 1
        else:
            basis[[k - 1, k]] = basis[[k, k - 1]]
            along, lengths = _orthogonalised(basis @ root)
            k = max(k - 1, 1)
    return basis


def _orthogonalised(rows: Matrix) -> tuple[Matrix, Matrix]:
    """Return the coefficients of Gram and Schmidt, and the squared lengths of what is left.

    Of the rows, not of their products: of long combinations rounding leaves these not positive.
    """
    lower = np.linalg.qr(rows.T)[1].T
    diagonal = np.diag(lower)
    return lower / diagonal, diagonal**2


def zero_one_combinations(vectors: IntMatrix) -> IntMatrix:
    """Return vectors of zeros and ones: each given one, plus and minus as few others as needed.

    Those that need fewer additions come first.
    """
    found: list[tuple[int, IntMatrix]] = []
    for j in range(len(vectors)):
        others = np.delete(vectors, j, axis=0)
        moves = np.vstack([others, -others])
        states = np.stack([vectors[j], -vectors[j]])
        n_found = 0
        for n_added in range(_MOST_ADDITIONS + 1):
            hits = states[(_distance(states) == 0) & states.any(axis=1)]
            found.append((n_added, hits[: _PROPOSALS_PER_VECTOR - n_found]))
            n_found += len(hits)
            if n_found >= _PROPOSALS_PER_VECTOR:
                break
            states = (states[:, None] + moves).reshape(-1, vectors.shape[1])
            nearest = np.argsort(_distance(states), kind="stable")[: 3 * _BEAM]
            states = np.unique(states[nearest], axis=0)
            states = states[np.argsort(_distance(states), kind="stable")[:_BEAM]]
    rows = np.vstack([hits for _, hits in sorted(found, key=lambda pair: pair[0])])
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.sort(first)]


def _distance(vectors: IntMatrix) -> IntMatrix:
    """Return how far vectors are from zeros and ones."""
    return (np.maximum(vectors - 1, 0) ** 2 + np.minimum(vectors, 0) ** 2).sum(axis=-1)
