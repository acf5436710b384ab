from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlearn.bench import Study

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _own_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process, and those it starts, import ``own_methods``."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)


@pytest.fixture
def definition() -> dict[str, Any]:
    """A study that takes milliseconds; tests change what they are about."""
    return {
        "title": "Tiny",
        "source": "this test",
        "world": "segments",
        "metrics": ["mcc", "r2"],
        "grid": [{"n_latents": 2, "n_features": 3, "n_segments": 3, "n_samples": 20}],
        "methods": [{"method": "PCABaseline"}],
        "profiles": {"quick": {"seeds": 2}, "full": {"seeds": 4}},
    }


@pytest.fixture
def make_study(definition: dict[str, Any]) -> Callable[..., Study]:
    def make(**changes: Any) -> Study:
        return Study.from_dict("tiny", {**definition, **changes})

    return make


@pytest.fixture
def rehearsed(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Entry of a study for `own_methods.Rehearsed`, which logs its fits."""

    def make(**parameters: Any) -> dict[str, Any]:
        parameters = {"log": str(tmp_path / "fits.log"), **parameters}
        return {"method": "own_methods.Rehearsed", "parameters": parameters}

    return make


@pytest.fixture
def fits(tmp_path: Path) -> Callable[[], list[int]]:
    """Seeds of the fits so far, one entry for each time that a fit was begun."""

    def read() -> list[int]:
        log = tmp_path / "fits.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return sorted(int(line.split()[1]) for line in lines)

    return read


@pytest.fixture
def study_file(tmp_path: Path, definition: dict[str, Any]) -> Callable[..., Path]:
    """Write a study to a TOML file."""

    def write(**changes: Any) -> Path:
        path = tmp_path / "tiny.toml"
        content = {**definition, **changes}
        path.write_text("\n".join(f"{key} = {_toml(value)}" for key, value in content.items()))
        return path

    return write


@pytest.fixture
def start() -> Any:
    """Start Python processes that do not outlive the test."""
    processes: list[subprocess.Popen[str]] = []

    def start_one(*words: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
        processes.append(process)
        return process

    yield start_one
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], None]:
    """Wait for what another process does."""

    def wait(condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, "it did not happen within two minutes"
            time.sleep(0.01)

    return wait


@pytest.fixture
def lines() -> Callable[[Path], list[dict[str, Any]]]:
    """Read ``runs.jsonl``; every line must be whole."""

    def read(folder: Path) -> list[dict[str, Any]]:
        path = folder / "runs.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    return read


@pytest.fixture
def each_once(lines: Callable[[Path], list[dict[str, Any]]]) -> Callable[[Path, Any], bool]:
    """Whether the store of a sweep holds every run of its plan exactly once, and no other."""

    def check(folder: Path, plan: Any) -> bool:
        stored = Counter(line["key"] for line in lines(folder))
        return stored == Counter({run.key for run in plan.runs()})

    return check


@pytest.fixture
def untimed() -> Callable[[Path], list[dict[str, Any]]]:
    """Read ``summary.json`` without what depends on the clock."""

    def read(folder: Path) -> list[dict[str, Any]]:
        rows = json.loads((folder / "summary.json").read_text())
        return [{key: row[key] for key in row if key != "seconds"} for row in rows]

    return read


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(item)}' for key, item in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)
