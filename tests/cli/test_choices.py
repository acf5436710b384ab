from __future__ import annotations

import pytest

from crlearn import PCABaseline
from crlearn.cli._choices import build_method, first_line, make_world, read_settings


def test_settings_are_read_as_pairs():
    pairs = ["max-epochs=50", "race = 0.5", "checkpoint=none", "sizes=[1, 2]", "name=a=b"]
    wanted = {"max_epochs": 50, "race": 0.5, "checkpoint": None, "sizes": (1, 2), "name": "a=b"}
    assert read_settings(pairs) == wanted
    with pytest.raises(ValueError, match=r"--set takes key=value.* Got 'epochs'"):
        read_settings(["epochs"])
    with pytest.raises(ValueError, match="begins like a list but is none"):
        read_settings(["sizes=[1, "])


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
