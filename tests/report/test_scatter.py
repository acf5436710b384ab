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


def test_environments_have_colours_and_the_smaller_ones_share_grey(parse):
    y = np.repeat(np.array(["a", "b", "c", "<d>", "e", "f"]), [20, 20, 20, 20, 10, 10])
    coloring = Coloring.by_environment(y, 100)
    assert [label for label, _, _ in coloring.groups] == ["2 others", "<d>", "a", "b", "c"]
    assert "4 of 6 environments" in coloring.note
    document = parse(pair_plot(latents(2, 100), names(2), coloring).svg)
    assert {"environment", "<d>", "2 others"} <= set(document.text)


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
