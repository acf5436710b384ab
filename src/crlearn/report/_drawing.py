"""Drawings of graphs: causes above their effects, the recovered graph beside the true one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from numpy.typing import NDArray

from crlearn.graph import find_cycle, layers
from crlearn.report._svg import BLUE, GREY, INK, SURFACE, VERMILLION, Sketch, drawn, panels

BoolMatrix = NDArray[np.bool_]
Positions = NDArray[np.floating]

_SWEEPS = 8
_MOST_EDGES_IN_WORDS = 30
_TOO_CLOSE = 0.28  # of an edge to a node that it does not belong to


@dataclass(frozen=True, eq=False)
class Drawing:
    """A graph with names and a heading; ``adjacency[i, j]`` and ``[j, i]``: an undirected edge."""

    title: str
    adjacency: BoolMatrix
    names: Sequence[str]


class Edge(NamedTuple):
    """An edge between two nodes."""

    start: int
    end: int
    directed: bool = True


@drawn
def graph_drawing(graph: Drawing, caption: str = "") -> Sketch:
    """Draw one graph."""
    positions = layered_layout(graph.adjacency)
    figure, grid = panels(1, 1, *_size(positions))
    _draw(grid[0, 0], graph, positions, [(edge, INK, "-") for edge in _edges(graph.adjacency)])
    return Sketch(figure, f"{graph.title}: {_in_words(graph)}.", caption)


@drawn
def graphs_beside_each_other(true: Drawing, recovered: Drawing, caption: str = "") -> Sketch:
    """Draw the true and the recovered graph over the same nodes, with the mistakes marked."""
    positions = layered_layout(true.adjacency)
    width, height = _size(positions)
    figure, grid = panels(1, 2, 2 * width, height + 0.3)
    true_edges, found_edges = _edges(true.adjacency), _edges(recovered.adjacency)
    _draw(grid[0, 0], true, positions, [(edge, INK, "-") for edge in true_edges])
    right, wrong, missed = (BLUE, "-"), (VERMILLION, "--"), (GREY, ":")
    _draw(
        grid[0, 1],
        recovered,
        positions,
        [(edge, *(right if edge in true_edges else wrong)) for edge in found_edges]
        + [(edge, *missed) for edge in true_edges if edge not in found_edges],
    )
    figure.legend(
        [Line2D([], [], color=color, ls=line) for color, line in (right, wrong, missed)],
        ["right", "wrong", "missed"],
        loc="outside lower right",
        ncols=3,
    )
    return Sketch(
        figure,
        f"{true.title}: {_in_words(true)}. {recovered.title}: {_in_words(recovered)}.",
        caption,
    )


def layered_layout(adjacency: BoolMatrix) -> Positions:
    """Return a place for each node: parents above their children, few crossings.

    Nodes are put in rows by their longest path to a leaf, and each row is sorted by the mean place
    of the neighbours, back and forth. Graphs with cycles are put on a circle.
    """
    directed = adjacency & ~adjacency.T
    if find_cycle(directed):
        angles = 2 * np.pi * np.arange(len(adjacency)) / len(adjacency)
        return max(1.0, len(adjacency) / 6) * np.stack([np.sin(angles), np.cos(angles)], axis=1)
    rows = [list(row) for row in layers(directed)]
    positions = np.zeros((len(adjacency), 2))
    for height, row in enumerate(rows):
        _place(row, height, positions)
    neighbours = adjacency | adjacency.T
    for _ in range(_SWEEPS):
        for height, row in [*enumerate(rows), *reversed([*enumerate(rows)])]:
            centre = {node: _mean_place(node, neighbours, positions) for node in row}
            row.sort(key=lambda node: (centre[node], node))
            _place(row, height, positions)
    return positions


def _place(row: Sequence[int], height: int, positions: Positions) -> None:
    for k, node in enumerate(row):
        positions[node] = k - (len(row) - 1) / 2, height


def _mean_place(node: int, neighbours: BoolMatrix, positions: Positions) -> float:
    around = positions[neighbours[node], 0]
    return float(around.mean() if len(around) else positions[node, 0])


def _edges(adjacency: BoolMatrix) -> list[Edge]:
    both_ways = adjacency & adjacency.T
    directed = [Edge(int(i), int(j)) for i, j in np.argwhere(adjacency & ~both_ways)]
    undirected = np.argwhere(np.triu(both_ways))
    return directed + [Edge(int(i), int(j), directed=False) for i, j in undirected]


def _size(positions: Positions) -> tuple[float, float]:
    spread = np.ptp(positions, axis=0)
    return float(np.clip(0.75 * spread[0] + 1.2, 2.8, 8)), float(0.75 * spread[1] + 1.1)


def _draw(
    axes: Axes, graph: Drawing, positions: Positions, edges: Sequence[tuple[Edge, str, str]]
) -> None:
    for edge, color, line in edges:
        axes.add_patch(
            FancyArrowPatch(
                tuple(positions[edge.start]),
                tuple(positions[edge.end]),
                arrowstyle="-|>" if edge.directed else "-",
                mutation_scale=10,
                shrinkA=11,
                shrinkB=11,
                connectionstyle=f"arc3,rad={_bend(edge, positions)}",
                color=color,
                linestyle=line,
                linewidth=1.3,
            )
        )
    axes.scatter(*positions.T, s=420, facecolor=SURFACE, edgecolor=INK, linewidth=1.0, zorder=2)
    for node, name in enumerate(graph.names):
        x, y = positions[node]
        axes.text(x, y, name, ha="center", va="center", fontsize=8.5, zorder=3)
    low, high = positions.min(axis=0) - 0.6, positions.max(axis=0) + 0.6
    title = graph.title if graph.adjacency.any() else f"{graph.title}: no edges"
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), title=title)
    axes.set_axis_off()


def _bend(edge: Edge, positions: Positions) -> float:
    """Bend an edge that would otherwise run through another node."""
    start = positions[edge.start]
    along = positions[edge.end] - start
    others = np.delete(positions, [edge.start, edge.end], axis=0) - start
    share = np.clip(others @ along / (along @ along), 0, 1)
    distance = np.linalg.norm(others - share[:, None] * along, axis=1)
    return 0.3 if (distance < _TOO_CLOSE).any() else 0.0


def _in_words(graph: Drawing) -> str:
    edges = _edges(graph.adjacency)
    if len(edges) > _MOST_EDGES_IN_WORDS:
        return f"{len(graph.names)} nodes, {len(edges)} edges"
    words = [
        f"{graph.names[edge.start]} {'→' if edge.directed else '–'} {graph.names[edge.end]}"
        for edge in edges
    ]
    return f"nodes {', '.join(graph.names)}; edges {', '.join(words) or 'none'}"
