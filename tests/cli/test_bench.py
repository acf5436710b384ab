from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from crlearn.bench import list_studies
from crlearn.cli import app

STUDY = """
title = "Tiny | 50%"
source = "this test"
notes = "Nothing differs."
world = "segments"
metrics = ["mcc", "r2"]

[[grid]]
n_latents = 2
n_features = 3
n_segments = 3
n_samples = [20, 30]

[[methods]]
method = "PCABaseline"
[[methods]]
method = "ICABaseline"
{more}

[profiles.full]
seeds = 4
[profiles.quick]
seeds = 2
setting = {{ n_samples = 20 }}

[[published]]
method = "ICABaseline"
setting = {{ n_latents = 2 }}
mcc = [0.75, 0.05]
"""
# More latents than features: every run of it fails.
FAILING = """
[[methods]]
method = "PCABaseline"
variant = "too many"
parameters = { n_latents = 9 }
"""


def run(command: str, *paths: str | Path) -> Result:
    """Run a command; each ``{}`` in it is one of the paths."""
    left = list(map(str, paths))
    words = [left.pop(0) if word == "{}" else word for word in shlex.split(command)]
    return CliRunner().invoke(app, ["bench", *words], env={"COLUMNS": "300"})


def good(command: str, *paths: str | Path) -> str:
    result = run(command, *paths)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def bad(command: str, *paths: str | Path) -> str:
    """Return the error: one line on stderr, exit code 2, nothing raised."""
    result = run(command, *paths)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def n_lines(folder: Path) -> int:
    return len((folder / "runs.jsonl").read_text().splitlines())


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(STUDY.format(more=""))
    return path


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    path = tmp_path / "failing.toml"
    path.write_text(STUDY.format(more=FAILING))
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


class TestList:
    def test_names_and_titles(self):
        said = good("list")
        assert all(name in said for name in list_studies())
        assert "LSCALE-I, linear causal model" in said


class TestShow:
    def test_shipped(self):
        said = good("show varici2025-table7")
        assert "JMLR 26(112), 2025, Table 7" in said
        assert "world: linear-interventional; metrics: mcc, parent_error, shd_closure" in said
        assert "profile full: 6 settings x " in said
        assert "LinearInterventionCRL" in said
        assert "shd_closure 3.84 ± 0.36" in said

    @pytest.mark.parametrize("name", list_studies())
    def test_every_one(self, name: str):
        assert "profile quick:" in good("show {}", name)

    def test_ones_own(self, study: Path):
        said = good("show {}", study)
        assert "Tiny | 50% this test Nothing differs." in said
        assert (
            "profile quick: 1 settings x 2 methods (PCABaseline, ICABaseline) x 2 seeds = 4 runs"
            in said
        )
        assert "mcc 0.75 ± 0.05" in said

    def test_nothing_published(self, study: Path):
        study.write_text(study.read_text().partition("[[published]]")[0])
        assert "no published values" in good("show {}", study)


class TestRun:
    def test_table_and_files(self, study: Path, out: Path):
        said = good("run {} --profile quick --out {}", study, out)
        assert "tiny (quick, 2 seeds): 4 of 4 runs done, 0 failed, 0 left" in said
        head = "metric chance paper PCABaseline ICABaseline"
        assert said.index("Ours: mean") < said.index(head)
        assert "mcc" in said
        assert "± standard deviation over 2 seeds, published ± standard error" in said
        assert f"wrote {out / 'runs.jsonl'}, {out / 'summary.json'}" in said
        rows = json.loads((out / "summary.json").read_text())
        assert [(row["method"], row["metric"], row["n"], row["paper"]) for row in rows] == [
            ("PCABaseline", "mcc", 2, None),
            ("PCABaseline", "r2", 2, None),
            ("ICABaseline", "mcc", 2, 0.75),
            ("ICABaseline", "r2", 2, None),
        ]

    def test_full_is_the_default(self, study: Path, out: Path):
        assert "tiny (full, 1 seeds): 4 of 4 runs" in good("run {} --seeds 1 --out {}", study, out)

    def test_again_with_more_seeds(self, study: Path, out: Path):
        good("run {} --profile quick --out {}", study, out)
        good("run {} --profile quick --out {}", study, out)
        assert n_lines(out) == 4
        assert "6 of 6 runs done" in good("run {} --profile quick --seeds 3 --out {}", study, out)
        assert n_lines(out) == 6

    def test_failures_do_not_fail_the_command(self, failing: Path, out: Path):
        said = good("run {} --profile quick --out {}", failing, out)
        assert "4 of 6 runs done, 2 failed, 0 left" in said
        assert "– (2 failed)" in said
        good("run {} --profile quick --out {}", failing, out)
        assert n_lines(out) == 6
        good("run {} --profile quick --retry-failed --out {}", failing, out)
        assert n_lines(out) == 8

    def test_interrupt(self, study: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
        def interrupt(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("crlearn.bench.run_study", interrupt)
        result = run("run {} --out {}", study, out)
        assert result.exit_code == 130
        assert "The same command again goes on from here" in result.stderr

    def test_options_reach_the_runner(self, study: Path, out: Path, monkeypatch: Any):
        seen: list[Any] = []

        def stop(*arguments: Any, **options: Any) -> None:
            seen.append((arguments, options))
            raise KeyboardInterrupt

        monkeypatch.setattr("crlearn.bench.run_study", stop)
        run(
            "run {} --out {} --profile quick --seeds 3 --jobs 2 --retry-failed --scheduler tcp://a:1",
            study,
            out,
        )
        assert seen == [
            (
                (str(study), out),
                {
                    "profile": "quick",
                    "seeds": 3,
                    "jobs": 2,
                    "scheduler": "tcp://a:1",
                    "retry_failed": True,
                },
            )
        ]

    def test_errors(self, study: Path, out: Path, tmp_path: Path):
        assert "There is no study 'table7'. There are: " in bad("run table7 --out {}", out)
        assert "no profile 'huge'. It has: full, quick" in bad(
            "run {} --profile huge --out {}", study, out
        )
        assert "There is no file 'missing.toml'." in bad("run missing.toml --out {}", out)
        assert "either 'jobs' or 'scheduler'" in bad(
            "run {} --jobs 2 --scheduler tcp://127.0.0.1:1 --out {}", study, out
        )
        broken = tmp_path / "broken.toml"
        broken.write_text("title = ")
        assert "'broken' is not valid TOML" in bad("run {} --out {}", broken, out)
        broken.write_text(STUDY.format(more="").replace('"mcc", ', '"mmc", '))
        assert "metrics must be among mcc" in bad("run {} --out {}", broken, out)
        assert not out.exists()

    def test_folder_of_another_profile(self, study: Path, out: Path):
        good("run {} --profile quick --out {}", study, out)
        assert "holds the study 'tiny' in the profile 'quick'" in bad("run {} --out {}", study, out)

    def test_no_scheduler(self, study: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("crlearn.bench._backends._SECONDS_TO_CONNECT", 0.3)
        said = bad("run {} --scheduler tcp://127.0.0.1:1 --out {}", study, out)
        assert "There is no Dask scheduler at 'tcp://127.0.0.1:1'" in said

    def test_a_folder_that_cannot_be_written(self, study: Path, tmp_path: Path):
        (tmp_path / "file").write_text("in the way")
        said = bad("run {} --profile quick --out {}", study, tmp_path / "file" / "out")
        assert "cannot be read or written" in said


class TestStatus:
    def test_while_it_runs(self, study: Path, out: Path):
        good("run {} --profile quick --seeds 1 --out {}", study, out)
        manifest = json.loads((out / "study.json").read_text())
        (out / "study.json").write_text(json.dumps({**manifest, "seeds": 5}))
        assert "tiny (quick, 5 seeds): 2 of 10 runs done, 0 failed, 8 left" in good(
            "status {}", out
        )

    def test_failures_are_named(self, failing: Path, out: Path):
        good("run {} --profile quick --seeds 23 --out {}", failing, out)
        said = good("status {}", out)
        assert "46 of 69 runs done, 23 failed, 0 left" in said
        assert "failed: PCABaseline[too many], seed 0: ValueError: The " in said
        assert said.count("failed: PCABaseline[too many]") == 20
        assert "and 3 more; runs.jsonl has the tracebacks." in said

    def test_results_of_other_code(self, study: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
        good("run {} --profile quick --out {}", study, out)
        assert "other" not in good("status {}", out)
        monkeypatch.setattr("crlearn.bench._code.fingerprint", lambda: "other")
        said = good("status {}", out)
        assert "0 of 4 runs done, 0 failed, 4 left" in said
        assert "4 results in runs.jsonl were made when crlearn's code was another one" in said
        result = run("table {}", out)
        assert "made these results when its code was another one" in result.stderr
        result = run("run {} --profile quick --out {}", study, out)
        assert result.exit_code == 0
        assert result.stderr.startswith("warning: 4 results in ")
        assert result.stderr.count("\n") == 1
        assert "4 of 4 runs done" in result.stdout
        assert "another" not in run("table {}", out).stderr

    def test_errors(self, tmp_path: Path):
        assert "is not the folder of a study: it has no study.json" in bad("status {}", tmp_path)
        (tmp_path / "study.json").write_text("{}")
        assert "is not what crlearn bench run wrote" in bad("status {}", tmp_path)


class TestTable:
    def test_prints_and_writes(self, study: Path, out: Path):
        good("run {} --profile quick --out {}", study, out)
        said = good("table {}", out)
        head = "metric chance paper PCABaseline ICABaseline"
        assert said.index("Ours: mean") < said.index(head)
        assert "0.750 ± 0.050" in said
        assert "table.md" in said
        markdown = (out / "table.md").read_text()
        assert markdown.startswith("## Tiny | 50%\n\nthis test\n\nn_latents = ")
        assert "\n\n| metric | chance | paper |" in markdown
        assert "| mcc | 0." in markdown
        assert r"\begin{tabular}{lrrrr}" in (out / "table.tex").read_text()
        assert (out / "table.csv").read_text().startswith("n_latents,n_features,n_samples,")

    def test_slopes_come_after_it(self, study: Path, out: Path):
        asked = 'slope = { along = "n_samples" }\n' + study.read_text()
        asked = asked.replace("[20, 30]", "[20, 30, 40]").replace(
            "setting = { n_samples = 20 }", ""
        )
        study.write_text(asked)
        said = good("run {} --profile quick --out {}", study, out)
        head = "slope of theory PCABaseline ICABaseline mcc"
        assert said.index("Slopes of log error on log n_samples") < said.index(head)
        good("table {}", out)
        assert "| slope of | theory | PCABaseline |" in (out / "table.md").read_text()

    def test_after_a_kill(self, study: Path, out: Path):
        good("run {} --profile quick --out {}", study, out)
        before = good("table {}", out)
        (out / "summary.json").unlink()
        assert good("table {}", out) == before

    def test_errors(self, study: Path, out: Path, tmp_path: Path):
        assert "is not the folder of a study" in bad("table {}", tmp_path)
        good("run {} --profile quick --out {}", study, out)
        (out / "summary.json").write_text("{")
        assert "is not a summary of crlearn bench" in bad("table {}", out)


def test_no_command_shows_help():
    said = run("").output
    assert all(command in said for command in ("list", "show", "run", "status", "table"))


def test_missing_extra(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("crlearn.bench")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "filelock", None)
    assert "pip install 'crlearn[bench]'" in bad("list")
