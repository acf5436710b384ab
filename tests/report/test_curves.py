from __future__ import annotations

import numpy as np

from crlearn.report._curves import count_curve, training_curve


def history(losses, restarts=(1.0,)) -> dict[str, np.ndarray]:
    losses = np.asarray(losses, dtype=float)
    return {
        "epoch": np.arange(1, len(losses) + 1),
        "train_loss": losses - 0.01,
        "validation_loss": losses,
        "restart_loss": np.asarray(restarts, dtype=float),
    }


def test_axes_are_labelled_and_the_kept_epoch_is_named(parse):
    plot = training_curve(history([3, 2, 1, 1.5]), stopped="early")
    assert {"epoch", "loss", "training", "held out", "kept weights"} <= set(parse(plot.svg).text)
    assert "at epoch 3" in plot.caption
    assert "stopped early" in plot.caption


def test_restarts_are_drawn_if_there_are_several(parse):
    assert "restart" not in parse(training_curve(history([2, 1])).svg).text
    plot = training_curve(history([2, 1], restarts=[1, np.inf, 3]))
    assert {"restart", "best held-out loss"} <= set(parse(plot.svg).text)
    assert "3 restarts" in plot.caption


def test_positive_losses_over_many_scales_get_a_logarithmic_axis(parse):
    plot = training_curve(history(np.geomspace(1000, 1, 50)))
    assert "logarithmic" in plot.caption
    assert "1,000" in parse(plot.svg).text


def test_a_steep_start_does_not_hide_the_end():
    losses = np.concatenate([[500.0, 300.0], np.linspace(-1, -2, 98)])
    assert "above the frame" in training_curve(history(losses)).caption
    assert "above the frame" not in training_curve(history(np.linspace(3, 2, 50))).caption


def test_epochs_that_were_not_finite_are_left_out():
    assert "at epoch 3" in training_curve(history([np.nan, 2, 1])).caption


def test_a_single_epoch_can_be_drawn():
    assert "at epoch 1" in training_curve(history([1.0])).caption


def test_what_is_left_beside_each_number_of_latents(parse):
    nothing = np.full(3, np.nan)
    plot = count_curve(np.array([900.0, 30.0, 0.9]), nothing, 2)
    words = set(parse(plot.svg).text)
    assert {"number of latents", "left beside them", "in all rows", "noise alone"} <= words
    assert "in changes of environments" not in words
    assert "2 latents were taken" in plot.caption
    both = count_curve(np.array([3.0, 2.0, 0.9]), np.array([np.nan, 2.0, 0.8]), 2)
    assert "in changes of environments" in parse(both.svg).text
