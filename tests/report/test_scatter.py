from __future__ import annotations

import numpy as np
import pytest

from crlearn.report._matched import Matched
from crlearn.report._scatter import Coloring, latents_against, pair_plot, scatter_matrix


def names(n: int) -> list[str]:
    return [f"z{i}" for i in range(n)]


def latents(n: int, rows: int = 60) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, n))


def matrix(n_true: int, n_recovered: int, rows: int = 60):
    pairs = np.repeat(np.arange(min(n_true, n_recovered))[:, None], 2, axis=1)
    Z, Z_hat = latents(n_true, rows), latents(n_recovered, rows)
    return scatter_matrix(Matched.of(Z, Z_hat, pairs))


@pytest.mark.parametrize(("n_true", "n_recovered"), [(1, 1), (3, 3), (2, 4), (4, 2)])
def test_every_true_latent_meets_every_recovered_one(parse, n_true: int, n_recovered: int):
    document = parse(matrix(n_true, n_recovered).svg)
    assert len(document.all("image")) == n_true * n_recovered
    assert {f"true z{i}" for i in range(n_true)} <= set(document.text)
    assert {f"recovered z{i}" for i in range(n_recovered)} <= set(document.text)


def test_many_latents_are_drawn_as_matched_pairs_only(parse):
    plot = matrix(20, 20)
    assert len(parse(plot.svg).all("image")) == 20
    assert "only the 20 matched pairs" in plot.caption


def test_very_many_latents_are_cut_off_and_that_is_said(parse):
    plot = matrix(40, 40)
    assert len(parse(plot.svg).all("image")) == 24
    assert "the first 24 of 40 matched pairs" in plot.caption


def test_many_rows_are_thinned_and_that_is_said():
    assert "2,000 of 2,500 rows" in matrix(1, 1, rows=2500).caption
    assert "random choice" not in matrix(1, 1).caption


def test_eight_environments_have_eight_colours(parse):
    y = np.repeat(np.array(["<d>", *"abcefgh"]), 10)
    coloring = Coloring.by_environment(y, 80)
    assert len({group.color for group in coloring.groups}) == 8
    assert not coloring.note
    plot = pair_plot(latents(2, 80), names(2), coloring)
    document = parse(plot.svg)
    assert {"environment", "<d>", "h"} <= set(document.text)
    assert all(group.color in plot.svg for group in coloring.groups)


def test_when_colours_end_the_next_environments_have_another_pattern(parse):
    y = np.repeat([f"e{i:02}" for i in range(12)], 5)
    coloring = Coloring.by_environment(y, 60)
    looks = [(group.color, group.marker, group.line) for group in coloring.groups]
    assert len(set(looks)) == 12
    assert coloring.groups[0].color == coloring.groups[10].color
    plot = pair_plot(latents(2), names(2), coloring)
    assert "stroke-dasharray" in plot.svg
    assert {"e00", "e11"} <= set(parse(plot.svg).text)


def test_the_smallest_of_many_environments_share_grey():
    y = np.repeat([f"e{i:02}" for i in range(23)], [9] * 20 + [2] * 3)
    coloring = Coloring.by_environment(y, len(y))
    assert coloring.groups[0].label == "3 others"
    assert len(coloring.groups) == 21
    assert "20 of 23 environments" in coloring.note
    assert sum(group.rows.sum() for group in coloring.groups) == len(y)


@pytest.mark.parametrize("y", [None, np.linspace(0, 1, 60)])
def test_without_labels_there_is_one_colour(y):
    coloring = Coloring.by_environment(y, 60)
    assert len(coloring.groups) == 1
    assert "environment" not in pair_plot(latents(3), names(3), coloring).caption


def test_many_latents_are_histograms_only(parse):
    plot = pair_plot(latents(9), names(9), Coloring.by_environment(None, 60))
    assert not parse(plot.svg).all("image")
    assert "pairs are not drawn" in plot.caption


def test_latents_against_a_continuous_y(parse):
    plot = latents_against(latents(3), names(3), np.linspace(0, 1, 60))
    assert len(parse(plot.svg).all("image")) == 3
    assert "Each latent against y" in plot.caption
