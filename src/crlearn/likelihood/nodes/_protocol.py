"""What every model of a latent given its parents offers.

With z = H x, the negative log-likelihood (or log evidence) of the rows splits into nodes,

    -log|det H| + sum_j node(j, parents of j),

in nats a row. A node depends on the rows of D in (I + D) H that belong to the latent and to its
parents. Graphs that give a latent the same parents share the node: models keep those of an encoder
by (latent, parents).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crlearn.graph import Parents
from crlearn.likelihood.core._encoder import in_free_entries, log_volume
from crlearn.likelihood.core._newton import Expansion

Matrix = NDArray[np.floating]
Key = tuple[int, Parents]  # a latent and its parents


@dataclass(frozen=True, eq=False)
class Node:
    """The part of the objective that belongs to one latent, given its parents.

    Attributes
    ----------
    value
        The part itself, with the price of what was fitted in it.
    rows
        The rows of D that it depends on: the latent and its parents.
    gradient
        By the entries of these rows, ``(len(rows), n)``.
    hessian
        ``(len(rows) n, len(rows) n)``.
    """

    value: float
    rows: tuple[int, ...]
    gradient: Matrix
    hessian: Matrix


class NodeModel(Protocol):
    """A model of latents given their parents, for some rows."""

    @property
    def n(self) -> int:
        """Number of latents."""
        ...

    @property
    def n_rows(self) -> int:
        """Number of rows, of all environments."""
        ...

    def values(self, H: Matrix, wanted: Sequence[Key]) -> Matrix:
        """Return the values of nodes at an encoder."""
        ...


def assemble(H: Matrix, nodes: Iterable[Node]) -> Expansion:
    """Add nodes, one for each latent, and the log-determinant."""
    n = len(H)
    value, gradient, hessian = log_volume(H)
    for node in nodes:
        value += node.value
        gradient[list(node.rows)] += node.gradient
        block = node.hessian.reshape(len(node.rows), n, len(node.rows), n)
        hessian[np.ix_(node.rows, range(n), node.rows, range(n))] += block
    return Expansion(value, *in_free_entries(gradient, hessian), alike=True)
