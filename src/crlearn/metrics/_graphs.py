"""How far a recovered graph is from the true one, and recovered targets from the true ones.

Node i of one graph is node i of the other; `evaluate` sees to that through the latents. Graphs are
whatever `crlearn.graph.check_dag` accepts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.graph import (
    GraphLike,
    check_adjacency,
    check_dag,
    cpdag,
    pc_cpdag,
    transitive_closure,
)
from crlearn.metrics._check import check_matrix

BoolMatrix = NDArray[np.bool_]


def shd(graph: GraphLike, graph_hat: GraphLike) -> int:
    """Return the structural Hamming distance: edges to add, to delete or to turn around."""
    return differing_pairs(*check_both(graph, graph_hat))


def shd_closure(graph: GraphLike, graph_hat: GraphLike) -> int:
    """Return the structural Hamming distance of the transitive closures: who is whose ancestor."""
    true, recovered = check_both(graph, graph_hat)
    return differing_pairs(transitive_closure(true), transitive_closure(recovered))


def shd_cpdag(graph: GraphLike, graph_hat: GraphLike) -> int:
    """Return the number of node pairs whose edge differs between the completed PDAGs.

    A pair counts once, whether the edge is missing, surplus, turned around, or directed in one and
    undirected in the other. A matrix with an edge in both directions is taken to be a CPDAG.
    """
    true = _as_cpdag(graph, None, "graph")
    return differing_pairs(true, _as_cpdag(graph_hat, len(true), "graph_hat"))


def shd_pc(
    graph: GraphLike, Z: ArrayLike, *, alpha: float = 0.01, active: ArrayLike | None = None
) -> int:
    """Return the number of node pairs whose edge PC finds otherwise in `Z` than the CPDAG has it.

    As appendix D.9 of Xu, Lachapelle and Magliacane (2026): how well a graph can be learned from
    recovered latents. PC errs on the true latents, too; what these give stands beside it there.
    Needs the extra ``graph``.

    Parameters
    ----------
    graph
        True graph; latent i is column i of `Z`.
    Z, alpha, active
        See `crlearn.graph.pc_cpdag`.
    """
    true = cpdag(check_dag(graph, name="graph"))
    found = check_adjacency(pc_cpdag(Z, alpha, active=active), len(true), "the graph found in Z")
    return differing_pairs(true, found)


def edge_precision(graph: GraphLike, graph_hat: GraphLike) -> float:
    """Return the share of recovered edges that are true, direction included.

    Without recovered edges it is 1 if there are no true ones either, and 0 otherwise.
    """
    true, recovered = check_both(graph, graph_hat)
    return _share_of_hits(true, recovered, of=int(recovered.sum()))


def edge_recall(graph: GraphLike, graph_hat: GraphLike) -> float:
    """Return the share of true edges that were recovered, direction included.

    Without true edges it is 1 if none were recovered either, and 0 otherwise.
    """
    true, recovered = check_both(graph, graph_hat)
    return _share_of_hits(true, recovered, of=int(true.sum()))


def edge_f1(graph: GraphLike, graph_hat: GraphLike) -> float:
    """Return the harmonic mean of `edge_precision` and `edge_recall`."""
    true, recovered = check_both(graph, graph_hat)
    return _share_of_hits(true, recovered, of=(int(true.sum()) + int(recovered.sum())) / 2)


def targets_right(targets: ArrayLike, targets_hat: ArrayLike) -> float:
    """Return the share of environments whose set of intervention targets is exactly right.

    Parameters
    ----------
    targets, targets_hat
        Shape (n_environments, n_latents); non-zero where an environment intervenes on a latent.
        Every row counts, that of the reference environment, too, if it is given.
    """
    true, recovered = check_matrix(targets, "targets"), check_matrix(targets_hat, "targets_hat")
    if true.shape != recovered.shape:
        raise ValueError(
            "targets and targets_hat must have the same shape (n_environments, n_latents). "
            f"Got {true.shape} and {recovered.shape}."
        )
    return float(((true != 0) == (recovered != 0)).all(axis=1).mean())


def check_both(graph: GraphLike, graph_hat: GraphLike) -> tuple[BoolMatrix, BoolMatrix]:
    """Return two acyclic graphs over the same nodes."""
    true = check_dag(graph, name="graph")
    return true, check_dag(graph_hat, len(true), name="graph_hat")


def differing_pairs(one: BoolMatrix, other: BoolMatrix) -> int:
    """Return the number of node pairs between which two graphs differ."""
    differs = one != other
    return int(np.triu(differs | differs.T).sum())


def _as_cpdag(graph: GraphLike, n_nodes: int | None, name: str) -> BoolMatrix:
    adjacency = check_adjacency(graph, n_nodes, name)
    has_undirected_edges = (adjacency & adjacency.T).any()
    return adjacency if has_undirected_edges else cpdag(check_dag(adjacency, name=name))


def _share_of_hits(true: BoolMatrix, recovered: BoolMatrix, of: float) -> float:
    if of == 0:
        return float(not true.any() and not recovered.any())
    return float((true & recovered).sum() / of)
