"""Scatter plots of latents: against the truth where it is known, against each other where not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from crlearn.report._matched import Matched
from crlearn.report._svg import (
    BLUE,
    GREY,
    LETTER,
    PALETTE,
    WIDE,
    Sketch,
    drawn,
    legend_columns,
    panels,
    shortened,
    some_rows,
)

Matrix = NDArray[np.floating]

_MOST_IN_A_MATRIX = 8
_MOST_IN_A_STRIP = 24
_MOST_IN_A_PAIR_PLOT = 6
_PANELS_IN_A_ROW = 6
# A marker and a line; when the colours run out, they begin again with the next pair.
_PATTERNS: tuple[tuple[str, Any], ...] = (("o", "-"), ("^", (0, (3, 1.5))))


@drawn
def scatter_matrix(latents: Matched) -> Sketch:
    """Draw recovered against true latents, matched pairs on the diagonal."""
    n_true, n_recovered = latents.correlations.shape
    if max(n_true, n_recovered) > _MOST_IN_A_MATRIX:
        return _matched_strip(latents)
    rows = some_rows(len(latents.Z))
    side = float(np.clip((WIDE - 0.6) / n_recovered, 0.95, 2.2))
    figure, grid = panels(
        n_true,
        n_recovered,
        side * n_recovered + 0.6,
        side * n_true + 0.4,
        sharex="col",
        sharey="row",
    )
    for (i, j), axes in np.ndenumerate(grid):
        matched = i == j < latents.n_pairs
        color = BLUE if matched else GREY
        _points(axes, latents.Z_hat[rows, j], latents.Z[rows, i], color, strong=matched)
        _frame(axes, matched)
        _corner_note(axes, float(latents.correlations[i, j]))
    for i, name in enumerate(latents.true_names):
        grid[i, 0].set_ylabel(f"true {name}")
    for j, name in enumerate(latents.recovered_names):
        grid[-1, j].set_xlabel(_beside(side, "recovered", name))
    return Sketch(
        figure,
        f"Scatter matrix of {n_true} true {latents.kind}s in rows against {n_recovered} recovered "
        f"{latents.kind}s in columns; matched pairs are on the diagonal.",
        f"Each true {latents.kind} (rows) against each recovered one (columns). Matched pairs are "
        f"blue and on the diagonal: a straight line there is a {latents.kind} recovered up to "
        f"scale, a bent one a {latents.kind} recovered up to a monotone map. Numbers are absolute "
        "correlations." + _about(rows, latents.Z),
    )


def _matched_strip(latents: Matched) -> Sketch:
    shown = min(latents.n_pairs, _MOST_IN_A_STRIP)
    rows = some_rows(len(latents.Z))
    figure, strip = _strip(shown, 1.35)
    for k, axes in enumerate(strip):
        _points(axes, latents.Z_hat[rows, k], latents.Z[rows, k], BLUE, strong=True)
        _frame(axes, matched=True)
        _corner_note(axes, float(latents.correlations[k, k]))
        axes.set_ylabel(f"true {latents.true_names[k]}")
        axes.set_xlabel(_beside(1.35, "recovered", latents.recovered_names[k]))
    which = str(shown) if shown == latents.n_pairs else f"first {shown} of {latents.n_pairs}"
    return Sketch(
        figure,
        f"Scatter plots of {shown} recovered {latents.kind}s against the true ones they are "
        "matched to.",
        f"With more than {_MOST_IN_A_MATRIX} {latents.kind}s only the {which} matched pairs are "
        "drawn, not every combination: the heat map has them all. Numbers are absolute "
        "correlations." + _about(rows, latents.Z),
    )


@drawn
def pair_plot(Z: Matrix, names: Sequence[str], coloring: Coloring) -> Sketch:
    """Draw the distribution of each latent on the diagonal, and each pair below it."""
    n = Z.shape[1]
    if n > _MOST_IN_A_PAIR_PLOT:
        return _histogram_strip(Z, names, coloring)
    rows = some_rows(len(Z))
    side = float(np.clip((WIDE - 0.6) / n, 1.1, 2.2))
    figure, grid = panels(n, n, side * n + 0.6, side * n + 0.7, sharex="col")
    for (i, j), axes in np.ndenumerate(grid):
        if j > i:
            axes.set_axis_off()
        elif i == j:
            coloring.histogram(axes, Z[:, i])
        else:
            coloring.points(axes, Z[:, j], Z[:, i], rows)
        if 0 < j < i:
            axes.sharey(grid[i, 0])
            axes.tick_params(labelleft=False)
        _frame(axes, matched=False)
    for i, name in enumerate(names):
        grid[-1, i].set_xlabel(name)
        grid[i, 0].set_ylabel(name if i else "density")
    coloring.legend(figure)
    return Sketch(
        figure,
        f"Histograms and pairwise scatter plots of {n} latents{coloring.words}.",
        f"Distribution of each latent on the diagonal, pairs of latents below it{coloring.words}."
        + coloring.note
        + _about(rows, Z),
    )


def _histogram_strip(Z: Matrix, names: Sequence[str], coloring: Coloring) -> Sketch:
    shown = min(Z.shape[1], _MOST_IN_A_STRIP)
    figure, strip = _strip(shown, 1.25)
    for k, axes in enumerate(strip):
        coloring.histogram(axes, Z[:, k])
        _frame(axes, matched=False)
        axes.set_xlabel(names[k])
        axes.set_ylabel("density")
    coloring.legend(figure)
    return Sketch(
        figure,
        f"Histograms of {shown} latents{coloring.words}.",
        f"Distribution of {'each latent' if shown == Z.shape[1] else f'the first {shown} latents'}"
        f"{coloring.words}. With more than {_MOST_IN_A_PAIR_PLOT} latents pairs are not drawn."
        + coloring.note,
    )


@drawn
def latents_against(Z: Matrix, names: Sequence[str], values: Matrix) -> Sketch:
    """Draw each latent against a continuous side information."""
    shown = min(Z.shape[1], _MOST_IN_A_STRIP)
    rows = some_rows(len(Z))
    figure, strip = _strip(shown, 1.35)
    for k, axes in enumerate(strip):
        _points(axes, values[rows], Z[rows, k], BLUE, strong=True)
        _frame(axes, matched=False)
        axes.set_xlabel("y")
        axes.set_ylabel(names[k])
    which = "Each latent" if shown == Z.shape[1] else f"The first {shown} latents"
    return Sketch(
        figure,
        f"Scatter plots of {shown} latents against y.",
        f"{which} against y, the side information of the fit." + _about(rows, Z),
    )


@dataclass(frozen=True, eq=False)
class Group:
    """Rows that look alike: their name, which they are, and how they are drawn."""

    label: str
    rows: NDArray[np.bool_]
    color: str
    marker: str = "o"
    line: Any = "-"


@dataclass(frozen=True, eq=False)
class Coloring:
    """Which rows get which colour, and what the colours mean.

    Attributes
    ----------
    groups
        What looks alike, in the order in which it is drawn.
    words
        Half a sentence on what the colours mean.
    note
        What was left out.
    """

    groups: Sequence[Group]
    words: str = ""
    note: str = ""

    @classmethod
    def by_environment(cls, y: NDArray[Any] | None, n_rows: int) -> Coloring:
        """Colour the largest environments; the others are grey."""
        if y is None or y.dtype.kind == "f":
            return cls([Group("all rows", np.ones(n_rows, dtype=bool), BLUE)])
        labels, counts = np.unique(y, return_counts=True)
        looks = [(color, *pattern) for pattern in _PATTERNS for color in PALETTE]
        largest = np.sort(np.argsort(-counts, kind="stable")[: len(looks)])
        groups = [
            Group(shortened(labels[i]), y == labels[i], *look)
            for i, look in zip(largest, looks, strict=False)
        ]
        words, others = ", coloured by environment", len(labels) - len(largest)
        if not others:
            return cls(groups, words)
        rest = ~np.isin(y, labels[largest])
        note = f" {len(largest)} of {len(labels)} environments have a colour, the others are grey."
        return cls([Group(f"{others} others", rest, GREY), *groups], words, note)

    def points(self, axes: Axes, x: Matrix, y: Matrix, rows: NDArray[np.intp]) -> None:
        """Draw points in these colours, mixed so that no environment hides another."""
        mixed = np.random.default_rng(0).permutation(rows)
        for marker in dict.fromkeys(group.marker for group in self.groups):
            colors = np.full(len(x), "", dtype="U7")
            for group in self.groups:
                if group.marker == marker:
                    colors[group.rows] = group.color
            own = mixed[colors[mixed] != ""]
            if len(own):
                _points(axes, x[own], y[own], colors[own].tolist(), strong=True, marker=marker)

    def histogram(self, axes: Axes, values: Matrix) -> None:
        """Draw one outline for each colour, each as a density."""
        smallest = min(int(group.rows.sum()) for group in self.groups)
        edges = np.histogram_bin_edges(values, bins=int(np.clip(np.sqrt(smallest), 8, 30)))
        for group in self.groups:
            density, _ = np.histogram(values[group.rows], edges, density=True)
            axes.stairs(density, edges, color=group.color, linestyle=group.line, linewidth=1.2)
        axes.set_yticks([])

    def legend(self, figure: Figure) -> None:
        """Say which colour is which environment."""
        if len(self.groups) > 1:
            names = [group.label for group in self.groups]
            figure.legend(
                [
                    Line2D([], [], color=group.color, marker=group.marker, ls=group.line, ms=5)
                    for group in self.groups
                ],
                names,
                title="environment",
                loc="outside upper left",
                alignment="left",
                ncols=legend_columns(names, figure.get_figwidth()),
                handletextpad=0.5,
                columnspacing=1.2,
            )


def _strip(n: int, side: float) -> tuple[Figure, list[Axes]]:
    rows = ceil(n / _PANELS_IN_A_ROW)
    columns = ceil(n / rows)  # rows of about the same length
    width = max(side, min((WIDE - 0.4) / columns, 2.4))
    height = max(side, 0.75 * width)
    figure, grid = panels(
        rows, columns, width * columns + 0.4, height * rows + 0.3, gridspec_kw={"wspace": 0.06}
    )
    strip = list(grid.flat)
    for unused in strip[n:]:
        unused.set_axis_off()
    return figure, strip[:n]


def _points(
    axes: Axes,
    x: Matrix,
    y: Matrix,
    color: str | list[str],
    *,
    strong: bool,
    marker: str = "o",
) -> None:
    size = float(np.clip(3000 / len(x), 3, 12))
    alpha = 0.6 if strong else 0.35
    look: dict[str, Any] = {"color": color, "marker": marker, "alpha": alpha, "linewidths": 0}
    axes.scatter(x, y, s=size, rasterized=True, **look)


def _frame(axes: Axes, matched: bool) -> None:
    axes.locator_params(nbins=3)
    axes.tick_params(labelsize=7)
    for spine in axes.spines.values():
        spine.set_alpha(None if matched else 0.3)
        if matched:
            spine.set(color=BLUE, linewidth=1.6)


def _beside(width: float, *words: str) -> str:
    """Return words in one line if that is not wider than a panel, else one below the other."""
    line = " ".join(words)
    return line if LETTER * len(line) <= width else "\n".join(words)


def _corner_note(axes: Axes, correlation: float) -> None:
    axes.set_title(f"{correlation:.2f}", fontsize=7.5, pad=3, loc="right")


def _about(rows: NDArray[np.intp], Z: Matrix) -> str:
    if len(rows) == len(Z):
        return ""
    return f" Points are a random choice of {len(rows):,} of {len(Z):,} rows."
