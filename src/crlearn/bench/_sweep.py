"""`Sweep`: the folder of a study that was run, or is being run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from crlearn import __version__
from crlearn.bench import _code
from crlearn.bench._execute import Record
from crlearn.bench._plan import Plan
from crlearn.bench._store import RUNS, Store
from crlearn.bench._study import Study
from crlearn.bench._summary import Row, read_summary, summarise
from crlearn.exceptions import CorruptFileError
from crlearn.files import write_whole

MANIFEST = "study.json"
SUMMARY = "summary.json"


@dataclass(frozen=True)
class Progress:
    """How many runs of a plan are done, failed and left, and what else is in the file.

    `unreadable` lines are no records; `of_other_code` are records that crlearn made when its code
    was another one, which count for nothing.
    """

    planned: int
    done: int
    failed: int
    unreadable: int
    of_other_code: int

    @property
    def left(self) -> int:
        """Those that have not been tried."""
        return self.planned - self.done - self.failed


@dataclass(frozen=True)
class Sweep:
    """A study, how large it is run, and what has come out so far.

    Attributes
    ----------
    folder
        Holds ``study.json``, ``runs.jsonl`` and ``summary.json``.
    study, profile, seeds
        What was asked for last.
    version, code
        Of crlearn when it was asked for: number and fingerprint of its source. The fingerprint is
        empty in folders from before there was one.
    """

    folder: Path
    study: Study
    profile: str
    seeds: int
    version: str
    code: str

    @classmethod
    def read(cls, folder: str | Path) -> Sweep:
        """Read the folder of a sweep."""
        folder = Path(folder)
        if not (folder / MANIFEST).is_file():
            raise FileNotFoundError(
                f"'{folder}' is not the folder of a study: it has no {MANIFEST}. "
                "crlearn bench run STUDY --out FOLDER makes one."
            )
        try:
            content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            study = Study.from_dict(content["study"], content["definition"])
            version, code = content["version"], content.get("code", "")
            return cls(folder, study, content["profile"], content["seeds"], version, code)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFileError(
                f"'{folder / MANIFEST}' is not what crlearn bench run wrote ({error!r})."
            ) from error

    @classmethod
    def open(cls, folder: str | Path, plan: Plan) -> Sweep:
        """Make the folder of a sweep, or go on in one that holds the same study and profile."""
        folder = Path(folder)
        if (folder / MANIFEST).is_file():
            before = cls.read(folder)
            if (before.study.name, before.profile) != (plan.study.name, plan.profile):
                raise ValueError(
                    f"'{folder}' holds the study '{before.study.name}' in the profile "
                    f"'{before.profile}'. Choose another folder for '{plan.study.name}' in the "
                    f"profile '{plan.profile}'."
                )
        code = _code.fingerprint()
        sweep = cls(folder, plan.study, plan.profile, plan.seeds, __version__, code)
        folder.mkdir(parents=True, exist_ok=True)
        manifest = {
            "study": plan.study.name,
            "profile": plan.profile,
            "seeds": plan.seeds,
            "version": __version__,
            "code": code,
            "definition": plan.study.definition,
        }
        write_at_once(folder / MANIFEST, manifest)
        return sweep

    @property
    def is_of_this_code(self) -> bool:
        """Whether the crlearn that ran it last is the one that runs here."""
        return self.code == _code.fingerprint()

    @cached_property
    def plan(self) -> Plan:
        """What is to be run."""
        return Plan.of(self.study, self.profile, self.seeds)

    def records(self) -> list[Record]:
        """Return the newest record of each run of the study, in order.

        Those of a folder that other code wrote last are told by that code: keys differ.
        """
        found = Store(self.folder).read().values()
        cells = {cell.key: i for i, cell in enumerate(self.plan.cells)}
        if self.is_of_this_code:
            own = [record for record in found if record.cell in cells]
        else:
            theirs = self.version, self.code
            own = [r for r in found if (r.versions.get("crlearn"), r.code) == theirs]
        return sorted(own, key=lambda record: (cells.get(record.cell, len(cells)), record.seed))

    def progress(self) -> Progress:
        """Count the runs of the plan."""
        store = Store(self.folder)
        records = store.read()
        runs = list(self.plan.runs())
        found = [records[run.key] for run in runs if run.key in records]
        done = sum(record.is_done for record in found)
        n_other = sum(record.code != _code.fingerprint() for record in records.values())
        return Progress(len(runs), done, len(found) - done, store.n_unreadable, n_other)

    def summary(self) -> list[Row]:
        """Return the rows of ``summary.json``, or those so far if there was no time to write it."""
        if (self.folder / SUMMARY).is_file():
            return read_summary(self.folder / SUMMARY)
        return summarise(self.plan, self.records())

    def write_summary(self, records: Mapping[str, Record]) -> list[Row]:
        """Write ``summary.json`` anew and return its rows."""
        rows = summarise(self.plan, records.values())
        write_at_once(self.folder / SUMMARY, [row.to_dict() for row in rows])
        return rows


def is_sweep(folder: Path) -> bool:
    """Whether a folder holds a study's runs, and not, say, a single fit."""
    return (folder / MANIFEST).is_file() or (folder / RUNS).is_file()


def write_at_once(path: Path, content: Any) -> None:
    """Write JSON so that a reader sees the old file or the new one, never half of it."""
    write_whole(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
