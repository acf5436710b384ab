from __future__ import annotations

import numpy as np

from crlearn import PCABaseline
from crlearn.metrics import METRICS
from crlearn.report._wording import cut, described, first_line, in_words, meaning, shown, unit


def test_metrics_are_explained_by_their_description():
    assert meaning("mcc") == METRICS["mcc"].description
    assert meaning("unheard of") == ""


def test_units():
    assert unit("mcc") == "1 is perfect"
    assert unit("relmse") == "0 is perfect"
    assert unit("evidence_gap") == "nats"
    assert unit("coverage") == "share"


def test_first_line_of_the_documentation():
    assert first_line(PCABaseline)
    assert "\n" not in first_line(PCABaseline)
    assert first_line(None) == ""


def test_values_of_parameters_are_short():
    assert shown("a") == "'a'"
    assert shown(np.zeros((3, 4))) == "array of shape (3, 4)"
    assert len(shown("x" * 1000)) == 80
    assert cut("abcdef", 4) == "abc…"


def test_settings_in_words():
    assert in_words(10000) == "10,000"
    assert in_words(None) == "–"
    assert in_words(True) == "True"
    assert described({"n_samples": 5000, "graph": "er"}) == "n_samples = 5,000, graph = er"
