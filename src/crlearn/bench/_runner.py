"""The runner: what is not there yet is done, and every result is kept as soon as it is there."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from crlearn.bench._backends import Backend, choose_backend
from crlearn.bench._execute import Record
from crlearn.bench._plan import Plan, Run
from crlearn.bench._store import Store
from crlearn.bench._study import Study, load_study
from crlearn.bench._sweep import Sweep
from crlearn.metrics import find_metrics
from crlearn.progress import progress_bar

_SECONDS_BETWEEN_LOOKS = 0.2  # at what other runners on the same folder have finished


def run_study(
    study: str | Path | Study,
    out: str | Path,
    *,
    profile: str = "full",
    seeds: int | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
    retry_failed: bool = False,
) -> Sweep:
    """Run a study, or what is left of it, and write its summary.

    The same call again goes on where the last one stopped, however it stopped. Several processes
    may work on one folder: each run is done once. Results that crlearn made when its code was
    another one stay in the file, but their runs are done again; a warning says how many there are.

    Parameters
    ----------
    study
        Name of a study, a TOML file, or a `Study`.
    out
        Folder for ``runs.jsonl`` and ``summary.json``.
    profile
        ``"quick"`` or ``"full"``, or another one that the study has.
    seeds
        Number of seeds; by default that of the profile.
    jobs
        Number of worker processes on this machine.
    scheduler
        Address of a Dask scheduler, ``"tcp://host:port"``; its workers need crlearn.
    retry_failed
        Whether runs that failed before are tried again.

    Returns
    -------
    sweep
        With its records and its summary.

    Examples
    --------
    >>> from crlearn.bench import run_study
    >>> sweep = run_study("varici2025-table7", "out", profile="quick")  # doctest: +SKIP
    """
    study = study if isinstance(study, Study) else load_study(study)
    plan = Plan.of(study, profile, seeds)
    _ = plan.cells  # says what is wrong with the study before anything is written
    if scheduler is None:  # the workers of a cluster have packages of their own
        for metric in find_metrics(study.metrics):
            metric.check_installed()
    with closing(choose_backend(study.name, jobs, scheduler)) as backend:
        sweep = Sweep.open(out, plan)
        store = Store(sweep.folder)
        _say_what_is_not_used(sweep, store)
        try:
            _Runner(plan, store, backend, retry_failed).work()
        finally:
            store.close()
            with store.locked():
                sweep.write_summary(store.read())
    return sweep


def _say_what_is_not_used(sweep: Sweep, store: Store) -> None:
    n_dropped = store.repair()
    if n_dropped:
        warnings.warn(
            f"{n_dropped} of the lines of '{store.file}' {'was' if n_dropped == 1 else 'were'} cut "
            "short or damaged, as by a runner that was killed while it wrote. They were dropped; "
            "their runs are done again.",
            stacklevel=3,
        )
    n_other = sweep.progress().of_other_code
    if n_other:
        warnings.warn(
            f"{n_other} results in '{store.file}' were made when crlearn's code was another one. "
            "They stay in the file, but are left aside: what is asked for is done again with the "
            f"code of now (crlearn {sweep.version}, fingerprint {sweep.code}).",
            stacklevel=3,
        )


@dataclass
class _Runner:
    """Hands runs to the backend and their records to the store."""

    plan: Plan
    store: Store
    backend: Backend
    retry_failed: bool

    def work(self) -> None:
        """Do all that is left."""
        runs = list(self.plan.runs())
        before = dict(self.store.read())
        left = deque(run for run in runs if self._is_wanted(before.get(run.key)))
        n_failed = 0 if self.retry_failed else sum(_failed(before.get(run.key)) for run in runs)
        with progress_bar(self.plan.study.name, len(runs), len(runs) - len(left)) as advance:
            bar = _Bar(advance, n_failed)
            n_under_way = 0
            while left or n_under_way:
                n_under_way += self._hand_out(left, before, bar, self.backend.slots - n_under_way)
                if not n_under_way:
                    time.sleep(_SECONDS_BETWEEN_LOOKS)  # others have what is left
                    continue
                for record in self.backend.finished():
                    self.store.append(record)
                    bar.move(record)
                    n_under_way -= 1

    def _hand_out(self, left: deque[Run], before: dict[str, Record], bar: _Bar, n_free: int) -> int:
        """Hand out as many runs as there are free places; return how many."""
        n_given = 0
        for _ in range(len(left)):
            if n_given == n_free:
                break
            run = left.popleft()
            if not self.store.claim(run.key):
                left.append(run)  # another runner has it; look again later
                continue
            now = self.store.read().get(run.key)
            if now != before.get(run.key):  # another runner has done it since
                self.store.release(run.key)
                bar.move(now)
                continue
            self.backend.submit(run)
            n_given += 1
        return n_given

    def _is_wanted(self, record: Record | None) -> bool:
        return record is None or (self.retry_failed and not record.is_done)


@dataclass
class _Bar:
    """Counts failures beside the bar."""

    advance: Callable[[str], None]
    n_failed: int

    def move(self, record: Record | None) -> None:
        """Take another run into account."""
        self.n_failed += _failed(record)
        last = f", last: {record.method}, seed {record.seed}" if record else ""
        self.advance(f"{self.n_failed} failed{last}")


def _failed(record: Record | None) -> bool:
    return record is not None and not record.is_done
