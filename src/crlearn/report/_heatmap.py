"""Heat maps: one hue, stronger where the value is larger, so that they work on light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from crlearn.report._matched import Matched
from crlearn.report._svg import (
    BLUE,
    INK,
    LETTER,
    VERMILLION,
    WIDE,
    Sketch,
    drawn,
    panels,
    shortened,
)

Matrix = NDArray[np.floating]

_MOST_NUMBERS = 20  # columns; beyond that numbers do not fit into the cells
_MOST_CELLS = 2500  # beyond that cells are drawn as one image and have no hover text
_MOST_ENVIRONMENTS = 40
_LOWEST = 2.1  # inches; room for the label of the scale
# From this strength on, white is easier to read on the hue than dark letters.
_STRONG = 0.85


@drawn
def correlation_map(latents: Matched) -> Sketch:
    """Draw absolute correlations, matched pairs on the diagonal."""
    n_true, n_recovered = latents.correlations.shape
    kind = latents.kind
    sketch = _heat_map(
        latents.correlations,
        latents.true_names,
        latents.recovered_names,
        axes_names=(f"true {kind}", f"recovered {kind}"),
        value_name="absolute correlation",
        label=f"Heat map of absolute correlations of {n_true} true {kind}s with "
        f"{n_recovered} recovered {kind}s; matched pairs are outlined on the diagonal.",
        caption=f"Absolute correlation of each true {kind} with each recovered one. The matching "
        "with the largest sum is outlined and put on the diagonal; a perfect answer is 1 there and "
        f"as far from 1 elsewhere as the true {kind}s are from each other.",
    )
    for k in range(latents.n_pairs):
        outline = Rectangle((k, k), 1, 1, fill=False, edgecolor=INK, linewidth=1.8, zorder=3)
        outline.set_clip_on(False)
        sketch.figure.axes[0].add_patch(outline)
    return sketch


@drawn
def mean_noise_map(correlations: Matrix, which: str, n_runs: int) -> Sketch:
    """Draw absolute correlations of noises, in the order of recovery, as means over runs."""
    n_true, n_recovered = correlations.shape
    return _heat_map(
        correlations,
        [f"e{i}" for i in range(n_true)],
        [f"e{i}" for i in range(n_recovered)],
        axes_names=("true noise", "recovered noise"),
        value_name="absolute correlation",
        label=f"Heat map of absolute correlations of {n_true} true noises with {n_recovered} "
        f"recovered noises: {which}.",
        caption=f"{which}: absolute correlation of each true exogenous noise with each recovered "
        f"one, in the order of recovery, mean over {n_runs} run{'s' if n_runs > 1 else ''}.",
    )


@drawn
def environment_means(
    means: Matrix, environments: Sequence[object], latent_names: Sequence[str]
) -> Sketch:
    """Draw the mean of each latent in each environment, in standard deviations from the mean."""
    shown = _most_unusual(means)
    note = ""
    if len(shown) < len(means):
        note = f" The {len(shown)} of {len(means)} environments that differ most are shown."
    return _heat_map(
        means[shown],
        [shortened(environments[i]) for i in shown],
        latent_names,
        axes_names=("environment", "latent"),
        value_name="mean (sd)",
        label=f"Heat map of the means of {len(latent_names)} latents in {len(shown)} environments.",
        caption="Mean of each latent in each environment, in standard deviations of that latent "
        "over all rows; blue is above the overall mean, orange below." + note,
    )


def _most_unusual(means: Matrix) -> NDArray[np.intp]:
    largest_first = np.argsort(-np.abs(means).max(axis=1), kind="stable")
    return np.sort(largest_first[:_MOST_ENVIRONMENTS])


def _heat_map(
    values: Matrix,
    row_names: Sequence[str],
    column_names: Sequence[str],
    *,
    axes_names: tuple[str, str],
    value_name: str,
    label: str,
    caption: str,
) -> Sketch:
    n_rows, n_columns = values.shape
    beside = LETTER * max(map(len, row_names)) + 1.4  # names on the left, the scale on the right
    cell = float(np.clip((WIDE - beside) / n_columns, 0.12, 1.6))
    tall = min(cell, 0.42)
    below = LETTER * max(map(len, column_names))
    tilted = below > cell
    figure, grid = panels(
        1,
        2,
        cell * n_columns + beside,
        max(tall * n_rows, _LOWEST - 0.8) + 0.8 + (below if tilted else 0.0),
        width_ratios=[cell * n_columns, 0.14],
    )
    axes, scale = grid[0]
    limit = max(1.0, float(np.abs(values).max()))
    hover = {}
    if values.size <= _MOST_CELLS:
        hover = _draw_cells(axes, values, limit, row_names, column_names, value_name)
    else:
        _draw_image(axes, values, limit)
    if n_columns <= _MOST_NUMBERS and values.size <= _MOST_CELLS:
        _write_numbers(axes, values, limit, size=8 if cell > 0.4 else 6.5)
    _name_axes(axes, row_names, column_names, axes_names, tilted)
    _draw_scale(scale, limit, signed=bool(values.min() < 0), name=value_name)
    return Sketch(figure, label, caption, hover)


def _hue(value: float | np.floating) -> str:
    return BLUE if value >= 0 else VERMILLION


def _draw_cells(
    axes: Axes,
    values: Matrix,
    limit: float,
    row_names: Sequence[str],
    column_names: Sequence[str],
    value_name: str,
) -> dict[str, str]:
    """Draw one rectangle a cell; return what each says on hover."""
    hover = {}
    for (i, j), value in np.ndenumerate(values):
        rectangle = Rectangle(
            (j, i), 1, 1, facecolor=_hue(value), alpha=abs(value) / limit, linewidth=0
        )
        gid = f"cell-{i}-{j}"
        rectangle.set_gid(gid)
        axes.add_patch(rectangle)
        hover[gid] = f"{row_names[i]} and {column_names[j]}: {value_name} {value:.3f}"
    return hover


def _draw_image(axes: Axes, values: Matrix, limit: float) -> None:
    n_rows, n_columns = values.shape
    pixels = np.zeros((n_rows, n_columns, 4))
    for sign, hue in ((1, BLUE), (-1, VERMILLION)):
        rgb = [int(hue[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        pixels[np.sign(values) == sign, :3] = rgb
    pixels[..., 3] = np.abs(values) / limit
    axes.imshow(pixels, extent=(0, n_columns, n_rows, 0), aspect="auto", interpolation="nearest")


def _write_numbers(axes: Axes, values: Matrix, limit: float, size: float) -> None:
    for (i, j), value in np.ndenumerate(values):
        color = "white" if abs(value) / limit >= _STRONG else INK
        axes.text(
            j + 0.5, i + 0.52, f"{value:.2f}", ha="center", va="center", color=color, fontsize=size
        )


def _name_axes(
    axes: Axes,
    row_names: Sequence[str],
    column_names: Sequence[str],
    axes_names: tuple[str, str],
    tilted: bool,
) -> None:
    axes.set(xlim=(0, len(column_names)), ylim=(len(row_names), 0))
    axes.set_xticks(np.arange(len(column_names)) + 0.5, column_names, rotation=90 if tilted else 0)
    axes.set_yticks(np.arange(len(row_names)) + 0.5, row_names)
    axes.tick_params(length=0)
    axes.set_ylabel(axes_names[0])
    axes.set_xlabel(axes_names[1])
    for spine in axes.spines.values():
        spine.set_alpha(0.35)


def _draw_scale(axes: Axes, limit: float, signed: bool, name: str) -> None:
    low = -limit if signed else 0.0
    steps = np.linspace(low, limit, 41)
    for bottom, top in pairwise(steps):
        middle = (bottom + top) / 2
        axes.add_patch(
            Rectangle(
                (0, bottom),
                1,
                top - bottom,
                facecolor=_hue(middle),
                alpha=abs(middle) / limit,
                linewidth=0,
            )
        )
    axes.set(xlim=(0, 1), ylim=(low, limit))
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.yaxis.set_label_position("right")
    axes.set_ylabel(name)
    for spine in axes.spines.values():
        spine.set_alpha(0.35)
