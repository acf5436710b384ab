"""Which settings of a study share a plot, and what its axis is."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from crlearn.report._wording import described, in_words

Setting = Mapping[str, Any]

_LOG_FROM = 10.0  # ratio of the largest to the smallest value


@dataclass(frozen=True)
class Axis:
    """A parameter in which settings differ.

    Attributes
    ----------
    name
        Of the parameter.
    values
        Each once; numbers from small to large, others in the order of the study.
    followers
        Other parameters that have one value for each value of this one.
    """

    name: str
    values: Sequence[Any]
    followers: Sequence[str] = ()

    @property
    def is_numeric(self) -> bool:
        """Whether the values are numbers."""
        return all(_is_number(value) for value in self.values)

    @cached_property
    def is_logarithmic(self) -> bool:
        """Whether the numbers range so far that they are easier to read on a log scale."""
        return self.is_numeric and 0 < _LOG_FROM * min(self.values) <= max(self.values)

    @property
    def label(self) -> str:
        """Name for the plot's axis."""
        name = f"{self.name} (with {', '.join(self.followers)})" if self.followers else self.name
        return f"{name}, log scale" if self.is_logarithmic else name

    def position(self, value: Any) -> float:
        """Return the place of a value on the plot's axis."""
        if not self.is_numeric:
            return float(list(self.values).index(value))
        return math.log10(value) if self.is_logarithmic else float(value)


@dataclass(frozen=True)
class Panel:
    """Settings that differ in one parameter only.

    Attributes
    ----------
    axis
        That parameter, with the values that it has here.
    fixed
        What the settings have in common, of what differs elsewhere.
    settings
        In the order of the axis.
    """

    axis: Axis
    fixed: Setting
    settings: Sequence[Setting]

    @property
    def title(self) -> str:
        """What the settings have in common, in words that only break between parameters.

        A parameter that is not given here says nothing.
        """
        given = {name: value for name, value in self.fixed.items() if value is not None}
        parts = [described({name: value}) for name, value in given.items()]
        return ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)

    def position(self, setting: Setting) -> float:
        """Return the place of a setting on the axis."""
        return self.axis.position(setting[self.axis.name])


def arrange(settings: Sequence[Setting]) -> tuple[list[Panel], list[Setting]]:
    """Put settings that differ in one parameter into one panel each.

    In a full grid the parameter with most values becomes the axis and every combination of the
    others a panel. Where a study varies one thing at a time, each thing gets a panel of its own.

    Returns
    -------
    panels
        Every setting in them is in one at least.
    others
        The settings that nothing can be drawn against: all of them, if no number varies.
    """
    axes = independent_axes(settings)
    if not any(axis.is_numeric for axis in axes):
        return [], list(settings)
    panels: list[Panel] = []
    left = set(range(len(settings)))
    for axis in axes:
        others = [other.name for other in axes if other is not axis]
        for fixed, group in _groups(settings, others):
            if len(group) > 1 and left.intersection(group):
                panels.append(_panel(axis, fixed, [settings[i] for i in group]))
                left.difference_update(group)
    return panels, [settings[i] for i in sorted(left)]


def independent_axes(settings: Sequence[Setting]) -> list[Axis]:
    """Return the parameters that tell settings apart, numbers and those with most values first."""
    names = list(settings[0]) if settings else []
    every = [Axis(name, _distinct([setting[name] for setting in settings])) for name in names]
    every = [axis for axis in every if len(axis.values) > 1]
    kinds = [axis.name for axis in every if not axis.is_numeric]
    # A number that only goes along with a kind of world is no axis of its own.
    tied = {a.name: any(_same_split(settings, a.name, kind) for kind in kinds) for a in every}
    every.sort(
        key=lambda axis: (
            not axis.is_numeric or tied[axis.name],
            axis.is_numeric,
            -len(axis.values),
            axis.name != "n_samples",
        )
    )
    kept: dict[str, list[str]] = {}
    for axis in every:
        leader = next((name for name in kept if _follows(settings, axis.name, name)), None)
        if leader is None:
            kept[axis.name] = []
        else:
            kept[leader].append(axis.name)
    return [
        Axis(axis.name, axis.values, tuple(kept[axis.name])) for axis in every if axis.name in kept
    ]


def row_label(setting: Setting, axes: Sequence[Axis]) -> str:
    """Return the values of a setting along these axes."""
    return ", ".join(in_words(setting[axis.name]) for axis in axes)


def _panel(axis: Axis, fixed: Setting, settings: Sequence[Setting]) -> Panel:
    settings = sorted(settings, key=lambda setting: axis.position(setting[axis.name]))
    values = tuple(setting[axis.name] for setting in settings)
    followers = [name for name in axis.followers if len(_distinct([s[name] for s in settings])) > 1]
    return Panel(Axis(axis.name, values, followers), fixed, settings)


def _same_split(settings: Sequence[Setting], one: str, other: str) -> bool:
    """Whether two parameters divide the settings into the same groups."""
    return _follows(settings, one, other) and _follows(settings, other, one)


def _follows(settings: Sequence[Setting], name: str, leader: str) -> bool:
    """Whether the value of one parameter determines that of the other."""
    pairs = {(_hashable(setting[leader]), _hashable(setting[name])) for setting in settings}
    return len(pairs) == len({first for first, _ in pairs})


def _groups(
    settings: Sequence[Setting], names: Sequence[str]
) -> list[tuple[dict[str, Any], list[int]]]:
    """Return the settings that agree in these parameters, by number."""
    groups: dict[Hashable, tuple[dict[str, Any], list[int]]] = {}
    for i, setting in enumerate(settings):
        fixed = {name: setting[name] for name in names}
        key = tuple(_hashable(value) for value in fixed.values())
        groups.setdefault(key, (fixed, []))[1].append(i)
    return list(groups.values())


def _distinct(values: Sequence[Any]) -> tuple[Any, ...]:
    distinct = tuple({_hashable(value): value for value in values}.values())
    return tuple(sorted(distinct)) if all(map(_is_number, distinct)) else distinct


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _hashable(value: Any) -> Hashable:
    return value if isinstance(value, Hashable) else repr(value)
