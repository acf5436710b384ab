from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crlearn.data import BallRendering
from crlearn.flows import ImageAutoencoder, learn_image_autoencoder
from crlearn.persist import read_record, write_record

DRAW = BallRendering(1, 16, radius=3, dtype="uint8")
Z = np.random.default_rng(0).uniform(size=(600, 2))
IMAGES = DRAW(Z).reshape(-1, *DRAW.image_shape)


@pytest.fixture(scope="module")
def learned() -> ImageAutoencoder:
    return learn_image_autoencoder(IMAGES, 2, seed=0, n_steps=60)


def test_codes_are_white_and_follow_the_ball(learned: ImageAutoencoder):
    codes = learned(IMAGES)
    assert codes.dtype == np.float64
    np.testing.assert_allclose(np.cov(codes.T), np.eye(2), atol=1e-3)
    design = np.column_stack([codes, np.ones(len(codes))])
    left = Z - design @ np.linalg.lstsq(design, Z, rcond=None)[0]
    assert (left.var(axis=0) < 0.05 * Z.var(axis=0)).all()


def test_images_come_back_in_their_units(learned: ImageAutoencoder):
    again = learned.inverse(learned(IMAGES))
    assert again.shape == IMAGES.shape
    assert again.min() >= 0
    assert 200 < again.max() <= 255
    lost = ((again - IMAGES) ** 2).mean() / IMAGES.var(axis=0).mean()
    assert lost == pytest.approx(learned.error, rel=0.5)
    assert lost < 0.9


def test_real_numbers_are_the_same_images(learned: ImageAutoencoder):
    fine = learn_image_autoencoder((IMAGES[:80] / 255).astype(np.float32), 2, seed=0, n_steps=1)
    coarse = learn_image_autoencoder(IMAGES[:80], 2, seed=0, n_steps=1)
    assert fine.n_latents == 2
    assert fine.inverse(fine(IMAGES[:5] / 255)).max() <= 1
    np.testing.assert_allclose(fine(IMAGES / np.float32(255)), coarse(IMAGES), atol=1e-2)


def test_codes_are_of_an_image_alone_not_of_what_rests_in_others(learned: ImageAutoencoder):
    np.testing.assert_array_equal(
        replace(learned, mean=np.zeros_like(learned.mean))(IMAGES[:9]), learned(IMAGES[:9])
    )


def test_any_convolutions_can_be_taken():
    map_ = learn_image_autoencoder(IMAGES[:80], 2, seed=0, n_steps=3, sees="any")
    assert map_(IMAGES[:5]).shape == (5, 2)


def test_it_survives_saving(tmp_path: Path, learned: ImageAutoencoder):
    write_record(tmp_path / "map.crl", kind="test", record={"map": learned})
    again = read_record(tmp_path / "map.crl", kind="test")["map"]
    np.testing.assert_array_equal(again(IMAGES[:9]), learned(IMAGES[:9]))


@pytest.mark.parametrize(
    ("X", "message"),
    [(np.zeros((5, 4, 4)), "must hold images"), (np.ones((5, 3, 16, 16)), "are the same")],
)
def test_what_cannot_be_reduced_is_refused(X: np.ndarray, message: str):
    with pytest.raises(ValueError, match=message):
        learn_image_autoencoder(X, 2, seed=0)
