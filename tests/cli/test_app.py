from __future__ import annotations

import errno
import warnings
from typing import Any

import pytest
from typer.testing import CliRunner

from crlearn.cli import app


def raising(error: Exception) -> Any:
    def make(*_: Any, **__: Any) -> Any:
        raise error

    return make


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("n must be\n 3."), "error: n must be 3."),
        (MemoryError("1 TiB"), "error: There is not enough memory. Use fewer rows, features or"),
        (PermissionError(13, "Permission denied", "here"), "error: 'here' cannot be read or writ"),
        (
            OSError(errno.ENOSPC, "No space left on device", "here"),
            "error: 'here' cannot be read or written: No space left on device. Free some space on",
        ),
        (OSError(errno.EIO, "Input/output error"), "error: A file cannot be read or written: Inp"),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
):
    monkeypatch.setattr("crlearn.cli._choices.worlds", raising(error))
    result = CliRunner().invoke(app, ["simulate", "segments", "--out", "world.crl"])
    assert result.exit_code == 2
    assert result.stderr.startswith(words)
    assert result.stderr.count("\n") == 1


def test_our_own_mistakes_keep_their_traceback(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("crlearn.cli._choices.worlds", raising(ZeroDivisionError("ours")))
    result = CliRunner().invoke(app, ["simulate", "segments", "--out", "world.crl"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_warnings_are_one_line(monkeypatch: pytest.MonkeyPatch):
    def worlds() -> Any:
        warnings.warn("two\n lines", UserWarning, stacklevel=2)
        return {}

    monkeypatch.setattr("crlearn.cli._choices.worlds", worlds)
    result = CliRunner().invoke(app, ["simulate", "segments", "--out", "world.crl"])
    assert result.stderr.startswith("warning: two lines\n")
