from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from matplotlib.image import imread

from crlearn.report._images import image_shape_of, in_colours, reconstructions, traversals

SHAPE = (3, 4, 6)
LATENTS = np.random.default_rng(0).uniform(size=(50, 2))


def painted(Z: np.ndarray) -> np.ndarray:
    """The first latent is red all over, the second green on the left half."""
    images = np.zeros((len(Z), *SHAPE))
    images[:, 0] = Z[:, 0, None, None]
    images[:, 1, :, :3] = Z[:, 1, None, None]
    return images


def picture_in(svg: str) -> np.ndarray:
    (data,) = re.findall(r'base64,([^"]+)"', svg)
    assert "scale(1 -1)" in svg  # rows are counted from below in the file
    return imread(io.BytesIO(base64.b64decode(data)), format="png")[::-1, :, :3]


@pytest.mark.parametrize(
    ("shape", "is_image"),
    [((3, 8, 9), True), ((8, 9, 1), True), ((8, 9), True), ((5, 8, 9), False), ((7,), False)],
)
def test_what_can_be_shown(shape: tuple[int, ...], is_image: bool):
    assert image_shape_of(shape) == (shape if is_image else None)


def test_channels_first_last_or_none():
    pixels = np.arange(24.0).reshape(1, 4, 6)
    for shape in ((4, 6), (1, 4, 6), (4, 6, 1)):
        shown = in_colours(pixels.reshape(1, -1), shape)
        assert shown.shape == (1, 4, 6, 3)
        np.testing.assert_array_equal(shown[..., 1], pixels)


def test_each_latent_moves_alone(parse):
    plot = traversals(painted, LATENTS, ["red", "green"], SHAPE)
    assert {"red", "green"} <= set(parse(plot.svg).text)
    assert "others at their means" in plot.caption
    shown = picture_in(plot.svg)
    half, step = shown.shape[0] // 2, shown.shape[1] // 7
    first, second = shown[half // 2, step // 4 :: step], shown[half + half // 2, step // 4 :: step]
    assert (np.diff(first[:7, 0]) > 0.02).all()
    assert np.ptp(first[:7, 1]) < 0.01
    assert (np.diff(second[:7, 1]) > 0.02).all()
    assert np.ptp(second[:7, 0]) < 0.01


def test_reconstructions_stand_below_their_images():
    flat = (255 * painted(LATENTS)).astype(np.uint8).reshape(50, -1)
    plot = reconstructions(lambda Z: 255 * painted(1 - Z), LATENTS, flat, SHAPE)
    shown = picture_in(plot.svg)
    half = shown.shape[0] // 2
    above, below = shown[half // 2, 5, 0], shown[half + half // 2, 5, 0]
    assert above == pytest.approx(LATENTS[0, 0], abs=0.02)
    assert below == pytest.approx(1 - LATENTS[0, 0], abs=0.02)


def test_values_of_any_range_are_shown():
    plot = reconstructions(lambda Z: 1000 * painted(Z) - 500, LATENTS, painted(LATENTS), SHAPE)
    shown = picture_in(plot.svg)
    assert shown.min() == 0
    assert shown.max() > 0.9
