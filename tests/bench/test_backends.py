from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from crlearn.bench import Plan, Record, Run, Study, run_study
from crlearn.bench import _backends as backends
from crlearn.bench._backends import InProcess, WorkerProcesses, choose_backend

MakeStudy = Callable[..., Study]
Rehearsed = Callable[..., dict[str, Any]]
Rows = Callable[[Path], list[dict[str, Any]]]
Start = Callable[..., "subprocess.Popen[str]"]

SIX = {"quick": {"seeds": 6}}


class TestChoice:
    def test_in_process_by_default(self):
        assert isinstance(choose_backend("tiny", 1, None), InProcess)

    def test_jobs(self):
        backend = choose_backend("tiny", 3, None)
        assert isinstance(backend, WorkerProcesses)
        assert backend.slots == 6

    def test_errors(self):
        with pytest.raises(ValueError, match=r"'jobs' must be an integer of at least 1\. Got 0"):
            choose_backend("tiny", 0, None)
        with pytest.raises(ValueError, match="either 'jobs' or 'scheduler'"):
            choose_backend("tiny", 2, "tcp://127.0.0.1:8786")


def test_in_process_one_after_the_other(make_study: MakeStudy):
    backend = InProcess("tiny")
    for run in Plan.of(make_study(), "quick").runs():
        backend.submit(run)
    assert [record.seed for _ in range(2) for record in backend.finished()] == [0, 1]
    backend.close()


class TestWorkerProcesses:
    def test_the_same_as_in_process_but_for_a_run_that_kills_its_worker(
        self,
        make_study: MakeStudy,
        rehearsed: Rehearsed,
        tmp_path: Path,
        untimed: Rows,
        each_once: Any,
        fits: Callable[[], list[int]],
    ):
        baselines = [{"method": "PCABaseline"}, {"method": "ICABaseline"}]
        deadly = rehearsed(trouble="death", troubled_seeds=[4])
        there = run_study(
            make_study(methods=[*baselines, deadly], profiles=SIX),
            tmp_path / "there",
            profile="quick",
            jobs=2,
        )
        assert each_once(tmp_path / "there", there.plan)
        failed = [record for record in there.records() if not record.is_done]
        assert [(record.method, record.seed) for record in failed] == [("Rehearsed", 4)]
        assert "The worker process died in this run, and in a second attempt" in str(
            failed[0].error
        )
        assert fits().count(4) == 2  # once among others, once alone
        here = run_study(
            make_study(methods=baselines, profiles=SIX), tmp_path / "here", profile="quick"
        )
        n_rows = len(here.summary())
        assert untimed(tmp_path / "there")[:n_rows] == untimed(tmp_path / "here")
        assert [(row.n, row.failed) for row in there.summary()[n_rows:]] == [(5, 1), (5, 1)]

    def test_they_end_with_a_killed_runner(self, start: Start):
        worker = (
            "import os, sys, time; from crlearn.bench._backends import _end_with\n"
            "_end_with(os.getppid()); print('ready', flush=True); time.sleep(120)"
        )
        code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
        runner = start("-c", code, worker)
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n"
        os.kill(runner.pid, signal.SIGKILL)
        # The pipe is closed once the worker, which holds the other end of it, is gone too.
        assert runner.communicate(timeout=60) == ("", "")


class FakeExecutor:
    """Lets a test decide what becomes of each run."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Run, Future[Record]]] = []
        self.broken = False

    def submit(self, _: Any, run: Run, __: str) -> Future[Record]:
        if self.broken:
            raise BrokenProcessPool("a worker died")
        self.submitted.append((run, Future()))
        return self.submitted[-1][1]

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run, _ in self.submitted]

    def finish(self, seed: int) -> None:
        for run, future in self.submitted:
            if run.seed == seed and not future.done():
                future.set_result(backends.failure(run, "tiny", ValueError("done")))

    def die(self) -> None:
        for _, future in self.submitted:
            if not future.done():
                future.set_exception(BrokenProcessPool("a worker died"))


class TestAfterTheDeathOfAWorker:
    """What happens in which order, with an executor that does nothing of its own accord."""

    @pytest.fixture
    def runs(self, make_study: MakeStudy) -> list[Run]:
        return list(Plan.of(make_study(), "quick", 8).runs())

    @pytest.fixture
    def executor(self, monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
        executor = FakeExecutor()
        monkeypatch.setattr(WorkerProcesses, "_executor", lambda _: executor)
        return executor

    def test_suspects_go_alone_and_then_all_go_on_together(
        self, runs: list[Run], executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
    ):
        alone: list[int] = []

        def do_alone(_: WorkerProcesses, run: Run) -> Record:
            alone.append(run.seed)
            return backends.failure(run, "tiny", ValueError("done"))

        monkeypatch.setattr(WorkerProcesses, "_alone", do_alone)
        backend = WorkerProcesses("tiny", 2)
        for run in runs[:3]:
            backend.submit(run)
        executor.die()
        assert list(backend.finished()) == []  # all three are suspects
        backend.submit(runs[3])
        backend.submit(runs[4])
        assert executor.seeds == [0, 1, 2]  # newcomers wait
        assert sorted(record.seed for _ in range(3) for record in backend.finished()) == [0, 1, 2]
        assert sorted(alone) == [0, 1, 2]
        assert executor.seeds[3:] == [3, 4]  # both at once
        executor.finish(4)
        assert [record.seed for record in backend.finished()] == [4]

    def test_a_worker_that_dies_while_a_run_is_handed_over(
        self, runs: list[Run], executor: FakeExecutor
    ):
        backend = WorkerProcesses("tiny", 2)
        executor.broken = True
        backend.submit(runs[0])
        (record,) = backend.finished()
        assert record.seed == 0
        assert "worker process died" in str(record.error)

    def test_a_record_that_cannot_travel(self, runs: list[Run], executor: FakeExecutor):
        backend = WorkerProcesses("tiny", 2)
        backend.submit(runs[0])
        executor.submitted[0][1].set_exception(TypeError("cannot pickle"))
        (record,) = backend.finished()
        assert (record.seed, record.error) == (0, "TypeError: cannot pickle")

    def test_a_record_that_cannot_travel_alone(
        self, runs: list[Run], executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
    ):
        backend = WorkerProcesses("tiny", 2)
        backend.submit(runs[0])
        executor.die()
        assert list(backend.finished()) == []
        future: Future[Record] = Future()
        future.set_exception(TypeError("cannot pickle"))
        monkeypatch.setattr(executor, "submit", lambda *_: future)
        (record,) = backend.finished()
        assert record.error == "TypeError: cannot pickle"


@pytest.fixture
def cluster(tmp_path: Path, start: Start, eventually: Any) -> Iterator[Callable[[int], Any]]:
    """Start a Dask scheduler and workers, all processes of their own; return scheduler, address."""
    watchdogs: list[threading.Timer] = []

    def start_cluster(n_workers: int) -> tuple[subprocess.Popen[str], str]:
        file = tmp_path / "scheduler.json"
        common = ("--scheduler-file", file, "--host", "127.0.0.1", "--no-dashboard")
        scheduler = start("-m", "distributed.cli.dask_scheduler", "--port", 0, *common)
        for _ in range(n_workers):
            start(
                *("-m", "distributed.cli.dask_worker", *common, "--nthreads", 1, "--no-nanny"),
                *("--local-directory", tmp_path, "--preload", "crlearn.bench"),
            )
        # Without a scheduler the runner gives up: no test waits for ever.
        watchdogs.append(threading.Timer(180, scheduler.kill))
        watchdogs[-1].start()
        eventually(file.exists)
        return scheduler, _address(file, eventually)

    yield start_cluster
    for watchdog in watchdogs:
        watchdog.cancel()


def _address(file: Path, eventually: Any) -> str:
    eventually(lambda: file.read_text().rstrip().endswith("}"))
    return json.loads(file.read_text())["address"]


class TestDask:
    def test_a_worker_is_killed_in_the_middle(
        self,
        make_study: MakeStudy,
        rehearsed: Rehearsed,
        cluster: Any,
        tmp_path: Path,
        untimed: Rows,
        each_once: Any,
        fits: Callable[[], list[int]],
    ):
        fate = tmp_path / "happened"
        # Both workers are at work before either goes on; then one dies in a run, once.
        entry = rehearsed(company=2, trouble="one death", troubled_seeds=[4], unless=str(fate))
        study = make_study(methods=[entry], profiles={"quick": {"seeds": 12}})
        _, address = cluster(2)
        sweep = run_study(study, tmp_path / "out", profile="quick", scheduler=address)
        assert fate.exists()
        assert each_once(tmp_path / "out", sweep.plan)
        assert (sweep.progress().done, sweep.progress().failed) == (12, 0)
        assert set(fits()) == set(range(12))
        assert fits().count(4) == 2  # it was done again
        alike = make_study(methods=[rehearsed()], profiles={"quick": {"seeds": 12}})
        run_study(alike, tmp_path / "here", profile="quick")
        assert untimed(tmp_path / "out") == untimed(tmp_path / "here")

    def test_the_scheduler_is_killed_in_the_middle(
        self,
        make_study: MakeStudy,
        rehearsed: Rehearsed,
        cluster: Any,
        tmp_path: Path,
        eventually: Any,
        each_once: Any,
        lines: Rows,
        monkeypatch: pytest.MonkeyPatch,
    ):
        monkeypatch.setattr(backends, "_SECONDS_TO_CONNECT", 3)
        gate = tmp_path / "gate"
        entry = rehearsed(gate=str(gate), gated_seeds=[2])
        study = make_study(methods=[entry], profiles=SIX)
        scheduler, address = cluster(1)

        def kill() -> None:
            eventually(lambda: len(lines(tmp_path / "out")) == 2)
            os.kill(scheduler.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(ConnectionError, match=f"scheduler at '{address}' is gone"):
            run_study(study, tmp_path / "out", profile="quick", scheduler=address)
        killer.join()
        assert len(lines(tmp_path / "out")) == 2  # nothing that was under way counts as failed
        gate.touch()
        sweep = run_study(study, tmp_path / "out", profile="quick")
        assert sweep.progress().done == 6
        assert each_once(tmp_path / "out", sweep.plan)

    @pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://127.0.0.1:1"])
    def test_no_scheduler_there(
        self, make_study: MakeStudy, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(backends, "_SECONDS_TO_CONNECT", 0.5)
        with pytest.raises(ValueError, match=f"There is no Dask scheduler at '{address}'.*Start"):
            run_study(make_study(), tmp_path / "out", profile="quick", scheduler=address)
        assert not (tmp_path / "out").exists()

    def test_dask_is_not_installed(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(ImportError, match=r"pip install 'crlearn\[cluster\]'"):
            choose_backend("tiny", 1, "tcp://127.0.0.1:8786")
