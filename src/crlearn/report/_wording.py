"""How things are said on every page: metrics, values of parameters, settings."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from crlearn.metrics import METRICS

_LONGEST = 80


def first_line(thing: Any) -> str:
    """Return the first line of the documentation of a class or function."""
    return (inspect.getdoc(thing) or "").partition("\n")[0] if thing is not None else ""


def meaning(metric: str) -> str:
    """Return what a metric says; nothing for other columns of a table."""
    return METRICS[metric].description if metric in METRICS else ""


def unit(metric: str) -> str:
    """Return what the values of a metric are, in the few words that an axis has room for."""
    perfect = METRICS[metric].perfect
    return METRICS[metric].unit if perfect is None else f"{perfect:g} is perfect"


def shown(value: Any) -> str:
    """Return the value of a parameter in one short line."""
    text = repr(value) if not isinstance(value, np.ndarray) else f"array of shape {value.shape}"
    return cut(text, _LONGEST)


def cut(text: str, longest: int) -> str:
    """Return a text, or its beginning if it is too long."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def in_words(value: Any) -> str:
    """Return a value of a setting: whole numbers with commas, texts as they are."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def described(setting: Mapping[str, Any]) -> str:
    """Return a setting as names and values."""
    return ", ".join(f"{name} = {in_words(value)}" for name, value in setting.items())
