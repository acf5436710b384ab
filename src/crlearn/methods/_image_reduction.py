"""Images brought to as many numbers as there are latents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crlearn.flows import learn_image_autoencoder
from crlearn.methods._reduction import (
    CodesInverse,
    Composed,
    ComposedDecoder,
    Reduction,
)
from crlearn.result import Check
from crlearn.tags import stored

Images = NDArray[Any]

_CHANNELS = (1, 3)  # grey or coloured
# Share of the variance of images: with all four positions of two balls 0.004 to 0.031 were lost
# (eight worlds), with six of three balls 0.09, with three codes in place of four 0.41, two 0.51.
_MOST_LOST = 0.1


@stored("map/channels-first")
@dataclass(frozen=True)
class ChannelsFirst:
    """Images as they come, with their channels before height and width.

    Attributes
    ----------
    shape
        Of an image as it comes: height and width, with channels before or after them.
    """

    shape: tuple[int, ...]

    @property
    def last(self) -> bool:
        """Whether the channels come last."""
        return (
            len(self.shape) == 3 and self.shape[0] not in _CHANNELS and self.shape[2] in _CHANNELS
        )

    def __call__(self, X: Images) -> Images:
        """Return ``(rows, channels, height, width)``."""
        if len(self.shape) == 2:
            return X[:, None]
        return np.moveaxis(X, -1, 1) if self.last else X


@stored("decoder/channels-first")
@dataclass(frozen=True)
class ChannelsFirstInverse:
    """The inverse of `ChannelsFirst`."""

    layout: ChannelsFirst

    def __call__(self, X: Images) -> Images:
        """Return images as they came."""
        if len(self.layout.shape) == 2:
            return X[:, 0]
        return np.moveaxis(X, 1, -1) if self.layout.last else X


def reduce_images(
    X: Images,
    n_latents: int | None,
    *,
    n_steps: int,
    seed: int,
    checkpoint: str | Path | None = None,
) -> Reduction:
    """Bring images to `n_latents` numbers each by an autoencoder.

    Parameters
    ----------
    X
        Images, ``(rows, height, width)`` or with channels before or after these.
    n_latents
        How many numbers.
    n_steps
        Of the training.
    seed
        Of starts and batches.
    checkpoint
        File in which the progress of the training is kept.
    """
    layout = ChannelsFirst(X.shape[1:])
    images = layout(X)
    if images.ndim != 4:
        raise ValueError(
            "A sample of X must be a row of features or an image: (height, width), (channels, "
            f"height, width) or (height, width, channels). Got samples of shape {X.shape[1:]}."
        )
    if n_latents is None:
        raise ValueError(
            "With images, 'n_latents' must be given: the number of pixels that vary together does "
            "not show how many numbers lie behind them. Got n_latents=None."
        )
    if images.dtype.kind == "f" and not (images.min() >= 0 and images.max() <= 1):
        raise ValueError(
            "Images in real numbers must lie between 0 and 1. Got values from "
            f"{images.min():.3g} to {images.max():.3g}; divide by the largest, or use uint8."
        )
    codes = learn_image_autoencoder(
        images, n_latents, seed=seed, n_steps=n_steps, checkpoint=checkpoint
    )
    return Reduction(
        Composed(layout, codes),
        ComposedDecoder(CodesInverse(codes), ChannelsFirstInverse(layout)),
        codes(images),
        codes.error,
        "codes of an autoencoder of images",
        (_codes_check(codes.error, n_latents),),
    )


def _codes_check(error: float, n_latents: int) -> Check:
    return Check(
        "codes keep the images",
        error <= _MOST_LOST,
        f"{n_latents} codes lose {error:.1%} of what held-out images vary; up to {_MOST_LOST:.0%} "
        "passes",
    )
