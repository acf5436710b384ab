"""The names that classes have in files.

A file names a class by its tag, such as ``"encoder/linear"``, and never by the module it lives in:
files survive when a class moves. A tag is for good; `stored` stands beside the class that has it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TypeVar

from crlearn.exceptions import CorruptFileError

# What is imported in search of a tag, the light parts first. A file has no say in this.
_PACKAGES = (
    "crlearn.result",
    "crlearn.nets",
    "crlearn.data",
    "crlearn.flows",
    "crlearn.scores",
    "crlearn.variational",
    "crlearn.methods",
    "crlearn.published",
)

Class = TypeVar("Class", bound=type)

_CLASSES: dict[str, type] = {}
_TAGS: dict[type, str] = {}


def stored(tag: str) -> Callable[[Class], Class]:
    """Let files hold instances of a dataclass, under a tag that no other class has."""

    def register(cls: Class) -> Class:
        holder = _CLASSES.get(tag)
        if holder is not None and _place(holder) != _place(cls):
            raise ValueError(
                f"The tag '{tag}' belongs to {_place(holder)} already, and old files mean that "
                f"class by it. Give {_place(cls)} another one."
            )
        _CLASSES[tag] = cls
        _TAGS[cls] = tag
        return cls

    return register


def tag_of(cls: type) -> str | None:
    """Return the tag of a class, or None if files cannot hold it."""
    return _TAGS.get(cls)


def class_of(tag: str) -> type:
    """Return the class that has a tag, importing what may define it."""
    for package in _PACKAGES:
        if tag in _CLASSES:
            break
        if find_spec(package) is not None:
            import_module(package)
    if tag not in _CLASSES:
        raise CorruptFileError(f"The file names a class '{tag}' that crlearn does not read.")
    return _CLASSES[tag]


def _place(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
