from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from crlearn.bench import Sweep
from crlearn.report import write_study_report
from crlearn.report._page import printable

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def source_of(tmp_path: Path):
    def write(sweep: Sweep, **options) -> str:
        path = write_study_report(tmp_path / "study.html", sweep, **options)
        return path.read_text(encoding="utf-8")

    return write


@pytest.fixture(scope="module")
def whole(make_sweep, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of a study without failures."""
    out = tmp_path_factory.mktemp("page") / "new" / "study.html"
    return write_study_report(out, make_sweep()).read_text(encoding="utf-8")


def sections(document) -> list[str]:
    return [section["id"] for section in document.all("section")]


def rows_of(source: str, section: str) -> list[list[str]]:
    """Return the texts of the cells of a section's table."""
    body = source.partition(f'<section id="{section}">')[2].partition("</section>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", body.partition("<tbody>")[2], flags=re.DOTALL)
    return [re.findall(r"<span>(.*?)</span>", row, flags=re.DOTALL) for row in rows]


def test_a_study_of_other_code_says_so(make_sweep, source_of, monkeypatch):
    sweep = make_sweep()
    assert "another one" not in source_of(sweep)
    monkeypatch.setattr("crlearn.bench._code.fingerprint", lambda: "other")
    words = f"(code {sweep.code}) made these runs"
    assert f"{words}, and they have no summary" in source_of(Sweep.read(sweep.folder))
    monkeypatch.undo()
    sweep.write_summary({record.key: record for record in sweep.records()})
    monkeypatch.setattr("crlearn.bench._code.fingerprint", lambda: "other")
    assert f"{words}; the code that wrote this page is another one" in source_of(
        Sweep.read(sweep.folder)
    )


def test_a_whole_study(parse, whole: str):
    document = parse(whole)
    assert sections(document) == [
        "paper-and-ours",
        "mcc",
        "parent_error",
        "time-to-fit",
        "notes-and-seeds",
        "parameters",
    ]
    assert len(document.all("h1")) == 1
    assert "http" not in whole.replace("http-equiv", "")
    assert len(document.all("script")) == 1
    assert {
        "A small study",
        "Nobody, 2026, Table 1",
        "36 done, 0 failed, 0 left",
        "54.0 s",
        "2026-01-02 03:04 UTC",
        "Linux, 2 cores, Python 3.11",
        "numpy 2.0",
        "cpu",
        "full",
        "Sizes are ours.",
    } <= set(document.text)
    assert all(svg["aria-label"] and svg["role"] == "img" for svg in document.all("svg"))
    ids = [attributes["id"] for _, attributes in document.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_table_has_ours_beside_the_papers(whole: str):
    rows = rows_of(whole, "paper-and-ours")
    assert [
        "mcc",
        "ICABaseline",
        "0.910 ± 0.010",
        "0.950 ± 0.020",
        "0.700",
        "3",
        "3",
        "100",
    ] in rows
    assert ["mcc", "PCABaseline", "0.610 ± 0.010", "–", "0.700", "3", "3", "100"] in rows
    assert ["mcc", "VaDE", "–", "0.500", "0.700", "–", "5", "1,000"] in rows
    assert ["seconds", "PCABaseline", "1.500 ± 1.000", "–", "–", "3", "3", "100"] in rows
    assert len(rows) == 6 * 3 * 2 + 1


def test_the_best_of_ours_is_marked(parse, whole: str):
    best = [cell for cell in parse(whole).all("td") if "best" in cell["class"]]
    values = [float(cell["data-sort"]) for cell in best if "number" in cell["class"]]
    assert values == pytest.approx([0.91, 0.1] * 6)


def test_rows_can_be_filtered(parse, whole: str):
    document = parse(whole)
    form = document.all("form")[0]
    assert "hidden" in form  # without scripts the page has no controls that do nothing
    assert document.all("input")[0]["type"] == "search"
    columns = [select["data-column"] for select in document.all("select")]
    assert columns[:4] == ["0", "1", "6", "7"]  # metric, method, n_latents, n_samples
    options = [option["value"] for option in document.all("option")]
    assert {"", "mcc", "seconds", "VaDE", "10,000"} <= set(options)


def test_published_values_elsewhere_are_counted(parse, whole: str):
    text = parse(whole).text
    assert "2 of the 3 published cells are of a setting that was run here (profile full)." in text


def test_a_study_without_published_values_or_chance(parse, make_sweep, source_of, good_result):
    sweep = make_sweep(lambda run: {**good_result(run), "chance": {}}, published=[])
    source = source_of(sweep)
    assert not any("published" in text for text in parse(source).text)
    assert len(rows_of(source, "results")[0]) == 6


def test_axes_of_plots_are_labelled(parse, whole: str):
    text = parse(whole).text
    assert text.count("n_samples, log scale") == 3 * 2
    assert {"mcc (1 is perfect)", "parent_error (0 is perfect)", "seconds to fit"} <= set(text)


def test_one_setting_is_drawn_by_method(parse, make_sweep, source_of):
    grid = [{"n_features": 10, "n_latents": 5, "n_samples": 1000}]
    document = parse(source_of(make_sweep(grid=grid)))
    assert "method" in document.text
    assert "mcc" in sections(document)


def test_metrics_of_single_environments_share_a_figure(parse, make_sweep, source_of, good_result):
    def with_environments(run):
        errors = {"relmse": 0.2, "relmse_environment_1": 0.1, "relmse_environment_2": 0.3}
        return {**good_result(run), "metrics": errors}

    names = ["relmse", "relmse_environment_1", "relmse_environment_2"]
    grid = [{"n_features": 10, "n_latents": 5, "n_samples": 1000}]
    sweep = make_sweep(with_environments, grid=grid, metrics=names, published=[])
    source = source_of(sweep)
    document = parse(source)
    assert sections(document)[:3] == ["results", "relmse", "relmse-of-each-environment"]
    figure = source.partition('<section id="relmse-of-each-environment">')[2]
    text = parse(figure.partition("</section>")[0]).text
    assert {"environment", "1", "2", "relmse (0 is perfect)"} <= set(text)
    assert "environment" not in parse(source.partition('id="relmse"')[2].partition("</sec")[0]).text


def test_a_method_without_a_value_on_the_axis_stands_where_it_was_measured(
    parse, make_sweep, source_of, good_result
):
    def measured(run):
        metrics = {"mac": 0.5, "signal_to_error": run.cell.signal_to_error or 7.0}
        return {**good_result(run), "metrics": metrics}

    methods = [
        {"method": "ScoreLayers", "scores": ["exact"], "signal_to_error": [1, 100]},
        {"method": "ScoreLayers", "label": "ObservationalCRL[stein]"},
    ]
    sweep = make_sweep(
        measured,
        world="observational",
        grid=[{"n_latents": 4, "n_samples": 100}],
        methods=methods,
        metrics=["mac", "signal_to_error"],
        published=[],
    )
    figure = source_of(sweep).partition('<section id="mac">')[2].partition("</section>")[0]
    assert figure.count("<figure") == 1
    assert "ObservationalCRL[stein], signal_to_error = 7" in figure


def test_copies_of_a_parameter_are_said_once(parse, make_sweep, source_of):
    grid = [{"n_latents": n, "n_features": n, "n_samples": 100} for n in (3, 4)]
    document = parse(source_of(make_sweep(grid=grid)))
    assert any("n_features is n_latents." in text for text in document.text)
    assert "n_latents (with n_features)" in document.text


def test_no_run_yet(parse, make_sweep, source_of):
    document = parse(source_of(make_sweep(lambda run: None)))
    assert sections(document) == ["paper-and-ours", "notes-and-seeds", "parameters"]
    assert "No run has finished yet, so there are no results." in document.text
    assert "0 done, 0 failed, 36 left" in document.text
    assert any("36 runs are left" in text for text in document.text)


def test_half_a_study(parse, make_sweep, source_of, good_result):
    few = make_sweep(lambda run: good_result(run) if run.cell.setting["n_latents"] == 3 else None)
    document = parse(source_of(few))
    assert any("18 runs are left" in text for text in document.text)
    assert "mcc" in sections(document)


def test_failures_are_listed_and_marked(parse, make_sweep, source_of, failed_result, good_result):
    sweep = make_sweep(lambda run: failed_result(run) if run.seed == 1 else good_result(run))
    source = source_of(sweep)
    document = parse(source)
    assert "failures" in sections(document)
    assert len(document.all("details")) == 12
    assert (
        "PCABaseline, n_latents = 3, n_samples = 100, seed 1 failed: ValueError: nothing to see"
        in document.text
    )
    assert "Traceback (most recent call last):\nValueError: nothing to see\n" in document.text
    assert document.text.count("1 failed") == 2 * 12  # both metrics of every cell
    assert "24 done, 12 failed, 0 left" in document.text


def test_only_failures(parse, make_sweep, source_of, failed_result):
    document = parse(source_of(make_sweep(failed_result)))
    assert "failures" in sections(document)
    assert "36 runs failed." in " ".join(document.text)


def test_one_of_each_error_comes_first(parse, make_sweep, source_of, failed_result):
    def fail(run):
        kind = "rare" if (run.seed, run.cell.setting["n_samples"]) == (2, 10000) else "common"
        return {**failed_result(run), "error": f"Error: {kind}"}

    document = parse(source_of(make_sweep(fail)))
    said = [text for text in document.text if "failed: Error: " in text]
    assert len(said) == 30
    kinds = [text.rpartition(" ")[2] for text in said]
    assert kinds[:5] == ["common", "common", "rare", "rare", "common"]
    assert any("30 of 36 are here" in text for text in document.text)


def test_broken_assumptions_are_counted(make_sweep, source_of, good_result):
    def check(run):
        return {**good_result(run), "failed_checks": ("noise is not Gaussian",) * (run.seed == 0)}

    rows = rows_of(source_of(make_sweep(check)), "assumptions")
    assert ["PCABaseline", "noise is not Gaussian", "6", "18"] in rows


def test_parameters_say_who_set_them(make_sweep, source_of):
    sweep = make_sweep(
        methods=[{"method": "ICABaseline", "parameters": {"max_iter": 50, "contrast": "exp"}}],
        profiles={"full": {"seeds": 1, "parameters": {"ICABaseline": {"max_iter": 7}}}},
    )
    assert rows_of(source_of(sweep), "parameters") == [
        ["ICABaseline", "n_latents", "3, 5", "setting"],
        ["ICABaseline", "contrast", "&#39;exp&#39;", "study"],
        ["ICABaseline", "max_iter", "7", "profile full"],
    ]


def test_heat_maps_of_noises_if_the_study_asks_for_them(parse, make_sweep, source_of, good_result):
    def with_noises(run):
        if run.cell.label.startswith("PCA"):
            return good_result(run)
        return {**good_result(run), "noise_correlations": [[1.0, 0.1 * run.seed], [0.0, 0.5]]}

    grid = [{"n_features": 10, "n_latents": [3, 5], "n_samples": 100}]
    document = parse(source_of(make_sweep(with_noises, grid=grid, figures=["noises"])))
    assert "true-and-recovered-noises" in sections(document)
    assert "e0 and e1: absolute correlation 0.100" in document.text  # mean over three seeds
    caption = "ICABaseline, n_latents = 5: absolute correlation of each true exogenous noise"
    assert any(text.startswith(caption) for text in document.text)
    unasked = parse(source_of(make_sweep(with_noises, grid=grid)))
    assert "true-and-recovered-noises" not in sections(unasked)


def test_slopes_if_the_study_asks_for_them(parse, make_sweep, source_of, good_result):
    def falling(run):
        """Errors of ICA fall with the root of the rows, those of PCA with the fourth root."""
        power = -0.5 if run.cell.label.startswith("ICA") else -0.25
        error = 0.5 * (run.cell.setting["n_samples"] / 100) ** (power + 0.1 * (run.seed - 1))
        return {**good_result(run), "metrics": {"mcc": 1 - error, "parent_error": error}}

    theory = [{"setting": {"n_latents": 3}, "mcc": -1, "parent_error": -0.5}]
    source = source_of(make_sweep(falling, slope={"along": "n_samples", "theory": theory}))
    assert "slopes" in sections(parse(source))
    assert rows_of(source, "slopes") == [
        [metric, method, f"{slope} ± 0.058", expected, n_latents]
        for n_latents, rates in (("3", ("-1", "-0.500")), ("5", ("–", "–")))
        for metric, expected in zip(("mcc", "parent_error"), rates, strict=True)
        for method, slope in (("PCABaseline", "-0.250"), ("ICABaseline", "-0.500"))
    ]
    # One of two panels has a slope in theory, and mcc is drawn as it is.
    assert source.count("slope in theory: -0.5") == 1
    assert "slope in theory: -1" not in source
    assert "slopes" not in sections(parse(source_of(make_sweep(falling))))


def test_several_machines_and_devices(parse, make_sweep, source_of, good_result):
    def spread_out(run):
        found = {**good_result(run), "device": f"gpu:{run.seed}"}
        return {**found, "machine": {"system": f"host {run.cell.key[:12]}{run.seed}"}}

    text = " ".join(parse(source_of(make_sweep(spread_out))).text)
    assert "gpu:0, gpu:1, gpu:2" in text
    assert "and 32 more" in text


def test_hostile_content(parse, make_sweep, source_of):
    error = f"</title></pre>{HOSTILE}\x1b[31m\x00 and \ud800 half"
    sweep = make_sweep(
        lambda run: (
            {"status": "failed", "error": error, "traceback": error}
            if run.seed
            else {
                "status": "done",
                "metrics": {"mcc": 0.5},
                "chance": {},
                "failed_checks": (HOSTILE,),
                "machine": {"system": HOSTILE},
            }
        ),
        methods=[{"method": "PCABaseline", "variant": HOSTILE}],
        title=HOSTILE,
        source="</title>",
        notes=HOSTILE,
        grid=[{"n_features": 10, "n_latents": [3, 4], "n_samples": [100, 200]}],
    )
    source = source_of(sweep)
    document = parse(source)
    assert len(document.all("script")) == 1
    assert source == printable(source)
    assert HOSTILE in document.text
    assert f"PCABaseline[{HOSTILE}]" in document.text
    assert any(text.startswith(f"</title></pre>{HOSTILE}[31m and") for text in document.text)


def test_titles_of_ones_own(parse, make_sweep, source_of):
    assert "Mine" in parse(source_of(make_sweep(), title="Mine")).text


def test_same_sweep_same_page(make_sweep, source_of):
    sweep = make_sweep()
    assert source_of(sweep) == source_of(sweep)


def test_a_large_study_gives_a_page_of_bounded_size(make_sweep, source_of):
    sweep = make_sweep(
        seeds=40,
        grid=[
            {
                "n_features": 10,
                "n_latents": [3, 5],
                "n_samples": [100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 99999, 10],
            }
        ],
        methods=[{"method": "ICABaseline", "variant": f"v{i}"} for i in range(5)],
        published=[],
    )
    begin = time.perf_counter()
    source = source_of(sweep)
    assert len(source) < 2_500_000
    assert time.perf_counter() - begin < 30
    assert "the first 10 of 40" in source
