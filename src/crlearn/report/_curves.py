"""Curves: losses of a training, and what is left beside each number of latents."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from crlearn.report._svg import (
    BLUE,
    GREY,
    ORANGE,
    VERMILLION,
    Sketch,
    drawn,
    logarithmic,
    panels,
    soften,
)

Curve = NDArray[np.floating]

_FEW_EPOCHS = 20
_LOG_FROM = 30.0  # ratio of the largest to the smallest loss
_STEEP_FROM = 4.0  # first losses this many times as far above the rest as the rest is high


@drawn
def training_curve(history: Mapping[str, Curve], stopped: str | None = None) -> Sketch:
    """Draw training and held-out loss by epoch, and where each restart ended."""
    epochs, train = history["epoch"], history["train_loss"]
    held_out = history["validation_loss"]
    restarts = history.get("restart_loss", np.empty(0))
    several = len(restarts) > 1
    figure, grid = panels(1, 1 + several, 7.6, 3.0, width_ratios=[3, 1] if several else None)
    axes = grid[0, 0]
    marker = "o" if len(epochs) < _FEW_EPOCHS else ""
    axes.plot(epochs, train, color=GREY, lw=1.4, label="training", marker=marker, ms=3)
    axes.plot(epochs, held_out, color=BLUE, lw=1.6, label="held out", marker=marker, ms=3)
    best = int(np.nanargmin(held_out))
    axes.plot(epochs[best], held_out[best], "o", color=VERMILLION, ms=6, label="kept weights")
    axes.set(xlabel="epoch", ylabel="loss")
    axes.legend()
    note = _fit_the_axis(axes, np.concatenate([train, held_out]), len(epochs))
    soften(axes)
    if several:
        _draw_restarts(grid[0, 1], restarts)
        note += (
            f" On the right the best held-out loss of each of the {len(restarts)} restarts; the "
            "lowest goes on, the others may have been stopped earlier."
        )
    return Sketch(
        figure,
        f"Training and held-out loss over {int(epochs[-1])} epochs; the lowest held-out loss, "
        f"{held_out[best]:.4g}, is at epoch {int(epochs[best])}.",
        f"The lowest held-out loss is {held_out[best]:.4g}, at epoch {int(epochs[best])}; the "
        f"weights of that epoch are kept.{_ending(stopped)}{note}",
    )


@drawn
def count_curve(beside: Curve, changes: Curve, n_latents: int) -> Sketch:
    """Draw what is left beside 0, 1, ... latents, as a multiple of what noise alone has."""
    numbers = np.arange(len(beside))
    figure, grid = panels(1, 1, 5.2, 2.8)
    axes = grid[0, 0]
    axes.plot(numbers, beside, "o-", color=BLUE, lw=1.4, ms=4, label="in all rows")
    if np.isfinite(changes).any():
        axes.plot(
            numbers, changes, "s-", color=ORANGE, lw=1.4, ms=4, label="in changes of environments"
        )
    axes.axhline(1.0, color=GREY, lw=1.0, ls="--", label="noise alone")
    axes.set(xlabel="number of latents", ylabel="left beside them")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    first = int(np.isfinite(beside).argmax())
    finite = beside[np.isfinite(beside)]
    if finite.min() > 0 and finite.max() / finite.min() > _LOG_FROM:
        logarithmic(axes, "y")
    soften(axes)
    return Sketch(
        figure,
        f"What is left beside {first} to {len(beside) - 1} latents, over what noise alone has; "
        f"{n_latents} latents were taken.",
        "What features have in common beside each number of latents, as a multiple of the most "
        "that noise alone has (or rounding, if there is no noise). "
        f"{n_latents} latents were taken.",
    )


def _ending(stopped: str | None) -> str:
    return {
        "early": " Training stopped early because the held-out loss no longer fell.",
        "max_epochs": " Training went on to the last epoch that was asked for.",
        "interrupted": " Training was interrupted.",
    }.get(stopped or "", "")


def _fit_the_axis(axes: Axes, losses: Curve, n_epochs: int) -> str:
    """Choose a scale on which the end of the curve can be read; return what was done to it."""
    losses = losses[np.isfinite(losses)]
    low, high = float(losses.min()), float(losses.max())
    if low > 0 and high / low > _LOG_FROM:
        logarithmic(axes, "y")
        return " The loss axis is logarithmic."
    later = losses.reshape(-1) if n_epochs < 10 else np.sort(losses)[: int(0.9 * len(losses))]
    top = float(later.max())
    if high - top > _STEEP_FROM * (top - low):
        margin = 0.08 * (top - low)
        axes.set_ylim(low - margin, top + margin)
        return " The first epochs lie above the frame."
    return ""


def _draw_restarts(axes: Axes, losses: Curve) -> None:
    finite = np.isfinite(losses)
    best = int(np.nanargmin(np.where(finite, losses, np.nan)))
    numbers = np.arange(1, len(losses) + 1)
    axes.plot(numbers[finite], losses[finite], "o", color=GREY, ms=5)
    axes.plot(numbers[best], losses[best], "o", color=VERMILLION, ms=6)
    axes.set(xlabel="restart", ylabel="best held-out loss", xlim=(0.4, len(losses) + 0.6))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    soften(axes)
