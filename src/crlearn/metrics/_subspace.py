"""How well recovered variables span the true ones: all together, in layers, in blocks.

Layers and blocks are compared by canonical correlations, which do not change with any invertible
linear map inside a group on either side. With groups of one variable each they are ordinary
absolute correlations: `layer_recovery` is then `mac`, and `block_recovery` is `mcc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.metrics._check import Matrix, check_groups, check_same_width, check_samples
from crlearn.metrics._correlation import best_pairs, matched_total, ordered_total, standardize

Groups = list[NDArray[np.intp]]

# Directions of standardised columns that are shorter than this are linear dependences.
_DEPENDENT = 1e-10


def r2(Z: ArrayLike, Z_hat: ArrayLike) -> float:
    """Return the share of variance that an affine map of the recovered variables explains.

    In sample, averaged over the true variables; a constant one counts 0. Between 0 and 1, and
    unchanged by any invertible affine map of the recovered variables.
    """
    true, recovered = standardized_samples(Z, Z_hat)
    explained = orthonormal_basis(recovered).T @ true
    return float(np.clip((explained**2).sum(axis=0), 0.0, 1.0).mean())


def layer_recovery(
    Z: ArrayLike,
    Z_hat: ArrayLike,
    layers: Sequence[ArrayLike],
    layers_hat: Sequence[ArrayLike] | None = None,
    *,
    upstream: bool = False,
) -> float:
    """Return how well each layer of true variables is spanned by the recovered layer in its place.

    The sum of the canonical correlations between layer k of `Z` and layer k of `Z_hat`, over all k,
    divided by the number of true variables. It is 1 if each layer is recovered up to an invertible
    linear map; a variable that was put into a wrong layer counts 0.

    Parameters
    ----------
    Z, Z_hat
        True and recovered variables: the exogenous noises, or with ``upstream=True`` the latents.
    layers
        Columns of `Z` in each layer, childless latents first, as from `crlearn.graph.layers`.
    layers_hat
        The same for `Z_hat`. None: the layers of `Z_hat` are those of `Z`, column by column.
    upstream
        Whether a layer may also be mixed with the layers after it in the list, as latents (but not
        noises) may in observational data; these are regressed out, linearly, first.
    """
    true, recovered = standardized_samples(Z, Z_hat)
    groups = check_groups(layers, true.shape[1], "layers")
    groups_hat = _groups_of_recovered(layers_hat, groups, true, recovered, "layers")
    bases_of = bases_beyond_later if upstream else group_bases
    similarity = group_similarity(bases_of(true, groups), bases_of(recovered, groups_hat))
    return ordered_total(similarity) / true.shape[1]


def block_recovery(
    Z: ArrayLike,
    Z_hat: ArrayLike,
    blocks: Sequence[ArrayLike] | None = None,
    blocks_hat: Sequence[ArrayLike] | None = None,
) -> float:
    """Return how well each block of true variables is spanned by one block of recovered ones.

    As `layer_recovery`, except that the blocks stand in no order: they are matched so that the
    result is largest.

    Parameters
    ----------
    Z, Z_hat
        True and recovered variables.
    blocks
        Columns of `Z` in each block. None, if it is not known: each true variable is given to one
        block of `Z_hat`, to no block more than it has columns, and the result is the mean multiple
        correlation of the true variables with their blocks.
    blocks_hat
        The same for `Z_hat`. None: the blocks of `Z_hat` are those of `Z`, column by column.
    """
    true, recovered = standardized_samples(Z, Z_hat)
    if blocks is None:
        if blocks_hat is None:
            raise ValueError("blocks and blocks_hat must not both be None. Give at least one.")
        groups_hat = check_groups(blocks_hat, recovered.shape[1], "blocks_hat")
        sizes = [len(group) for group in groups_hat]
        similarity = seat_similarity(true, group_bases(recovered, groups_hat), sizes)
        return matched_total(similarity) / true.shape[1]
    groups = check_groups(blocks, true.shape[1], "blocks")
    groups_hat = _groups_of_recovered(blocks_hat, groups, true, recovered, "blocks")
    similarity = group_similarity(group_bases(true, groups), group_bases(recovered, groups_hat))
    total = ordered_total if blocks_hat is None else matched_total
    return total(similarity) / true.shape[1]


def r2_within_blocks(Z: ArrayLike, Z_hat: ArrayLike, blocks: Sequence[ArrayLike]) -> float:
    """Return how much of the recovered variables the true blocks that they belong to explain.

    Each recovered variable is given to one block, to no block more than it has columns, such that
    the shares of their variances that an affine map of their blocks explains are largest in total;
    the result is this total, divided by the number of true variables in blocks. Places of a block
    that are left empty count 0, surplus recovered variables are ignored. It is 1 if each recovered
    variable is an affine function of one block; it does not see whether those of a block are
    functions of each other. With blocks of one it is the mean squared correlation.

    Parameters
    ----------
    Z, Z_hat
        True and recovered variables.
    blocks
        Columns of `Z` in each block.
    """
    shares, owners = _shares_and_owners(Z, Z_hat, blocks)
    recovered, block = best_pairs(shares[:, owners]).T
    return float(shares[recovered, owners[block]].sum() / len(owners))


def r2_across_blocks(Z: ArrayLike, Z_hat: ArrayLike, blocks: Sequence[ArrayLike]) -> float:
    """Return how much of the recovered variables the other true blocks explain, on average.

    The mean share of the variance of a recovered variable that an affine map of a block explains,
    over all blocks but the one that `r2_within_blocks` gives it to. True blocks that are dependent
    explain something of each other, so that the truth itself need not have a 0 here.

    Parameters
    ----------
    Z, Z_hat
        True and recovered variables.
    blocks
        Columns of `Z` in each block, at least two blocks.
    """
    shares, owners = _shares_and_owners(Z, Z_hat, blocks)
    if shares.shape[1] < 2:
        raise ValueError(f"blocks must be two or more. Got {shares.shape[1]}.")
    recovered, block = best_pairs(shares[:, owners]).T
    others = shares[recovered].sum(axis=1) - shares[recovered, owners[block]]
    return float(others.mean() / (shares.shape[1] - 1))


def _shares_and_owners(
    Z: ArrayLike, Z_hat: ArrayLike, blocks: Sequence[ArrayLike]
) -> tuple[Matrix, NDArray[np.intp]]:
    """Return what each block explains of each recovered variable, and the block of each column."""
    true, recovered = standardized_samples(Z, Z_hat)
    groups = check_groups(blocks, true.shape[1], "blocks")
    shares = [((basis.T @ recovered) ** 2).sum(axis=0) for basis in group_bases(true, groups)]
    owners = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return np.clip(np.stack(shares, axis=1), 0.0, 1.0), owners


def standardized_samples(Z: ArrayLike, Z_hat: ArrayLike) -> tuple[Matrix, Matrix]:
    """Return both arrays with centred columns of unit norm."""
    true, recovered = check_samples(Z, Z_hat)
    return standardize(true), standardize(recovered)


def orthonormal_basis(columns: Matrix) -> Matrix:
    """Return an orthonormal basis of what standardised columns span."""
    directions, length, _ = np.linalg.svd(columns, full_matrices=False)
    return directions[:, length > _DEPENDENT]


def group_bases(columns: Matrix, groups: Groups) -> list[Matrix]:
    """Return a basis of each group of standardised columns."""
    return [orthonormal_basis(columns[:, group]) for group in groups]


def bases_beyond_later(columns: Matrix, groups: Groups) -> list[Matrix]:
    """Return a basis of what each group spans beyond the groups that come after it."""
    bases = []
    for k, group in enumerate(groups):
        upstream = [column for later in groups[k + 1 :] for column in later]
        known = orthonormal_basis(columns[:, upstream])
        bases.append(orthonormal_basis(columns[:, group] - known @ (known.T @ columns[:, group])))
    return bases


def group_similarity(bases: Sequence[Matrix], bases_hat: Sequence[Matrix]) -> Matrix:
    """Return the sum of the canonical correlations of each true with each recovered group.

    Recovered bases may be stacks of matrices; the result is then a stack, too.
    """
    rows = [[_canonical_total(basis, other) for other in bases_hat] for basis in bases]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def seat_similarity(true: Matrix, bases_hat: Sequence[Matrix], sizes: Sequence[int]) -> Matrix:
    """Return the multiple correlation of each true column with each recovered group.

    A group has as many equal columns in the result as it has members. Bases may be stacks.
    """
    columns = [
        np.linalg.norm(np.swapaxes(basis, -2, -1) @ true, axis=-2)
        for basis, size in zip(bases_hat, sizes, strict=True)
        for _ in range(size)
    ]
    return np.clip(np.stack(columns, axis=-1), 0.0, 1.0)


def _canonical_total(basis: Matrix, other: Matrix) -> Matrix:
    correlations = np.linalg.svd(basis.T @ other, compute_uv=False)
    return np.clip(correlations, 0.0, 1.0).sum(axis=-1)


def _groups_of_recovered(
    groups_hat: Sequence[ArrayLike] | None,
    groups: Groups,
    true: Matrix,
    recovered: Matrix,
    name: str,
) -> Groups:
    if groups_hat is not None:
        return check_groups(groups_hat, recovered.shape[1], f"{name}_hat")
    check_same_width(true, recovered, ("Z", "Z_hat"), f"say with {name}_hat which belong together")
    return groups
