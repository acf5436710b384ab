"""How the results of a study are drawn: means with their spread, seeds, the paper, chance.

A method has one colour and one shape in all figures. What we measured is filled, with every seed as
a small point beside it; what was published is hollow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from math import ceil
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from crlearn.metrics import METRICS
from crlearn.report._facets import Panel, Setting
from crlearn.report._outcome import SECONDS, Mark, key_of
from crlearn.report._svg import (
    GREY,
    INK,
    PALETTE,
    legend_columns,
    logarithmic,
    shortened,
)
from crlearn.report._wording import described, unit

Places = Sequence[tuple[float, Mark]]

LONGEST_NAME = 40

_SHAPES = ("o", "s", "^", "D", "v", "P", "X")  # 7 beside 10 colours: the first 70 pairs differ
_CHANCE: dict[str, Any] = {"color": INK, "ls": (0, (4, 3)), "lw": 0.9, "alpha": 0.7}
_THEORY: dict[str, Any] = {"color": INK, "ls": ":", "lw": 1.1, "alpha": 0.8}

_MOST_SEEDS = 1200  # points in a figure
_MOST_NAMES = 10
_SHORTEST_TIME = 1e-4  # seconds; a logarithm must exist
_LOG_FROM = 100.0  # ratio of the largest to the smallest error
_ROUNDING = 1e-12  # of the largest value: errors below are 0


class Style(NamedTuple):
    """How a method looks."""

    color: str
    shape: str


@dataclass(frozen=True, eq=False)
class Scene:
    """What the figures of a metric are about.

    Attributes
    ----------
    metric
        On the axis of values.
    marks
        By `key_of` their setting, reduced to what varies.
    methods
        All methods of the study, so that each looks the same in every figure.
    spread
        What the published spread is.
    along
        The parameter along which slopes of errors are fitted, if they are.
    theory
        These slopes in theory, by `key_of` their setting.
    """

    metric: str
    marks: Mapping[str, Sequence[Mark]]
    methods: Sequence[str]
    spread: str
    along: str | None = None
    theory: Mapping[str, float] = field(default_factory=dict)

    def at(self, setting: Setting) -> Sequence[Mark]:
        """Return the marks of a setting."""
        return self.marks.get(key_of(setting), ())

    def style(self, method: str) -> Style:
        """Return the look of a method."""
        i = self.methods.index(method)
        return Style(PALETTE[i % len(PALETTE)], _SHAPES[i % len(_SHAPES)])

    def slope_in(self, panel: Panel) -> float | None:
        """Return the slope that theory has in a panel, if its axis is the parameter of slopes."""
        if panel.axis.name != self.along or not panel.axis.is_logarithmic:
            return None
        return self.theory.get(key_of(panel.settings[-1]))

    @property
    def label(self) -> str:
        """Name for the axis of values."""
        if self.metric == SECONDS:
            return "seconds to fit"
        return f"{self.metric} ({unit(self.metric)})"


@dataclass
class Pen:
    """Draws marks, and keeps what a figure must say about them.

    Attributes
    ----------
    scene
        What the figure is about.
    marks
        All that will be drawn.
    upright
        Whether values go up, not to the right.
    has_theory
        Whether the slope of theory will be drawn.
    hover
        What each group says when the mouse is over it.
    """

    scene: Scene
    marks: Sequence[Mark]
    upright: bool
    has_theory: bool = False
    hover: dict[str, str | Sequence[str]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def seeds_each(self) -> int:
        """How many seeds of each mark are drawn as points."""
        return max(1, _MOST_SEEDS // max(1, len(self.marks)))

    @cached_property
    def is_logarithmic(self) -> bool:
        """Whether the values are easier to read on a log scale."""
        if self.scene.metric == SECONDS:
            return True
        marks = [mark for mark in self.marks if not self._is_zero(mark)]
        values = [value for mark in marks for value in _all_values(mark)]
        if not values or METRICS[self.scene.metric].perfect != 0:
            return False
        if self.has_theory:
            return True
        return 0 < _LOG_FROM * min(values) <= max(values)

    @cached_property
    def lowest(self) -> float:
        """Where a log scale ends, and shows what is 0, such as the error of what is known."""
        if self.scene.metric == SECONDS:
            return _SHORTEST_TIME
        marks = [mark for mark in self.marks if not self._is_zero(mark)]
        return 0.5 * min(value for mark in marks for value in _all_values(mark))

    @cached_property
    def _rounding(self) -> float:
        return _ROUNDING * max(value for mark in self.marks for value in _all_values(mark))

    def _is_zero(self, mark: Mark) -> bool:
        return mark.ours.mean is not None and mark.ours.mean <= self._rounding

    def series(
        self, axes: Axes, method: str, places: Places, aside: float, *, joined: bool
    ) -> None:
        """Draw the marks of one method, and their seeds a little `aside`."""
        color, shape = self.scene.style(method)
        self._seeds(axes, color, [(place + aside, mark) for place, mark in places])
        papers = [(place, mark) for place, mark in places if mark.paper.mean is not None]
        if papers:  # first, so that ours are seen inside them
            look = {"color": color, "marker": shape, "ms": 8.5, "mew": 1.3, "mfc": "none"}
            bar = {"elinewidth": 4, "alpha": 0.35}
            self._values(axes, papers, "paper", look, bar, ":" if joined else "")
        ours = [(place, mark) for place, mark in places if mark.ours.mean is not None]
        if ours:
            look = {"color": color, "marker": shape, "ms": 5.5, "mec": "none"}
            bar = {"elinewidth": 1.2, "capsize": 2.2}
            self._values(axes, ours, "ours", look, bar, "-" if joined else "")

    def levels(self, axes: Axes, places: Sequence[tuple[float, Setting]], *, joined: bool) -> None:
        """Draw the level of chance: one line, or a piece at each place if they cannot be joined."""
        found = [
            (place, level)
            for place, setting in places
            if (level := _chance(self.scene.at(setting))) is not None
        ]
        if not found:
            return
        if len({level for _, level in found}) == 1:
            level = found[0][1]
            across = axes.axhline if self.upright else axes.axvline
            self._explain(across(level, **_CHANCE), f"chance: {self.scene.metric} {level:.3f}")
            return
        pieces = [found] if joined else [[(p - 0.45, lv), (p + 0.45, lv)] for p, lv in found]
        for piece in pieces:
            (line,) = axes.plot(*self._xy(*zip(*piece, strict=True)), **_CHANCE)
            ends = dict.fromkeys(f"{level:.3f}" for _, level in (piece[0], piece[-1]))
            self._explain(line, f"chance: {self.scene.metric} {' to '.join(ends)}")

    def theory(self, axes: Axes, panel: Panel) -> None:
        """Draw the slope that theory has in a panel, through the best mean on the right."""
        slope = self.scene.slope_in(panel)
        last = [mark for mark in self.scene.at(panel.settings[-1]) if not self._is_zero(mark)]
        found = [mark.ours.mean for mark in last if mark.ours.mean is not None]
        if slope is None or not found:
            return
        where = np.array([panel.position(setting) for setting in panel.settings])
        values = min(found) * 10 ** (slope * (where - where[-1]))
        (line,) = axes.plot(*self._xy(where, values), **_THEORY)
        self._explain(line, f"slope in theory: {slope:g}")

    def scale(self, axes: Axes) -> None:
        """Set the scale of the values."""
        if self.is_logarithmic:
            logarithmic(axes, "y" if self.upright else "x")

    def legend(self, figure: Figure) -> None:
        """Say what is what, above the plots."""
        entries = dict(self._entries())
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside upper left",
            ncols=legend_columns([*entries], figure.get_figwidth()),
            handletextpad=0.5,
            columnspacing=1.2,
            borderaxespad=0.2,
        )

    def legend_height(self, width: float) -> float:
        """Return the height of the legend of a figure, in inches, about."""
        names = [name for name, _ in self._entries()]
        return 0.2 + 0.18 * ceil(len(names) / legend_columns(names, width))

    @property
    def caption(self) -> str:
        """What the figure shows."""
        parts = []
        if any(mark.n for mark in self.marks):
            parts.append(
                "Filled marks are means of ours, with the standard deviation over seeds as a bar."
            )
        if any(mark.seeds for mark in self.marks):
            most = max(len(mark.seeds) for mark in self.marks)
            which = "" if most <= self.seeds_each else f", the first {self.seeds_each} of {most}"
            parts.append(f"Small points are single seeds{which}.")
        if any(mark.paper.mean is not None for mark in self.marks):
            parts.append(f"Hollow marks with broad bars are published, ± {self.scene.spread}.")
        if any(mark.chance is not None for mark in self.marks):
            parts.append("Dashed is chance: what a random rotation of whitened latents scores.")
        if self.has_theory:
            parts.append("Dotted is the slope that theory has, through the best mean on the right.")
        if self.is_logarithmic:
            values = [value for mark in self.marks for value in (mark.ours, mark.paper)]
            cut = any((value.spread or 0.0) >= (value.mean or np.inf) for value in values)
            parts.append("The scale is logarithmic" + (", bars end above 0." if cut else "."))
            if self.scene.metric != SECONDS and any(map(self._is_zero, self.marks)):
                parts.append("What is 0 up to rounding stands at its lower end.")
        return " ".join(parts)

    def in_words(self, by: str) -> str:
        """Return the figure in words, for those who do not see it."""
        names = list(dict.fromkeys(mark.method for mark in self.marks))
        more = len(names) - _MOST_NAMES
        some = ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        return f"{self.scene.label} by {by}, of {some}. The values are in the table."

    def _entries(self) -> Iterator[tuple[str, Line2D]]:
        """Yield the names in the legend, and what stands before them."""
        for method in self.scene.methods:
            own = [mark for mark in self.marks if mark.method == method]
            color, shape = self.scene.style(method)
            name = shortened(method, LONGEST_NAME)
            look: dict[str, Any] = {"color": color, "marker": shape, "lw": 1.2}
            if any(mark.ours.mean is not None for mark in own):
                yield name, Line2D([], [], **look, ms=5.5, mec="none")
            elif own:
                yield f"paper: {name}", Line2D([], [], **look, ls=":", ms=7.5, mfc="none")
        grey: dict[str, Any] = {"color": GREY, "marker": "o"}
        if any(mark.n and mark.paper.mean is not None for mark in self.marks):
            yield "published", Line2D([], [], **grey, ls=":", ms=7.5, mfc="none")
        if any(mark.seeds for mark in self.marks):
            yield "one seed", Line2D([], [], **grey, ls="", ms=3, mec="none", alpha=0.6)
        if any(mark.chance is not None for mark in self.marks):
            yield "chance", Line2D([], [], **_CHANCE)
        if self.has_theory:
            yield "slope in theory", Line2D([], [], **_THEORY)

    def _seeds(self, axes: Axes, color: str, places: Places) -> None:
        points = [
            (place, value, f"{_about(mark)}, seed {seed}: {self.scene.metric} {value:.4g}")
            for place, mark in places
            for seed, value in mark.seeds[: self.seeds_each]
        ]
        if points:
            where, values, texts = zip(*points, strict=True)
            look: dict[str, Any] = {"marker": "o", "ms": 3, "mec": "none", "color": (color, 0.4)}
            (dots,) = axes.plot(*self._xy(where, self._shown(values)), ls="", clip_on=False, **look)
            self._explain(dots, texts)

    def _values(
        self,
        axes: Axes,
        places: Places,
        whose: Literal["ours", "paper"],
        look: Mapping[str, Any],
        bar: Mapping[str, Any],
        line: str,
    ) -> None:
        """Draw values with their spread, and a line through them."""
        where = [place for place, _ in places]
        values = [getattr(mark, whose) for _, mark in places]
        centres = self._shown([value.mean for value in values])
        spreads = np.array([value.spread or 0.0 for value in values])
        below = np.minimum(spreads, 0.9 * centres) if self.is_logarithmic else spreads
        if spreads.any():
            errors = {"yerr" if self.upright else "xerr": [below, spreads]}
            xy = self._xy(where, centres)
            axes.errorbar(*xy, **errors, fmt="none", ecolor=look["color"], **bar)
        if line and len(where) > 1:
            axes.plot(*self._xy(where, centres), color=look["color"], ls=line, lw=1.2, alpha=0.75)
        (marks,) = axes.plot(*self._xy(where, centres), **look, ls="", clip_on=False)
        say = _said_of_ours if whose == "ours" else _said_of_paper
        self._explain(marks, [say(mark, self.scene) for _, mark in places])

    def _shown(self, values: Sequence[float]) -> np.ndarray:
        return np.maximum(values, self.lowest) if self.is_logarithmic else np.asarray(values)

    def _xy(self, places: Any, values: Any) -> tuple[Any, Any]:
        return (places, values) if self.upright else (values, places)

    def _explain(self, line: Line2D, text: str | Sequence[str]) -> None:
        gid = f"marks-{next(self._numbers)}"
        line.set_gid(gid)
        self.hover[gid] = text


def _all_values(mark: Mark) -> Iterator[float]:
    yield from (value for _, value in mark.seeds)
    yield from (value for value in (mark.ours.mean, mark.paper.mean) if value is not None)


def _chance(marks: Sequence[Mark]) -> float | None:
    """Return the level of chance; rounded, as a mean of equal numbers need not equal them."""
    return next((round(mark.chance, 6) for mark in marks if mark.chance is not None), None)


def _said_of_ours(mark: Mark, scene: Scene) -> str:
    runs = f"mean ± sd of {mark.n} seeds" if mark.n > 1 else "one seed"
    paper = f"; paper {mark.paper}" if mark.paper.mean is not None else ""
    return f"{_about(mark)}: {scene.metric} {mark.ours} ({runs}){paper}"


def _said_of_paper(mark: Mark, scene: Scene) -> str:
    spread = f" (± {scene.spread})" if mark.paper.spread is not None else ""
    ours = f"; ours {mark.ours}" if mark.ours.mean is not None else ""
    return f"{_about(mark)}, published: {scene.metric} {mark.paper}{spread}{ours}"


def _about(mark: Mark) -> str:
    where = described(mark.setting)
    return f"{mark.method}, {where}" if where else mark.method
