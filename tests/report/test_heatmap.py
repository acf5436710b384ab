from __future__ import annotations

import numpy as np

from crlearn.report._heatmap import correlation_map, environment_means, mean_noise_map
from crlearn.report._matched import Matched


def independent(n: int) -> Matched:
    """Latents that are recovered exactly and have no correlation with each other."""
    Z = np.concatenate([np.eye(n), -np.eye(n)])
    return Matched.of(Z, Z[:, ::-1], np.stack([np.arange(n), np.arange(n)[::-1]], axis=1))


def test_cells_show_their_numbers_and_say_more_on_hover(parse):
    text = parse(correlation_map(independent(2)).svg).text
    assert {"1.00", "0.00", "true latent", "recovered latent", "absolute correlation"} <= set(text)
    assert "z0 and z1: absolute correlation 1.000" in text
    assert "z0 and z0: absolute correlation 0.000" in text


def test_noises_have_names_of_their_own(parse):
    noises = independent(2)
    drawn = correlation_map(Matched(*list(vars(noises).values())[:5], kind="noise"))
    assert {"true noise", "recovered noise"} <= set(parse(drawn.svg).text)
    mean = mean_noise_map(np.array([[0.9, 0.2], [0.1, 0.8]]), "of a test", 3)
    assert "e1 and e0: absolute correlation 0.100" in parse(mean.svg).text
    assert mean.caption.startswith("of a test: ")
    assert mean.caption.endswith("mean over 3 runs.")


def test_many_latents_have_hover_but_no_numbers(parse):
    text = parse(correlation_map(independent(30)).svg).text
    assert "0.00" not in text
    assert "z3 and z26: absolute correlation 1.000" in text


def test_very_many_latents_become_one_image(parse):
    document = parse(correlation_map(independent(60)).svg)
    assert document.all("image")
    assert not [text for text in document.text if "absolute correlation 0" in text]


def test_constant_latents_can_be_drawn():
    correlation_map(Matched.of(np.ones((3, 2)), np.ones((3, 2)), np.array([[0, 0], [1, 1]])))
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
