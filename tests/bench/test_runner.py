from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlearn.bench import Plan, Study, load_study, run_study
from crlearn.bench._execute import execute
from crlearn.bench._store import Store
from crlearn.config import config_context
from crlearn.exceptions import MissingExtraError

MakeStudy = Callable[..., Study]
Rehearsed = Callable[..., dict[str, Any]]
Rows = Callable[[Path], list[dict[str, Any]]]
Fits = Callable[[], list[int]]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


class TestGoingOn:
    def test_what_is_done_is_not_done_again(
        self, make_study: MakeStudy, rehearsed: Rehearsed, out: Path, fits: Fits, untimed: Rows
    ):
        study = make_study(methods=[rehearsed()])
        run_study(study, out, profile="quick")
        before = (out / "runs.jsonl").read_bytes(), untimed(out)
        assert fits() == [0, 1]
        run_study(study, out, profile="quick")
        assert fits() == [0, 1]
        assert ((out / "runs.jsonl").read_bytes(), untimed(out)) == before

    def test_more_seeds_add_the_new_ones(
        self, make_study: MakeStudy, rehearsed: Rehearsed, out: Path, fits: Fits, each_once: Any
    ):
        study = make_study(methods=[rehearsed()])
        run_study(study, out, profile="quick", seeds=2)
        sweep = run_study(study, out, profile="quick", seeds=5)
        assert fits() == [0, 1, 2, 3, 4]
        assert each_once(out, sweep.plan)
        assert [row.n for row in sweep.summary()] == [5, 5]

    def test_another_method_adds_its_own(
        self, make_study: MakeStudy, rehearsed: Rehearsed, out: Path, fits: Fits, each_once: Any
    ):
        run_study(make_study(methods=[rehearsed()]), out, profile="quick")
        both = make_study(methods=[rehearsed(), {"method": "ICABaseline"}])
        sweep = run_study(both, out, profile="quick")
        assert fits() == [0, 1]
        assert each_once(out, sweep.plan)
        assert {row.method for row in sweep.summary()} == {"Rehearsed", "ICABaseline"}

    def test_a_run_that_was_lost_is_done_again(
        self, make_study: MakeStudy, rehearsed: Rehearsed, out: Path, fits: Fits, untimed: Rows
    ):
        study = make_study(methods=[rehearsed()])
        run_study(study, out, profile="quick")
        before = untimed(out)
        runs = out / "runs.jsonl"
        runs.write_bytes(runs.read_bytes()[:-30])  # the last line is torn
        with pytest.warns(UserWarning, match=r"1 of the lines of .*runs\.jsonl' was cut short"):
            sweep = run_study(study, out, profile="quick")
        assert fits() == [0, 1, 1]
        assert sweep.progress().unreadable == 0
        assert [json.loads(line)["seed"] for line in runs.read_text().splitlines()] == [0, 1]
        assert sweep.progress().done == 2
        assert untimed(out) == before

    def test_results_of_other_code_are_left_aside(
        self,
        make_study: MakeStudy,
        rehearsed: Rehearsed,
        out: Path,
        fits: Fits,
        untimed: Rows,
        monkeypatch: pytest.MonkeyPatch,
    ):
        study = make_study(methods=[rehearsed()])
        run_study(study, out, profile="quick", seeds=3)
        runs = out / "runs.jsonl"
        before = runs.read_text()
        monkeypatch.setattr("crlearn.bench._code.fingerprint", lambda: "other")
        with pytest.warns(UserWarning, match=r"3 results in .*runs\.jsonl' were made when"):
            sweep = run_study(study, out, profile="quick", seeds=2)
        assert fits() == [0, 0, 1, 1, 2]
        assert runs.read_text().startswith(before)
        assert [row["n"] for row in untimed(out)] == [2, 2]
        progress = sweep.progress()
        assert (progress.done, progress.left, progress.of_other_code) == (2, 0, 3)
        assert {record.code for record in sweep.records()} == {"other"}

    def test_two_variants_that_come_down_to_the_same(
        self, make_study: MakeStudy, rehearsed: Rehearsed, out: Path, fits: Fits
    ):
        same = [rehearsed(), {**rehearsed(), "variant": "again"}]
        sweep = run_study(make_study(methods=same, metrics=["mcc"]), out, profile="quick")
        assert fits() == [0, 1]
        assert sweep.progress().done == 4
        first, second = sweep.summary()
        assert (first.method, second.method) == ("Rehearsed", "Rehearsed[again]")
        assert (first.mean, first.n) == (second.mean, second.n)

    def test_nothing_but_the_results_is_left(self, make_study: MakeStudy, out: Path):
        run_study(make_study(), out, profile="quick")
        names = {path.name for path in out.iterdir()}
        assert names - {".lock"} == {"study.json", "runs.jsonl", "summary.json"}


class TestOtherFolders:
    def test_another_study(self, make_study: MakeStudy, definition: dict[str, Any], out: Path):
        run_study(make_study(), out, profile="quick")
        before = (out / "study.json").read_bytes()
        other = Study.from_dict("other", definition)
        with pytest.raises(ValueError, match=r"holds the study 'tiny' in the profile 'quick'\."):
            run_study(other, out, profile="quick")
        assert (out / "study.json").read_bytes() == before

    def test_another_profile(self, make_study: MakeStudy, out: Path):
        run_study(make_study(), out, profile="quick")
        with pytest.raises(ValueError, match="Choose another folder for 'tiny' in the profile"):
            run_study(make_study(), out, profile="full")

    @pytest.mark.parametrize(
        "options", [{"profile": "huge"}, {"seeds": 0}, {"jobs": 0}, {"jobs": 2, "scheduler": "x"}]
    )
    def test_nothing_is_written_for_bad_arguments(
        self, make_study: MakeStudy, out: Path, options: dict[str, Any]
    ):
        with pytest.raises(ValueError, match=r"profile|seeds|jobs"):
            run_study(make_study(), out, **{"profile": "quick", **options})
        assert not out.exists()

    def test_nothing_is_written_for_a_bad_study(self, make_study: MakeStudy, out: Path):
        with pytest.raises(ValueError, match="no parameter depth"):
            run_study(make_study(grid=[{"depth": 2}]), out, profile="quick")
        assert not out.exists()


class TestFailures:
    def test_they_are_recorded_and_do_not_stop_the_rest(
        self, make_study: MakeStudy, rehearsed: Rehearsed, out: Path
    ):
        methods = [
            {**rehearsed(trouble=trouble, troubled_seeds=[0]), "variant": trouble}
            for trouble in ("error", "divergence", "exit")
        ]
        sweep = run_study(make_study(methods=methods), out, profile="quick")
        outcomes = {(record.method, record.seed): record for record in sweep.records()}
        assert outcomes["Rehearsed[error]", 0].status == "failed"
        assert "Traceback" in str(outcomes["Rehearsed[error]", 0].traceback)
        assert outcomes["Rehearsed[divergence]", 0].status == "diverged"
        assert outcomes["Rehearsed[exit]", 0].status == "failed"
        assert all(record.is_done for (_, seed), record in outcomes.items() if seed == 1)
        assert (sweep.progress().done, sweep.progress().failed) == (3, 3)
        assert all((row.n, row.failed) == (1, 1) for row in sweep.summary())

    def test_they_are_tried_again_only_when_asked(
        self, make_study: MakeStudy, rehearsed: Rehearsed, out: Path, tmp_path: Path, fits: Fits
    ):
        mended = tmp_path / "mended"
        entry = rehearsed(trouble="error", troubled_seeds=[1], unless=str(mended))
        study = make_study(methods=[entry], profiles={"quick": {"seeds": 3}})
        run_study(study, out, profile="quick")
        assert run_study(study, out, profile="quick").progress().failed == 1
        assert fits() == [0, 1, 2]
        assert run_study(study, out, profile="quick", retry_failed=True).progress().failed == 1
        assert fits() == [0, 1, 1, 2]
        mended.touch()
        sweep = run_study(study, out, profile="quick", retry_failed=True)
        assert fits() == [0, 1, 1, 1, 2]
        assert (sweep.progress().done, sweep.progress().failed) == (3, 0)
        assert [(row.n, row.failed) for row in sweep.summary()] == [(3, 0), (3, 0)]


class TestInterrupt:
    def test_store_and_summary_are_left_whole(
        self, make_study: MakeStudy, rehearsed: Rehearsed, out: Path, tmp_path: Path, fits: Fits
    ):
        over = tmp_path / "over"
        entry = rehearsed(trouble="interrupt", troubled_seeds=[2], unless=str(over))
        study = make_study(methods=[entry], profiles={"quick": {"seeds": 4}})
        with pytest.raises(KeyboardInterrupt):
            run_study(study, out, profile="quick")
        assert len(Store(out).read()) == 2
        assert [row["n"] for row in json.loads((out / "summary.json").read_text())] == [2, 2]
        assert not (out / ".claims").exists()
        over.touch()
        assert run_study(study, out, profile="quick").progress().done == 4
        assert fits() == [0, 1, 2, 2, 3]


def bench_run(study: Path, out: Path) -> list[Any]:
    return ["-m", "crlearn", "bench", "run", study, "--profile", "quick", "--out", out]


def test_killed_in_the_middle_and_run_again(
    study_file: Callable[..., Path],
    rehearsed: Rehearsed,
    start: Start,
    tmp_path: Path,
    out: Path,
    eventually: Any,
    lines: Rows,
    untimed: Rows,
    each_once: Any,
    fits: Fits,
):
    """``kill -9``: the final summary is that of a sweep that nothing happened to."""
    gate = tmp_path / "gate"
    baselines = [{"method": "PCABaseline"}, {"method": "ICABaseline"}]
    entry = rehearsed(gate=str(gate), gated_seeds=[3])
    path = study_file(methods=[*baselines, entry], profiles={"quick": {"seeds": 6}})
    first = start(*bench_run(path, out))
    eventually(lambda: fits() == [0, 1, 2, 3])  # the last one waits at the gate
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    assert len(lines(out)) == 11
    assert not (out / "summary.json").exists()
    gate.touch()
    second = start(*bench_run(path, out))
    said = second.communicate(timeout=180)
    assert second.returncode == 0, said
    assert "18 of 18 runs done, 0 failed, 0 left" in " ".join(said[0].split())
    study = load_study(path)
    assert each_once(out, Plan.of(study, "quick"))
    assert fits() == [0, 1, 2, 3, 3, 4, 5]  # only the run in flight was lost
    run_study(study, tmp_path / "uninterrupted", profile="quick")
    assert untimed(out) == untimed(tmp_path / "uninterrupted")


def test_two_runners_on_one_folder(
    study_file: Callable[..., Path],
    rehearsed: Rehearsed,
    start: Start,
    tmp_path: Path,
    out: Path,
    untimed: Rows,
    each_once: Any,
    fits: Fits,
):
    # Neither goes on before both are at work.
    path = study_file(
        methods=[{"method": "PCABaseline"}, rehearsed(company=2)],
        profiles={"quick": {"seeds": 30}},
    )
    both = [start(*bench_run(path, out)) for _ in range(2)]
    for process in both:
        said = process.communicate(timeout=180)
        assert process.returncode == 0, said
        assert "60 of 60 runs done, 0 failed, 0 left" in " ".join(said[0].split())
    study = load_study(path)
    assert each_once(out, Plan.of(study, "quick"))
    assert fits() == list(range(30))
    log = (tmp_path / "fits.log").read_text().splitlines()
    assert len({line.split()[0] for line in log}) == 2  # both did some
    alone = load_study(study_file(methods=[{"method": "PCABaseline"}, rehearsed()]))
    run_study(alone, tmp_path / "alone", profile="quick", seeds=30)
    assert untimed(out) == untimed(tmp_path / "alone")


class TestMissingExtra:
    """A metric needs a package that is not installed."""

    @pytest.fixture(autouse=True)
    def _without_pc(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules, "causallearn.search.ConstraintBased.PC", None)

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_it_is_said_before_anything_is_done(self, make_study: MakeStudy, out: Path, jobs: int):
        study = make_study(metrics=["mcc", "shd_pc"])
        with pytest.raises(MissingExtraError, match=r"pip install 'crlearn\[graph\]'"):
            run_study(study, out, profile="quick", jobs=jobs)
        assert not out.exists()

    def test_a_worker_elsewhere_records_a_failure(self, make_study: MakeStudy):
        run = next(Plan.of(make_study(metrics=["mcc", "shd_pc"]), "quick").runs())
        record = execute(run, "tiny")
        assert record.status == "failed"
        assert "crlearn[graph]" in str(record.error)


class TestOtherRunners:
    """Another runner on the same folder, played by the test."""

    def test_what_another_has_done_since_is_not_done_again(
        self,
        make_study: MakeStudy,
        rehearsed: Rehearsed,
        out: Path,
        fits: Fits,
        monkeypatch: pytest.MonkeyPatch,
    ):
        study = make_study(methods=[rehearsed()])
        runs = list(Plan.of(study, "quick").runs())
        claim = Store.claim

        def claim_late(store: Store, key: str) -> bool:
            """The other one finishes the second run just before it is claimed here."""
            if key == runs[1].key and not fits().count(1):
                monkeypatch.setattr(Store, "claim", claim)
                run_study(study, out, profile="quick")
            return claim(store, key)

        monkeypatch.setattr(Store, "claim", claim_late)
        sweep = run_study(study, out, profile="quick")
        assert fits() == [0, 1]
        assert sweep.progress().done == 2

    def test_what_another_is_doing_is_waited_for(
        self,
        make_study: MakeStudy,
        rehearsed: Rehearsed,
        out: Path,
        fits: Fits,
        monkeypatch: pytest.MonkeyPatch,
    ):
        study = make_study(methods=[rehearsed()])
        other = Store(out)
        other.claim(next(Plan.of(study, "quick").runs()).key)
        waited: list[float] = []

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            other.close()  # it gave up, or was killed

        monkeypatch.setattr("crlearn.bench._runner.time.sleep", sleep)
        sweep = run_study(study, out, profile="quick")
        assert len(waited) == 1
        assert sweep.progress().done == 2
        assert fits() == [0, 1]


def test_progress_says_how_many_failed(
    make_study: MakeStudy, rehearsed: Rehearsed, out: Path, capfd: pytest.CaptureFixture[str]
):
    entry = rehearsed(trouble="error", troubled_seeds=[0])
    with config_context(progress=True):
        run_study(make_study(methods=[entry]), out, profile="quick")
    said = capfd.readouterr().err
    assert "2/2" in said
    assert "1 failed, last: Rehearsed, seed 1" in said
