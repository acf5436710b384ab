from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from crlearn.bench import ComparisonTable, Row, Study, Value, compare, run_study
from crlearn.bench._table import _number

MakeStudy = Callable[..., Study]

BASE = {"n_latents": 2, "scores": "estimated"}


def row(method: str, metric: str, mean: float | None, sd: float | None = 0.1, **other: Any) -> Row:
    fields = {
        "study": "tiny",
        "setting": {**BASE, "n_samples": 1000},
        "n": 0 if mean is None else 3,
        "paper": None,
        "seconds": 0.5,
        "chance": 0.61,
        **other,
    }
    return Row(method=method, metric=metric, mean=mean, sd=sd, **fields)


@pytest.fixture
def study(make_study: MakeStudy) -> Study:
    return make_study(
        metrics=["mcc", "shd"],
        notes="Nothing differs.",
        published=[
            {
                "method": "Theirs",
                "setting": {"n_samples": 1000},
                "mcc": [0.9, 0.02],
                "shd": 1,
                "seconds": 60,
            }
        ],
    )


@pytest.fixture
def rows() -> list[Row]:
    return [
        row("A_b", "mcc", 0.7),
        row("A_b", "shd", 2.0, 1.5, chance=None),
        row("C", "mcc", 0.8, None, seconds=1234.5),
        row("C", "shd", 3.25, 0.0, chance=None, failed=2, seconds=1234.5),
    ]


class TestWholeTexts:
    def test_markdown(self, study: Study, rows: list[Row]):
        assert (
            compare(study, rows).to_markdown()
            == """\
## Tiny

this test

n_latents = 2, scores = estimated, n_samples = 1,000. \
Ours: mean ± standard deviation over 3 seeds, published ± standard error.

| metric | chance | paper | A_b | C |
| --- | --- | --- | --- | --- |
| mcc | 0.610 | 0.900 ± 0.020 | 0.700 ± 0.100 | **0.800** |
| shd | – | 1.000 | **2.000 ± 1.500** | 3.250 ± 0 (2 failed) |
| seconds | – | 60.0 | 0.500 | 1,234 |

Nothing differs.
"""
        )

    def test_latex(self, study: Study, rows: list[Row]):
        table = compare(study, rows)
        comment, tabular = table.to_latex().split("\n", 1)
        assert comment == f"% {table.caption}"
        assert (
            tabular
            == r"""\begin{tabular}{lrrrr}
\toprule
metric & chance & paper & A\_b & C \\
\midrule
mcc & 0.610 & 0.900 $\pm$ 0.020 & 0.700 $\pm$ 0.100 & \textbf{0.800} \\
shd & -- & 1.000 & \textbf{2.000 $\pm$ 1.500} & 3.250 $\pm$ 0 (2 failed) \\
seconds & -- & 60.0 & 0.500 & 1,234 \\
\bottomrule
\end{tabular}
"""
        )

    def test_csv(self, study: Study, rows: list[Row]):
        text = compare(study, rows).to_csv()
        assert text.splitlines()[:2] == [
            "n_latents,scores,n_samples,study,method,metric,mean,sd,n,paper,seconds,paper_spread,"
            "chance,failed,lower_quartile,median,upper_quartile,slope,slope_error",
            "2,estimated,1000,tiny,A_b,mcc,0.7,0.1,3,,0.5,,0.61,0,,,,,",
        ]
        assert len(text.splitlines()) == 5

    def test_quartiles_where_the_paper_has_them(self, make_study: MakeStudy):
        found = row("A_b", "mcc", 0.7, lower_quartile=0.6, median=0.65, upper_quartile=0.8)
        in_quartiles = compare(make_study(metrics=["mcc"], spread="quartiles"), [found])
        assert "| 0.700 [0.600, 0.800] |" in in_quartiles.to_markdown()
        assert "Ours: mean [lower and upper quartile] over 3 seeds" in in_quartiles.caption
        assert "| 0.700 ± 0.100 |" in compare(make_study(metrics=["mcc"]), [found]).to_markdown()

    def test_slopes_are_a_table_of_their_own(self, make_study: MakeStudy):
        study = make_study(
            metrics=["mcc", "shd"],
            notes="Nothing differs.",
            grid=[{"n_latents": [2, 3], "n_samples": [100, 1000, 10000]}],
            slope={"along": "n_samples", "theory": [{"setting": {"n_latents": 3}, "mcc": -1}]},
        )
        rows = [
            row(method, "mcc", 0.7, setting={**BASE, "n_latents": n, "n_samples": size}, **slope)
            for n in (2, 3)
            for size in (100, 1000)
            for method, slope in (
                ("A_b", {"slope": -n / 4, "slope_error": 0.02}),
                ("C", {"slope": -1.0 if n == 2 else None}),
            )
        ]
        rows.append(row("C", "shd", 0.0, setting={**BASE, "n_samples": 100}))
        table = compare(study, rows)
        *_, caption, slopes, notes = table.to_markdown().split("\n\n")
        assert caption.startswith("Slopes of log error on log n_samples, where the error is")
        assert (
            slopes
            == """\
| n_latents | slope of | theory | A_b | C |
| --- | --- | --- | --- | --- |
| 2 | mcc | – | -0.500 ± 0.020 | -1.000 |
| 3 | mcc | -1.000 | -0.750 ± 0.020 | – |"""
        )
        assert notes == "Nothing differs.\n"
        assert table.to_latex().count(r"\begin{tabular}") == 2
        assert r"\begin{tabular}{llrrr}" in table.to_latex()
        assert r"3 & mcc & -1.000 & -0.750 $\pm$ 0.020 & -- \\" in table.to_latex()
        assert "Slopes" not in compare(make_study(), rows[:2]).to_markdown()

    def test_nothing_yet(self, study: Study):
        table = compare(study, [])
        assert table.columns == ["metric", "chance", "paper"]
        assert "| metric | chance | paper |" in table.to_markdown()
        assert table.caption.startswith("Ours: mean")
        assert table.to_latex().count(r"\\") == 1
        assert table.to_csv() == "\n"


class TestBest:
    def best(self, study: Study, rows: list[Row], metric: str) -> list[str]:
        (line,) = (line for line in compare(study, rows).lines if line.metric == metric)
        return [name for name, value in line.ours.items() if value.best]

    def test_scores_are_best_when_large_and_errors_when_small(self, study: Study, rows: list[Row]):
        assert self.best(study, rows, "mcc") == ["C"]
        assert self.best(study, rows, "shd") == ["A_b"]
        assert self.best(study, rows, "seconds") == []

    def test_nobody_is_best_alone(self, study: Study, rows: list[Row]):
        assert self.best(study, rows[:2], "mcc") == []
        failed = row("C", "mcc", None, None, failed=3)
        assert self.best(study, [rows[0], failed], "mcc") == []

    def test_nobody_is_best_in_nats(self, definition: dict[str, Any]):
        nats = Study.from_dict("tiny", {**definition, "metrics": ["evidence_gap"]})
        two = [row("A", "evidence_gap", 0.5), row("B", "evidence_gap", 1.0)]
        assert self.best(nats, two, "evidence_gap") == []

    def test_a_reference_that_knows_the_truth_does_not_compete(self, definition: dict[str, Any]):
        entry = {"method": "own_methods.Rehearsed", "variant": "from the truth"}
        reference = {**entry, "parameters": {"log": "$true_encoder"}}
        cells = [{"method": "Rehearsed", "mcc": 0.4}]
        methods = [{"method": "PCABaseline"}, {"method": "ICABaseline"}, reference]
        study = Study.from_dict("tiny", {**definition, "methods": methods, "published": cells})
        assert study.references == {"Rehearsed[from the truth]"}
        assert study.paper({}, "Rehearsed[from the truth]", "mcc") == (None, None)
        assert study.paper({}, "Rehearsed", "mcc") == (0.4, None)
        values = {"PCABaseline": 0.6, "ICABaseline": 0.8, "Rehearsed[from the truth]": 1.0}
        rows = [row(name, "mcc", value) for name, value in values.items()]
        assert self.best(study, rows, "mcc") == ["ICABaseline"]

    def test_errors_below_one(self, study: Study):
        two = [row("A", "shd", 0.25), row("B", "shd", 1.0)]
        assert self.best(study, two, "shd") == ["A"]

    def test_equals(self, study: Study):
        three = [row("A", "mcc", 0.7), row("B", "mcc", 0.7), row("C", "mcc", 0.2)]
        assert self.best(study, three, "mcc") == ["A", "B"]


class TestColumnsAndLines:
    def test_axes_are_what_differs(self, study: Study, rows: list[Row]):
        larger = [replace(one, setting={**BASE, "n_samples": 20_000}) for one in rows]
        table = compare(study, [*rows, *larger])
        assert table.axes == ["n_samples"]
        assert table.common == BASE
        assert table.columns == ["n_samples", "metric", "chance", "paper", "A_b", "C"]
        first = [str(cell) for cell in table.cells(table.lines[0])]
        assert first == ["1,000", "mcc", "0.610", "0.900 ± 0.020", "0.700 ± 0.100", "0.800"]
        fourth = [str(cell) for cell in table.cells(table.lines[3])]
        assert fourth[:4] == ["20,000", "mcc", "0.610", "–"]  # published for 1,000 only

    def test_an_axis_that_some_settings_do_not_have(self, study: Study, rows: list[Row]):
        other = replace(rows[0], setting={**rows[0].setting, "graph": "chain"})
        table = compare(study, [rows[0], other])
        assert table.axes == ["graph"]
        assert {table.cells(line)[0] for line in table.lines} == {"–", "chain"}

    def test_missing_values(self, study: Study, rows: list[Row]):
        table = compare(study, [*rows[:3], row("D", "mcc", None, None, failed=4, seconds=None)])
        mcc, shd, seconds = ([str(cell) for cell in table.cells(line)] for line in table.lines)
        assert mcc[-1] == "– (4 failed)"
        assert shd[-2:] == ["–", "–"]
        assert seconds[-1] == "–"

    def test_several_published_methods(self, make_study: MakeStudy, rows: list[Row]):
        study = make_study(
            metrics=["mcc", "shd"],
            published=[
                {"method": "Ours", "setting": {"n_samples": 1000}, "mcc": 0.9},
                {"method": "VaDE", "setting": {"n_samples": 1000}, "mcc": 0.2},
                {"method": "Elsewhere", "setting": {"n_samples": 7}, "mcc": 0.2},
            ],
        )
        table = compare(study, rows)
        assert table.published == ["Ours", "VaDE"]
        assert table.columns[2:4] == ["paper: Ours", "paper: VaDE"]

    def test_the_paper_keeps_its_column_in_small_profiles(self, study: Study, rows: list[Row]):
        small = [replace(one, setting={**BASE, "n_samples": 10}) for one in rows]
        table = compare(study, small)
        assert table.columns[2] == "paper"
        assert str(table.cells(table.lines[0])[2]) == "–"

    def test_a_study_without_published_values(self, make_study: MakeStudy, rows: list[Row]):
        table = compare(make_study(metrics=["mcc", "shd"]), rows)
        assert "paper" not in table.columns
        assert "published" not in table.caption

    def test_one_column_for_both_kinds_of_scores(self, make_study: MakeStudy, tmp_path: Path):
        kinds = ("exact", "estimated")
        study = make_study(
            methods=[
                {
                    "method": "own_methods.Rehearsed",
                    "parameters": {"n_latents": n},
                    "scores": [kind],
                }
                for n, kind in zip((2, 3), kinds, strict=True)
            ],
            metrics=["r2"],
            published=[
                {"method": "Rehearsed", "setting": {"scores": kind}, "r2": value}
                for value, kind in zip((1.0, 0.5), kinds, strict=True)
            ],
        )
        sweep = run_study(study, tmp_path / "out", profile="quick", seeds=1)
        table = compare(study, sweep.summary())
        assert sweep.progress().done == 2
        assert table.columns == ["scores", "metric", "chance", "paper", "Rehearsed"]
        lines = [line for line in table.lines if line.metric == "r2"]
        assert [table.cells(line)[0] for line in lines] == list(kinds)
        assert [line.paper["Rehearsed"].mean for line in lines] == [1.0, 0.5]
        exact, estimated = (line.ours["Rehearsed"].mean for line in lines)
        assert exact != estimated  # each has its own parameters


class TestManyAxes:
    """One column names what differs from the usual setting."""

    USUAL: ClassVar[dict[str, Any]] = {"a": 1, "b": 1, "c": 1, "d": "x", "e": [1, 2]}

    @pytest.fixture
    def table(self, study: Study) -> ComparisonTable:
        others = [{"a": 1000, "b": 2}, {"c": 2, "f": True}, {"d": "y"}, {"e": [3]}]
        settings = [{**self.USUAL, **other} for other in others]
        without = {name: value for name, value in self.USUAL.items() if name != "e"}
        return compare(
            study,
            [
                row("A", metric, 0.5, setting={**BASE, **setting})
                for setting in (*settings, self.USUAL, without)
                for metric in ("mcc", "shd")
            ],
        )

    def test_settings_are_named_once(self, table: ComparisonTable):
        assert table.axes == ["a", "b", "c", "d", "e", "f"]
        assert table.columns[:3] == ["setting", "metric", "chance"]
        named = [str(cells[0]) for cells in table.body]
        assert len(named) == len(table.lines) == 3 * 6
        assert named[::3] == [
            "a = 1,000, b = 2",
            "c = 2, f = True",
            "d = y",
            "e = [3]",
            "usual",
            "e = –",
        ]
        assert set(named[1::3] + named[2::3]) == {""}

    def test_each_line_alone_knows_its_setting(self, table: ComparisonTable):
        assert [table.cells(line)[0] for line in table.lines[6:9]] == ["d = y"] * 3

    def test_the_caption_says_what_is_usual(self, table: ComparisonTable):
        assert table.usual == {**self.USUAL, "f": None}
        assert table.caption.startswith(
            "Usual setting: n_latents = 2, scores = estimated, a = 1, b = 1, c = 1, d = x, "
            "e = [1, 2]. The others are named by what differs from it. Ours: "
        )

    def test_the_caption_stands_above_the_table(self, table: ComparisonTable):
        text = table.to_markdown()
        assert text.index("Usual setting") < text.index("| setting | metric |")
        assert "| d = y | mcc | 0.610 |" in text
        assert "|  | shd | 0.610 |" in text

    def test_long_names_of_settings_wrap_in_latex(self, table: ComparisonTable):
        assert r"\begin{tabular}{p{5cm}lrrr}" in table.to_latex()

    def test_a_few_axes_have_a_column_each(self, study: Study):
        settings = [dict.fromkeys("abcd", value) for value in (1, 2)]
        table = compare(study, [row("A", "mcc", 0.5, setting=setting) for setting in settings])
        assert table.columns[:5] == [*"abcd", "metric"]
        assert [cells[0] for cells in table.body] == ["1", "1", "2", "2"]


class TestEscaping:
    def test_markdown(self, study: Study):
        text = compare(study, [row("A[x|y]", "mcc", 0.5)]).to_markdown()
        assert r"A[x\|y]" in text
        assert len({line.replace(r"\|", "").count("|") for line in text.splitlines()} - {0}) == 1

    def test_latex(self, study: Study):
        odd = row(r"A[50% & a_b #1 $x$ {y} ^~\z]", "mcc", 0.5)
        text = compare(study, [odd]).to_latex()
        assert (
            r"A[50\% \& a\_b \#1 \$x\$ \{y\} "
            r"\textasciicircum{}\textasciitilde{}\textbackslash{}z]" in text
        )

    def test_csv(self, study: Study):
        odd = row('A[1, "2"]', "mcc", 0.5, setting={**BASE, "n_samples": [1, 2]})
        (found,) = csv.DictReader(io.StringIO(compare(study, [odd]).to_csv()))
        assert found["method"] == 'A[1, "2"]'
        assert found["n_samples"] == "[1, 2]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1.000"),
        (0.12345, "0.123"),
        (-0.5, "-0.500"),
        (-0.0001, "0.000"),
        (12.345, "12.3"),
        (999.9, "999.9"),
        (1234567.8, "1,234,568"),
    ],
)
def test_numbers(value: float, text: str):
    assert _number(value) == text


def test_value():
    assert str(Value()) == "–"
    assert str(Value(0.5, 0.25)) == "0.500 ± 0.250"
    assert str(Value(0.5, 0.25, quartiles=(0.4, 0.7))) == "0.500 [0.400, 0.700]"
    assert str(Value(0.5, failed=1)) == "0.500 (1 failed)"


def test_a_published_metric_that_no_method_of_ours_has_still_gets_its_line(
    study: Study, rows: list[Row]
):
    lines = {line.metric: line for line in compare(study, [rows[0], rows[2]]).lines}
    assert lines["shd"].paper["Theirs"].mean == 1
    assert all(value.mean is None for value in lines["shd"].ours.values())
