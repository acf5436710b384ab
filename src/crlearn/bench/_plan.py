"""What a study asks for, spelled out: cells (a world and a method) and runs (a cell and a seed).

The key of a run is a hash of everything that determines its result, defaults and crlearn's own code
included, so that a result is used again only where it would come out the same.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from crlearn.bench import _code
from crlearn.bench._study import Entry, Study
from crlearn.data import WORLDS
from crlearn.estimators import ESTIMATORS, STEPS

# Parameters of worlds that every row of a summary shows.
_ALWAYS_SHOWN = ("n_latents", "n_features", "n_samples", "mechanism", "intervention", "graph")
# What a study hands over: what is known beforehand, and ("$tru...") what only references may see.
FROM_THE_DATA = (
    "$known_targets",
    "$known_graph",
    "$targets_without_doses",
    "$graph_less_an_edge",
    "$graph_with_a_reversed_edge",
    "$true_encoder",
    "$true_mixing",
    "$true_noise_variance",
    "$truth",
)


@dataclass(frozen=True)
class Cell:
    """One method on one kind of world: what differs between its runs is the seed.

    Attributes
    ----------
    world, world_parameters
        The maker's name and all its parameters but the seed.
    method, parameters
        The class and all its parameters but the seed.
    label
        The method in tables.
    setting
        The world in tables.
    scores
        ``"exact"`` or ``"estimated"``.
    metrics, evaluated_on
        What is measured, on which rows.
    signal_to_error
        Size of the errors that are added to exact scores, or None.
    after
        The class that reduces X first, or None.
    code
        Fingerprint of the crlearn that planned it.
    """

    world: str
    world_parameters: Mapping[str, Any]
    method: str
    parameters: Mapping[str, Any]
    label: str
    setting: Mapping[str, Any]
    scores: str
    metrics: tuple[str, ...]
    evaluated_on: str
    signal_to_error: float | None = None
    after: str | None = None
    code: str = field(default_factory=lambda: _code.fingerprint())

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the results, but the seed."""
        errors = self.signal_to_error
        return {
            **({} if errors is None else {"signal_to_error": errors}),
            **({} if self.after is None else {"after": self.after}),
            "world": self.world,
            "world_parameters": dict(self.world_parameters),
            "method": self.method,
            "parameters": dict(self.parameters),
            "scores": self.scores,
            "metrics": sorted(self.metrics),
            "evaluated_on": self.evaluated_on,
            "code": self.code,
        }

    @cached_property
    def key(self) -> str:
        """Hash of `identity`."""
        return _digest(self.identity)


@dataclass(frozen=True)
class Run:
    """A cell with a seed."""

    cell: Cell
    seed: int

    @cached_property
    def key(self) -> str:
        """Hash of everything that determines the result."""
        return _digest({**self.cell.identity, "seed": self.seed})


@dataclass(frozen=True)
class Plan:
    """A study at the size of one of its profiles."""

    study: Study
    profile: str
    seeds: int

    @classmethod
    def of(cls, study: Study, profile: str, seeds: int | None = None) -> Plan:
        """Plan a study, by default with the number of seeds of the profile."""
        chosen = study.profile(profile)
        if seeds is not None and seeds < 1:
            raise ValueError(f"'seeds' must be an integer of at least 1. Got {seeds} instead.")
        return cls(study, profile, chosen.seeds if seeds is None else seeds)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All cells; those of one world stand together."""
        return tuple(
            _cell(self.study, self.profile, setting, entry, scores, errors)
            for setting in self.study.settings(self.profile)
            for entry in self.study.methods
            if entry.runs_in(setting)
            for scores in entry.scores
            for errors in entry.signal_to_error or (None,)
        )

    def runs(self) -> Iterator[Run]:
        """Yield all runs, seed by seed, so that every cell has some results early."""
        first = self.study.profile(self.profile).first_seed
        for seed in range(first, first + self.seeds):
            for cell in self.cells:
                yield Run(cell, seed)


def find_method(name: str) -> Callable[..., Any]:
    """Return the class of a name in crlearn, or of a dotted path."""
    if name in STEPS:
        return STEPS[name]
    module, _, attribute = name.rpartition(".")
    if not module:
        raise ValueError(
            f"There is no method '{name}'. There are: {', '.join(ESTIMATORS)}; a class of your own "
            "is named by its path, such as mypackage.mymodule.MyMethod."
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"The method '{name}' cannot be imported: {error}. It must be importable wherever the "
            "runs are done."
        ) from error
    if not isinstance(found, type):
        raise ValueError(f"The method '{name}' must be a class. It is {found!r}.")
    return found


def _cell(
    study: Study,
    profile: str,
    setting: Mapping[str, Any],
    entry: Entry,
    scores: str,
    errors: float | None,
) -> Cell:
    world = _all_parameters(WORLDS[study.world], setting, f"The world '{study.world}'")
    given = {**entry.parameters, **study.profile(profile).parameters.get(entry.label, {})}
    shown = {name: world[name] for name in (*_ALWAYS_SHOWN, *setting) if name in world}
    if world.get("n_features", 0) is None:
        shown["n_features"] = world["n_latents"]
    if errors is not None:
        shown["signal_to_error"] = errors
    return Cell(
        world=study.world,
        world_parameters=world,
        method=entry.method,
        parameters=_method_parameters(entry.method, given, world, scores),
        label=entry.label,
        setting={**shown, "scores": scores},
        scores=scores,
        metrics=study.metrics,
        evaluated_on=study.evaluated_on,
        signal_to_error=errors,
        after=entry.after,
    )


def _method_parameters(
    method: str, given: Mapping[str, Any], world: Mapping[str, Any], scores: str
) -> dict[str, Any]:
    maker = find_method(method)
    known = inspect.signature(maker).parameters
    if scores == "exact" and "scores" not in known:
        raise ValueError(f"{method} has no parameter 'scores', so it cannot take exact scores.")
    if "n_latents" in known and "n_latents" in world:
        given = {"n_latents": world["n_latents"], **given}
    parameters = _all_parameters(maker, given, method)
    return {name: _from_the_setting(value, world) for name, value in parameters.items()}


def _from_the_setting(value: Any, world: Mapping[str, Any]) -> Any:
    """Replace ``"$name"`` by that parameter of the world."""
    if not isinstance(value, str) or not value.startswith("$") or value in FROM_THE_DATA:
        return value
    name = value.removeprefix("$")
    if name not in world:
        raise ValueError(
            f"'{value}' must name a parameter of the world, {', '.join(world)}, or be one of "
            f"{', '.join(FROM_THE_DATA)}."
        )
    return world[name]


def _all_parameters(
    maker: Callable[..., Any], given: Mapping[str, Any], owner: str
) -> dict[str, Any]:
    """Return the parameters that were given and the defaults of the others, without the seed."""
    known = {
        name: parameter
        for name, parameter in inspect.signature(maker).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    unknown = [name for name in given if name not in known or name == "random_state"]
    if unknown:
        allowed = ", ".join(name for name in known if name != "random_state")
        raise ValueError(
            f"{owner} has no parameter {', '.join(unknown)} that a study can set. It has: "
            f"{allowed}."
        )
    defaults = {name: known[name].default for name in known if name != "random_state"}
    parameters = {**defaults, **given}
    missing = [name for name, value in parameters.items() if value is inspect.Parameter.empty]
    if missing:
        raise ValueError(f"{owner} needs a value for {', '.join(missing)}.")
    return parameters


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, default=_named, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _named(value: Any) -> Any:
    """Return what JSON knows and is the same in every process; not every repr is."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(" at 0x[0-9a-fA-F]+", "", repr(value))
