"""The errors and warnings that are crlearn's own."""

from __future__ import annotations

import importlib
from types import ModuleType


class AssumptionWarning(UserWarning):
    """The data contradict an assumption that the method's guarantee rests on."""


class IdentifiabilityError(ValueError):
    """What was asked for cannot be determined from data of this kind."""


class DivergenceError(RuntimeError):
    """Training produced no finite result, even with a smaller step."""


class CorruptFileError(ValueError):
    """A file is not what crlearn wrote: truncated, altered, or of another kind."""


class MissingExtraError(ImportError):
    """An optional dependency is needed; the message says how to install it."""


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"This needs the package '{module}', which is not installed. "
            f"Install it with: pip install 'crlearn[{extra}]'"
        ) from error
