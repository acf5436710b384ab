"""Figures as SVG for a page: text and axes follow the page's colours, points are pixels.

A function that draws returns a `Sketch`; the decorator `drawn` puts the house style around it and
turns the sketch into a `Plot`. Colours of the page are drawn as placeholders (`INK`, `SURFACE`) and
replaced by CSS afterwards, so that one figure serves the light and the dark page.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal, ParamSpec
from xml.etree import ElementTree

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from crlearn.report._page import Plot, printable

P = ParamSpec("P")

# What the page decides: the colour of text and lines, and that of the card behind a figure.
INK = "#010203"
SURFACE = "#040506"
_THEMED = {INK: "currentColor", SURFACE: "var(--surface)"}

# Colour-blind safe (Okabe and Ito), and of those the ones that show on white and on black.
BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY = "#e69f00", "#56b4e9"
# Four more, as far from these and each other as they are, also for the colour-blind.
BROWN, VIOLET, LAVENDER, SAGE = "#884444", "#5500ff", "#8877ff", "#99bb88"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BROWN, VIOLET, LAVENDER, SAGE)
GREY = "#8a9099"

WIDE = 8.0  # inches; a figure of this width fills its card on a wide screen
LETTER, _SMALL_LETTER = 0.075, 0.067  # inches, about

MOST_POINTS = 2000
_LONGEST_LABEL = 24
_PIXELS_PER_POINT = 4 / 3

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "crlearn",
    "text.parse_math": False,  # a label with a dollar sign is a label
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.6,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "figure.facecolor": "none",
    "figure.dpi": 72,
    "savefig.dpi": 160,
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


@dataclass(frozen=True, eq=False)
class Sketch:
    """A figure, what it shows in words, and what to say when the mouse is over a part of it.

    Attributes
    ----------
    figure
        The matplotlib figure.
    label
        One sentence for those who do not see the figure.
    caption
        What stands below it.
    hover
        Text for each group id (matplotlib's ``gid``); several texts are for the marks of the group,
        one each.
    """

    figure: Figure
    label: str
    caption: str = ""
    hover: Mapping[str, str | Sequence[str]] = field(default_factory=dict)


def drawn(sketch: Callable[P, Sketch]) -> Callable[P, Plot]:
    """Turn a function that sketches into one that returns a `Plot`."""

    @wraps(sketch)
    def plot(*args: P.args, **kwargs: P.kwargs) -> Plot:
        with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
            # Labels may use any script; the reader's browser has the glyphs, matplotlib need not.
            warnings.filterwarnings("ignore", message=".*[Gg]lyph")
            return _plot(sketch(*args, **kwargs))

    return plot


def panels(
    n_rows: int, n_columns: int, width: float, height: float, **options: Any
) -> tuple[Figure, Any]:
    """Return a figure of `width` by `height` inches and its grid of axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, **options)


def soften(axes: Axes, grid: Literal["x", "y"] = "y") -> None:
    """Leave two sides of the frame, and draw faint lines across the values."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, alpha=0.15, linewidth=0.6)


def logarithmic(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make an axis logarithmic, with plain numbers as labels: powers need mathematical text."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def shortened(label: Any, longest: int = _LONGEST_LABEL) -> str:
    """Return a label that fits beside an axis."""
    text = " ".join(printable(str(label)).split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def legend_columns(names: Sequence[str], width: float) -> int:
    """Return the largest number of columns in which a legend is not wider than `width` inches."""
    for n in range(len(names), 1, -1):
        columns = np.array_split([len(name) for name in names], n)
        if sum(_SMALL_LETTER * max(column) + 0.6 for column in columns) <= width:
            return n
    return 1


def some_rows(n_rows: int) -> np.ndarray:
    """Return the rows that are drawn as points: all, or a fixed random choice of them."""
    if n_rows <= MOST_POINTS:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, MOST_POINTS, replace=False))


def _plot(sketch: Sketch) -> Plot:
    buffer = io.StringIO()
    sketch.figure.savefig(buffer, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(printable(buffer.getvalue()))
    width, height = (float(size) for size in root.attrib["viewBox"].split()[2:])
    _forget_namespaces(root)
    _drop(root, "metadata")
    _drop(root, "style")
    _follow_the_page(root)
    _say_on_hover(root, sketch.hover)
    _own_ids(root, prefix=hashlib.sha256(buffer.getvalue().encode()).hexdigest()[:8])
    root.attrib.clear()
    root.attrib.update(
        {"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-label": sketch.label}
    )
    return Plot(
        svg=ElementTree.tostring(root, encoding="unicode"),
        caption=sketch.caption,
        width=round(width * _PIXELS_PER_POINT),
    )


def _forget_namespaces(root: ElementTree.Element) -> None:
    """HTML knows the names of SVG without them."""
    for element in root.iter():
        element.tag = _bare(element.tag)
        element.attrib = {_bare(name): value for name, value in element.attrib.items()}


def _bare(name: str) -> str:
    return name.rpartition("}")[2]


def _drop(root: ElementTree.Element, tag: str) -> None:
    for parent in list(root.iter()):
        for child in parent.findall(tag):
            parent.remove(child)


def _follow_the_page(root: ElementTree.Element) -> None:
    for element in root.iter():
        for name, value in element.attrib.items():
            for placeholder, themed in _THEMED.items():
                value = value.replace(placeholder, themed)
            element.attrib[name] = value


def _say_on_hover(root: ElementTree.Element, hover: Mapping[str, str | Sequence[str]]) -> None:
    for element in list(root.iter()):
        text = hover.get(element.attrib.get("id", ""))
        if isinstance(text, str):
            _entitle(element, text)
        elif text is not None:
            for mark, own in zip(_marks(element), text, strict=True):
                _entitle(mark, own)


def _marks(group: ElementTree.Element) -> list[ElementTree.Element]:
    """Return what is drawn in a group, in order: not the shapes that are only defined there."""
    defined = {shape for definitions in group.iter("defs") for shape in definitions.iter()}
    return [e for e in group.iter() if e.tag in ("use", "path") and e not in defined]


def _entitle(element: ElementTree.Element, text: str) -> None:
    title = ElementTree.Element("title")
    title.text = text
    element.insert(0, title)


def _own_ids(root: ElementTree.Element, prefix: str) -> None:
    """Keep the ids that something refers to, under names that no other figure on the page has."""
    links = re.compile(r"(?<=url\(#)[^)]+|(?<=^#).+")
    used = {found for element in root.iter() for found in _links_of(element, links)}
    for element in root.iter():
        name = element.attrib.pop("id", None)
        for attribute, value in element.attrib.items():
            element.attrib[attribute] = links.sub(lambda found: f"{prefix}-{found[0]}", value)
        if name in used:
            element.attrib["id"] = f"{prefix}-{name}"


def _links_of(element: ElementTree.Element, links: re.Pattern[str]) -> list[str]:
    return [found for value in element.attrib.values() for found in links.findall(value)]
