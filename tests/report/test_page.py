from __future__ import annotations

from pathlib import Path

from crlearn.report._page import Cell, Page, Plot, Section, Table, Text, render, write_page

HOSTILE = "<script>alert('x')</script>"


def page(*blocks) -> Page:
    return Page("A title", "A lead.", {"method": "X"}, [Section("First part", blocks)])


def test_cells_of_values():
    assert Cell.of(0.98765).text == "0.988"
    assert Cell.of(3.0).text == "3"
    assert Cell.of(None).text == "–"
    assert Cell.of("word").sort is None
    assert Cell.of(7).sort == 7
    assert Cell.of(Cell("kept", tone="good")).tone == "good"


def test_columns_with_numbers_are_known():
    table = Table(["name", "value", "note"], [["a", None, "x"], ["b", 1.5, "y"]])
    assert table.numeric == {1}


def test_a_page_is_whole_and_alone(parse):
    source = render(page(Text("Words."), Table(["a"], [[1.0]]), Plot("<svg></svg>", "A caption.")))
    document = parse(source)
    assert len(document.all("h1")) == 1
    assert "http" not in source.replace("http-equiv", "")
    assert not document.all("link")
    assert all("src" not in script for script in document.all("script"))
    assert {"A title", "A lead.", "Words.", "A caption."} <= set(document.text)


def test_sections_can_be_reached(parse):
    document = parse(render(page(Text("Words."))))
    assert document.all("a")[0]["href"] == "#first-part"
    assert document.all("section")[0]["id"] == "first-part"


def test_strings_of_users_are_escaped(parse):
    hostile = Page(
        HOSTILE,
        HOSTILE,
        {HOSTILE: HOSTILE},
        [
            Section(
                HOSTILE, [Text(HOSTILE), Table([HOSTILE], [[HOSTILE]], HOSTILE), Plot("", HOSTILE)]
            )
        ],
    )
    document = parse(render(hostile))
    assert len(document.all("script")) == 1
    assert document.text.count(HOSTILE) >= 9


def test_writing_makes_the_folder(tmp_path: Path):
    out = write_page(page(Text("Wörter")), tmp_path / "new" / "page.html")
    assert "Wörter" in out.read_text(encoding="utf-8")
