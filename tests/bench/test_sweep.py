from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crlearn
from crlearn.bench import Plan, Study, Sweep, is_sweep, run_study
from crlearn.bench._code import fingerprint
from crlearn.bench._store import Store
from crlearn.bench._sweep import write_at_once
from crlearn.exceptions import CorruptFileError

MakeStudy = Callable[..., Study]
Rehearsed = Callable[..., dict[str, Any]]


@pytest.fixture
def sweep(make_study: MakeStudy, rehearsed: Rehearsed, tmp_path: Path) -> Sweep:
    """Two methods, four seeds, one failure; the second method comes first in the store."""
    failing = rehearsed(trouble="error", troubled_seeds=[3])
    run_study(make_study(methods=[failing]), tmp_path / "out", profile="full")
    study = make_study(methods=[{"method": "PCABaseline"}, failing])
    return run_study(study, tmp_path / "out", profile="full")


def without_code(text: str) -> str:
    content = json.loads(text)
    del content["code"]
    return json.dumps(content)


class TestReading:
    def test_there_and_back(self, sweep: Sweep):
        again = Sweep.read(sweep.folder)
        assert again == sweep
        assert (again.profile, again.seeds, again.version) == ("full", 4, crlearn.__version__)
        assert again.summary() == sweep.summary()

    def test_not_a_folder_of_a_study(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError, match=r"has no study\.json\. crlearn bench run"):
            Sweep.read(tmp_path)

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "[]",
            "{}",
            "3",
            '{"study": "a", "definition": 3}',
            '{"study": "a", "definition": {}}',
        ],
    )
    def test_altered(self, tmp_path: Path, content: str):
        (tmp_path / "study.json").write_text(content)
        with pytest.raises(CorruptFileError, match="is not what crlearn bench run wrote"):
            Sweep.read(tmp_path)

    def test_is_sweep(self, sweep: Sweep, tmp_path: Path):
        assert is_sweep(sweep.folder)
        assert not is_sweep(tmp_path)
        (tmp_path / "runs.jsonl").touch()
        assert is_sweep(tmp_path)


class TestOpening:
    def test_the_manifest(self, make_study: MakeStudy, definition: dict[str, Any], tmp_path: Path):
        Sweep.open(tmp_path / "a" / "b", Plan.of(make_study(), "quick"))
        assert json.loads((tmp_path / "a" / "b" / "study.json").read_text()) == {
            "study": "tiny",
            "profile": "quick",
            "seeds": 2,
            "version": crlearn.__version__,
            "code": fingerprint(),
            "definition": definition,
        }

    def test_what_was_asked_for_last_counts(self, make_study: MakeStudy, tmp_path: Path):
        Sweep.open(tmp_path, Plan.of(make_study(), "quick"))
        Sweep.open(tmp_path, Plan.of(make_study(title="New"), "quick", 7))
        sweep = Sweep.read(tmp_path)
        assert (sweep.seeds, sweep.study.title) == (7, "New")


class TestContents:
    def test_progress(self, sweep: Sweep, make_study: MakeStudy):
        progress = sweep.progress()
        assert (progress.planned, progress.done, progress.failed, progress.left) == (8, 7, 1, 0)
        more = Sweep.open(sweep.folder, Plan.of(sweep.study, "full", 6)).progress()
        assert (more.planned, more.done, more.failed, more.left) == (12, 7, 1, 4)

    def test_records_in_the_order_of_the_study(self, sweep: Sweep):
        order = [(record.method, record.seed) for record in sweep.records()]
        assert order == [(name, i) for name in ("PCABaseline", "Rehearsed") for i in range(4)]

    def test_records_of_a_method_that_is_not_in_the_study_any_more(
        self, sweep: Sweep, make_study: MakeStudy
    ):
        smaller = Sweep.open(sweep.folder, Plan.of(make_study(), "full"))
        assert {record.method for record in smaller.records()} == {"PCABaseline"}
        assert {row.method for row in smaller.write_summary(Store(sweep.folder).read())} == {
            "PCABaseline"
        }

    @pytest.mark.parametrize("has_fingerprint", [True, False], ids=["other", "none"])
    def test_a_folder_of_other_code(
        self, sweep: Sweep, monkeypatch: pytest.MonkeyPatch, has_fingerprint: bool
    ):
        before = sweep.records()
        if has_fingerprint:
            monkeypatch.setattr("crlearn.bench._code.fingerprint", lambda: "other")
        else:  # it was written before there were fingerprints
            manifest, runs = sweep.folder / "study.json", sweep.folder / "runs.jsonl"
            manifest.write_text(without_code(manifest.read_text()))
            lines = runs.read_text().splitlines()
            runs.write_text("".join(f"{without_code(line)}\n" for line in lines))
            monkeypatch.setattr("crlearn.bench._code.fingerprint", lambda: "first")
        later = Sweep.read(sweep.folder)
        assert not later.is_of_this_code
        assert later.progress().of_other_code == 8
        assert sorted(record.key for record in later.records()) == sorted(
            record.key for record in before
        )
        assert later.progress().left == 8  # they would come out otherwise now

    def test_summary_without_the_file(self, sweep: Sweep):
        """The runner was killed before it could write one."""
        rows = sweep.summary()
        (sweep.folder / "summary.json").unlink()
        assert sweep.summary() == rows


class TestWritingAtOnce:
    def test_no_half_of_a_file(self, tmp_path: Path):
        path = tmp_path / "x.json"
        write_at_once(path, {"a": "ı"})
        with pytest.raises(TypeError):
            write_at_once(path, {"a": object()})
        assert json.loads(path.read_text(encoding="utf-8")) == {"a": "ı"}
        assert [file.name for file in tmp_path.iterdir()] == ["x.json"]
