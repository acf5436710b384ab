"""Paper and ours side by side: the table of a study, for terminals, pages, papers, programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from crlearn.bench._study import QUARTILES, SECONDS, Study
from crlearn.bench._summary import Row
from crlearn.metrics import METRICS

_LATEX = {letter: f"\\{letter}" for letter in "&%_#${}"} | {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "±": r"$\pm$",
    "–": "--",
}
_NOTHING = "–"
_MOST_AXES = 4  # with a column each; more of them would push the figures out of sight
_SETTING, _USUAL = "setting", "usual"


@dataclass(frozen=True)
class Value:
    """A number of the table with its spread; `best` among the methods of its line.

    Lower and upper quartile are there if they are to be shown.
    """

    mean: float | None = None
    spread: float | None = None
    best: bool = False
    failed: int = 0
    quartiles: tuple[float, float] | None = None

    def __str__(self) -> str:
        text = _NOTHING if self.mean is None else _number(self.mean)
        if self.quartiles is not None:
            text += " [{}, {}]".format(*map(_number, self.quartiles))
        elif self.spread is not None:
            text += f" ± {_number(self.spread)}"
        return f"{text} ({self.failed} failed)" if self.failed else text


@dataclass(frozen=True)
class Line:
    """One metric in one setting."""

    setting: Mapping[str, Any]
    metric: str
    chance: Value
    paper: Mapping[str, Value]
    ours: Mapping[str, Value]


@dataclass(frozen=True)
class SlopeLine:
    """The slopes of one metric's errors, in settings that differ in one parameter alone.

    That parameter is not in `setting`. `theory` is what the study says that theory has.
    """

    setting: Mapping[str, Any]
    metric: str
    theory: Value
    ours: Mapping[str, Value]


@dataclass(frozen=True)
class ComparisonTable:
    """The table of a study.

    Attributes
    ----------
    study
        With title, source and notes.
    rows
        Of the summary.
    common
        What all settings have in common.
    axes
        The parameters in which the settings differ.
    usual
        These parameters in the setting that differs least from all others.
    published, methods
        Columns with the paper's values and with ours.
    lines
        One for each setting and metric, and one for the time to fit.
    slopes
        How fast errors fall, if the study asks for it: a table of its own.
    """

    study: Study
    rows: Sequence[Row]
    common: Mapping[str, Any]
    axes: Sequence[str]
    usual: Mapping[str, Any]
    published: Sequence[str]
    methods: Sequence[str]
    lines: Sequence[Line]
    slopes: Sequence[SlopeLine]

    @property
    def columns(self) -> list[str]:
        """The head of the table."""
        alone = len(self.published) == 1
        papers = ["paper" if alone else f"paper: {name}" for name in self.published]
        return [*self.setting_columns, "metric", "chance", *papers, *self.methods]

    @property
    def names_differences(self) -> bool:
        """Whether one column names what differs from the usual setting: the axes are many."""
        return len(self.axes) > _MOST_AXES

    @property
    def setting_columns(self) -> list[str]:
        """The head of the columns that say which setting it is."""
        return [_SETTING] if self.names_differences else list(self.axes)

    @property
    def n(self) -> int:
        """Largest number of runs behind a number of ours."""
        return max((row.n for row in self.rows), default=0)

    @property
    def spread_of_ours(self) -> str:
        """What stands beside a mean of ours."""
        in_quartiles = self.study.spread == QUARTILES
        return "[lower and upper quartile]" if in_quartiles else "± standard deviation"

    def cells(self, line: Line) -> list[Value | str]:
        """Return the cells of a line in the order of the columns."""
        return [
            *self._setting_cells(line.setting),
            line.metric,
            line.chance,
            *(line.paper[name] for name in self.published),
            *(line.ours[name] for name in self.methods),
        ]

    @property
    def body(self) -> list[list[Value | str]]:
        """The cells of all lines; a setting that one column names is named in its first line."""
        if not self.names_differences:
            return [self.cells(line) for line in self.lines]
        rows = []
        for _, lines in groupby(self.lines, key=lambda line: line.setting):
            first, *others = map(self.cells, lines)
            rows += [first, *(["", *other[1:]] for other in others)]
        return rows

    @property
    def caption(self) -> str:
        """What the settings have in common, and what the numbers are."""
        spread = f", published ± {self.study.spread}" if self.published else ""
        ours = f"Ours: mean {self.spread_of_ours} over {self.n} seeds{spread}."
        if self.names_differences:
            usual = {name: value for name, value in self.usual.items() if value is not None}
            return (
                f"Usual setting: {_listed({**self.common, **usual})}. The others are named by what "
                f"differs from it. {ours}"
            )
        return f"{_listed(self.common)}. {ours}" if self.common else ours

    @property
    def slope_columns(self) -> list[str]:
        """The head of the table of slopes."""
        return [*self.slope_axes, "slope of", "theory", *self.methods]

    @property
    def slope_body(self) -> list[list[Value | str]]:
        """The cells of the table of slopes."""
        return [
            [
                *(_shown(line.setting.get(axis)) for axis in self.slope_axes),
                line.metric,
                line.theory,
                *(line.ours[name] for name in self.methods),
            ]
            for line in self.slopes
        ]

    @property
    def slope_caption(self) -> str:
        """What the slopes are."""
        assert self.study.slope is not None
        return (
            f"Slopes of log error on log {self.study.slope.along}, where the error is the distance "
            "from perfect: mean ± standard error over seeds. There is none where an error is 0."
        )

    @property
    def slope_axes(self) -> list[str]:
        """The parameters in which settings with slopes differ."""
        along = self.study.slope and self.study.slope.along
        return [axis for axis in self.axes if axis != along]

    def to_markdown(self) -> str:
        """Return title, source, tables and notes as Markdown."""
        body = _markdown(self.columns, [[_bold(cell, "**") for cell in row] for row in self.body])
        parts = [f"## {self.study.title}", self.study.source, self.caption, body]
        if self.slopes:
            rows = [[str(cell) for cell in row] for row in self.slope_body]
            parts += [self.slope_caption, _markdown(self.slope_columns, rows)]
        parts.append(self.study.notes)
        return "\n\n".join(part for part in parts if part) + "\n"

    def to_latex(self) -> str:
        """Return the tables as LaTeX, captions as comments; they need the package booktabs."""
        settings = "p{5cm}" if self.names_differences else "l" * len(self.axes)
        tables = [_tabular(self.caption, settings, self.columns, self.body)]
        if self.slopes:
            settings = "l" * len(self.slope_axes)
            columns, body = self.slope_columns, self.slope_body
            tables.append(_tabular(self.slope_caption, settings, columns, body))
        return "\n".join(tables)

    def to_csv(self) -> str:
        """Return the rows of the summary, one line each, numbers in full."""
        settings = list(dict.fromkeys(key for row in self.rows for key in row.setting))
        plain = [key for key in (self.rows[0].to_dict() if self.rows else {}) if key != "setting"]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*settings, *plain])
        for row in self.rows:
            content = row.to_dict()
            writer.writerow(
                [*(row.setting.get(key, "") for key in settings), *(content[key] for key in plain)]
            )
        return text.getvalue()

    def _setting_cells(self, setting: Mapping[str, Any]) -> list[str]:
        if not self.names_differences:
            return [_shown(setting.get(axis)) for axis in self.axes]
        names = _differing(self.axes, setting, self.usual)
        return [_listed({name: setting.get(name) for name in names}) or _USUAL]


def compare(study: Study, rows: Sequence[Row]) -> ComparisonTable:
    """Put the paper's values and ours side by side."""
    settings = _distinct([row.setting for row in rows])
    names = list(dict.fromkeys(key for setting in settings for key in setting))
    axes = [name for name in names if len(_distinct([s.get(name) for s in settings])) > 1]
    common = {name: settings[0].get(name) for name in names if name not in axes} if settings else {}
    return ComparisonTable(
        study=study,
        rows=rows,
        common=common,
        axes=axes,
        usual=_usual(axes, settings),
        published=_published_columns(study, settings),
        methods=list(dict.fromkeys(row.method for row in rows)),
        lines=[line for setting in settings for line in _lines(study, setting, rows)],
        slopes=_slopes(study, rows),
    )


def _slopes(study: Study, rows: Sequence[Row]) -> list[SlopeLine]:
    """Put the slopes of all methods in one line for each metric and family of settings."""
    if study.slope is None:
        return []
    along = study.slope.along
    methods = list(dict.fromkeys(row.method for row in rows))
    families = [{k: v for k, v in row.setting.items() if k != along} for row in rows]
    lines = []
    for setting in _distinct(families):
        own = [row for row, family in zip(rows, families, strict=True) if family == setting]
        for metric in study.metrics:
            found = {
                row.method: Value(row.slope, row.slope_error)
                for row in own
                if row.metric == metric and row.slope is not None
            }
            if found:
                ours = {name: found.get(name, Value()) for name in methods}
                theory = Value(study.slope.in_theory(setting, metric))
                lines.append(SlopeLine(setting, metric, theory, ours))
    return lines


def _usual(axes: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the setting from which the others differ in the fewest parameters."""
    if not settings:
        return {}
    usual = min(
        settings,
        key=lambda setting: sum(len(_differing(axes, other, setting)) for other in settings),
    )
    return {axis: usual.get(axis) for axis in axes}


def _differing(
    axes: Sequence[str], setting: Mapping[str, Any], other: Mapping[str, Any]
) -> list[str]:
    return [axis for axis in axes if setting.get(axis) != other.get(axis)]


def _published_columns(study: Study, settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the methods with a value in some setting; if there is none, the paper's own."""
    fitting = [
        name
        for name in study.published_methods
        if any(cell.method == name and cell.fits(s) for cell in study.published for s in settings)
    ]
    return fitting or list(study.published_methods[:1])


def _lines(study: Study, setting: Mapping[str, Any], rows: Sequence[Row]) -> list[Line]:
    here = [row for row in rows if row.setting == setting]
    methods = list(dict.fromkeys(row.method for row in rows))
    lines = []
    for metric in study.metrics:
        found = {row.method: row for row in here if row.metric == metric}
        paper = _published(study, setting, metric)
        if not found and all(value.mean is None for value in paper.values()):
            continue
        lines.append(
            Line(
                setting,
                metric,
                chance=Value(next((row.chance for row in found.values() if row.n), None)),
                paper=paper,
                ours=_best_marked(study, found, methods, METRICS[metric].perfect),
            )
        )
    times = {row.method: Value(row.seconds) for row in here}
    seconds = {name: times.get(name, Value()) for name in methods}
    return [*lines, Line(setting, SECONDS, Value(), _published(study, setting, SECONDS), seconds)]


def _published(study: Study, setting: Mapping[str, Any], metric: str) -> dict[str, Value]:
    values = {name: Value() for name in study.published_methods}
    for cell in study.published:
        if cell.fits(setting) and metric in cell.values:
            values[cell.method] = Value(*cell.values[metric])
    return values


def _best_marked(
    study: Study, rows: Mapping[str, Row], methods: Sequence[str], perfect: float | None
) -> dict[str, Value]:
    distances = {
        name: abs(row.mean - perfect)
        for name, row in rows.items()
        if row.mean is not None and perfect is not None and name not in study.references
    }
    smallest = _number(min(distances.values())) if len(distances) > 1 else None
    values = {}
    for name in methods:
        row = rows.get(name)
        if row is None:
            values[name] = Value()
            continue
        best = name in distances and _number(distances[name]) == smallest
        values[name] = Value(row.mean, row.sd, best, row.failed, _quartiles(study, row))
    return values


def _quartiles(study: Study, row: Row) -> tuple[float, float] | None:
    if study.spread != QUARTILES or row.lower_quartile is None or row.upper_quartile is None:
        return None
    return row.lower_quartile, row.upper_quartile


def _distinct(values: Sequence[Any]) -> list[Any]:
    distinct: list[Any] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return distinct


def _shown(value: Any) -> str:
    if value is None:
        return _NOTHING
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _listed(setting: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_shown(value)}" for name, value in setting.items())


def _number(value: float) -> str:
    if value == 0:
        return "0"
    digits = 3 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    return f"{value:z,.{digits}f}"


def _bold(cell: Value | str, mark: str) -> str:
    return f"{mark}{cell}{mark}" if isinstance(cell, Value) and cell.best else str(cell)


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    escaped: Callable[[str], str] = lambda text: text.replace("|", r"\|")  # noqa: E731
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(escaped, line))} |" for line in lines)


def _tabular(
    caption: str,
    settings: str,
    columns: Sequence[str],
    body: Sequence[Sequence[Value | str]],
) -> str:
    """Return a LaTeX table whose first columns, about settings, are those of `settings`."""
    n_settings = 1 if settings.startswith("p") else len(settings)
    numbers = "r" * (len(columns) - n_settings - 1)
    return "\n".join(
        [
            f"% {caption}",
            rf"\begin{{tabular}}{{{settings}l{numbers}}}",
            r"\toprule",
            " & ".join(map(_latex, columns)) + r" \\",
            r"\midrule",
            *(" & ".join(map(_latex, row)) + r" \\" for row in body),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _latex(cell: Value | str) -> str:
    text = "".join(_LATEX.get(letter, letter) for letter in str(cell))
    return rf"\textbf{{{text}}}" if isinstance(cell, Value) and cell.best else text
