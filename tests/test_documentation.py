"""What README, documentation, docstrings and metadata say is what the code does."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import json
import pkgutil
import re
import shlex
import sys
from functools import partial
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

import crlearn
from crlearn.bench import Row, Study, list_studies, load_study, read_summary
from crlearn.cli import app
from crlearn.estimators import ESTIMATORS
from crlearn.result import GraphLevel, LatentLevel

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
METHOD_PAGES = [f"docs/methods/{name}.md" for name in ESTIMATORS]
PAGES = [
    "README.md",
    *(f"docs/{name}.md" for name in ("getting_started", "choosing", "good_enough")),
    *METHOD_PAGES,
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MODULES = [
    module.name
    for module in pkgutil.walk_packages(crlearn.__path__, "crlearn.")
    if not module.name.endswith("__main__")
]
PUBLIC_MODULES = [
    f"crlearn.{name}" for name in {*dir(crlearn), "bench"} if find_spec(f"crlearn.{name}")
]

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), flags=re.DOTALL)


def headings_of(page: str) -> list[str]:
    return re.findall(r"^## (.+)$", text_of(page), flags=re.MULTILINE)


def in_one_line(text: str) -> str:
    return " ".join(text.replace("\n>", "\n").split())


# Pages


@quiet
@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str):
    module = importlib.import_module(name)
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.testmod(module, optionflags=options).failed == 0


@quiet
@pytest.mark.parametrize("page", PAGES)
def test_code_examples_of_a_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # examples may write files
    code, sessions = blocks_of(page, "python"), blocks_of(page, "pycon")
    assert code
    names: dict[str, Any] = {}
    exec("\n".join(code), names)
    for session in sessions:
        test = doctest.DocTestParser().get_doctest(session, {}, page, page, 0)
        assert doctest.DocTestRunner().run(test).failed == 0
    if page in METHOD_PAGES:
        assert type(names["model"]).__name__ == Path(page).stem
        guarantee = names["model"].result_.guarantee
        assert (guarantee.intended or guarantee).text in in_one_line(text_of(page))


@pytest.mark.parametrize("page", ["README.md", "docs/getting_started.md"])
def test_commands_for_ones_own_file(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of("docs/getting_started.md", "python")
    exec(next(block for block in blocks if 'to_csv("measurements.csv"' in block), {})
    lines = "".join(blocks_of(page, "bash")).splitlines()
    commands = [line for line in lines if line.startswith(("crlearn fit ", "crlearn report run "))]
    assert len(commands) >= 2
    for command in commands:
        said = CliRunner().invoke(app, shlex.split(command)[1:])
        assert said.exit_code == 0, said.output
        assert "fails" not in said.output
    result = json.loads(Path("run/result.json").read_text())
    assert result["parameters"]["reference"] == "control"
    assert {path.name for path in Path("run").iterdir()} == {
        *("model.crl", "latents.csv", "graph.gml", "result.json")
    }
    assert Path("report.html").is_file()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/getting_started.md"])
def test_make_targets_that_a_page_names_exist(page: str):
    targets = set(re.findall(r"^([a-z]+):", text_of("Makefile"), flags=re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z]+)`?$|`make ([a-z]+)`", text_of(page), re.M))
    assert {target for pair in named for target in pair if target} <= targets


@pytest.mark.parametrize("page", METHOD_PAGES)
def test_a_page_of_a_method_has_the_headings_of_the_template(page: str):
    assert (ROOT / page).exists(), f"copy docs/methods/_template.md to {page}"
    assert headings_of(page) == headings_of("docs/methods/_template.md")


def test_there_is_no_page_without_its_method():
    pages = {path.stem for path in (DOCS / "methods").glob("*.md")}
    assert pages - {"index", "_template"} == set(ESTIMATORS)


def test_the_guide_says_of_each_method_whether_it_is_here():
    row = r"\| \[?`(\w+)`(\S*) \| (here|planned) \|$"
    rows = re.findall(row, text_of("docs/choosing.md"), flags=re.MULTILINE)
    status = {name: (link, where) for name, link, where in rows}
    for name in ESTIMATORS:
        assert status[name] == (f"](methods/{name}.md)", "here"), f"{name} is here: link its page"
    for name in status.keys() - ESTIMATORS.keys():
        assert status[name] == ("", "planned"), f"{name} is not here"


def test_the_guide_explains_each_level_of_a_guarantee():
    guide = text_of("docs/choosing.md")
    for level in (*get_args(LatentLevel), *get_args(GraphLevel)):
        assert re.search(rf"^\| {level} \|", guide, flags=re.MULTILINE), level


# Reference


def public_names(module: ModuleType) -> list[str]:
    """Names that a module shows; without a list, the classes that are defined in it."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("__")]
    return [
        name
        for name, thing in vars(module).items()
        if isinstance(thing, type) and thing.__module__ == module.__name__ and name[0] != "_"
    ]


def listed_names() -> set[str]:
    """Full names of what stands in the reference."""
    listed, module = set(), "crlearn"
    for line in text_of("docs/api.rst").splitlines():
        if match := re.match(r"\.\. currentmodule:: (\S+)$", line):
            module = match[1]
        elif match := re.match(r"(?:   |\.\. data:: |\.\. autoclass:: )([\w.]+)$", line):
            listed.add(f"{module}.{match[1]}")
    return listed


@pytest.mark.parametrize("name", ["crlearn", *sorted(PUBLIC_MODULES)])
def test_every_public_name_is_in_the_reference(name: str):
    names = {f"{name}.{public}" for public in public_names(importlib.import_module(name))}
    if name != "crlearn":  # what is also public one level up may be listed there
        names -= {f"{name}.{public}" for public in crlearn.__all__}
    assert names <= listed_names()


def test_public_names_exist_and_are_documented():
    for name in crlearn.__all__:
        thing = getattr(crlearn, name)
        assert name == "__version__" or thing.__doc__


def test_changelog_and_citation_name_this_version():
    assert f"## {crlearn.__version__}" in text_of("CHANGELOG.md")
    assert f"version: {crlearn.__version__}" in text_of("CITATION.cff")


# Gallery


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_an_example_imports_is_there(path: Path):
    """The rest runs whenever the documentation is built, which stops at errors and warnings."""
    example = ast.parse(path.read_text(encoding="utf-8"))
    example.body = [line for line in example.body if isinstance(line, ast.Import | ast.ImportFrom)]
    exec(compile(example, path.name, "exec"), {})


# Results


def part_of_the_documentation(name: str) -> Any:
    spec = spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def published() -> Any:
    return part_of_the_documentation("published_table")


@pytest.fixture(scope="module")
def extension(published: Any) -> Any:
    assert published
    return part_of_the_documentation("results")


def test_results_say_that_there_are_none(extension: Any, tmp_path: Path):
    pages = extension.result_pages(tmp_path)
    assert list(pages) == ["index"]
    assert extension.NOTHING_YET in pages["index"]


def test_results_show_each_study(extension: Any, tmp_path: Path):
    name = "varici2025-table7"
    setting = {"n_latents": 5, "n_features": 100, "n_samples": 5000, "scores": "estimated"}
    row = {"study": name, "setting": setting, "method": "PCABaseline", "metric": "mcc"}
    row |= {"mean": 0.714, "sd": 0.04, "n": 100, "paper": None, "seconds": 0.5, "chance": 0.729}
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "summary.json").write_text(json.dumps([row]))
    pages = extension.result_pages(tmp_path)
    assert list(pages) == ["index", "one"]
    assert "](one.md)" in pages["index"]
    assert "| 100 |" in pages["index"]
    assert pages["one"].startswith("# LSCALE-I")
    assert "0.714\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}0.040" in pages["one"]
    assert "100 seeds" in pages["one"]


def test_long_heads_of_columns_may_break(extension: Any):
    broken = "Nonlinear<wbr>Intervention<wbr>CRL<wbr>[known targets]"
    assert extension.breakable("NonlinearInterventionCRL[known targets]") == broken
    assert extension.breakable("PCABaseline") == "PCABaseline"


def test_results_refuse_a_summary_of_no_study(extension: Any, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "summary.json").write_text("[]")
    with pytest.raises(ValueError, match="one study"):
        extension.result_pages(tmp_path)


def test_pages_of_results_that_are_gone_are_removed(extension: Any, tmp_path: Path):
    extension.write_pages({"index": "a", "old": "b"}, tmp_path)
    extension.write_pages({"index": "c"}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.md"]
    assert (tmp_path / "index.md").read_text() == "c"


# Published figures beside ours


def lines_beside(published: Any, study: str, *rows: Row) -> list[Any]:
    return published.Published(load_study(study), rows).lines


def row_of_table7(**changes: Any) -> Row:
    setting = {"n_latents": 5, "n_samples": 5000, "scores": "estimated", "variance_factor": 0.25}
    row = {"study": "varici2025-table7", "setting": setting, "metric": "parent_error"}
    return row_of(**{**row, "method": "LinearInterventionCRL", **changes})


@pytest.mark.parametrize(
    ("mean", "is_as_good"), [(0.03, True), (0.0449, True), (0.0451, False), (0.07, False)]
)
def test_ours_is_as_good_to_the_digits_of_the_paper(published: Any, mean: float, is_as_good: bool):
    lines = lines_beside(published, "varici2025-table7", row_of_table7(mean=mean))  # paper: 0.04
    (line,) = [line for line in lines if line.ours and line.setting["scores"] == "estimated"]
    assert line.is_as_good == is_as_good


@pytest.mark.parametrize(("sd", "is_as_good"), [(0.05, True), (0.2, False)])
def test_what_may_be_chance_is_not_as_good(published: Any, sd: float, is_as_good: bool):
    setting = {"n_latents": 4, "n_samples": 5000, "scores": "estimated"}
    row = {"study": "welch2024-table2", "setting": setting, "method": "ObservationalCRL"}
    row = row_of(**row, metric="mac", mean=0.5, sd=sd, chance=0.42)  # paper: 0.45 and 0.445
    lines = [
        x for x in lines_beside(published, "welch2024-table2", row) if x.is_compared and x.ours
    ]
    assert [line.method for line in lines] == ["ScoreLayers[stein]", "ScoreLayers[sliced]"]
    assert {line.is_as_good for line in lines} == {is_as_good}


def test_what_stands_beside_a_published_value(published: Any):
    exact = {"n_latents": 5, "n_samples": 5000, "scores": "exact", "variance_factor": 0.25}
    paper = "LinearInterventionCRL[paper]"
    ours = row_of_table7()
    rerun = row_of_table7(method=paper, mean=0.036)
    limit = row_of_table7(method=paper, setting=exact, mean=0.0)
    lines = lines_beside(published, "varici2025-table7", ours, rerun, limit)
    with_ours = [line for line in lines if line.ours]
    of_samples = [line for line in with_ours if line.setting["scores"] == "estimated"]
    of_scores = [line for line in with_ours if line.setting["scores"] == "exact"]
    assert [(x.ours, x.again, x.told) for x in of_samples] == [(ours, rerun, limit)]
    assert [(x.ours, x.again, x.told) for x in of_scores] == [(ours, limit, None)]
    assert not of_scores[0].is_compared  # ours has samples, theirs has not


def test_times_and_what_has_no_best_value_are_not_compared(published: Any):
    compared = {line.metric: line.is_compared for line in lines_beside(published, "xu2026-scaling")}
    assert compared == {"seconds": False, "r2": True, "mcc": True}
    lines = lines_beside(published, "xu2026-blocks")
    assert {line.metric for line in lines if not line.is_compared} == {"r2_across_blocks"}


def test_a_setting_counts_if_ours_is_as_good_as_all_that_is_published(published: Any):
    study = load_study("varici2025-table7")
    counts = lambda *rows: published.counts([published.Published(study, rows)])  # noqa: E731
    n_settings = len({str(cell.setting) for cell in study.published}) // 2 * len(study.metrics)
    assert counts() == f"{n_settings} not stored yet"
    rows = row_of_table7(mean=0.03), row_of_table7(metric="shd_closure", mean=2.0)
    assert counts(*rows) == (
        f"ours is as good or better in 1 of 2 settings, {n_settings - 2} not stored yet"
    )


@pytest.mark.parametrize("name", [name for name in list_studies() if load_study(name).published])
def test_every_published_value_has_a_line(published: Any, name: str):
    study = load_study(name)
    lines = lines_beside(published, name)
    said = {(line.metric, line.paper.mean, line.paper.spread) for line in lines}
    values = {(metric, *value) for cell in study.published for metric, value in cell.values.items()}
    assert values == said
    page = published.opening([published.Published(study, ())], {})
    assert page.count("\n| ") == len(lines) + 2  # head and rule
    assert f"`{name}`" in page


def test_the_page_of_results_opens_with_published_figures(extension: Any, published: Any):
    index = extension.result_pages(ROOT / "results")["index"]
    headings = re.findall(r"^## .*$", index, flags=re.MULTILINE)
    assert headings[0] == published.TITLE
    assert index.count('<details class="published">') == len(published.PAPERS)
    assert index.count("<details") == index.count("</details>")


# Components of the papers

PAPERS_PAGE = "docs/papers.md"
UNCONFIRMED = "<!-- branch "  # a line about what is not here yet


def confirmed_lines() -> list[str]:
    return [line for line in text_of(PAPERS_PAGE).splitlines() if UNCONFIRMED not in line]


def test_every_study_of_a_paper_is_on_the_page_of_papers(published: Any):
    of_papers = {name for name in list_studies() if is_of_a_paper(published, load_study(name))}
    named = set(re.findall(r"{study}`([^`]+)`", text_of(PAPERS_PAGE)))
    assert of_papers <= named


def is_of_a_paper(published: Any, study: Study) -> bool:
    return published.Published(study, ()).paper is not None


def test_every_study_on_the_page_of_papers_is_there():
    assert set(re.findall(r"{study}`([^`]+)`", "\n".join(confirmed_lines()))) <= {*list_studies()}


def public_things() -> dict[str, Any]:
    """What the documentation may name without its module."""
    modules = [importlib.import_module(name) for name in ("crlearn", *PUBLIC_MODULES)]
    return {
        name: getattr(module, name)
        for module in modules
        for name in public_names(module)
        if not name.startswith("_")
    }


def test_every_name_on_the_page_of_papers_is_there():
    text = "\n".join(confirmed_lines())
    for path in re.findall(r"{py:\w+}`~crlearn\.([^`]+)`", text):
        module, _, name = f"crlearn.{path}".rpartition(".")
        assert hasattr(importlib.import_module(module), name), path
    things = public_things() | vars(importlib.import_module("crlearn.published"))
    for name in re.findall(r"(?<!})`([A-Z]+[a-z]\w+|[A-Z]{3,}I?)\b[^`]*`", text):
        assert name in things, name


def test_every_parameter_on_the_page_of_papers_is_there():
    things = public_things()
    calls = re.findall(r"(?<!})`(\w+)\(([^`]+)\)`", "\n".join(confirmed_lines()))
    assert len(calls) > 10
    for name, arguments in calls:
        known = inspect.signature(things[name]).parameters
        assert set(re.findall(r"(\w+)=", arguments)) <= set(known), name


TABLES_AND_FIGURES = {  # those that are known of
    "Score-based": ({*range(3, 18)}, {6}),
    "Purely": ({1, 2}, {1, 2, 3, 4}),
    "Multi-domain": (set[int](), {1, 2, 3}),
    "Latent": (set[int](), {2}),
    "Potentially": ({*range(1, 23)}, {*range(1, 11)}),
}


@pytest.mark.parametrize("paper", TABLES_AND_FIGURES)
def test_every_table_and_figure_of_a_paper_is_on_the_page(paper: str):
    part = text_of(PAPERS_PAGE).partition(f"## {paper}")[2].partition("\n## ")[0]
    tables, figures = TABLES_AND_FIGURES[paper]
    assert tables <= numbers_after("Table", part)
    assert figures <= numbers_after("Figure", part)


def numbers_after(word: str, text: str) -> set[int]:
    """The numbers in "Tables 3 to 5, 8 and 11"."""
    lists = re.findall(rf"{word}s? (\d+(?:(?:, | to | and )\d+)*)", text)
    found = set()
    for first, last in re.findall(r"(\d+)(?: to (\d+))?", ", ".join(lists)):
        found |= {*range(int(first), int(last or first) + 1)}
    return found


# Figures of fits


STORED = ROOT / "results" / "data-quality" / "summary.json"


@pytest.fixture(scope="module")
def outcomes() -> Any:
    return part_of_the_documentation("outcome_figure")


def test_outcomes_of_a_place_are_counts_of_fits(outcomes: Any):
    shares = {"warned": 0.5, "false_alarm": 0.1, "silently_wrong": 0.2}
    rows = {name: row_of(metric=name, mean=share) for name, share in shares.items()}
    counts = outcomes.Place(2000, rows, None).outcomes
    assert list(counts.values()) == [3, 1, 4, 2]
    del rows["warned"]
    assert outcomes.Place(2000, rows, None).outcomes == {}


def row_of(**changes: Any) -> Row:
    row: dict[str, Any] = {"study": "data-quality", "setting": {}, "method": "PCABaseline"}
    row |= {"metric": "mcc", "mean": 0.5, "sd": 0.1, "n": 10, "paper": None, "seconds": 1.0}
    return Row(**{**row, **changes})


def test_figures_take_the_usual_setting(outcomes: Any):
    along = partial(outcomes.places_along, read_summary(STORED), "LinearInterventionCRL")
    usual = {"n_latents": 5, "n_samples": 2000, "intervention": "hard", "kind": "single-node"}
    places = along("share", [0.1, 1.0], {})
    assert [place.value for place in places] == [0.1, 1.0]
    for place in places:
        assert usual.items() <= place.rows["mcc"].setting.items()
        assert place.rows["mcc"].setting["share"] == place.value
        assert place.rows["mcc"].chance < place.rows["mcc"].mean
        assert sum(place.outcomes.values()) == place.rows["mcc"].n
    (soft,) = along("n_samples", [300], {"intervention": "soft"})
    assert soft.rows["mcc"].setting["intervention"] == "soft"
    with pytest.raises(ValueError, match="no results of LinearInterventionCRL in"):
        along("share", [0.123], {})


def test_a_figure_says_what_it_shows(outcomes: Any):
    rows = read_summary(STORED)
    places = outcomes.places_along(rows, "LinearInterventionCRL", "share", [0.1, 1.0], {})
    svg = outcomes.outcome_figure(places, "mcc", "noise", ["10%", "100%"]).svg
    first = places[0]
    assert f"10%: mcc {first.rows['mcc'].mean:.3f} of {first.rows['mcc'].n} fits" in svg
    assert f"limit {first.limit:.3f}" in svg


def figures_of(page: str) -> list[tuple[str, dict[str, str]]]:
    """The study and the options of each figure of fits on a page."""
    blocks = re.findall(r"```{outcomes} (\S+)\n(.*?)```", text_of(page), flags=re.DOTALL)
    return [(study, dict(re.findall(r"^:(\w+): (.+)$", text, re.M))) for study, text in blocks]


@pytest.mark.parametrize(("study", "options"), figures_of("docs/good_enough.md"))
def test_each_figure_of_the_page_is_stored(outcomes: Any, study: str, options: dict[str, str]):
    plot = outcomes.figure_of(outcomes.summary_of(study), options)
    assert options["title"] in plot.svg
    assert "<svg" in plot.svg


def test_the_page_says_how_many_fits_were_silently_wrong():
    rows = [row for row in read_summary(STORED) if row.method != "GaussianPosterior"]
    silent = [row for row in rows if row.metric == "silently_wrong"]
    n_silent = round(sum((row.mean or 0.0) * row.n for row in silent))
    n_fits = sum(row.n for row in silent)
    assert f"{n_silent} of {n_fits} fits" in text_of("docs/good_enough.md")
