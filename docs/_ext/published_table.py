"""Every published figure beside ours: the table that opens the page of results.

A line is a value that a paper prints. It comes from the TOML file of a study, and what stands
beside it from the stored summary; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from crlearn.bench import Row, Study, Value
from crlearn.methods import ESTIMATORS as OURS
from crlearn.metrics import METRICS

# The papers by a name that the sources of their studies have.
PAPERS = {
    "Varıcı": "Varıcı et al.: score-based causal representation learning",
    "Welch": "Welch, Zhang and Uhler: purely observational data",
    "Wu, von": "Wu, von Kügelgen and Blei: multi-domain empirical Bayes",
    "Liu": "Liu et al.: latent additive noise models",
    "Xu": "Xu, Lachapelle and Magliacane: potentially degenerate Gaussian mixtures",
}
TITLE = "## Every published figure beside ours"
LINE = "A line is a printed value, also of methods that a paper compares itself with."
READING = """### Reading these lines

- *ours* is fitted to samples alone: mean ± standard deviation over as many worlds of the same
  process as `seeds` says. It is in bold where it is at least as good as the printed value, to the
  digits of the paper, and better than *chance* by more than two standard errors.
- *run again* is the paper's algorithm, here. *limit* is a reference that is told the truth, or the
  paper's algorithm with exact scores.
- A setting counts as "as good", once for each metric, where ours is in bold beside all printed
  values, the best one included. Times, metrics without a best value, and figures of exact scores,
  which no samples have, are not counted.
- A dash means that there is no such value, or none that is stored yet. What differs from a paper's
  worlds is in the notes of each study.
"""
SECONDS = "seconds"
_SCORES, _EXACT, _ESTIMATED = "scores", "exact", "estimated"
_NOTHING = "–"
_SPACE = "\N{NO-BREAK SPACE}"
_MOST_NAMED = 4  # parameters of a setting; of more only those are named that are not the usual ones
_MOST_OPEN = 20  # lines of a study that are shown without a click
_ERRORS = 2.0  # standard errors by which a mean has to be above chance

Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """A published value, and what stands beside it.

    Attributes
    ----------
    setting
        For which it was published, with what tells several settings of ours apart.
    method, metric, paper, digits
        The paper's method, what was measured, what is printed, and how many digits after the point.
    label
        Our method.
    ours, again, told
        Rows of our method, the paper's own one, and a reference that is told the truth.
    chance
        What a random rotation scores.
    """

    setting: Setting
    method: str
    metric: str
    paper: Value
    digits: int
    label: str
    ours: Row | None
    again: Row | None
    told: Row | None
    chance: float | None

    @property
    def is_compared(self) -> bool:
        """Whether ours can be better or worse than this."""
        has_best = self.metric != SECONDS and METRICS[self.metric].perfect is not None
        return has_best and self.setting.get(_SCORES) != _EXACT

    @property
    def is_as_good(self) -> bool:
        """Whether ours is no worse than the paper's value, and better than chance."""
        row = self.ours
        if not self.is_compared or row is None or row.mean is None or self.paper.mean is None:
            return False
        distance = self._distance(row.mean)
        error = (row.sd or 0.0) / row.n**0.5
        is_chance = self.chance is not None and distance + _ERRORS * error >= self._distance(
            self.chance
        )
        return not is_chance and distance <= self._distance(self.paper.mean) + 0.5 / 10**self.digits

    def _distance(self, value: float) -> float:
        perfect = METRICS[self.metric].perfect
        assert perfect is not None
        return abs(value - perfect)


@dataclass(frozen=True)
class Published:
    """The published values of a study, and the rows of its summary, if it is stored."""

    study: Study
    rows: Sequence[Row]

    @property
    def paper(self) -> str | None:
        """The paper that the source names first, or None."""
        named = [name for name in PAPERS if name in self.study.source]
        return min(named, key=self.study.source.find, default=None)

    @cached_property
    def lines(self) -> list[Line]:
        """A line for each value; one that stands for a class and a variant has the variant's."""
        cells = [
            (cell.setting, cell.method, metric, value)
            for cell in self.study.published
            for metric, value in cell.values.items()
        ]
        return [
            line
            for setting, method, metric, value in cells
            if not any(
                (where, what, number) == (setting, metric, value) and other.startswith(f"{method}[")
                for where, other, what, number in cells
            )
            for line in self._lines(setting, method, metric, Value(*value))
        ]

    def _lines(self, setting: Setting, method: str, metric: str, paper: Value) -> Iterable[Line]:
        """Yield a line for each of our settings that this one stands for, or one without ours."""
        scores = setting.get(_SCORES, _ESTIMATED)
        asked = _world(setting)
        here = [row for row in self.rows if asked.items() <= _hashable(row.setting).items()]
        worlds = _distinct([_world(row.setting) for row in here]) or [asked]
        varying = [name for name in worlds[0] if len({world.get(name) for world in worlds}) > 1]
        label, own = self._ours(method), self._own(method)
        for world in worlds:
            inside = [row for row in here if _world(row.setting) == world]
            told = [row for row in inside if row.method in self.study.references]
            if scores != _EXACT:
                told += _of(inside, own, _EXACT)
            levels = [row.chance for row in inside if row.metric == metric]
            apart = {name: inside[0].setting[name] for name in varying}
            yield Line(
                setting={**setting, **apart},
                method=self._called(method, own),
                metric=metric,
                paper=paper,
                digits=self._digits(metric),
                label=label,
                ours=_measured(_of(inside, label, _ESTIMATED), metric),
                again=_measured(_of(inside, own, scores), metric),
                told=_measured(told, metric),
                chance=next((level for level in levels if level is not None), None),
            )

    def _ours(self, method: str) -> str:
        """Return our first method of the study, in the variant of the paper's if it has that."""
        first = next(entry.method for entry in self.study.methods if entry.method in OURS)
        same = f"{first}[{method.partition('[')[2]}"
        labels = [entry.label for entry in self.study.methods if entry.method == first]
        return same if same in labels else first

    def _own(self, method: str) -> str | None:
        """Return the paper's own method as it was run here."""
        names = (method, f"{method}[paper]")
        return next((n for n in names if n in self.study.labels and n != self._ours(method)), None)

    def _called(self, method: str, own: str | None) -> str:
        """Return the class of the paper's method, which may be labelled as a variant of ours."""
        classes = {entry.label: entry.method for entry in self.study.methods}
        return classes[own] + "".join(method.partition("[")[1:]) if own else method

    def _digits(self, metric: str) -> int:
        printed = [cell.values[metric][0] for cell in self.study.published if metric in cell.values]
        return max(len(f"{value:g}".partition(".")[2]) for value in printed)

    def to_markdown(self, page: str | None) -> str:
        """Return the lines as a table under the title of the study."""
        settings, usual = _named([line.setting for line in self.lines])
        columns = {
            "setting": self._with_methods(settings),
            "metric": [line.metric for line in self.lines],
            "paper": [_value(line.paper) for line in self.lines],
            "ours": [_shown(line, line.ours, "**" * line.is_as_good) for line in self.lines],
            "seeds": [str(line.ours.n) if line.ours else _NOTHING for line in self.lines],
            "run again": [_shown(line, line.again) for line in self.lines],
            "limit": [_shown(line, line.told) for line in self.lines],
            "chance": [_value(Value(line.chance)) for line in self.lines],
        }
        kept = {name: cells for name, cells in columns.items() if set(cells) - {_NOTHING, ""}}
        body = [list(kept), ["---"] * len(kept), *zip(*kept.values(), strict=True)]
        table = "\n".join(f"| {' | '.join(row)} |" for row in body)
        is_open = " open" * (len(self.lines) <= _MOST_OPEN)
        head = f"<details{is_open}><summary>{self.study.title}: {counts([self])}</summary>"
        return "\n\n".join([head, self._caption(usual, page), table, "</details>\n"])

    def _with_methods(self, settings: Sequence[str]) -> list[str]:
        """Put the paper's method before each setting, if the study has several."""
        methods = [line.method for line in self.lines]
        if len(set(methods)) == 1:
            return list(settings)
        return [": ".join(filter(None, pair)) for pair in zip(methods, settings, strict=True)]

    def _caption(self, usual: str, page: str | None) -> str:
        ours = next((line.label for line in self.lines if line.ours), None)
        has_spread = any(line.paper.spread is not None for line in self.lines)
        parts = [
            f"{_linked(self.study.name, page)}, {self.study.source}.",
            f"Ours: `{ours}`." if ours else "Nothing is stored yet.",
            f"The paper's ± is a {self.study.spread}." if has_spread else "",
            f"Usual setting: {usual}." if usual else "",
        ]
        return " ".join(part for part in parts if part)


def opening(studies: Sequence[Published], pages: Mapping[str, str]) -> str:
    """Return the table as Markdown, a part to unfold for each paper.

    Parameters
    ----------
    studies
        All that there are.
    pages
        Addresses of the pages of those that are stored.
    """
    said = counts(studies)
    parts = [TITLE, "", f"{said[:1].upper()}{said[1:]}{'. ' if said else ''}{LINE}", ""]
    for paper, title in PAPERS.items():
        if own := [study for study in studies if study.paper == paper]:
            parts.append(_part(title, own, pages))
    return "\n".join([*parts, READING])


def _part(title: str, studies: Sequence[Published], pages: Mapping[str, str]) -> str:
    printed = [study for study in studies if study.lines]
    said = counts(printed) if printed else "no numbers are printed"
    others = [study.study for study in studies if not study.lines]
    parts = [
        '<details class="published">',
        f"<summary><strong>{title}</strong><br>{said[:1].upper()}{said[1:]}</summary>",
        "",
        *(study.to_markdown(pages.get(study.study.name)) for study in printed),
    ]
    if others:
        parts += ["Without printed numbers:", ""]
        parts += [f"- {_linked(s.name, pages.get(s.name))}: {s.title}" for s in others]
    return "\n".join([*parts, "", "</details>", ""])


def counts(studies: Sequence[Published]) -> str:
    """Say in how many settings and metrics ours is as good as all that is printed."""
    groups: dict[str, list[Line]] = {}
    for study in studies:
        for line in study.lines:
            if line.is_compared:
                key = str((study.study.name, line.metric, line.label, _world(line.setting)))
                groups.setdefault(key, []).append(line)
    run = [group for group in groups.values() if group[0].ours is not None]
    good = [group for group in run if all(line.is_as_good for line in group)]
    left = len(groups) - len(run)
    said = [f"ours is as good or better in {len(good)} of {len(run)} settings"] if run else []
    return ", ".join([*said, f"{left} not stored yet"] if left else said)


def _linked(name: str, page: str | None) -> str:
    return f"[`{name}`]({page})" if page else f"`{name}`"


def _world(setting: Setting) -> dict[str, Any]:
    """Return a setting without the kind of scores, whose values compare as those of JSON do."""
    return {name: value for name, value in _hashable(setting).items() if name != _SCORES}


def _hashable(setting: Setting) -> dict[str, Any]:
    return {name: _as_tuple(value) for name, value in setting.items()}


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value


def _of(rows: Sequence[Row], label: str | None, scores: str) -> list[Row]:
    """Return the rows of a method with this kind of scores."""
    return [
        row
        for row in rows
        if row.method == label and row.setting.get(_SCORES, _ESTIMATED) == scores
    ]


def _measured(rows: Sequence[Row], metric: str) -> Row | None:
    """Return the row of a metric; each has the time."""
    return next((row for row in rows if metric in (row.metric, SECONDS)), None)


def _distinct(values: Iterable[Any]) -> list[Any]:
    distinct: list[Any] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return distinct


def _value(value: Value) -> str:
    return str(value).replace(" ± ", f"{_SPACE}±{_SPACE}")


def _shown(line: Line, row: Row | None, mark: str = "") -> str:
    if row is None:
        return _NOTHING
    if line.metric == SECONDS:
        return _value(Value(row.seconds))
    return f"{mark}{_value(Value(row.mean, row.sd, failed=row.failed))}{mark}"


def _named(settings: Sequence[Setting]) -> tuple[list[str], str]:
    """Name each setting by what differs between them, and the usual one if that is much."""
    names = list(dict.fromkeys(name for setting in settings for name in setting))
    values = {name: [setting.get(name) for setting in settings] for name in names}
    axes = [name for name in names if len(_distinct(values[name])) > 1]
    usual = {name: max(values[name], key=values[name].count) for name in axes}
    if len(axes) <= _MOST_NAMED:
        return [_listed({n: s[n] for n in axes if n in s}) for s in settings], ""
    differing = [{n: s[n] for n in axes if n in s and s[n] != usual[n]} for s in settings]
    return [_listed(setting) or "usual" for setting in differing], _listed(usual)


def _listed(setting: Setting) -> str:
    return ", ".join(f"{name} = {_number(value)}" for name, value in setting.items())


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
