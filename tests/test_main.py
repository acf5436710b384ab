from __future__ import annotations

import sys
from types import ModuleType

import pytest

from crlearn import __version__
from crlearn.__main__ import main


def test_it_runs_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["crlearn", "--version"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert capsys.readouterr().out == f"crlearn {__version__}\n"


def test_a_missing_extra_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for module in [name for name in sys.modules if name.startswith("crlearn.cli")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_an_interrupt_before_any_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    class Importing(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "crlearn.cli", Importing("crlearn.cli"))
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "warning: interrupted.\n"
