from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from crlearn.nets import ConvolutionalDecoder, ConvolutionalEncoder, evaluate
from crlearn.persist import read_record, write_record
from crlearn.train import Settings, train

SHAPES = [(8, 8), (28, 28, 1), (7, 13, 3), (1, 1), (3, 4, 2)]
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", SHAPES)
def test_images_of_any_size_become_vectors_and_vectors_images(shape: tuple[int, ...]):
    encoder = ConvolutionalEncoder.random(jax.random.key(0), shape, n_outputs=5, width=2)
    decoder = ConvolutionalDecoder.random(jax.random.key(1), 5, shape, width=2)
    images = RNG.normal(size=(6, *shape)).astype(np.float32)
    vectors = encoder(images)
    assert vectors.shape == (6, 5)
    assert decoder(vectors).shape == images.shape
    np.testing.assert_allclose(encoder(images[2]), vectors[2], atol=1e-5)
    np.testing.assert_allclose(evaluate(encoder, images), vectors, atol=1e-5)
    assert np.ptp(np.asarray(vectors), axis=0).min() > 0


def test_a_kernel_is_moved_over_the_image():
    encoder = ConvolutionalEncoder.random(jax.random.key(0), (8, 8), n_outputs=1, width=1)
    assert [kernel.shape for kernel in encoder.kernels] == [(3, 3, 1, 1)]
    ones = jax.tree.map(lambda leaf: np.ones(leaf.shape), encoder)
    # 9 pixels under each of 4 x 4 kernels; the last row and column of kernels reach beyond.
    sums = np.full((4, 4), 9.0) - 3 * (np.add.outer(np.arange(4) == 3, np.arange(4) == 3))
    sums[3, 3] = 4.0
    assert float(ones(np.ones((8, 8)))[0]) == pytest.approx((sums + 1).sum() + 1)


def test_other_shapes_are_refused():
    encoder = ConvolutionalEncoder.random(jax.random.key(0), (8, 8), n_outputs=1)
    with pytest.raises(ValueError, match=r"shape \(rows, 8, 8\)\. Got \(5, 8, 9\)"):
        encoder(np.zeros((5, 8, 9)))
    with pytest.raises(ValueError, match=r"height, width, channels.* Got \(8,\)"):
        ConvolutionalEncoder.random(jax.random.key(0), (8,), n_outputs=1)


def test_they_survive_saving(tmp_path: Path):
    encoder = ConvolutionalEncoder.random(jax.random.key(0), (9, 5), n_outputs=2, width=2)
    decoder = ConvolutionalDecoder.random(jax.random.key(0), 2, (9, 5), width=2)
    write_record(tmp_path / "f.crl", kind="test", record={"both": (encoder, decoder)})
    again = read_record(tmp_path / "f.crl", kind="test")["both"]
    images = RNG.normal(size=(3, 9, 5)).astype(np.float32)
    wanted = decoder(encoder(images))
    np.testing.assert_allclose(again[1](again[0](images)), wanted, atol=1e-5)


@dataclass(frozen=True)
class Autoencoder:
    """Squares of what is lost of an image on its way through two numbers."""

    def init(self, key: Any) -> Any:
        first, second = jax.random.split(key)
        return (
            ConvolutionalEncoder.random(first, (9, 9), 2, width=8),
            ConvolutionalDecoder.random(second, 2, (9, 9), width=8),
        )

    def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
        encoder, decoder = params
        return ((decoder(encoder(batch)) - batch) ** 2).mean()


def test_they_learn_where_a_spot_is():
    places = RNG.uniform(2, 6, size=(400, 2))
    axis = np.arange(9)
    bumps = np.exp(-((axis - places[:, :, None]) ** 2) / 4)
    images = (bumps[:, 0, :, None] * bumps[:, 1, None, :]).astype(np.float32)
    settings = Settings(max_epochs=10, batch_size=16, learning_rate=3e-2, patience=None)
    training = train(Autoencoder(), images, settings, seed=0)
    assert training.loss < 0.1 * images.var(axis=0).mean()
