"""Methods, worlds and their settings by the names that are typed on the command line."""

from __future__ import annotations

import ast
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
    """Return an int, float, bool, None, tuple (from ``[1, 2]``), dictionary or the text itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    for bracket, kind in {"[": "list", "{": "dictionary"}.items():
        if text.startswith(bracket):
            return _read_collection(text, kind)
    return text


def _read_collection(text: str, kind: str) -> Any:
    """Read JSON or a Python literal; labels that are whole numbers need no quotes in Python's."""
    try:
        return _with_tuples(json.loads(text))
    except ValueError as error:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = None
        if not isinstance(value, list | dict):
            raise ValueError(
                f"'{text}' begins like a {kind} but is none: {error}. Write it as in JSON or "
                "Python, with quotes around it for the shell and others around words, such as "
                """--set 'targets={"drug": 0, "other drug": 0}'."""
            ) from error
        return _with_tuples(value)


def _with_tuples(value: Any) -> Any:
    """Return lists as tuples: parameters may have to be hashed."""
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


def label_of(text: str, environments: Sequence[Any]) -> Any:
    """Return the environment whose label reads as `text`."""
    for label in environments:
        if str(label) == text:
            return label
    known = ", ".join(map(str, environments)) or "of which there are none"
    raise ValueError(f"--reference must be one of the environments, {known}. Got '{text}'.")


def by_labels(parameters: Mapping[str, Any], environments: Sequence[Any]) -> dict[str, Any]:
    """Return those parameters that are dictionaries, with the labels of the data as keys.

    JSON has no keys but text, and a file decides whether its labels are text or numbers.
    """
    labels = {str(label): label for label in environments}
    return {
        name: {labels.get(str(key), key): item for key, item in value.items()}
        for name, value in parameters.items()
        if isinstance(value, dict)
    }


def methods() -> dict[str, type[BaseCRL]]:
    """Return the estimators by name."""
    from crlearn.estimators import ESTIMATORS

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
