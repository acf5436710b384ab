"""Images: what each latent does to them, and what is left of them after the latents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crlearn.report._svg import Sketch, drawn, panels

Images = NDArray[Any]
Decoder = Callable[[NDArray[np.floating]], NDArray[Any]]

_STEPS = 7  # of a latent over its range
_TAIL = 0.02  # share of the rows that lie beyond each end of the range
_EXAMPLES = 8
_PIXELS_BETWEEN = 1
_WIDTH = 7.6  # inches
_CHANNELS = (1, 3)
_GREY = 0.5  # between the images, on the light and on the dark page


def image_shape_of(sample_shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of a sample that can be shown: grey or coloured, channels first or last."""
    if len(sample_shape) == 2 and min(sample_shape) > 1:
        return sample_shape
    if len(sample_shape) == 3 and (sample_shape[0] in _CHANNELS or sample_shape[2] in _CHANNELS):
        return sample_shape
    return None


@drawn
def traversals(
    decoder: Decoder, latents: NDArray[np.floating], names: Sequence[str], shape: tuple[int, ...]
) -> Sketch:
    """Draw one row for each latent: it moves over its range, the others stay at their means."""
    levels = np.linspace(_TAIL, 1 - _TAIL, _STEPS)
    rows = []
    for j in range(latents.shape[1]):
        moved = np.tile(latents.mean(axis=0), (_STEPS, 1))
        moved[:, j] = np.quantile(latents[:, j], levels)
        rows.append(in_colours(decoder(moved), shape))
    return _tiled(
        _on_one_scale(rows),
        names,
        f"Images as each of {len(names)} latents moves over its range.",
        f"Each latent from its {_TAIL:.0%} to its {1 - _TAIL:.0%} quantile, the others at their "
        "means, decoded.",
    )


@drawn
def reconstructions(
    decoder: Decoder, latents: NDArray[np.floating], X: Images, shape: tuple[int, ...]
) -> Sketch:
    """Draw some images, and below each what the model makes of its latents."""
    some = np.linspace(0, len(X) - 1, min(_EXAMPLES, len(X))).round().astype(int)
    rows = [in_colours(X[some], shape), in_colours(decoder(latents[some]), shape)]
    return _tiled(
        _on_one_scale(rows),
        ["image", "decoded"],
        f"{len(some)} images and their reconstructions.",
        "Images of the data, and below each its reconstruction from the latents.",
    )


def in_colours(images: Images, shape: tuple[int, ...]) -> NDArray[np.floating]:
    """Return images as ``(rows, height, width, 3)``, in units of their own."""
    images = np.asarray(images, dtype=float).reshape(len(images), *shape)
    if len(shape) == 2:
        images = images[..., None]
    elif shape[2] not in _CHANNELS:
        images = np.moveaxis(images, 1, -1)
    return np.broadcast_to(images, (*images.shape[:3], 3))


def _on_one_scale(rows: Sequence[NDArray[np.floating]]) -> list[NDArray[np.floating]]:
    """Bring values to the range from 0 to 1: those of 8 bits, or whatever they span."""
    low, high = min(row.min() for row in rows), max(row.max() for row in rows)
    if low >= 0 and high <= 255:
        low, high = 0.0, 1.0 if high <= 1 else 255.0
    return [(row - low) / max(high - low, 1e-300) for row in rows]


def _tiled(
    rows: Sequence[NDArray[np.floating]], names: Sequence[str], label: str, caption: str
) -> Sketch:
    """Draw rows of images as one picture."""
    between = ((0, 0), (0, _PIXELS_BETWEEN), (0, _PIXELS_BETWEEN), (0, 0))
    lines = [np.pad(row, between, constant_values=_GREY) for row in rows]
    mosaic = np.concatenate([np.concatenate(list(line), axis=1) for line in lines])
    mosaic = mosaic[:-_PIXELS_BETWEEN, :-_PIXELS_BETWEEN]
    height = mosaic.shape[0] / len(rows)
    figure, grid = panels(1, 1, _WIDTH, _WIDTH * mosaic.shape[0] / mosaic.shape[1])
    axes = grid[0, 0]
    axes.imshow(mosaic, interpolation="nearest")
    axes.set_yticks(height * (np.arange(len(rows)) + 0.5), names)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return Sketch(figure, label, caption)
