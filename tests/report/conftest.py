from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from typing import Any

import pytest

import crlearn
from crlearn.bench import Plan, Record, Run, Study, Sweep
from crlearn.persist import plain

VOID = {"meta", "link", "br", "img", "input"}


class Document(HTMLParser):
    """What a page is made of: tags with their attributes, and the text between them."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        assert self._open == [], "tags that are not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def parse() -> Callable[[str], Document]:
    return Document


STUDY: dict[str, Any] = {
    "title": "A small study",
    "source": "Nobody, 2026, Table 1",
    "notes": "Sizes are ours.",
    "spread": "standard error",
    "world": "linear-interventional",
    "metrics": ["mcc", "parent_error"],
    "grid": [{"n_features": 10, "n_latents": [3, 5], "n_samples": [100, 1000, 10000]}],
    "methods": [{"method": "PCABaseline"}, {"method": "ICABaseline"}],
    "profiles": {"full": {"seeds": 3}},
    "published": [
        {
            "method": "ICABaseline",
            "setting": {"n_latents": 3, "n_samples": 100},
            "mcc": [0.95, 0.02],
        },
        {"method": "VaDE", "setting": {"n_latents": 5, "n_samples": 1000}, "mcc": 0.5},
        {"method": "ICABaseline", "setting": {"n_latents": 99}, "mcc": 0.1},
    ],
}


def _good(run: Run) -> dict[str, Any]:
    """What a run that ended well says; PCA is worse than ICA."""
    mcc = 0.9 if run.cell.label.startswith("ICA") else 0.6
    return {
        "status": "done",
        "metrics": {"mcc": mcc + 0.01 * run.seed, "parent_error": 1 - mcc},
        "chance": {"mcc": 0.7, "parent_error": None},
        "seconds": 0.5 + run.seed,
        "device": "cpu",
    }


def _failed(run: Run) -> dict[str, Any]:
    """What a run that failed says."""
    return {
        "status": "failed",
        "error": "ValueError: nothing to see",
        "traceback": "Traceback (most recent call last):\nValueError: nothing to see\n",
    }


@pytest.fixture(scope="session")
def good_result() -> Callable[[Run], dict[str, Any]]:
    return _good


@pytest.fixture(scope="session")
def failed_result() -> Callable[[Run], dict[str, Any]]:
    return _failed


@pytest.fixture(scope="session")
def make_sweep(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Sweep]:
    """Return a maker of folders of studies, whose records are invented and not computed."""

    def make(
        outcome: Callable[[Run], Mapping[str, Any] | None] = _good,
        *,
        seeds: int | None = None,
        **changes: Any,
    ) -> Sweep:
        study = Study.from_dict("small", {**STUDY, **changes})
        plan = Plan.of(study, "full", seeds)
        sweep = Sweep.open(tmp_path_factory.mktemp("sweep"), plan)
        records = [_record(run, found) for run in plan.runs() if (found := outcome(run))]
        lines = [json.dumps(json.loads(record.to_json())) for record in records]  # ASCII only
        (sweep.folder / "runs.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return sweep

    return make


def _record(run: Run, outcome: Mapping[str, Any]) -> Record:
    about = {
        "key": run.key,
        "cell": run.cell.key,
        "study": "small",
        "setting": plain(run.cell.setting),
        "method": run.cell.label,
        "parameters": plain(run.cell.parameters),
        "seed": run.seed,
        "versions": {"crlearn": crlearn.__version__, "numpy": "2.0"},
        "code": run.cell.code,
        "machine": {"system": "Linux", "cores": 2, "python": "3.11"},
        "finished": "2026-01-02T03:04:05.678+00:00",
    }
    return Record(**{**about, **outcome})
