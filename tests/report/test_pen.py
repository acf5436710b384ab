from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from crlearn.bench import Value
from crlearn.report._facets import Axis, Panel
from crlearn.report._outcome import SECONDS, Mark, key_of
from crlearn.report._pen import Pen, Scene, Style


def mark(
    method: str = "PCABaseline",
    *,
    ours: float | None = 0.8,
    sd: float = 0.1,
    seeds: Sequence[tuple[int, float]] = (),
    paper: float | None = None,
    paper_spread: float | None = None,
    chance: float | None = None,
    **more: Any,
) -> Mark:
    return Mark(
        setting=more.get("setting", {"n_samples": 5000}),
        method=method,
        metric=more.get("metric", "mcc"),
        ours=Value(ours, sd if ours is not None else None),
        n=0 if ours is None else max(1, len(seeds)),
        seeds=seeds,
        paper=Value(paper, paper_spread),
        chance=chance,
    )


def pen_of(*marks: Mark, upright: bool = True) -> Pen:
    by_setting = defaultdict(list)
    for one in marks:
        by_setting[key_of(one.setting)].append(one)
    methods = list(dict.fromkeys(one.method for one in marks))
    scene = Scene(marks[0].metric, by_setting, methods, "standard error")
    return Pen(scene, marks, upright)


def names_in_legend(pen: Pen) -> list[str]:
    figure = Figure(figsize=(6, 2), layout="constrained")
    pen.legend(figure)
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_seventy_methods_look_different():
    methods = [f"method {i}" for i in range(70)]
    scene = Scene("mcc", {}, methods, "")
    assert len({scene.style(method) for method in methods}) == 70
    assert len({scene.style(method).shape for method in methods[:7]}) == 7
    assert scene.style("method 0") == Style("#0072b2", "o")


def test_hover_texts_name_method_setting_seed_and_paper():
    seeds = [(0, 0.75), (1, 0.85)]
    pen = pen_of(mark(seeds=seeds, paper=0.98, paper_spread=0.02))
    pen.series(Figure().subplots(), "PCABaseline", [(1.0, pen.marks[0])], 0.1, joined=True)
    said = [text for texts in pen.hover.values() for text in texts]
    assert said == [
        "PCABaseline, n_samples = 5,000, seed 0: mcc 0.75",
        "PCABaseline, n_samples = 5,000, seed 1: mcc 0.85",
        "PCABaseline, n_samples = 5,000, published: mcc 0.980 ± 0.020 (± standard error); "
        "ours 0.800 ± 0.100",
        "PCABaseline, n_samples = 5,000: mcc 0.800 ± 0.100 (mean ± sd of 2 seeds); "
        "paper 0.980 ± 0.020",
    ]


def test_the_legend_has_what_is_drawn_and_nothing_else():
    assert names_in_legend(pen_of(mark())) == ["PCABaseline"]
    pen = pen_of(mark(seeds=[(0, 0.8)], paper=0.9, chance=0.5), mark("VaDE", ours=None, paper=0.4))
    assert names_in_legend(pen) == ["PCABaseline", "paper: VaDE", "published", "one seed", "chance"]


def test_many_names_take_several_rows_of_legend():
    few, many = pen_of(mark()), pen_of(*(mark(f"a method with the name {i}") for i in range(9)))
    assert many.legend_height(5.0) > few.legend_height(5.0) + 0.3


@pytest.mark.parametrize("upright", [True, False])
def test_bars_are_as_long_as_the_spread(upright: bool):
    pen = pen_of(mark(ours=0.5, sd=0.2), upright=upright)
    axes = Figure().subplots()
    pen.series(axes, "PCABaseline", [(3.0, pen.marks[0])], 0.1, joined=False)
    (bars,) = axes.collections
    ends = np.asarray(bars.get_paths()[0].vertices)
    assert ends[:, int(upright)].tolist() == pytest.approx([0.3, 0.7])
    assert ends[:, int(not upright)].tolist() == [3.0, 3.0]


def test_chance_is_one_line_if_it_is_the_same_everywhere_but_for_rounding():
    marks = [mark(chance=0.7, setting={"n": 1}), mark(chance=0.7 + 1e-12, setting={"n": 2})]
    pen, axes = pen_of(*marks), Figure().subplots()
    pen.levels(axes, [(0, {"n": 1}), (1, {"n": 2})], joined=False)
    assert list(pen.hover.values()) == ["chance: mcc 0.700"]


@pytest.mark.parametrize(
    ("joined", "said"),
    [(True, ["chance: mcc 0.700 to 0.500"]), (False, ["chance: mcc 0.700", "chance: mcc 0.500"])],
)
def test_chance_that_differs(joined: bool, said: list[str]):
    marks = [mark(chance=0.7, setting={"n": 1}), mark(chance=0.5, setting={"n": 2})]
    pen, axes = pen_of(*marks), Figure().subplots()
    pen.levels(axes, [(0, {"n": 1}), (1, {"n": 2})], joined=joined)
    assert list(pen.hover.values()) == said


def test_no_chance_no_line():
    pen, axes = pen_of(mark(setting={"n": 1})), Figure().subplots()
    pen.levels(axes, [(0, {"n": 1})], joined=True)
    assert not axes.lines


def test_nats_have_no_perfect_value():
    assert Scene("evidence_gap", {}, [], "standard error").label == "evidence_gap (nats)"
    assert Scene("coverage", {}, [], "standard error").label == "coverage (share)"
    assert Scene("mac", {}, [], "standard error").label == "mac (1 is perfect)"


def test_scales():
    assert pen_of(mark(metric=SECONDS, ours=0.0)).is_logarithmic
    errors = [mark(metric="relmse", ours=value, setting={"n": value}) for value in (0.01, 2.0)]
    assert pen_of(*errors).is_logarithmic
    assert not pen_of(*errors, mark(metric="relmse", seeds=[(0, 0.0)])).is_logarithmic
    assert not pen_of(mark(ours=0.001), mark("other", ours=1.0)).is_logarithmic


@pytest.mark.parametrize("zero", [0.0, 1e-30])
def test_what_is_zero_does_not_decide_on_the_scale(zero: float):
    known = mark("Known", metric="frobenius", ours=zero, sd=0.0, seeds=[(0, zero), (1, 0.0)])
    errors = [mark(metric="frobenius", ours=x, sd=0.0, setting={"n": x}) for x in (0.5, 100.0)]
    pen, axes = pen_of(known, *errors), Figure().subplots()
    assert pen.is_logarithmic
    assert pen.caption.endswith("What is 0 up to rounding stands at its lower end.")
    pen.series(axes, "Known", [(1.0, known)], 0.1, joined=True)
    assert {float(y) for line in axes.lines for y in np.asarray(line.get_ydata())} == {0.25}


def test_points_are_bounded_and_the_caption_says_so():
    seeds = [(seed, 0.5) for seed in range(100)]
    pen = pen_of(*(mark(f"m{i}", seeds=seeds) for i in range(60)))
    assert pen.seeds_each == 20
    assert "the first 20 of 100" in pen.caption
    axes = Figure().subplots()
    pen.series(axes, "m0", [(0.0, pen.marks[0])], 0.1, joined=False)
    assert np.size(axes.lines[0].get_xdata()) == 20
    assert "first" not in pen_of(mark(seeds=seeds)).caption


def test_the_caption_says_what_the_marks_are():
    caption = pen_of(mark(seeds=[(0, 1.0)], paper=0.9, paper_spread=0.1, chance=0.5)).caption
    assert "published, ± standard error" in caption
    assert "chance" in caption
    assert "published" not in pen_of(mark()).caption


def test_bars_on_a_logarithmic_scale_end_above_zero_and_the_caption_says_so():
    long, short = (mark(metric=SECONDS, ours=1.0, sd=sd) for sd in (3.0, 0.5))
    assert pen_of(short).caption.endswith("The scale is logarithmic.")
    assert "bars end above 0" in pen_of(long).caption
    pen, axes = pen_of(long), Figure().subplots()
    pen.series(axes, "PCABaseline", [(0.0, long)], 0.1, joined=False)
    ends = np.asarray(axes.collections[0].get_paths()[0].vertices)
    assert ends[:, 1].tolist() == pytest.approx([0.1, 4.0])


def test_in_words():
    pen = pen_of(*(mark(f"m{i}") for i in range(13)))
    assert pen.in_words("n_samples").startswith("mcc (1 is perfect) by n_samples, of m0, m1,")
    assert "m9 and 3 more" in pen.in_words("n_samples")


def test_the_slope_of_theory_is_drawn_in_logarithms():
    settings = [{"n_samples": size} for size in (100, 10000)]
    marks = [
        mark(method, setting=setting, metric="scale_error", ours=value)
        for setting, values in zip(settings, [(0.9, 0.8), (0.2, 0.05)], strict=True)
        for method, value in zip(("A", "B"), values, strict=True)
    ]
    by_setting = {
        key_of(setting): [m for m in marks if m.setting == setting] for setting in settings
    }
    theory = {key_of(setting): -0.5 for setting in settings}
    scene = Scene("scale_error", by_setting, ["A", "B"], "", "n_samples", theory)
    pen = Pen(scene, marks, upright=True, has_theory=True)
    axes = Figure().subplots()
    panel = Panel(Axis("n_samples", [100, 10000]), {}, settings)
    pen.theory(axes, panel)
    assert axes.lines[0].get_xdata() == pytest.approx([2, 4])
    assert axes.lines[0].get_ydata() == pytest.approx([0.5, 0.05])
    assert pen.is_logarithmic
    assert names_in_legend(pen) == ["A", "B", "slope in theory"]
    assert scene.slope_in(replace(panel, axis=Axis("n_samples", [100, 200]))) is None
