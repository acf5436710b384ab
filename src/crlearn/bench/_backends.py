"""Where runs are done: in this process, in worker processes, or on a Dask cluster.

A backend takes runs and hands back records. It never loses a run: whatever becomes of a worker, the
run ends in a record.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from crlearn.bench._execute import Record, execute, failure
from crlearn.bench._plan import Run
from crlearn.exceptions import import_extra

_QUEUED_PER_WORKER = 2  # one at work and one behind it, so that no worker waits for the runner
_SECONDS_TO_CONNECT = 10  # to a Dask scheduler


class Backend(Protocol):
    """What the runner needs of a place where runs are done."""

    @property
    def slots(self) -> int:
        """How many runs may be under way at once."""
        ...

    def submit(self, run: Run) -> None:
        """Take a run."""
        ...

    def finished(self) -> Iterator[Record]:
        """Wait until a run is finished; yield the record of each that is."""
        ...

    def close(self) -> None:
        """Give up what is still under way."""
        ...


def choose_backend(study: str, jobs: int, scheduler: str | None) -> Backend:
    """Return the backend that the arguments of `run_study` ask for."""
    if jobs < 1:
        raise ValueError(f"'jobs' must be an integer of at least 1. Got {jobs} instead.")
    if scheduler is not None:
        if jobs > 1:
            raise ValueError(
                "Give either 'jobs' or 'scheduler': a cluster has its own number of workers."
            )
        return DaskCluster(study, scheduler)
    return InProcess(study) if jobs == 1 else WorkerProcesses(study, jobs)


class InProcess:
    """One run after the other, here."""

    slots = 1

    def __init__(self, study: str) -> None:
        self._study = study
        self._waiting: list[Run] = []

    def submit(self, run: Run) -> None:
        """Take a run."""
        self._waiting.append(run)

    def finished(self) -> Iterator[Record]:
        """Do a run."""
        yield execute(self._waiting.pop(0), self._study)

    def close(self) -> None:
        """Nothing is under way between two runs."""


class WorkerProcesses:
    """Processes on this machine (joblib's loky).

    When a worker dies (out of memory, a crash in compiled code), all runs that were under way are
    lost and nobody knows whose fault it was. They are done again one at a time; the one that kills
    its worker again is recorded as failed.
    """

    def __init__(self, study: str, jobs: int) -> None:
        self.slots = jobs * _QUEUED_PER_WORKER
        self._study, self._jobs = study, jobs
        self._running: dict[Future[Record], Run] = {}
        self._suspects: list[Run] = []
        self._waiting: list[Run] = []  # until no suspect is left

    def submit(self, run: Run) -> None:
        """Take a run."""
        if self._suspects:
            self._waiting.append(run)
        else:
            self._start(run)

    def finished(self) -> Iterator[Record]:
        """Wait for a run."""
        if self._running:
            yield from self._those_done()
        elif self._suspects:
            yield self._alone(self._suspects.pop(0))
        if not self._suspects:
            waiting, self._waiting = self._waiting, []
            for run in waiting:
                self.submit(run)

    def _those_done(self) -> Iterator[Record]:
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            run = self._running.pop(future)
            try:
                record = future.result()
            except BrokenProcessPool:
                self._suspects.append(run)
            except Exception as error:  # a record that cannot travel between processes
                yield failure(run, self._study, error)
            else:
                yield record

    def close(self) -> None:
        """Stop the workers."""
        self._executor().shutdown(wait=True, kill_workers=True)

    def _executor(self) -> Any:
        from joblib.externals.loky import get_reusable_executor

        return get_reusable_executor(
            max_workers=self._jobs, timeout=300, initializer=_end_with, initargs=(os.getpid(),)
        )

    def _start(self, run: Run) -> None:
        try:
            future = self._executor().submit(execute, run, self._study)
        except BrokenProcessPool:  # a worker died this very moment
            self._suspects.append(run)
        else:
            self._running[future] = run

    def _alone(self, run: Run) -> Record:
        try:
            return self._executor().submit(execute, run, self._study).result()
        except BrokenProcessPool as error:
            return failure(run, self._study, _worker_died(error))
        except Exception as error:
            return failure(run, self._study, error)


class DaskCluster:
    """The workers of an existing Dask cluster.

    The scheduler does the runs of a worker that dies again on another one; a run that takes several
    workers with it is recorded as failed.
    """

    def __init__(self, study: str, address: str) -> None:
        distributed = import_extra("distributed", "cluster")
        self._distributed, self._study, self._address = distributed, study, address
        try:
            self._client = distributed.Client(
                address, set_as_default=False, timeout=_SECONDS_TO_CONNECT
            )
        except (OSError, ValueError, TimeoutError) as error:
            raise ValueError(
                f"There is no Dask scheduler at '{address}' ({error}). Start one with: dask "
                "scheduler; and workers with: dask worker tcp://host:port."
            ) from error
        self._running: dict[str, tuple[Any, Run]] = {}

    @property
    def slots(self) -> int:
        """Two runs for each thread of the cluster; it may grow and shrink."""
        with self._connected():
            threads = sum(self._client.nthreads().values())
        return max(1, threads) * _QUEUED_PER_WORKER

    def submit(self, run: Run) -> None:
        """Take a run."""
        # The key of the task is new each time, so that a retried run is not taken from memory.
        with self._connected():
            future = self._client.submit(execute, run, self._study, pure=False)
        self._running[future.key] = future, run

    def finished(self) -> Iterator[Record]:
        """Wait for a run."""
        futures = [future for future, _ in self._running.values()]
        with self._connected():
            done = self._distributed.wait(futures, return_when="FIRST_COMPLETED").done
        for future in done:
            _, run = self._running[future.key]
            with self._connected():
                record = self._record(future, run)
            del self._running[future.key]
            yield record

    def _record(self, future: Any, run: Run) -> Record:
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, self._distributed.KilledWorker):
            error = _worker_died(error)
        return failure(run, self._study, error)

    def close(self) -> None:
        """Cancel what is under way; the cluster goes on."""
        with suppress(ConnectionError), self._connected():
            self._client.cancel([future for future, _ in self._running.values()])
        self._client.close()

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Say what happened if the scheduler goes away; its runs are not to blame."""
        try:
            with self._client.as_current():
                yield
        except Exception as error:
            is_lost = isinstance(error, OSError | self._distributed.CancelledError)
            if not is_lost and self._client.status == "running":
                raise
            raise ConnectionError(
                f"The Dask scheduler at '{self._address}' is gone. What was finished is kept; the "
                "same command again, with a scheduler that is there, goes on from here."
            ) from error


def _end_with(runner: int) -> None:
    """End this worker when the runner is gone, however it went: nobody wants its records."""

    def watch() -> None:
        while os.getppid() == runner:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _worker_died(cause: BaseException) -> RuntimeError:
    error = RuntimeError(
        "The worker process died in this run, and in a second attempt, too. It may have run out of "
        "memory: use fewer jobs or smaller sizes."
    )
    error.__cause__ = cause
    return error
