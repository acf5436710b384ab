from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crlearn import PCABaseline
from crlearn.cli import _show
from crlearn.data import make_segments
from crlearn.metrics import evaluate
from crlearn.result import Check, Guarantee

WORLD = make_segments(n_latents=2, n_samples=20, n_segments=3, random_state=0)
MODEL = PCABaseline(n_latents=2).fit(WORLD.X)

Captured = pytest.CaptureFixture[str]


def test_a_dataset_in_words():
    assert _show.describe(WORLD) == "60 rows, 2 features, 3 environments, 2 known latents"


def test_a_result(capsys: Captured):
    _show.show_result("PCABaseline", MODEL.result_, [Path("model.crl")])
    text = capsys.readouterr().out
    assert "\nPCABaseline: 2 latents in " in text
    assert "columns vary" in text
    assert "holds" in text
    assert text.rstrip().endswith("wrote model.crl")


@pytest.mark.parametrize(
    ("passed", "first", "colour"),
    [
        (True, "All 2 checks of assumptions passed", "32"),
        (False, "WARNING: 1 assumption fails on these data", "31"),
        (None, "WARNING: 1 assumption could not be tested", "31"),
    ],
)
def test_what_fails_comes_first_and_in_colour(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, passed: bool | None, first: str, colour: str
):
    checks = (Check("rank", True, "full"), Check("linear", passed, "p = 0"))
    result = replace(MODEL.result_, checks=checks, guarantee=Guarantee("scale", "none", "scale"))
    _show.show_result("Some", result, [])
    plain = capsys.readouterr().out.splitlines()
    assert plain[0] == first
    if not passed:
        assert plain[1] == f"  {checks[1]}"
    assert plain[1 if passed else 2] == "guarantee: scale"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    _show.show_result("Some", result, [])
    assert capsys.readouterr().out.startswith(f"\x1b[1;{colour}m{first}")


def test_scores_stand_beside_chance(capsys: Captured):
    scores = evaluate(MODEL, WORLD)
    _show.show_evaluation(scores)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["metric", "value", "chance", "perfect"]
    (mcc,) = [line.split() for line in lines if line.startswith("mcc ")]
    assert mcc[1:] == [f"{scores['mcc']:.3f}", f"{scores.chance['mcc']:.3f}", "1"]
    _show.show_comparison([("PCABaseline", scores, 1.25)])
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "1.2"


def test_markup_of_users_is_printed_as_it_is(capsys: Captured):
    _show.say("[red]:smile:[/red]")
    _show.say_error("two\n lines")
    out, err = capsys.readouterr()
    assert out == "[red]:smile:[/red]\n"
    assert err == "error: two lines\n"


def test_json_and_nothing_else(capsys: Captured):
    _show.show_json({"a": [1, None]})
    assert json.loads(capsys.readouterr().out) == {"a": [1, None]}


def test_long_lines_are_not_broken_in_a_pipe(capsys: Captured):
    _show.show_lines(["name"], [["x" * 500]])
    assert "x" * 500 in capsys.readouterr().out


def test_numbers():
    shown = [_show._number(value) for value in (None, 3.0, np.pi)]
    assert shown == ["-", "3", "3.142"]
