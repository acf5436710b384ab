"""Fits of a stored study along one parameter: a metric, and what they said of themselves.

Above stands the metric, below how many fits are right or wrong, with a warning and without. Nothing
is measured here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crlearn.bench import Row, compare, load_study, read_summary
from crlearn.report._page import Plot
from crlearn.report._svg import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    SKY,
    VERMILLION,
    Sketch,
    drawn,
    legend_columns,
    soften,
)

METHOD = "LinearInterventionCRL"
LIMIT = "GaussianPosterior"
OUTCOMES = {
    "right": BLUE,
    "right, with a warning": SKY,
    "wrong, with a warning": ORANGE,
    "wrong, no warning": VERMILLION,
}
NAMES = {"mcc": "MCC", "shd": "SHD", "shd_closure": "SHD of the closure"}
WIDTH, METRIC_HEIGHT, OUTCOMES_HEIGHT, ROOM_BELOW = 4.2, 1.9, 1.1, 1.2  # inches
ROOM_FOR_LABELS = 40  # letters side by side


def summary_of(study: str) -> Path:
    """Return where the stored summary of a study is."""
    return Path(__file__).parents[2] / "results" / study / "summary.json"


def figure_of(summary: Path, options: Mapping[str, str]) -> Plot:
    """Draw what a directive asks for; lists and tables of its options are TOML."""
    values = [_or_unset(value) for value in _toml(options["values"])]
    where = tomllib.loads(options.get("where", "").replace(";", "\n"))
    method, metric = options.get("method", METHOD), options.get("metric", "mcc")
    places = places_along(
        read_summary(summary),
        method,
        options["axis"],
        values,
        {name: _or_unset(value) for name, value in where.items()},
    )
    labels = _toml(options.get("labels", "[]")) or [f"{value:,}" for value in values]
    return outcome_figure(places, metric, options["title"], labels)


def _toml(value: str) -> list[Any]:
    return tomllib.loads(f"value = {value}")["value"]


def _or_unset(value: Any) -> Any:
    return None if value == "" else value


@dataclass(frozen=True)
class Place:
    """What was found for one value of the axis.

    Attributes
    ----------
    value
        Of the parameter.
    rows
        Of the method, by metric.
    limit
        MCC of the reference that knows the truth, or None.
    """

    value: Any
    rows: Mapping[str, Row]
    limit: float | None

    @property
    def outcomes(self) -> dict[str, int]:
        """Number of fits of each kind; none if the study does not count them."""
        if not {"warned", "silently_wrong", "false_alarm"} <= set(self.rows):
            return {}
        silent, alarm, warned = (
            self._number(name) for name in ("silently_wrong", "false_alarm", "warned")
        )
        right = self.rows["warned"].n - warned - silent
        return dict(zip(OUTCOMES, (right, alarm, warned - alarm, silent), strict=True))

    def _number(self, metric: str) -> int:
        row = self.rows[metric]
        return round((row.mean or 0.0) * row.n)


def places_along(
    rows: Sequence[Row], method: str, axis: str, values: Sequence[Any], where: Mapping[str, Any]
) -> list[Place]:
    """Return what was found at these values, in the usual setting but for `where`."""
    usual = compare(load_study(rows[0].study), rows).usual
    return [_place(rows, method, value, {**usual, **where, axis: value}) for value in values]


def _place(rows: Sequence[Row], method: str, value: Any, setting: Mapping[str, Any]) -> Place:
    here = [row for row in rows if all(row.setting.get(name) == setting[name] for name in setting)]
    own = {row.metric: row for row in here if row.method == method}
    if not own:
        raise ValueError(f"{rows[0].study} has no results of {method} in {dict(setting)}.")
    limits = [row.mean for row in here if (row.method, row.metric) == (LIMIT, "mcc")]
    return Place(value, own, limits[0] if limits else None)


@drawn
def outcome_figure(
    places: Sequence[Place], metric: str, title: str, labels: Sequence[str]
) -> Sketch:
    """Draw a metric along the axis, and below it what the fits said of themselves."""
    counted = bool(places[0].outcomes)
    figure, axes = _axes(counted)
    _draw_metric(axes[0], places, metric)
    if counted:
        _draw_outcomes(axes[1], places)
    bottom = axes[-1]
    bottom.set_xticks(range(len(places)), labels)
    if sum(map(len, labels)) > ROOM_FOR_LABELS:
        bottom.tick_params("x", rotation=25)
    bottom.set_xlabel(title)
    entries = _entries(axes)
    columns = legend_columns(list(entries), WIDTH)
    figure.legend(
        entries.values(), entries, loc="outside lower left", ncols=columns, columnspacing=1.2
    )
    hover = {f"place-{i}": in_words(place, metric) for i, place in enumerate(places)}
    said = "; ".join(f"{label}: {text}" for label, text in zip(labels, hover.values(), strict=True))
    return Sketch(figure, f"By {title}. {said}.", hover=hover)


def _axes(counted: bool) -> tuple[Figure, list[Axes]]:
    heights = [METRIC_HEIGHT, OUTCOMES_HEIGHT] if counted else [METRIC_HEIGHT]
    room = ROOM_BELOW if counted else ROOM_BELOW / 2
    figure = Figure(figsize=(WIDTH, sum(heights) + room), layout="constrained")
    grid = figure.subplots(len(heights), 1, squeeze=False, sharex=True, height_ratios=heights)
    return figure, list(grid[:, 0])


def _draw_metric(axes: Axes, places: Sequence[Place], metric: str) -> None:
    rows = [place.rows[metric] for place in places]
    at = range(len(rows))
    chances = [row.chance for row in rows]
    limits = [place.limit for place in places if metric == "mcc"]
    if None not in chances:
        axes.step(at, chances, where="mid", color=INK, ls=(0, (4, 3)), lw=0.9, label="chance")
    if limits and None not in limits:
        axes.plot(at, limits, "_", color=GREY, ms=15, mew=2, label="limit")
    for i, row in enumerate(rows):
        axes.plot([i, i], [row.lower_quartile, row.upper_quartile], color=BLUE, lw=2.5, alpha=0.5)
    means = [row.mean for row in rows]
    numbers = all(isinstance(place.value, int | float) for place in places)
    line = "-" if numbers else ""
    axes.plot(at, means, "o", ls=line, color=BLUE, ms=5, lw=1.2, label="mean, quartiles")
    for i, mean in enumerate(means):  # what the mouse finds
        axes.plot(i, mean, "o", color=BLUE, ms=9, alpha=0, gid=f"place-{i}")
    axes.set_ylabel(NAMES.get(metric, metric.replace("_", " ")))
    soften(axes)


def _draw_outcomes(axes: Axes, places: Sequence[Place]) -> None:
    below = [0] * len(places)
    for name, color in OUTCOMES.items():
        counts = [place.outcomes[name] for place in places]
        axes.bar(range(len(places)), counts, 0.7, bottom=below, color=color, label=name)
        below = [low + count for low, count in zip(below, counts, strict=True)]
    axes.set_ylabel("fits")
    axes.set_yticks([0, max(below) // 2, max(below)])
    soften(axes)


def _entries(axes: Sequence[Axes]) -> dict[str, Any]:
    """Return what stands in the legend: colours, then marks."""
    return {
        name: handle
        for part in reversed(axes)
        for handle, name in zip(*part.get_legend_handles_labels(), strict=True)
    }


def in_words(place: Place, metric: str) -> str:
    """Say what was found at a place."""
    row = place.rows[metric]
    texts = [f"{metric} {row.mean:.3f} of {row.n} fits"]
    if row.chance is not None:
        texts.append(f"chance {row.chance:.2f}")
    if place.limit is not None and metric == "mcc":
        texts.append(f"limit {place.limit:.3f}")
    texts += [f"{count} {name}" for name, count in place.outcomes.items() if count]
    return ", ".join(texts)
