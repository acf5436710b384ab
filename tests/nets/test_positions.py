from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

from crlearn.nets import PixelDecoder, PositionEncoder
from crlearn.persist import read_record, write_record

SHAPE = (3, 16, 16)


def blobs(columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Dark spots on a ground of zeros, at a column and a row each."""
    across, down = np.arange(SHAPE[2]), np.arange(SHAPE[1])
    squares = (across - columns[:, None, None]) ** 2 + (down[:, None] - rows[:, None, None]) ** 2
    return np.repeat(-np.exp(-squares)[:, None], 3, axis=1).astype(np.float32)


def test_a_thing_that_moves_moves_the_positions_by_as_much():
    encoder = PositionEncoder.random(jax.random.key(0), SHAPE, 4)
    columns = np.arange(6.0, 10.0)
    positions = np.asarray(encoder.positions(blobs(columns, np.full(4, 8.0))))
    across, down = positions[:, ::2], positions[:, 1::2]
    steps = np.diff(across, axis=0)
    assert np.abs(steps).max() > 1e-4
    np.testing.assert_allclose(steps, np.broadcast_to(steps[0], steps.shape), atol=2e-5)
    np.testing.assert_allclose(np.diff(down, axis=0), 0, atol=2e-5)


def test_positions_lie_inside_the_image():
    images = np.random.default_rng(0).uniform(-9, 9, size=(5, *SHAPE)).astype(np.float32)
    encoder = PositionEncoder.random(jax.random.key(0), SHAPE, 4)
    assert np.abs(np.asarray(encoder.positions(images))).max() <= 1
    assert encoder(images).shape == (5, 4)


@pytest.mark.parametrize("side", [64, 33])
def test_large_images_are_taken_too(side: int):
    encoder = PositionEncoder.random(jax.random.key(0), (1, side, side), 2)
    assert encoder(np.zeros((2, 1, side, side), np.float32)).shape == (2, 2)


def test_some_pixels_are_those_of_the_whole_image():
    decoder = PixelDecoder.random(jax.random.key(0), 2, SHAPE, 8)
    assert not np.asarray(decoder(np.ones((1, 2)))).any()  # training starts from nothing
    decoder = jax.tree.map(lambda leaf: leaf + 0.1, decoder)
    vectors = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    whole = np.asarray(decoder(vectors))
    assert whole.shape == (3, *SHAPE)
    some = np.asarray(decoder.at(vectors, np.array([0, 25, 255])))
    for k, (row, column) in enumerate([(0, 0), (1, 9), (15, 15)]):
        np.testing.assert_allclose(some[:, k], whole[:, :, row, column], atol=1e-5)


def test_they_survive_saving(tmp_path: Path):
    encoder = PositionEncoder.random(jax.random.key(0), SHAPE, 2)
    decoder = PixelDecoder.random(jax.random.key(1), 2, SHAPE, 8)
    record = jax.tree.map(np.asarray, {"encoder": encoder, "decoder": decoder})
    write_record(tmp_path / "nets.crl", kind="test", record=record)
    again = read_record(tmp_path / "nets.crl", kind="test")
    images = blobs(np.array([4.0]), np.array([5.0]))
    np.testing.assert_array_equal(again["encoder"](images), encoder(images))
    codes = np.ones((1, 2), np.float32)
    np.testing.assert_array_equal(again["decoder"](codes), decoder(codes))
