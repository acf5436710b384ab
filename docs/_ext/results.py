"""Sphinx extension: the pages of `docs/results`, from the summaries in `results/*/summary.json`.

The tables are those of `crlearn.bench`; nothing is measured here. The pages are written before
Sphinx reads its sources, and are not kept in the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from published_table import Published, opening

from crlearn.bench import ComparisonTable, compare, list_studies, load_study, read_summary

INTRODUCTION = """# Results

Studies that were run in full, beside what their papers report. A study is a file that ships with
crlearn: `crlearn bench list` shows all of them, and `crlearn bench run STUDY --out FOLDER` runs one
again, with the same seeds.
"""
NOTHING_YET = "No results are stored yet."
READING = """## Reading the tables of studies

- Each line is one metric in one setting; the last line of a setting is the time to fit, in seconds.
- Settings that differ in many parameters share one column: it names what differs from the usual
  setting, which stands above the table. A parameter with a dash is not set there.
- *chance* is what a random rotation of the whitened latents scores;
  [Choosing a method](../choosing.md#how-to-read-chance-levels) says how to read it.
- *paper* columns hold published values; the other columns are ours, on worlds drawn by the process
  that the paper describes, as far as the notes below a table say nothing else.
- The best of our methods is in bold. A dash means that there is no such value.
- A table of slopes says how fast errors fall along the parameter that it names: -0.5 is with its
  square root. *theory* is what they should be.
"""


def result_pages(folder: Path) -> dict[str, str]:
    """Return the text of each page by its name: an index, and one page for each summary."""
    tables = {path.parent.name: read_table(path) for path in sorted(folder.glob("*/summary.json"))}
    pages = {name: study_page(table) for name, table in tables.items()}
    return {"index": index_page(tables), **pages}


def read_table(path: Path) -> ComparisonTable:
    """Read a summary and put the published values of its study beside it."""
    rows = read_summary(path)
    names = {row.study for row in rows}
    if len(names) != 1:
        raise ValueError(f"{path} must be about one study. Got {sorted(names) or 'no rows'}.")
    return compare(load_study(names.pop()), rows)


def study_page(table: ComparisonTable) -> str:
    """Return title, source, table and notes of a study."""
    section = table.to_markdown().replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
    for name in table.columns:
        section = section.replace(f" {name} |", f" {breakable(name)} |")
    return section.removeprefix("#")  # the title of a page is one level above that of a section


def breakable(name: str) -> str:
    """Let a column be narrower than its head: a line may end between words and before a variant."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?=\[)", "<wbr>", name)


def index_page(tables: dict[str, ComparisonTable]) -> str:
    """Return the overview, or say that nothing is there."""
    if not tables:
        return "\n".join([INTRODUCTION, NOTHING_YET, ""])
    rows = {table.study.name: table.rows for table in tables.values()}
    pages = {table.study.name: f"{name}.md" for name, table in tables.items()}
    published = [Published(load_study(name), rows.get(name, ())) for name in list_studies()]
    overview = ["## All studies that are stored", "", "| study | source | seeds |", "|---|---|---|"]
    overview += [
        f"| [{table.study.title}]({name}.md) | {table.study.source} | {table.n} |"
        for name, table in tables.items()
    ]
    toctree = ["```{toctree}", ":hidden:", "", *tables, "```"]
    return "\n".join(
        [INTRODUCTION, opening(published, pages), *overview, "", READING, *toctree, ""]
    )


def write_pages(pages: dict[str, str], folder: Path) -> None:
    """Write the pages and remove those of studies that are gone; equal ones keep their date."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def write_results(app: Any) -> None:
    """Write the pages before Sphinx looks for its sources."""
    docs = Path(app.srcdir)
    write_pages(result_pages(docs.parent / "results"), docs / "results")


def setup(app: Any) -> dict[str, Any]:
    """Register the extension."""
    app.connect("builder-inited", write_results)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
