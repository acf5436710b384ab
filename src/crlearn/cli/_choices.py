"""Methods, worlds and their settings by the names that are typed on the command line."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crlearn.base import BaseCRL
    from crlearn.data import Dataset

_WORDS = {"true": True, "false": False, "none": None}


def read_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``key=value`` pairs."""
    settings = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"--set takes key=value, such as --set max_epochs=50. Got '{pair}'.")
        settings[key.strip().replace("-", "_")] = read_value(text.strip())
    return settings


def read_value(text: str) -> Any:
    """Return an int, float, bool, None, tuple (from ``[1, 2]``) or else the text itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    if text.startswith("["):
        try:
            return tuple(json.loads(text))
        except json.JSONDecodeError as error:
            raise ValueError(f"'{text}' begins like a list but is none: {error}.") from error
    return text


def methods() -> dict[str, type[BaseCRL]]:
    """Return the estimators by name."""
    from crlearn.published import ESTIMATORS

    return dict(ESTIMATORS)


def worlds() -> dict[str, Callable[..., Dataset]]:
    """Return the functions that make a world, by their names without ``make_``."""
    from crlearn.data import WORLDS

    return dict(WORLDS)


def build_method(name: str, settings: Mapping[str, Any]) -> BaseCRL:
    """Return the unfitted estimator of this name with these parameters."""
    method = _chosen(name, methods(), "method")
    _check_keys(settings, list(inspect.signature(method).parameters), method.__name__)
    return method(**settings)


def make_world(name: str, settings: Mapping[str, Any]) -> Dataset:
    """Simulate the world of this name with these settings."""
    maker = _chosen(name.removeprefix("make_"), worlds(), "world")
    signature = inspect.signature(maker)
    _check_keys(settings, list(signature.parameters), f"The world '{name}'")
    missing = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty and parameter.name not in settings
    ]
    if missing:
        needed = " and ".join(missing)
        raise ValueError(f"The world '{name}' needs {needed}: --set {missing[0]}=VALUE.")
    try:
        return maker(**settings)
    except TypeError as error:
        raise ValueError(
            f"The world '{name}' cannot be made with these settings: {error}"
        ) from error


def first_line(thing: object) -> str:
    """Return the first line of the documentation."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _chosen(name: str, choices: Mapping[str, Any], kind: str) -> Any:
    by_plain_name = {_plain(choice): thing for choice, thing in choices.items()}
    if _plain(name) not in by_plain_name:
        raise ValueError(f"There is no {kind} '{name}'. There are: {', '.join(choices)}.")
    return by_plain_name[_plain(name)]


def _plain(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "")


def _check_keys(settings: Mapping[str, Any], allowed: Sequence[str], owner: str) -> None:
    unknown = [key for key in settings if key not in allowed]
    if unknown:
        raise ValueError(
            f"{owner} has no parameter {', '.join(map(repr, unknown))}. It has: "
            f"{', '.join(allowed)}."
        )
