"""Figures of a study: a metric along what varies, or in rows where nothing can be an axis."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import pairwise
from math import ceil

import numpy as np
from matplotlib.axes import Axes

from crlearn.report._facets import Panel, Setting, independent_axes, row_label
from crlearn.report._outcome import Mark
from crlearn.report._page import printable
from crlearn.report._pen import LONGEST_NAME, Pen, Scene
from crlearn.report._svg import LETTER, WIDE, Sketch, drawn, panels, shortened, soften
from crlearn.report._wording import in_words

_MOST_PANELS = 12
_MOST_ROWS = 40
_MOST_MARKS = 1500
_COLUMNS, _COLUMNS_OF = 3, {1: 1, 2: 2, 4: 2}
_HEIGHTS = {1: 3.4, 2: 2.8, 3: 2.4}  # inches, of panels in so many columns
_LINES_OF_TITLE = 3


@drawn
def metric_by_axis(scene: Scene, every: Sequence[Panel]) -> Sketch:
    """Draw a metric along the axis of each panel."""
    chosen = _as_many_as_fit(scene, every)
    marks = [mark for panel in chosen for setting in panel.settings for mark in scene.at(setting)]
    has_theory = any(scene.slope_in(panel) is not None for panel in chosen)
    pen = Pen(scene, marks, upright=True, has_theory=has_theory)
    columns = _COLUMNS_OF.get(len(chosen), _COLUMNS)
    rows = ceil(len(chosen) / columns)
    width = WIDE if columns < _COLUMNS else 3.0 * columns + 0.7
    height = _HEIGHTS[columns] * rows + pen.legend_height(width)
    figure, grid = panels(rows, columns, width, height, sharey=True)
    for axes, panel in zip(grid.flat, chosen, strict=False):
        _draw_panel(pen, axes, panel, width / columns)
    for axes in grid[:, 0]:
        axes.set_ylabel(scene.label)
    for unused in list(grid.flat)[len(chosen) :]:
        unused.set_axis_off()
    pen.legend(figure)
    names = ", ".join(dict.fromkeys(panel.axis.name for panel in chosen))
    caption = pen.caption + _left_out(len(chosen), len(every), "plots")
    return Sketch(figure, pen.in_words(names), caption, pen.hover)


@drawn
def metric_by_row(scene: Scene, every: Sequence[Setting]) -> Sketch:
    """Draw a metric in rows: one for each setting, or for each method if there is one setting."""
    settings = every[:_MOST_ROWS]
    marks = [mark for setting in settings for mark in scene.at(setting)]
    present = {mark.method for mark in marks}
    methods = [method for method in scene.methods if method in present]
    pen = Pen(scene, marks, upright=False)
    if len(settings) > 1:
        by = independent_axes(settings)
        labels = [row_label(setting, by) for setting in settings]
        name = ", ".join(axis.name for axis in by)
        offsets, aside = _offsets(methods, 0.7), 0.2 / len(methods)
        row_height = max(0.32, 0.14 * len(methods))
    else:
        labels, name, row_height = list(methods), "method", 0.32
        offsets, aside = {method: float(i) for i, method in enumerate(methods)}, 0.2
    labels = [shortened(label, LONGEST_NAME) for label in labels]
    width = max(WIDE, 6.0 + LETTER * max(map(len, labels)))
    height = row_height * len(labels) + 0.8 + pen.legend_height(width)
    figure, grid = panels(1, 1, width, height)
    axes = grid[0, 0]
    for i, setting in enumerate(settings):
        for mark in scene.at(setting):
            place = i + offsets[mark.method]
            pen.series(axes, mark.method, [(place, mark)], aside, joined=False)
    pen.levels(axes, [*enumerate(settings)], joined=False)
    axes.set_yticks(range(len(labels)), labels)
    axes.set(ylim=(len(labels) - 0.4, -0.6), ylabel=name, xlabel=scene.label)
    soften(axes, "x")
    pen.scale(axes)
    pen.legend(figure)
    caption = pen.caption + _left_out(len(settings), len(every), "settings")
    return Sketch(figure, pen.in_words(name), caption, pen.hover)


def _draw_panel(pen: Pen, axes: Axes, panel: Panel, width: float) -> None:
    axis = panel.axis
    by_method: dict[str, list[tuple[float, Mark]]] = {method: [] for method in pen.scene.methods}
    for setting in panel.settings:
        for mark in pen.scene.at(setting):
            by_method[mark.method].append((panel.position(setting), mark))
    present = [method for method, places in by_method.items() if places]
    positions = [axis.position(value) for value in axis.values]
    span = positions[-1] - positions[0]
    gap = min(after - before for before, after in pairwise(positions))
    step = 0.035 * span if axis.is_numeric else 0.12
    breadth = min(0.6 * gap, step * len(present))
    offsets = _offsets(present, breadth)
    for method in present:
        places = [(place + offsets[method], mark) for place, mark in by_method[method]]
        pen.series(axes, method, places, 0.3 * breadth / len(present), joined=axis.is_numeric)
    levels = [(panel.position(setting), setting) for setting in panel.settings]
    pen.levels(axes, levels, joined=axis.is_numeric)
    pen.theory(axes, panel)
    margin = 0.06 * span + breadth / 2 if axis.is_numeric else 0.6
    axes.set_xlim(positions[0] - margin, positions[-1] + margin)
    _name_axis(axes, panel, positions, width)
    soften(axes)
    pen.scale(axes)


def _name_axis(axes: Axes, panel: Panel, positions: Sequence[float], width: float) -> None:
    """Put values and name to the axis of a panel that is `width` inches wide, and a title."""
    axis = panel.axis
    labels = [shortened(in_words(value)) for value in axis.values]
    left, right = axes.get_xlim()
    if axis.is_numeric:
        labels = _those_with_room(positions, labels, (right - left) / (width - 0.5))
    elif LETTER * sum(map(len, labels)) > width - 0.7:
        axes.tick_params("x", rotation=25)
    axes.set_xticks(positions, labels)
    letters = int(width / LETTER)
    axes.set_xlabel(textwrap.fill(axis.label, letters))
    title = panel.title[: _LINES_OF_TITLE * letters]
    axes.set_title(textwrap.fill(printable(title), letters), fontsize=8.5, loc="left")


def _as_many_as_fit(scene: Scene, every: Sequence[Panel]) -> list[Panel]:
    chosen = every[:_MOST_PANELS]
    sizes = [sum(len(scene.at(setting)) for setting in panel.settings) for panel in chosen]
    n_fitting = int((np.cumsum(sizes) <= _MOST_MARKS).sum())
    return list(chosen[: max(1, n_fitting)])


def _offsets(methods: Sequence[str], breadth: float) -> dict[str, float]:
    """Put methods side by side around a place, so that none hides another."""
    step = breadth / max(1, len(methods))
    return {method: (i - (len(methods) - 1) / 2) * step for i, method in enumerate(methods)}


def _those_with_room(
    positions: Sequence[float], labels: Sequence[str], per_inch: float
) -> list[str]:
    """Return the labels, without those that would touch the one before or the last one."""
    halves = [LETTER * len(label) * per_inch / 2 for label in labels]
    kept, free = [""] * len(labels), -np.inf
    last = positions[-1] - halves[-1]
    for i, (position, half) in enumerate(zip(positions[:-1], halves[:-1], strict=True)):
        if position - half > free and position + half < last:
            kept[i], free = labels[i], position + half
    return [*kept[:-1], labels[-1]]


def _left_out(n_drawn: int, n: int, what: str) -> str:
    if n_drawn == n:
        return ""
    return f" {n_drawn} of {n} {what} are drawn; the table has all values."
