"""Which environments share a target? Pairs of environments, from their score differences.

Two hard interventions on the same latent differ along that latent alone, any others along several.
The paper tries all pairings. Here each pair of environments has a price, how much of its difference
lies beside its main axis, and the cheapest matching is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]
# Environments (from 1 on) of each latent: two, one, or none.
Groups = tuple[tuple[int, ...], ...]


def spread_prices(differences: Matrix) -> Matrix:
    """Price pairs by how far their difference is from a single direction, ``(m, m)``.

    ``differences[e]`` is score of the reference minus score of environment e + 1, ``(m, N, k)``.
    The price is the share of the second moment of directions (differences of length one) beside its
    leading eigenvector. It is zero for environments with the same target if the coordinates are
    linear in the latents; otherwise it is where a search can start. Lengths are left out since rows
    where the mixing is nearly flat have huge ones: with exact scores behind a smooth map, three and
    five latents, seeds 0 to 2, all pairs were right, and hardly any with lengths.
    """
    m = len(differences)
    prices = np.zeros((m, m))
    for first in range(m):
        for second in range(first):
            change = differences[first] - differences[second]
            length = np.linalg.norm(change, axis=1, keepdims=True)
            change = change / np.where(length > 0, length, 1.0)
            values = np.linalg.eigvalsh(change.T @ change)
            total = values.sum()
            price = 1 - values[-1] / total if total > 0 else 1.0
            prices[first, second] = prices[second, first] = price
    return prices


def axis_prices(pairwise: Matrix) -> Matrix:
    """Price pairs by how far their difference is from a single latent, ``(m, m)``.

    ``pairwise[e, f, k]`` is the mean absolute difference of two environments along latent k.
    """
    total = pairwise.sum(axis=2)
    return 1 - pairwise.max(axis=2) / np.where(total > 0, total, 1.0)


def cheapest_groups(prices: Matrix, n_latents: int) -> Groups:
    """Return the environments of each latent: as few alone as possible, at the least price.

    All environments are used; there may be at most two for each latent.
    """
    m = len(prices)
    n_alone = max(2 * n_latents - m, 0)
    if n_alone >= m:
        return tuple((e + 1,) if e < m else () for e in range(n_latents))
    graph = nx.Graph()
    for first in range(m):
        for second in range(first):
            graph.add_edge(first, second, weight=float(prices[first, second]))
        # An environment that is matched to a place beyond the last is alone.
        for place in range(m, m + n_alone):
            graph.add_edge(first, place, weight=0.0)
    matching = nx.min_weight_matching(graph)
    groups = [tuple(e + 1 for e in sorted(pair) if e < m) for pair in matching]
    groups = sorted(group for group in groups if group)
    return (*groups, *[()] * (n_latents - len(groups)))


def changes(differences: Matrix, groups: Sequence[Sequence[int]]) -> Matrix:
    """Return the score difference inside each group that is not empty, ``(g, N, k)``.

    A single environment is compared with the reference, as in the paper's Table 14.
    """
    return np.array(
        [
            differences[group[1] - 1] - differences[group[0] - 1]
            if len(group) > 1
            else differences[group[0] - 1]
            for group in groups
            if len(group)
        ]
    )
