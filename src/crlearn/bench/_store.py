"""The folder of a sweep: an append-only list of records that several runners may share.

Every record is one line of ``runs.jsonl``, written and flushed before the next run begins. What a
runner is about to do it *claims* by a lock on a file; the system gives such a lock back when the
runner dies, however it dies. A line that was cut short by a crash is skipped when it is read, and
dropped when a study is run again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from crlearn.bench._execute import Record
from crlearn.exceptions import CorruptFileError
from crlearn.files import naming, write_whole

RUNS = "runs.jsonl"
_CLAIMS = ".claims"
_SECONDS_BETWEEN_TRIES = 0.005  # a writer holds the folder for about a millisecond


class Store:
    """The records in a folder.

    Parameters
    ----------
    folder
        Where they are; it is made if it is not there.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.file = self.folder / RUNS
        self.n_unreadable = 0
        self._records: dict[str, Record] = {}
        self._claims: dict[str, FileLock] = {}
        self._read_up_to = 0
        self._inode: int | None = None  # of the file that was read; `repair` makes a new one

    def read(self) -> Mapping[str, Record]:
        """Return the newest record of each key; what was read before is not read again."""
        if self.file.exists():
            with self.file.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._read_up_to, self.n_unreadable = inode, 0, 0
                file.seek(self._read_up_to)
                lines = file.read()
            whole = lines[: lines.rfind(b"\n") + 1]  # the rest is still being written
            self._read_up_to += len(whole)
            for line in whole.splitlines():
                self._take_in(line)
        return self._records

    def append(self, record: Record) -> None:
        """Write a record so that it outlives this process, and hand its claim back."""
        line = record.to_json().encode("ascii") + b"\n"
        with self.locked():
            with naming(self.file), self.file.open("ab+") as file:
                file.write(line if _ends_a_line(file) else b"\n" + line)
                file.flush()
                os.fsync(file.fileno())
            self._give_up(record.key)

    def repair(self) -> int:
        """Drop lines that are cut short or damaged; return how many there were.

        What is whole stays, even if it is no record that this version can read.
        """
        with self.locked():
            content = self.file.read_bytes() if self.file.exists() else b""
            lines = content.splitlines()
            whole = [line for line in lines if _is_json(line)]
            n_dropped = sum(bool(line.strip()) for line in lines) - len(whole)
            if n_dropped or (content and not content.endswith(b"\n")):
                write_whole(self.file, b"".join(line + b"\n" for line in whole))
        return n_dropped

    def claim(self, key: str) -> bool:
        """Try to reserve a run for this runner; False if another one has it."""
        # Files of claims are made and removed under the folder's lock: a file that is removed
        # between another runner's opening and locking it would be a claim that nobody else sees.
        with self.locked():
            (self.folder / _CLAIMS).mkdir(exist_ok=True)
            lock = FileLock(self.folder / _CLAIMS / key, timeout=0)
            try:
                lock.acquire()
            except Timeout:
                return False
        self._claims[key] = lock
        return True

    def release(self, key: str) -> None:
        """Hand a claim back."""
        with self.locked():
            self._give_up(key)

    def close(self) -> None:
        """Hand all claims back."""
        with self.locked():
            for key in list(self._claims):
                self._give_up(key)
            with suppress(OSError):  # not there, or another runner is at work
                (self.folder / _CLAIMS).rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runners from writing to the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock").acquire(poll_interval=_SECONDS_BETWEEN_TRIES):
            yield

    def _give_up(self, key: str) -> None:
        lock = self._claims.pop(key, None)
        if lock is not None:
            with suppress(OSError):  # a system that keeps open files; the next claim takes it over
                Path(lock.lock_file).unlink()
            lock.release()

    def _take_in(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            record = Record.from_json(line)
        except CorruptFileError:
            self.n_unreadable += 1
        else:
            self._records[record.key] = record


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _ends_a_line(file: BinaryIO) -> bool:
    """Whether the last writer came to the end of its line."""
    if file.seek(0, os.SEEK_END) == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"
