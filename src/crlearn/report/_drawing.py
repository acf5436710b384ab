"""Drawings of graphs: causes above their effects, the recovered graph beside the true one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from numpy.typing import NDArray

from crlearn.graph import find_cycle, layers
from crlearn.report._svg import (
    BLUE,
    GREY,
    INK,
    LETTER,
    SURFACE,
    VERMILLION,
    Sketch,
    drawn,
    panels,
)

BoolMatrix = NDArray[np.bool_]
Positions = NDArray[np.floating]

_WIDEST = 11  # inches; two graphs that are wider together stand one above the other
_SWEEPS = 8
_MOST_EDGES_IN_WORDS = 30
_MARGIN = 0.4  # around nodes
_LINE = 0.05  # around edges
_CLEAR = 0.3  # distance of an edge from the nodes that it does not belong to
_INCHES = 0.75  # of a unit
_CIRCLE = 3  # letters; longer names stand in boxes
_BENDS = (0.0, 0.2, -0.2, 0.35, -0.35, 0.5, -0.5)


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
    breadth = _breadth(graph.names)
    positions, edges = layered_layout(graph.adjacency, breadth), _edges(graph.adjacency)
    extent = _extent(positions, edges, breadth)
    width, height = _size(extent)
    figure, grid = panels(1, 1, width, height)
    _draw(grid[0, 0], graph, positions, extent, [(edge, INK, "-") for edge in edges])
    return Sketch(figure, f"{graph.title}: {_in_words(graph)}.", caption)


@drawn
def graphs_beside_each_other(true: Drawing, recovered: Drawing, caption: str = "") -> Sketch:
    """Draw the true and the recovered graph over the same nodes, with the mistakes marked."""
    breadth = _breadth([*true.names, *recovered.names])
    positions = layered_layout(true.adjacency, breadth)
    true_edges, found_edges = _edges(true.adjacency), _edges(recovered.adjacency)
    extent = _extent(positions, true_edges + found_edges, breadth)
    width, height = _size(extent)
    beside = 2 * width <= _WIDEST
    shape = (1, 2, 2 * width, height + 0.3) if beside else (2, 1, width, 2 * height + 0.3)
    figure, grid = panels(*shape)
    _draw(grid[0, 0], true, positions, extent, [(edge, INK, "-") for edge in true_edges])
    right, wrong, missed = (BLUE, "-"), (VERMILLION, "--"), (GREY, ":")
    _draw(
        grid[-1, -1],
        recovered,
        positions,
        extent,
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


def layered_layout(adjacency: BoolMatrix, breadth: float = 1.0) -> Positions:
    """Return a place for each node: parents above their children, few crossings.

    Nodes beside each other are `breadth` apart.

    Nodes are put in rows by their longest path to a childless node, and each row is sorted by the
    mean place of the neighbours, back and forth. Graphs with cycles or undirected edges are put on
    a circle.
    """
    if find_cycle(adjacency):
        angles = 2 * np.pi * np.arange(len(adjacency)) / len(adjacency)
        circle = np.stack([breadth * np.sin(angles), np.cos(angles)], axis=1)
        return max(1.0, len(adjacency) / 6) * circle
    rows = [list(row) for row in layers(adjacency)]
    positions = np.zeros((len(adjacency), 2))
    for height, row in enumerate(rows):
        _place(row, height, positions)
    neighbours = adjacency | adjacency.T
    for _ in range(_SWEEPS):
        for height, row in [*enumerate(rows), *reversed([*enumerate(rows)])]:
            centre = {node: _mean_place(node, neighbours, positions) for node in row}
            row.sort(key=lambda node: (centre[node], node))
            _place(row, height, positions)
    return positions * (breadth, 1.0)


def _breadth(names: Sequence[str]) -> float:
    """Return how far apart nodes with these names have to be."""
    return max(1.0, 2 * _half_width(names) / (72 * _INCHES) + 0.2)


def _half_width(names: Sequence[str]) -> float:
    """Return half the width of a node, in points: of a circle, or a box around the longest name."""
    longest = max(map(len, names))
    return 11.0 if longest <= _CIRCLE else 36 * LETTER * longest + 5


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


def _extent(positions: Positions, edges: Sequence[Edge], breadth: float) -> Positions:
    """Return the lower left and upper right corner of nodes and edges."""
    curves = [_curve(edge, positions, _bend(edge, positions)) for edge in edges]
    margin = (max(_MARGIN, breadth / 2), _MARGIN)
    everything = np.concatenate([positions - margin, positions + margin, *curves])
    return np.stack([everything.min(axis=0) - _LINE, everything.max(axis=0) + _LINE])


def _size(extent: Positions) -> tuple[float, float]:
    width, height = _INCHES * (extent[1] - extent[0])
    return float(np.clip(width, 2.8, 8)), float(height + 0.4)


def _draw(
    axes: Axes,
    graph: Drawing,
    positions: Positions,
    extent: Positions,
    edges: Sequence[tuple[Edge, str, str]],
) -> None:
    half = _half_width(graph.names)
    for edge, color, line in edges:
        shrink = _reach(edge, positions, half)
        axes.add_patch(
            FancyArrowPatch(
                tuple(positions[edge.start]),
                tuple(positions[edge.end]),
                arrowstyle="-|>" if edge.directed else "-",
                mutation_scale=10,
                shrinkA=shrink,
                shrinkB=shrink,
                connectionstyle=f"arc3,rad={_bend(edge, positions)}",
                color=color,
                linestyle=line,
                linewidth=1.3,
            )
        )
    look: dict[str, Any] = {"facecolor": SURFACE, "edgecolor": INK, "linewidth": 1.0}
    if half <= 11:
        axes.scatter(*positions.T, s=420, zorder=2, **look)
        box = None
    else:
        box = {"boxstyle": "round,pad=0.35", **look}
    for node, name in enumerate(graph.names):
        x, y = positions[node]
        axes.text(x, y, name, ha="center", va="center", fontsize=8.5, zorder=3, bbox=box)
    title = graph.title if graph.adjacency.any() else f"{graph.title}: no edges"
    axes.set(xlim=extent[:, 0], ylim=extent[:, 1], title=title, aspect="equal")
    axes.set_axis_off()


def _reach(edge: Edge, positions: Positions, half_width: float) -> float:
    """Return how far from the centre of a node an edge begins, in points."""
    across, up = np.abs(positions[edge.end] - positions[edge.start])
    length = float(np.hypot(across, up))
    if half_width <= 11 or length == 0:
        return 11.0
    return float(min(half_width * length / max(across, 1e-9), 10 * length / max(up, 1e-9)) + 2)


def _bend(edge: Edge, positions: Positions) -> float:
    """Return the first bend with which an edge keeps clear of the other nodes, or the clearest."""
    others = np.delete(positions, [edge.start, edge.end], axis=0)
    if len(others) == 0:
        return 0.0
    side = 1 if (edge.start + edge.end) % 2 else -1  # so that not all bend to the same side
    bends = [side * bend for bend in _BENDS]
    clearances = [_clearance(_curve(edge, positions, bend), others) for bend in bends]
    if max(clearances) < _CLEAR:
        return bends[int(np.argmax(clearances))]
    return next(bend for bend, free in zip(bends, clearances, strict=True) if free >= _CLEAR)


def _curve(edge: Edge, positions: Positions, bend: float) -> Positions:
    """Return points along matplotlib's "arc3": a parabola that leaves the chord to its right."""
    start, end = positions[edge.start], positions[edge.end]
    across = np.array([end[1] - start[1], start[0] - end[0]])
    middle = (start + end) / 2 + bend * across
    t = np.linspace(0, 1, 25)[:, None]
    return (1 - t) ** 2 * start + 2 * t * (1 - t) * middle + t**2 * end


def _clearance(curve: Positions, nodes: Positions) -> float:
    return float(np.linalg.norm(curve[:, None] - nodes[None], axis=2).min())


def _in_words(graph: Drawing) -> str:
    edges = _edges(graph.adjacency)
    if len(edges) > _MOST_EDGES_IN_WORDS:
        return f"{len(graph.names)} nodes, {len(edges)} edges"
    words = [
        f"{graph.names[edge.start]} {'→' if edge.directed else '–'} {graph.names[edge.end]}"
        for edge in edges
    ]
    return f"nodes {', '.join(graph.names)}; edges {', '.join(words) or 'none'}"
