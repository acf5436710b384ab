from __future__ import annotations

import pytest

from crlearn.config import config_context
from crlearn.progress import progress_bar


def test_nothing_is_printed_in_a_pipeline(capfd: pytest.CaptureFixture[str]):
    with config_context(progress="auto"), progress_bar("work", 3) as advance:
        advance("note")
    assert capfd.readouterr() == ("", "")


def test_a_bar_is_printed_when_it_is_asked_for(capfd: pytest.CaptureFixture[str]):
    with config_context(progress=True), progress_bar("work", 3, done=1) as advance:
        advance("loss 1.5")
    output = capfd.readouterr()
    assert output.out == ""
    assert "work" in output.err
    assert "2/3" in output.err
