from __future__ import annotations

import re
import warnings

import matplotlib as mpl
import numpy as np
import pytest

from crlearn.report._page import Plot
from crlearn.report._svg import (
    INK,
    PALETTE,
    SURFACE,
    Sketch,
    drawn,
    legend_columns,
    logarithmic,
    panels,
    shortened,
    some_rows,
)


@drawn
def sample(label: str = "a label", color: str = INK) -> Sketch:
    figure, grid = panels(1, 1, 2, 1)
    axes = grid[0, 0]
    bar = axes.bar([0], [1], color=color)[0]
    bar.set_gid("the-bar")
    axes.scatter([0, 1], [0, 1], rasterized=True)
    axes.plot([0, 1], [0, 1], marker="o")
    axes.set_xlabel(label)
    return Sketch(figure, "what it <shows>", hover={"the-bar": "one & only"})


def test_colours_of_the_page_are_left_to_the_page():
    plot = sample(color=SURFACE)
    assert INK not in plot.svg
    assert SURFACE not in plot.svg
    assert "currentColor" in plot.svg
    assert "var(--surface)" in plot.svg


def test_a_figure_needs_no_network_and_has_a_label(parse):
    plot = sample()
    assert "http" not in plot.svg
    svg = parse(plot.svg).all("svg")[0]
    assert svg["role"] == "img"
    assert svg["aria-label"] == "what it <shows>"
    assert plot.width == pytest.approx(2 * 96, abs=1)


def test_points_are_pixels_and_hover_text_is_a_title(parse):
    document = parse(sample().svg)
    assert any((image["href"] or "").startswith("data:") for image in document.all("image"))
    assert "one & only" in document.text


@drawn
def points(*texts: str) -> Sketch:
    figure, grid = panels(1, 1, 2, 1)
    grid[0, 0].plot([1, 2, 3], [1, 10, 1000], ls="", marker="s", gid="the-points")
    logarithmic(grid[0, 0], "y")
    return Sketch(figure, "points", hover={"the-points": texts})


def test_every_mark_of_a_group_has_its_own_hover_text(parse):
    svg = points("a", "</title><b>", "c").svg
    assert re.findall(r"<use [^>]*><title>([^<]*)</title></use>", svg) == [
        "a",
        "&lt;/title&gt;&lt;b&gt;",
        "c",
    ]
    with pytest.raises(ValueError, match="argument"):
        points("too", "few")


def test_logarithmic_axes_have_plain_numbers(parse):
    text = parse(points("a", "b", "c").svg).text
    assert {"1", "1,000"} <= set(text)
    assert not any("mathdefault" in part for part in text)


def test_ids_of_two_figures_differ_and_every_link_has_its_target(parse):
    first, second = sample(), sample(label="another")
    ids = [ids_of(parse(plot.svg)) for plot in (first, second)]
    assert not ids[0] & ids[1]
    for plot, own in zip((first, second), ids, strict=True):
        links = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', plot.svg)
        assert links
        assert {a or b for a, b in links} <= own


def ids_of(document) -> set[str]:
    found = [attributes["id"] for _, attributes in document.tags if "id" in attributes]
    assert len(found) == len(set(found))
    return set(found)


def test_same_figure_same_bytes():
    assert sample() == sample()


@pytest.mark.parametrize("label", ["$x$y_{", "<script>alert(1)</script>", "遺伝子", 'a"b&c'])
def test_labels_are_shown_as_they_are(parse, label: str):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        document = parse(sample(label).svg)
    assert label in document.text
    assert not document.all("script")


def test_the_users_matplotlib_settings_do_not_matter():
    expected = sample()
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 30, "text.usetex": False}):
        assert sample() == expected
        assert mpl.rcParams["axes.facecolor"] == "red"


def test_long_labels_are_shortened():
    assert shortened("short") == "short"
    assert shortened("two\nlines") == "two lines"
    assert len(shortened("x" * 100)) == 24
    assert len(shortened("x" * 100, 40)) == 40


# Machado, Oliveira and Fernandes (2009): how colours look without red or green cones.
SIGHTS = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]
    ),
    "deuteranopia": np.array(
        [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]
    ),
}


def linear_rgb(color: str) -> np.ndarray:
    values = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Return a colour in a space whose distances are those that people see (Ottosson, 2020)."""
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    axes = np.array(
        [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    )
    return axes @ np.cbrt(cones @ np.clip(rgb, 0, 1))


@pytest.mark.parametrize("sight", SIGHTS)
def test_ten_colours_can_be_told_apart(sight: str):
    seen = np.array([oklab(SIGHTS[sight] @ linear_rgb(color)) for color in PALETTE])
    distances = np.linalg.norm(seen[:, None] - seen[None], axis=2)
    assert len(PALETTE) >= 10
    assert distances[np.triu_indices(len(PALETTE), 1)].min() > 0.07


@pytest.mark.parametrize("color", PALETTE)
def test_colours_show_on_light_and_on_dark_pages(color: str):
    luminance = np.array([0.2126, 0.7152, 0.0722]) @ linear_rgb(color)
    dark = np.array([0.2126, 0.7152, 0.0722]) @ linear_rgb("#171b20")
    assert (1 + 0.05) / (luminance + 0.05) > 2
    assert (luminance + 0.05) / (dark + 0.05) > 2


def test_a_legend_is_not_wider_than_its_figure():
    assert legend_columns(["ab", "cd", "ef"], 8.0) == 3
    assert legend_columns(["x" * 30] * 8, 8.0) == 3
    assert legend_columns(["x" * 300] * 2, 8.0) == 1


def test_few_rows_are_all_drawn_and_many_are_not():
    assert some_rows(5).tolist() == [0, 1, 2, 3, 4]
    assert len(set(some_rows(100_000))) == 2000


def test_a_plot_is_a_record():
    assert isinstance(sample(), Plot)
