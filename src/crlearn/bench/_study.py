"""`Study`: a published table as data, read from one TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from crlearn.data import WORLDS
from crlearn.metrics import METRICS

SCORES = ("exact", "estimated")
ROWS = ("all", "reference")
FIGURES = ("noises",)
QUARTILES = "quartiles"
SPREADS = ("standard error", "standard deviation", QUARTILES)
SECONDS = "seconds"
_FEWEST_PLACES = 3  # with two, any slope fits
_SHIPPED = files("crlearn.bench") / "studies"
_TOP = "the file"
_KINDS = {str: "a text", dict: "a table", list: "a list"}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Entry:
    """A method of a study.

    Two entries may have the same label if one takes exact scores and the other estimates its own:
    they are one method in tables, with parameters of its own for each kind of scores. What a
    profile says about the label holds for both.

    Attributes
    ----------
    method
        Name of an estimator of crlearn, or the dotted path of another class.
    parameters
        Of its constructor, beside the number of latents and the seed.
    variant
        What tells it from another entry of the same class.
    scores
        Whether it is given exact scores, estimates its own, or both in turn.
    signal_to_error
        Errors that are added to exact scores, one size after the other; none if it is empty.
    at_most
        Largest settings in which it runs; slow methods need not run in all of them.
    only
        Settings in which alone it runs, one value or several of each parameter, where a study has
        several kinds of data.
    after
        Name of a class that reduces X first, such as ``"PolynomialReduction"``.
    given_label
        The name in tables, if it is not that of the class and variant: published algorithms stand
        as variants beside the method of the same setting, and have its published values.
    """

    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    variant: str | None = None
    scores: tuple[str, ...] = ("estimated",)
    signal_to_error: tuple[float, ...] = ()
    at_most: Mapping[str, float] = field(default_factory=dict)
    given_label: str | None = None
    only: Mapping[str, Any] = field(default_factory=dict)
    after: str | None = None

    def runs_in(self, setting: Mapping[str, Any]) -> bool:
        """Whether a setting is one of its own, and not too large."""
        small = all(setting.get(name, most) <= most for name, most in self.at_most.items())
        return small and all(
            setting.get(name) in _as_list(allowed) for name, allowed in self.only.items()
        )

    @property
    def is_reference(self) -> bool:
        """Whether it is told what no fit knows, and only shows what could be reached."""
        return any(str(value).startswith("$tru") for value in self.parameters.values())

    @property
    def label(self) -> str:
        """The name in tables: by default the class, with the variant behind it."""
        if self.given_label:
            return self.given_label
        variant = self.variant
        if variant is None and self.parameters.get("estimator") == "paper":
            variant = "paper"
        return class_of(self.method) + (f"[{variant}]" if variant else "")


@dataclass(frozen=True)
class Profile:
    """How large a study is run: its seeds, and what differs from the study's own sizes.

    Seeds count from `first_seed`: figures of a method are shown for worlds that it was not
    developed on.
    """

    seeds: int
    setting: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    first_seed: int = 0


@dataclass(frozen=True)
class Published:
    """A cell of the paper's table: value and spread of each metric of one method."""

    method: str
    setting: Mapping[str, Any]
    values: Mapping[str, tuple[float, float | None]]

    def is_about(self, setting: Mapping[str, Any], label: str) -> bool:
        """Whether it stands beside this row: the same setting, the same class or variant of it."""
        same_method = label == self.method or class_of(label) == self.method
        return same_method and self.fits(setting)

    def fits(self, setting: Mapping[str, Any]) -> bool:
        """Whether it was published for this setting."""
        return _fits(self.setting, setting)


@dataclass(frozen=True)
class Rate:
    """The slopes that theory has in some settings, for a metric's distance from perfect."""

    setting: Mapping[str, Any]
    slopes: Mapping[str, float]


@dataclass(frozen=True)
class SlopeAlong:
    """Errors are regressed on a parameter of the world, both in logarithms.

    Attributes
    ----------
    along
        Name of the parameter.
    theory
        What slopes should be, for settings and metrics of which theory says it.
    """

    along: str
    theory: tuple[Rate, ...]

    def in_theory(self, setting: Mapping[str, Any], metric: str) -> float | None:
        """Return the slope that theory has for a metric in a setting, if it has one."""
        for rate in self.theory:
            if metric in rate.slopes and _fits(rate.setting, setting):
                return rate.slopes[metric]
        return None


@dataclass(frozen=True)
class Study:
    """A grid of worlds, methods and seeds, with the published values beside it.

    Attributes
    ----------
    name
        Under which it is asked for.
    title, source, notes
        What it shows, where it was published, what differs from there.
    spread
        What the published spread is; if it is quartiles, tables show those of ours, too.
    world
        Name in `crlearn.data.WORLDS`.
    grids
        Parameters of the world; each grid is the product of its lists.
    methods, metrics, profiles, published
        What is run, what is measured, how large, and what the paper reports.
    evaluated_on
        ``"all"`` rows or those of the ``"reference"`` environment.
    figures
        What its page draws beside the metrics: ``"noises"`` for heat maps of recovered noises.
    slope
        The parameter along which the slopes of errors are fitted, if they are.
    definition
        The file as it was read.
    """

    name: str
    title: str
    source: str
    notes: str
    spread: str
    world: str
    grids: tuple[Mapping[str, Any], ...]
    methods: tuple[Entry, ...]
    metrics: tuple[str, ...]
    profiles: Mapping[str, Profile]
    published: tuple[Published, ...]
    evaluated_on: str
    figures: tuple[str, ...]
    slope: SlopeAlong | None
    definition: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, path: str | Path) -> Study:
        """Read a study from a TOML file."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8-sig")  # some editors put a mark in front
        except UnicodeDecodeError as error:
            raise ValueError(f"'{path}' is not a text in UTF-8: {error}.") from error
        return cls.parse(path.stem, text)

    @classmethod
    def parse(cls, name: str, text: str) -> Study:
        """Read a study from the text of a TOML file."""
        try:
            definition = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"The study '{name}' is not valid TOML: {error}.") from error
        return cls.from_dict(name, definition)

    @classmethod
    def from_dict(cls, name: str, definition: Mapping[str, Any]) -> Study:
        """Make a study of the contents of a TOML file."""
        return _Reader(name, definition).study()

    @property
    def labels(self) -> tuple[str, ...]:
        """The methods in tables, each once."""
        return tuple(dict.fromkeys(entry.label for entry in self.methods))

    @cached_property
    def references(self) -> frozenset[str]:
        """The labels of methods that are told what no fit knows: they compete with nobody."""
        return frozenset(entry.label for entry in self.methods if entry.is_reference)

    def settings(self, profile: str) -> list[dict[str, Any]]:
        """Return the parameters of every world of a profile, in order and each once."""
        changed = self.profile(profile).setting
        settings: list[dict[str, Any]] = []
        for grid in self.grids:
            axes = {key: _as_list(value) for key, value in {**grid, **changed}.items()}
            for values in product(*axes.values()):
                setting = dict(zip(axes, values, strict=True))
                if setting not in settings:
                    settings.append(setting)
        return settings

    def profile(self, name: str) -> Profile:
        """Return the profile of this name."""
        if name not in self.profiles:
            raise ValueError(
                f"The study '{self.name}' has no profile '{name}'. It has: "
                f"{', '.join(self.profiles)}."
            )
        return self.profiles[name]

    def paper(
        self, setting: Mapping[str, Any], label: str, metric: str
    ) -> tuple[float | None, float | None]:
        """Return the published value and spread of a cell, or a pair of None."""
        if label in self.references:
            return None, None
        own = [cell for cell in self.published if cell.is_about(setting, label)]
        # A cell that names the variant is closer than one that names the class.
        for cell in sorted(own, key=lambda cell: cell.method != label):
            if metric in cell.values:
                return cell.values[metric]
        return None, None

    @cached_property
    def published_methods(self) -> tuple[str, ...]:
        """The methods with published values, each once."""
        return tuple(dict.fromkeys(cell.method for cell in self.published))


def _fits(wanted: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
    """Whether a setting has all these parameters, with these values."""
    return all(key in setting and setting[key] == wanted[key] for key in wanted)


def class_of(label: str) -> str:
    """Return the class in a label or dotted path."""
    return label.partition("[")[0].rpartition(".")[2]


def list_studies() -> list[str]:
    """Return the names of the studies that come with crlearn."""
    names = (entry.name for entry in _SHIPPED.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_study(study: str | Path) -> Study:
    """Return a study by its name, or from a TOML file of one's own.

    Examples
    --------
    >>> from crlearn.bench import load_study
    >>> load_study("varici2025-table7").metrics
    ('mcc', 'parent_error', 'shd_closure')
    """
    if str(study) in list_studies():
        text = (_SHIPPED / f"{study}.toml").read_text(encoding="utf-8")
        return Study.parse(str(study), text)
    path = Path(study)
    if path.suffix == ".toml":
        return Study.read(path)
    raise ValueError(
        f"There is no study '{study}'. There are: {', '.join(list_studies())}. A file of your own "
        "must end in .toml."
    )


class _Reader:
    """Turns the contents of a TOML file into a `Study`, and says what is wrong with them."""

    def __init__(self, name: str, definition: Mapping[str, Any]) -> None:
        self.name, self.definition = name, definition

    def study(self) -> Study:
        known = ("title", "source", "notes", "spread", "world", "grid", "methods", "metrics")
        others = ("profiles", "published", "evaluated_on", "figures", "slope")
        self._check_keys(self.definition, (*known, *others), _TOP)
        self._check_no_dates(self.definition)
        metrics = self._names(self.definition, "metrics", _TOP)
        self._check_metrics(metrics)
        study = Study(
            name=self.name,
            title=self._text("title"),
            source=self._text("source"),
            notes=" ".join(self._text("notes", "").split()),
            spread=self._choice("spread", SPREADS, "standard error"),
            world=self._choice("world", tuple(WORLDS)),
            grids=tuple(self._grid(grid) for grid in self._tables("grid")),
            methods=tuple(self._entry(entry) for entry in self._tables("methods")),
            metrics=metrics,
            profiles=self._profiles(),
            published=tuple(self._published(cell) for cell in self._tables("published", [])),
            evaluated_on=self._choice("evaluated_on", ROWS, "all"),
            figures=self._figures(),
            slope=self._slope(metrics),
            definition=self.definition,
        )
        self._check_labels(study)
        return study

    def _figures(self) -> tuple[str, ...]:
        figures = tuple(self._get(self.definition, "figures", list, _TOP, []))
        if not set(figures) <= set(FIGURES):
            raise self._error(f"'figures' must be among {', '.join(FIGURES)}", figures)
        return figures

    def _slope(self, metrics: Sequence[str]) -> SlopeAlong | None:
        if "slope" not in self.definition:
            return None
        where = "[slope]"
        table = self._get(self.definition, "slope", dict, _TOP)
        self._check_keys(table, ("along", "theory"), where)
        along = self._get(table, "along", str, where)
        for grid in self._tables("grid"):
            if len(set(self._positive(grid.get(along, []), along))) < _FEWEST_PLACES:
                raise self._error(
                    f"'along' of {where} must name a parameter with {_FEWEST_PLACES} values or "
                    "more in every [[grid]]",
                    along,
                )
        for profile in self._get(self.definition, "profiles", dict, _TOP).values():
            self._positive(profile.get("setting", {}).get(along, []), along)
        theory = self._get(table, "theory", list, where, [])
        return SlopeAlong(along, tuple(self._rate(rate, metrics) for rate in theory))

    def _rate(self, table: Any, metrics: Sequence[str]) -> Rate:
        where = "[[slope.theory]]"
        if not isinstance(table, dict):
            raise self._error(f"'theory' of [slope] must be written as tables {where}", table)
        slopes = {key: table[key] for key in table if key != "setting"}
        for metric, slope in slopes.items():
            if metric not in metrics or METRICS[metric].perfect is None:
                raise self._error(
                    f"{where} must be about metrics of the study that can be perfect", metric
                )
            if type(slope) not in (int, float):
                raise self._error(f"'{metric}' of {where} must be a number", slope)
        return Rate(self._get(table, "setting", dict, where, {}), slopes)

    def _positive(self, values: Any, along: str) -> list[float]:
        numbers = _as_list(values)
        if not all(type(number) in (int, float) and number > 0 for number in numbers):
            raise self._error(
                f"'{along}', on whose logarithm errors are regressed, must have positive numbers",
                values,
            )
        return numbers

    def _grid(self, table: Mapping[str, Any]) -> Mapping[str, Any]:
        empty = [key for key, value in table.items() if value == []]
        if empty:
            raise self._error(f"{', '.join(empty)} in [[grid]] has no values")
        return table

    def _entry(self, table: Mapping[str, Any]) -> Entry:
        where = "[[methods]]"
        known = ("method", "parameters", "variant", "scores", "signal_to_error", "at_most")
        self._check_keys(table, (*known, "label", "only", "after"), where)
        scores = self._names(table, "scores", where, ["estimated"])
        if not set(scores) <= set(SCORES):
            raise self._error(f"'scores' must be among {', '.join(SCORES)}", scores)
        return Entry(
            self._get(table, "method", str, where),
            self._get(table, "parameters", dict, where, {}),
            self._get(table, "variant", str, where, "") or None,
            scores,
            self._signal_to_error(table, scores, where),
            self._at_most(table, where),
            self._get(table, "label", str, where, "") or None,
            self._get(table, "only", dict, where, {}),
            self._get(table, "after", str, where, "") or None,
        )

    def _at_most(self, table: Mapping[str, Any], where: str) -> Mapping[str, float]:
        bounds = self._get(table, "at_most", dict, where, {})
        if not all(type(bound) in (int, float) for bound in bounds.values()):
            raise self._error("'at_most' must hold the largest number of each parameter", bounds)
        return bounds

    def _signal_to_error(
        self, table: Mapping[str, Any], scores: Sequence[str], where: str
    ) -> tuple[float, ...]:
        ratios = self._get(table, "signal_to_error", list, where, [])
        if not all(type(ratio) in (int, float) and ratio > 0 for ratio in ratios):
            raise self._error("'signal_to_error' must be a list of positive numbers", ratios)
        if ratios and tuple(scores) != ("exact",):
            raise self._error("'signal_to_error' goes with scores = [\"exact\"] only", scores)
        return tuple(ratios)

    def _profiles(self) -> dict[str, Profile]:
        tables = self._get(self.definition, "profiles", dict, _TOP)
        if not tables:
            raise self._error("it needs a profile, such as [profiles.quick]")
        for name in tables:
            self._get(tables, name, dict, "[profiles]")
        return {name: self._profile(name, table) for name, table in tables.items()}

    def _profile(self, name: str, table: Mapping[str, Any]) -> Profile:
        where = f"[profiles.{name}]"
        self._check_keys(table, ("seeds", "first_seed", "setting", "parameters"), where)
        seeds = table.get("seeds")
        if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
            raise self._error(f"{where} needs 'seeds', an integer of at least 1", seeds)
        parameters = self._get(table, "parameters", dict, where, {})
        for label in parameters:
            self._get(parameters, label, dict, f"'parameters' of {where}")
        first_seed = self._get(table, "first_seed", int, where, 0)
        if first_seed < 0:
            raise self._error(f"'first_seed' of {where} must not be negative", first_seed)
        setting = self._grid(self._get(table, "setting", dict, where, {}))
        return Profile(seeds, setting, parameters, first_seed)

    def _published(self, table: Mapping[str, Any]) -> Published:
        where = "[[published]]"
        values = {key: table[key] for key in table if key not in ("method", "setting")}
        self._check_metrics([metric for metric in values if metric != SECONDS])
        return Published(
            self._get(table, "method", str, where),
            self._get(table, "setting", dict, where, {}),
            {metric: self._value_and_spread(value) for metric, value in values.items()},
        )

    def _value_and_spread(self, value: Any) -> tuple[float, float | None]:
        numbers = value if isinstance(value, list) else [value]
        if len(numbers) not in (1, 2) or not all(
            type(number) in (int, float) for number in numbers
        ):
            raise self._error("a published value is a number or [value, spread]", value)
        return float(numbers[0]), float(numbers[1]) if len(numbers) == 2 else None

    def _check_metrics(self, metrics: Sequence[str]) -> None:
        unknown = [metric for metric in metrics if metric not in METRICS]
        if unknown:
            raise self._error(f"metrics must be among {', '.join(METRICS)}", ", ".join(unknown))

    def _check_labels(self, study: Study) -> None:
        columns = [(entry.label, scores) for entry in study.methods for scores in entry.scores]
        twice = {label for label, scores in columns if columns.count((label, scores)) > 1}
        if twice:
            raise self._error(
                f"{', '.join(sorted(twice))} comes more than once with the same scores; give each "
                "entry a 'variant', or different 'scores'"
            )
        for name, profile in study.profiles.items():
            unknown = set(profile.parameters) - set(study.labels)
            if unknown:
                raise self._error(
                    f"[profiles.{name}] has parameters for {', '.join(sorted(unknown))}, which is "
                    f"not among its methods, {', '.join(study.labels)}"
                )

    def _check_no_dates(self, value: Any) -> None:
        """Refuse what TOML can write and JSON cannot."""
        if isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                self._check_no_dates(item)
        elif not isinstance(value, str | int | float):
            raise self._error("dates and times must stand in quotes", str(value))

    def _tables(self, key: str, default: list[Any] | None = None) -> list[Mapping[str, Any]]:
        tables = self.definition.get(key, default)
        if tables is None:
            raise self._error(f"{_TOP} needs a '{key}'")
        are_tables = isinstance(tables, list) and all(isinstance(table, dict) for table in tables)
        if not are_tables or (default is None and not tables):
            raise self._error(f"'{key}' must be written as one or more tables [[{key}]]", tables)
        return tables

    def _names(
        self, table: Mapping[str, Any], key: str, where: str, default: list[str] | None = None
    ) -> tuple[str, ...]:
        names = self._get(table, key, list, where, default)
        if not names or not all(isinstance(name, str) for name in names):
            raise self._error(f"'{key}' must be a list of names", names)
        return tuple(names)

    def _text(self, key: str, default: str | None = None) -> str:
        return self._get(self.definition, key, str, _TOP, default)

    def _choice(self, key: str, allowed: Sequence[str], default: str | None = None) -> str:
        value = self._text(key, default)
        if value not in allowed:
            raise self._error(f"'{key}' must be one of {', '.join(allowed)}", value)
        return value

    def _get(
        self,
        table: Mapping[str, Any],
        key: str,
        kind: type[_T],
        where: str,
        default: _T | None = None,
    ) -> _T:
        """Return an entry of a table; it must be there unless it has a default."""
        if key not in table and default is None:
            raise self._error(f"{where} needs a '{key}'")
        value = table.get(key, default)
        if not isinstance(value, kind):
            raise self._error(f"'{key}' of {where} must be {_KINDS[kind]}", value)
        return value

    def _check_keys(self, table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
        unknown = [key for key in table if key not in known]
        if unknown:
            raise self._error(
                f"{where} has no place for {', '.join(unknown)}; known are {', '.join(known)}"
            )

    def _error(self, problem: str, got: Any = None) -> ValueError:
        found = "" if got is None else f" Got {got!r} instead."
        return ValueError(f"The study '{self.name}' cannot be read: {problem}.{found}")


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
