from __future__ import annotations

import pytest

from crlearn import PCABaseline
from crlearn.cli._choices import (
    build_method,
    by_labels,
    first_line,
    label_of,
    make_world,
    read_settings,
)


def test_settings_are_read_as_pairs():
    pairs = ["max-epochs=50", "race = 0.5", "checkpoint=none", "sizes=[1, 2]", "name=a=b"]
    wanted = {"max_epochs": 50, "race": 0.5, "checkpoint": None, "sizes": (1, 2), "name": "a=b"}
    assert read_settings(pairs) == wanted
    with pytest.raises(ValueError, match=r"--set takes key=value.* Got 'epochs'"):
        read_settings(["epochs"])
    with pytest.raises(ValueError, match="begins like a list but is none"):
        read_settings(["sizes=[1, "])


def test_dictionaries_are_read_as_json_or_python():
    pairs = ['a={"x": [1, 2], "1": null}', "b={'x': 1, 2: (3, 4)}", "c={}", "d=[[0, 1], [0, 0]]"]
    assert read_settings(pairs) == {
        "a": {"x": (1, 2), "1": None},
        "b": {"x": 1, 2: (3, 4)},
        "c": {},
        "d": ((0, 1), (0, 0)),
    }
    for text in ("{drug: 0}", "{1, 2}", "{", '{"a": __import__("os")}'):
        with pytest.raises(ValueError, match=r"begins like a dictionary but is none.*--set 'targ"):
            read_settings([f"targets={text}"])


def test_keys_become_the_labels_of_the_data():
    given = {"targets": {"1": "a", 2: "b", "drug": "c"}, "n_latents": 2}
    assert by_labels(given, (1, 2)) == {"targets": {1: "a", 2: "b", "drug": "c"}}
    assert by_labels(given, ("1", "2", "drug")) == {"targets": {"1": "a", "2": "b", "drug": "c"}}
    assert label_of("2", (1, 2)) == 2
    with pytest.raises(
        ValueError, match=r"--reference must be one of the environments, 1, 2\. Got"
    ):
        label_of("x", (1, 2))


def test_methods_are_built_by_name():
    model = build_method("pca-baseline", {"n_latents": 2})
    assert isinstance(model, PCABaseline)
    assert model.n_latents == 2
    with pytest.raises(ValueError, match=r"There is no method 'pcb'\. There are: PCABaseline,"):
        build_method("pcb", {})
    with pytest.raises(ValueError, match=r"PCABaseline has no parameter 'depth'\. It has: n_lat"):
        build_method("PCABaseline", {"depth": 2})


def test_worlds_are_made_by_name():
    world = make_world("make_segments", {"n_latents": 2, "n_samples": 5, "n_segments": 3})
    assert world.X.shape == (15, 2)
    with pytest.raises(ValueError, match="There is no world 'segment'"):
        make_world("segment", {})
    with pytest.raises(ValueError, match="has no parameter 'rows'"):
        make_world("segments", {"rows": 5})


def test_first_line_of_the_documentation():
    assert first_line(first_line) == "Return the first line of the documentation."
