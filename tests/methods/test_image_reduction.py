from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn import NonlinearInterventionCRL, load
from crlearn.data import make_ball_images
from crlearn.methods._image_reduction import (
    ChannelsFirst,
    ChannelsFirstInverse,
    reduce_images,
)

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")


@pytest.fixture(scope="module")
def world() -> Any:
    return make_ball_images(2, 150, resolution=16, dtype="uint8", random_state=0)


@pytest.fixture(scope="module")
def images(world: Any) -> Any:
    return world.X.reshape(-1, 3, 16, 16)


@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 5), (4, 5, 3), (1, 4, 5), (4, 5, 1)])
def test_channels_come_first(shape: tuple[int, ...]):
    X = np.random.default_rng(0).random((2, *shape))
    layout = ChannelsFirst(shape)
    first = layout(X)
    channels = 3 if 3 in shape else 1
    assert first.shape == (2, channels, 4, 5)
    np.testing.assert_array_equal(ChannelsFirstInverse(layout)(first), X)


@pytest.fixture(scope="module")
def model(world: Any, images: Any) -> Any:
    with pytest.warns(match="codes keep the images"):
        return NonlinearInterventionCRL(2, n_steps=30, n_restarts=1, random_state=0).fit(
            images, world.y
        )


def test_images_go_through_the_estimator(model: Any, images: Any, tmp_path: Any):
    Z = model.transform(images[:7])
    assert Z.shape == (7, 2)
    np.testing.assert_array_equal(model.transform(images[:7].reshape(7, -1)), Z)
    back = model.inverse_transform(Z)
    assert back.shape == (7, 3, 16, 16)
    assert back.min() >= 0
    assert back.max() <= 255
    assert back.max() > 1  # the units of the images that it was fitted to
    model.save(tmp_path / "model.crl")
    np.testing.assert_array_equal(load(tmp_path / "model.crl").inverse_transform(Z), back)


def test_codes_that_lose_the_images_are_said_to(model: Any):
    (check,) = [c for c in model.result_.checks if c.name == "codes keep the images"]
    assert check.passed is False
    assert model.result_.guarantee.latents == "none"


def test_what_images_may_be(images: Any):
    options: Any = {"n_steps": 2, "seed": 0}
    with pytest.raises(ValueError, match="'n_latents' must be given"):
        reduce_images(images, None, **options)
    with pytest.raises(ValueError, match=r"between 0 and 1. Got values from .* to 255"):
        reduce_images(images.astype(float), 2, **options)
    with pytest.raises(ValueError, match=r"Got samples of shape \(1, 3, 16, 16\)"):
        reduce_images(images[:, None], 2, **options)


def test_links_are_for_features(images: Any, world: Any):
    with pytest.raises(ValueError, match="post-nonlinear' is for rows of features"):
        NonlinearInterventionCRL(2, mixing="post-nonlinear").fit(images, world.y)


@quiet
def test_whole_numbers_in_columns_are_numbers():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 200, size=(120, 2), dtype=np.uint8), np.repeat([0, 1, 2], 40)
    short = NonlinearInterventionCRL(n_steps=5, n_restarts=1, random_state=0)
    found = short.fit(X, y).transform(X)
    np.testing.assert_allclose(found, short.fit(X.astype(float), y).transform(X), atol=1e-6)
