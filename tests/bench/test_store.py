from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crlearn.bench import Record
from crlearn.bench._store import Store

Start = Callable[..., Any]

RECORD = Record(
    key="a",
    cell="c",
    study="tiny",
    setting={"n_latents": 2},
    method="PCABaseline",
    parameters={"n_latents": 2},
    seed=0,
    status="done",
    metrics={"mcc": 0.5},
)
A, B, C = (replace(RECORD, key=key) for key in "abc")
LINE = A.to_json().encode()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def put(store: Store, content: bytes) -> None:
    with store.file.open("ab") as file:
        file.write(content)


class TestReading:
    def test_nothing_there(self, tmp_path: Path):
        assert Store(tmp_path / "new").read() == {}
        assert not (tmp_path / "new").exists()

    def test_there_and_back(self, store: Store):
        for record in (A, B):
            store.append(record)
        assert store.read() == {"a": A, "b": B}
        assert Store(store.folder).read() == {"a": A, "b": B}

    def test_the_newest_of_a_key(self, store: Store):
        store.append(replace(A, status="failed"))
        store.append(B)
        store.append(A)
        assert Store(store.folder).read()["a"].is_done

    def test_what_came_since(self, store: Store):
        store.append(A)
        before = store.read()["a"]
        Store(store.folder).append(B)
        assert store.read() == {"a": A, "b": B}
        assert store.read()["a"] is before  # not read again

    def test_a_torn_last_line_is_not_read(self, store: Store):
        store.append(A)
        put(store, LINE[: len(LINE) // 2])
        assert store.read() == {"a": A}
        assert store.n_unreadable == 0  # it may still be written

    def test_a_line_that_is_written_in_two_parts(self, store: Store):
        put(store, LINE[:20])
        assert store.read() == {}
        put(store, LINE[20:] + b"\n")
        assert store.read() == {"a": A}

    @pytest.mark.parametrize(
        "garbage",
        [b"garbage", b'{"key": "a"}', b"\xff\xfe\x00", LINE[:-1], LINE.replace(b"tiny", b"\xff")],
        ids=["words", "another object", "bytes", "cut off", "a byte that is not UTF-8"],
    )
    def test_a_line_that_is_no_record(self, store: Store, garbage: bytes):
        put(store, B.to_json().encode() + b"\n" + garbage + b"\n")
        store.append(C)
        assert store.read() == {"b": B, "c": C}
        assert store.n_unreadable == 1

    def test_blank_lines(self, store: Store):
        put(store, b"\n\n  \n" + LINE + b"\r\n\n")
        assert store.read() == {"a": A}
        assert store.n_unreadable == 0

    @settings(max_examples=100)
    @given(st.binary(max_size=200))
    def test_any_bytes_between_records(self, tmp_path_factory: Any, noise: bytes):
        store = Store(tmp_path_factory.mktemp("noise"))
        store.append(A)
        put(store, noise)
        store.append(B)
        assert {"a": A, "b": B}.items() <= store.read().items()


class TestRepair:
    def test_what_is_cut_short_or_damaged_is_dropped(self, store: Store):
        put(store, b"garbage\n\n" + LINE[:-9] + b"\n" + LINE + b"\n" + LINE[:20])
        assert store.repair() == 3
        assert store.file.read_bytes() == LINE + b"\n"
        assert store.read() == {"a": A}
        assert store.n_unreadable == 0
        assert store.repair() == 0
        assert {path.name for path in store.folder.iterdir()} == {"runs.jsonl", ".lock"}

    def test_what_is_whole_stays(self, store: Store):
        newer = LINE[:-1] + b', "field_of_a_newer_version": 1}'
        put(store, newer + b"\n" + LINE)  # the last one lacks the end of the line only
        assert store.repair() == 0
        assert store.file.read_bytes() == newer + b"\n" + LINE + b"\n"
        assert store.read() == {"a": A}

    def test_nothing_there(self, store: Store):
        assert store.repair() == 0
        assert not store.file.exists()

    def test_another_runner_is_at_work(self, store: Store):
        put(store, b"a long line of garbage\n" + LINE + b"\n")
        assert store.read() == {"a": A}
        other = Store(store.folder)
        assert other.repair() == 1
        other.append(B)
        assert store.read() == {"a": A, "b": B}
        assert store.n_unreadable == 0


class TestAppending:
    def test_after_a_torn_line(self, store: Store):
        store.append(A)
        put(store, LINE[:-5])
        store.append(B)
        assert store.read() == {"a": A, "b": B}
        assert store.n_unreadable == 1
        assert store.file.read_bytes().count(b"\n") == 3

    def test_a_full_disk(self, store: Store, monkeypatch: pytest.MonkeyPatch):
        def fail(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("crlearn.bench._store.os.fsync", fail)
        with pytest.raises(OSError, match=r"No space left on device: '.*runs\.jsonl'"):
            store.append(A)

    def test_every_line_is_whole_at_once(self, store: Store):
        store.append(A)
        assert store.file.read_bytes() == LINE + b"\n"

    def test_letters_of_all_kinds(self, store: Store):
        record = replace(A, error="Varıcı\u2028 \x00 \n \r \U0001f600 \udc80")
        store.append(record)
        assert store.read() == {"a": record}
        assert store.file.read_bytes().count(b"\n") == 1

    def test_two_processes_lose_nothing_and_a_killed_one_frees_its_claim(
        self, store: Store, start: Start
    ):
        code = (
            "import sys, time; from pathlib import Path\n"
            "from dataclasses import replace\n"
            "from crlearn.bench import Record; from crlearn.bench._store import Store\n"
            "folder, name, other = Path(sys.argv[1]), sys.argv[2], sys.argv[3]\n"
            "record = Record.from_json(sys.argv[4]); store = Store(folder)\n"
            "(folder / name).touch()\n"
            "while not (folder / other).exists(): time.sleep(0.001)\n"
            "for i in range(200): store.append(replace(record, key=f'{name}{i}'))\n"
            "print(store.claim('a'), flush=True); sys.stdin.read()\n"
        )
        names = [("x", "y"), ("y", "x")]
        processes = [start("-c", code, store.folder, *pair, LINE.decode()) for pair in names]
        claimed = [process.stdout.readline() for process in processes]
        assert sorted(claimed) == ["False\n", "True\n"]
        assert not store.claim("a")
        holder = processes[claimed.index("True\n")]
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert store.claim("a")
        expected = {f"{name}{i}" for name in "xy" for i in range(200)}
        assert set(store.read()) == expected
        assert store.n_unreadable == 0
        assert store.file.read_bytes().count(b"\n") == 400


class TestClaims:
    def test_only_one_has_it(self, store: Store):
        other = Store(store.folder)
        assert store.claim("a")
        assert not other.claim("a")
        assert not store.claim("a")
        assert other.claim("b")

    def test_it_is_free_after_the_record(self, store: Store):
        other = Store(store.folder)
        store.claim("a")
        store.append(A)
        assert other.claim("a")
        assert other.read() == {"a": A}

    def test_it_is_free_when_it_is_handed_back(self, store: Store):
        other = Store(store.folder)
        store.claim("a")
        store.release("a")
        store.release("a")  # not ours any more: nothing happens
        assert other.claim("a")
        store.release("a")
        assert not Store(store.folder).claim("a")

    def test_closing_hands_all_back_and_tidies_up(self, store: Store):
        other = Store(store.folder)
        assert store.claim("a")
        assert store.claim("b")
        assert other.claim("c")
        store.close()
        assert (store.folder / ".claims").exists()  # the other is at work
        assert not Store(store.folder).claim("c")
        other.close()
        assert not (store.folder / ".claims").exists()
        assert store.claim("a")
