from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.bench import OnImageCodes
from crlearn.data import Dataset, make_ball_images
from crlearn.exceptions import AssumptionWarning
from crlearn.methods import PCABaseline


@pytest.fixture(scope="module")
def world() -> Dataset:
    return make_ball_images(4, 40, resolution=16, dtype="uint8", random_state=0)


@pytest.fixture(scope="module")
def images(world: Dataset) -> np.ndarray:
    assert world.truth is not None
    mixing: Any = world.truth.mixing
    return world.X.reshape(len(world.X), *mixing.image_shape)


@pytest.fixture(scope="module")
def model(world: Dataset, images: np.ndarray) -> OnImageCodes:
    with pytest.warns(AssumptionWarning, match="codes keep the images"):
        return OnImageCodes(4, n_steps=3, random_state=0).fit(images, world.y)


def test_the_method_sees_the_codes_and_nothing_else(model: OnImageCodes, images: np.ndarray):
    encoder: Any = model.result_.encoder
    codes = encoder.first(images)
    alone = PCABaseline(4, random_state=0).fit(codes)
    found = model.transform(images)
    assert found.shape == (len(images), 4)
    assert found == pytest.approx(alone.transform(codes), abs=1e-6)


def test_checks_are_those_of_the_codes_and_of_the_method(model: OnImageCodes):
    names = [check.name for check in model.result_.checks]
    assert names[0] == "codes keep the images"
    assert len(names) > 1


def test_parameters_and_seed_reach_the_method(world: Dataset, images: np.ndarray):
    options = {"n_steps": 3, "method": "GSCALEI", "parameters": {"n_steps": 1, "n_restarts": 2}}
    with pytest.warns(AssumptionWarning) as said:
        fitted = OnImageCodes(4, **options, random_state=0).fit(images, world.y)
    # What the method finds is said by this estimator, and once.
    texts = [str(warning.message) for warning in said]
    assert all(text.startswith("OnImageCodes: ") for text in texts)
    assert len(texts) == len(set(texts)) == len(fitted.result_.failed_checks)
    assert fitted.result_.targets is not None
    assert len(fitted.result_.history["restart_loss"]) == 2


def test_a_method_that_does_not_exist(world: Dataset, images: np.ndarray):
    with pytest.raises(ValueError, match="There is no method 'Nothing'"):
        OnImageCodes(4, method="Nothing", n_steps=1).fit(images, world.y)
