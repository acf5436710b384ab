"""The page: sections of texts, tables and plots, in one HTML file that needs nothing else.

What a page says is built elsewhere (`_fit.py` for one fit, `_study.py` for a study); this file
knows only how it looks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import jinja2
from markupsafe import Markup

from crlearn.files import write_whole

# Control characters and halves of surrogate pairs, which XML and so SVG cannot hold.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_TALL = 30  # rows
_ROOM = 38  # letters in a line on a narrow screen
_NARROW = 400  # pixels
_WORDS = 20  # letters that a column of words needs; longer texts wrap

Tone = Literal["", "best", "good", "bad", "unknown", "quiet"]


@dataclass(frozen=True)
class Cell:
    """One cell of a table: what it shows, what it is sorted by, how it looks, what to heed."""

    text: str
    sort: float | str | None = None
    tone: Tone = ""
    note: str = ""

    @classmethod
    def of(cls, value: Any) -> Cell:
        """Return `value` as a cell; numbers get three digits, None a dash."""
        if isinstance(value, cls):
            return value
        if value is None:
            return cls("–")
        if isinstance(value, float):
            return cls(f"{value:.0f}" if value.is_integer() else f"{value:.3f}", value)
        return cls(str(value), value if isinstance(value, int) else None)


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Table:
    """A table whose columns can be sorted by a click on their heads.

    Attributes
    ----------
    columns
        The heads.
    rows
        Cells, or values that become cells.
    caption
        What stands above it.
    filters
        Heads of the columns whose values can be chosen, to see these rows only.
    """

    kind: ClassVar[str] = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    filters: Sequence[str] = ()

    @property
    def is_tall(self) -> bool:
        """Whether it scrolls in a box of its own, below its filters."""
        return bool(self.filters) and len(self.rows) > _TALL

    @property
    def is_wide(self) -> bool:
        """Whether its columns do not fit beside each other on a narrow screen."""
        columns = zip(
            self.columns, *([cell.text for cell in row] for row in self.cells), strict=True
        )
        return sum(min(max(map(len, texts)), _WORDS) for texts in columns) > _ROOM

    @property
    def choices(self) -> dict[int, list[str]]:
        """What can be chosen in each column to filter by; a column of one value has no choice."""
        columns = {i: head for i, head in enumerate(self.columns) if head in self.filters}
        texts = {i: list(dict.fromkeys(row[i].text for row in self.cells)) for i in columns}
        return {i: values for i, values in texts.items() if len(values) > 1}

    @cached_property
    def cells(self) -> list[list[Cell]]:
        """The rows as cells."""
        return [[Cell.of(value) for value in row] for row in self.rows]

    @cached_property
    def numeric(self) -> set[int]:
        """The columns that hold numbers."""
        return {
            column
            for row in self.cells
            for column, cell in enumerate(row)
            if isinstance(cell.sort, int | float)
        }


@dataclass(frozen=True)
class Plot:
    """A figure as SVG, `width` pixels wide where there is room."""

    kind: ClassVar[str] = "plot"
    svg: str
    caption: str = ""
    width: int = 640

    @property
    def is_wide(self) -> bool:
        """Whether it is shrunk on a narrow screen."""
        return self.width > _NARROW

    @property
    def markup(self) -> Markup:
        """The SVG, to be put into the page as it is: matplotlib has escaped its texts."""
        return Markup(self.svg)


@dataclass(frozen=True)
class Details:
    """A line that opens to show a text as it was written, such as a traceback."""

    kind: ClassVar[str] = "details"
    summary: str
    text: str


Block = Text | Table | Plot | Details


@dataclass(frozen=True)
class Banner:
    """What nobody may miss: it stands below the title.

    Attributes
    ----------
    title
        The news.
    items
        What it is about, one line each.
    text
        What follows from it.
    tone
        ``"bad"`` is a warning, ``"good"`` is calm.
    """

    title: str
    items: Sequence[str]
    text: str
    tone: Literal["good", "bad"]


@dataclass(frozen=True)
class Section:
    """A headed part of a page."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """Name of the section in links."""
        return "-".join(re.findall(r"\w+", self.title.lower()))


@dataclass(frozen=True)
class Page:
    """A whole page.

    Attributes
    ----------
    title
        Its only first-level heading.
    lead
        The sentence below the title.
    facts
        Short facts by name, shown before the sections.
    sections
        What follows.
    banner
        What stands before all of these, or None.
    """

    title: str
    lead: str
    facts: Mapping[str, str]
    sections: Sequence[Section] = field(default_factory=tuple)
    banner: Banner | None = None


def write_page(page: Page, out: str | Path) -> Path:
    """Write a page to one HTML file."""
    write_whole(out, render(page))
    return Path(out)


def render(page: Page) -> str:
    """Return a page as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("crlearn.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return printable(environment.get_template("page.html").render(page=page))


def printable(text: str) -> str:
    """Return a text without the characters that a page cannot hold."""
    return _FORBIDDEN.sub("", text)
