from __future__ import annotations

from pathlib import Path

from crlearn.report._page import (
    Banner,
    Cell,
    Details,
    Page,
    Plot,
    Section,
    Table,
    Text,
    render,
    write_page,
)

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


def test_a_banner_stands_before_facts_and_sections(parse):
    banner = Banner("The news", ["first item", HOSTILE], "What follows.", "bad")
    whole = Page("A title", "A lead.", {"method": "X"}, [Section("Part", [])], banner)
    document = parse(render(whole))
    places = [document.text.index(words) for words in ("The news", "first item", "What follows.")]
    assert places == sorted(places)
    assert places[-1] < document.text.index("method")
    assert HOSTILE in document.text
    assert [div["class"] for div in document.all("div") if "role" in div] == ["banner bad"]
    assert "banner" not in [div.get("class") for div in parse(render(page())).all("div")]


def test_tables_that_do_not_fit_a_narrow_screen_are_known(parse):
    narrow = Table(["edge", "p-value"], [["z0 → z1", 0.1]])
    wrapped = Table(["latent", "features"], [["z0", "a text of many words " * 9]])
    wide = Table(
        ["assumption", "on these data", "detail"], [["a name of two words", "holds", "x" * 90]]
    )
    assert [table.is_wide for table in (narrow, wrapped, wide)] == [False, False, True]
    document = parse(render(page(narrow, wide)))
    assert [table.get("class") for table in document.all("table")] == [None, "wide"]
    heads = [cell["data-head"] for cell in document.all("td")]
    assert heads == ["edge", "p-value", "assumption", "on these data", "detail"]


def test_a_figure_that_is_shrunk_can_be_enlarged(parse):
    small, large = Plot("<svg></svg>", width=300), Plot("<svg></svg>", width=700)
    for plot, n in ((small, 0), (large, 1)):
        buttons = parse(render(page(plot))).all("button")
        assert len([button for button in buttons if button.get("class") == "enlarge"]) == n


def test_sections_can_be_reached(parse):
    document = parse(render(page(Text("Words."))))
    assert document.all("a")[0]["href"] == "#first-part"
    assert document.all("section")[0]["id"] == "first-part"


def test_names_with_underscores_can_be_reached():
    assert Section("parent_error", []).anchor == "parent_error"
    assert Section("Time to fit", []).anchor == "time-to-fit"


def test_a_table_without_filters_has_no_controls(parse):
    document = parse(render(page(Table(["a", "b"], [[1, "x"], [2, "y"]]))))
    assert not document.all("form")
    assert document.all("div")[-1]["class"] == "scroll"


def test_filters_offer_the_values_of_their_columns(parse):
    rows = [[1, "x", "same"], [2, "y", "same"], [3, "x", "same"]]
    table = Table(["a", "b", "c"], rows, filters=["b", "c", "not there"])
    assert table.choices == {1: ["x", "y"]}  # nothing to choose in c
    document = parse(render(page(table)))
    (form,) = document.all("form")
    assert "hidden" in form
    assert form["role"] == "search"
    assert [option["value"] for option in document.all("option")] == ["", "x", "y"]
    assert len(document.all("label")) == 2
    assert len(document.all("output")) == 1


def test_no_filter_if_there_is_nothing_to_choose(parse):
    table = Table(["a", "b"], [["x", 1.0], ["x", 2.0]], filters=["a"])
    assert not parse(render(page(table))).all("form")


def test_long_tables_with_filters_scroll_in_their_box(parse):
    table = Table(["a"], [[str(i)] for i in range(100)], filters=["a"])
    assert "scroll tall" in [div.get("class") for div in parse(render(page(table))).all("div")]


def test_notes_of_cells(parse):
    document = parse(render(page(Table(["a"], [[Cell("0.5", 0.5, "best", "2 failed")]]))))
    assert "2 failed" in document.text
    assert len(document.all("small")) == 1


def test_details_hold_text_as_it_is(parse):
    document = parse(render(page(Details("What went wrong", "line\n  </pre>" + HOSTILE))))
    assert "line\n  </pre>" + HOSTILE in document.text
    assert len(document.all("pre")) == 1
    assert "What went wrong" in document.text


def test_strings_of_users_are_escaped(parse):
    hostile = Page(
        HOSTILE,
        HOSTILE,
        {HOSTILE: HOSTILE},
        [
            Section(
                HOSTILE,
                [
                    Text(HOSTILE),
                    Table([HOSTILE], [[HOSTILE], ["other"]], HOSTILE, [HOSTILE]),
                    Plot("", HOSTILE),
                    Details(HOSTILE, HOSTILE),
                ],
            )
        ],
    )
    document = parse(render(hostile))
    assert len(document.all("script")) == 1
    assert document.text.count(HOSTILE) >= 12


def test_writing_makes_the_folder(tmp_path: Path):
    out = write_page(page(Text("Wörter")), tmp_path / "new" / "page.html")
    assert "Wörter" in out.read_text(encoding="utf-8")
