from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from itertools import product

import pytest

from crlearn.bench import Value
from crlearn.report._comparison import metric_by_axis, metric_by_row
from crlearn.report._facets import arrange
from crlearn.report._outcome import Mark, key_of
from crlearn.report._pen import Scene


def scene_of(settings, methods=("A", "B"), seeds=2, metric="mcc", **changes) -> Scene:
    marks = defaultdict(list)
    for i, (setting, method) in enumerate(product(settings, methods)):
        values = [(seed, 0.5 + 0.01 * seed + 0.001 * i) for seed in range(seeds)]
        mark = Mark(setting, method, metric, Value(0.5, 0.1), seeds, values, Value(), 0.4)
        marks[key_of(setting)].append(replace(mark, **changes))
    return Scene(metric, marks, methods, "standard error")


def grid(**axes) -> list[dict]:
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def titles(svg: str) -> list[str]:
    return re.findall(r"<title>([^<]*)</title>", svg)


def test_panels_have_axes_titles_and_hover_texts(parse):
    settings = grid(n_latents=[5, 8], n_samples=[100, 1000, 10000])
    panels, _ = arrange(settings)
    plot = metric_by_axis(scene_of(settings), panels)
    document = parse(plot.svg)
    text = [part.replace("\N{NO-BREAK SPACE}", " ") for part in document.text]
    assert text.count("n_samples, log scale") == 2
    assert {"mcc (1 is perfect)", "n_latents = 5", "n_latents = 8", "A", "B", "chance"} <= set(text)
    assert {"100", "1,000", "10,000"} <= set(text)
    assert "by n_samples, of A, B" in (document.all("svg")[0]["aria-label"] or "")
    said = titles(plot.svg)
    assert len(said) == 6 * 2 * (2 + 1) + 2
    assert "B, n_latents = 8, n_samples = 10,000, seed 1: mcc 0.521" in said
    assert "plots are drawn" not in plot.caption


def test_the_slope_of_theory_goes_through_the_best_on_the_right(parse):
    settings = grid(n_latents=[5, 8], n_samples=[100, 1000, 10000])
    panels, _ = arrange(settings)
    scene = scene_of(settings, metric="scale_error")
    assert "slope in theory" not in metric_by_axis(scene, panels).svg
    theory = {key_of(setting): -0.5 for setting in settings if setting["n_latents"] == 8}
    along = replace(scene, along="n_samples", theory=theory)
    plot = metric_by_axis(along, panels)
    assert titles(plot.svg).count("slope in theory: -0.5") == 1
    assert "slope in theory" in parse(plot.svg).text
    assert "Dotted is the slope that theory has" in plot.caption
    assert "The scale is logarithmic" in plot.caption
    other = replace(scene, along="n_latents", theory=theory)
    assert "slope in theory" not in metric_by_axis(other, panels).svg


def test_every_point_has_its_own_text(parse):
    settings = grid(n_samples=[100, 200])
    plot = metric_by_axis(scene_of(settings, seeds=3), arrange(settings)[0])
    groups = re.findall(r"<use [^>]*><title>([^<]*)</title>", plot.svg)
    assert len(groups) == len(set(groups)) == 2 * 2 * (3 + 1)


def test_panels_are_bounded(parse):
    settings = grid(n_latents=list(range(2, 22)), n_samples=range(100, 2200, 100))
    plot = metric_by_axis(scene_of(settings, seeds=1), arrange(settings)[0])
    assert "12 of 20 plots are drawn" in plot.caption
    crowded = scene_of(settings, methods=[f"m{i}" for i in range(30)], seeds=1)
    assert "2 of 20 plots are drawn" in metric_by_axis(crowded, arrange(settings)[0]).caption


def test_kinds_on_an_axis(parse):
    settings = [
        {"n_latents": 3, "mechanism": "a long name of a mechanism"},
        {"n_latents": 3, "mechanism": "another long name of one"},
        {"n_latents": 4, "mechanism": "a long name of a mechanism"},
    ]
    panels, others = arrange(settings)
    assert others == []
    text = parse(metric_by_axis(scene_of(settings), panels).svg).text
    assert {"mechanism", "n_latents", "another long name of one"} <= set(text)


def test_rows_of_settings(parse):
    settings = grid(graph=["chain", "er"], mechanism=["sin", "mlp"])
    plot = metric_by_row(scene_of(settings), settings)
    text = parse(plot.svg).text
    assert {"graph, mechanism", "chain, sin", "er, mlp", "mcc (1 is perfect)"} <= set(text)
    assert "A, graph = er, mechanism = mlp, seed 0: mcc 0.506" in titles(plot.svg)


def test_rows_of_methods_if_there_is_one_setting(parse):
    plot = metric_by_row(scene_of([{}]), [{}])
    assert {"method", "A", "B", "mcc (1 is perfect)"} <= set(parse(plot.svg).text)
    assert "A, seed 0: mcc 0.5" in titles(plot.svg)


def test_rows_are_bounded():
    settings = [{"kind": f"k{i}"} for i in range(60)]
    plot = metric_by_row(scene_of(settings), settings)
    assert "40 of 60 settings are drawn" in plot.caption


def test_times_of_nothing_and_of_much_fit_a_logarithmic_axis(parse):
    settings = grid(n_samples=[100, 200])
    for seconds in (0.0, 1e6):
        plot = metric_by_axis(
            scene_of(settings, metric="seconds", ours=Value(seconds, seconds), chance=None),
            arrange(settings)[0],
        )
        text = parse(plot.svg).text
        assert "seconds to fit" in text
        assert not any("mathdefault" in part for part in text)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "</title>", "$x$", "a\x1b\x00b"])
def test_hostile_names(parse, name: str):
    settings = [{"n_samples": 1, "graph": name}, {"n_samples": 2, "graph": name}]
    panels, _ = arrange([{**s, "graph": name} for s in settings])
    scene = scene_of(settings, methods=(name, "B"))
    for plot in (metric_by_axis(scene, panels), metric_by_row(scene, settings)):
        assert not parse(plot.svg.replace("\x1b", "").replace("\x00", "")).all("script")


def test_same_figure_same_bytes():
    settings = grid(n_samples=[100, 200])
    panels, _ = arrange(settings)
    assert metric_by_axis(scene_of(settings), panels) == metric_by_axis(scene_of(settings), panels)
