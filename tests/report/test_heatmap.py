from __future__ import annotations

import numpy as np

from crlearn.report._heatmap import correlation_map, environment_means


def test_cells_show_their_numbers_and_say_more_on_hover(parse):
    correlations = np.array([[0.91, 0.2], [0.1, 0.87]])
    plot = correlation_map(correlations, ["z0", "z1"], ["z1", "z0"], 2)
    text = parse(plot.svg).text
    assert {"0.91", "0.20", "true latent", "recovered latent", "absolute correlation"} <= set(text)
    assert "z0 and z1: absolute correlation 0.910" in text


def test_many_latents_have_hover_but_no_numbers(parse):
    correlations = np.full((30, 30), 0.25)
    names = [f"z{i}" for i in range(30)]
    text = parse(correlation_map(correlations, names, names, 30).svg).text
    assert "0.25" not in text
    assert "z3 and z29: absolute correlation 0.250" in text


def test_very_many_latents_become_one_image(parse):
    names = [f"z{i}" for i in range(60)]
    document = parse(correlation_map(np.full((60, 60), 0.25), names, names, 60).svg)
    assert document.all("image")
    assert not [text for text in document.text if "absolute correlation 0" in text]


def test_all_zero_can_be_drawn():
    correlation_map(np.zeros((2, 2)), ["z0", "z1"], ["z0", "z1"], 2)
    environment_means(np.zeros((2, 2)), ["a", "b"], ["z0", "z1"])


def test_the_most_unusual_environments_are_shown(parse):
    means = np.zeros((100, 2))
    means[70:75] = -1.5
    plot = environment_means(means, [f"env {i}" for i in range(100)], ["z0", "z1"])
    text = parse(plot.svg).text
    assert "env 72" in text
    assert "-1.50" in text
    assert "env 60" not in text
    assert "40 of 100 environments" in plot.caption
