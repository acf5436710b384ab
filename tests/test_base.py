from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.base import BaseCRL, latents_of, posterior_of
from crlearn.exceptions import AssumptionWarning
from crlearn.result import Check, Guarantee, Result


def test_labels_are_told_to_models_that_ask_for_them():
    class Plain:
        def transform(self, X: int) -> int:
            return X

        def posterior(self, X: int) -> int:
            return -X

    class ByLabel:
        def transform(self, X: int, y: int | None = None) -> int:
            return X if y is None else X + y

        def posterior(self, X: int, y: int | None = None) -> int:
            return -self.transform(X, y)

    assert latents_of(Plain(), 1, 2) == 1
    assert latents_of(ByLabel(), 1, 2) == 3
    assert latents_of(ByLabel(), 1) == 1
    assert posterior_of(Plain(), 1, 2) == -1
    assert posterior_of(ByLabel(), 1, 2) == -3


class Mean(BaseCRL):
    """Its only latent is the mean of a sample; it notes what reached it."""

    def __init__(self, n_latents: int | None = None, random_state: Any = None) -> None:
        self.n_latents = n_latents
        self.random_state = random_state

    def _algorithm(self, X: Any, y: Any, seed: int) -> Result:
        guarantee = Guarantee("none", "none", "none")
        return Result(MeanOfSample(), guarantee, details={"X": X, "y": y})


class MeanOfSample:
    n_latents = 1

    def __call__(self, X: Any) -> Any:
        return X.reshape(len(X), -1).mean(axis=1, keepdims=True)


class MeanOfAnything(Mean):
    _keeps_float32 = True
    _keeps_uint8 = True
    _allows_images = True
    _allows_matrix_y = True


RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(6, 4, 5, 3))


def test_precision_stays_where_a_class_keeps_it():
    X = IMAGES.reshape(6, -1).astype(np.float32)
    assert Mean().fit(X).result_.details["X"].dtype == np.float64
    assert MeanOfAnything().fit(X).result_.details["X"].dtype == np.float32
    assert MeanOfAnything().fit(X.astype(int)).result_.details["X"].dtype == np.float64


def test_images_of_8_bits_are_not_copied_where_a_class_keeps_them():
    X = RNG.integers(0, 256, size=(6, 3, 4, 5), dtype=np.uint8)
    model = MeanOfAnything().fit(X)
    assert model.result_.details["X"].dtype == np.uint8
    assert np.shares_memory(model.result_.details["X"], X)
    np.testing.assert_allclose(model.transform(X)[:, 0], X.mean(axis=(1, 2, 3)))
    assert Mean().fit(X.reshape(6, -1)).result_.details["X"].dtype == np.float64


def test_images_where_a_class_allows_them():
    model = MeanOfAnything().fit(IMAGES)
    np.testing.assert_array_equal(model.result_.details["X"], IMAGES)
    assert model.n_features_in_ == 60
    assert model.sample_shape_ == (4, 5, 3)
    wanted = IMAGES.mean(axis=(1, 2, 3))[:, None]
    np.testing.assert_allclose(model.transform(IMAGES), wanted)
    np.testing.assert_allclose(model.transform(IMAGES.reshape(6, 60)), wanted)
    with pytest.raises(ValueError, match=r"the shape \(4, 5, 3\) of those .* Got \(5, 4, 3\)"):
        model.transform(np.swapaxes(IMAGES, 1, 2))


def test_classes_that_allow_images_take_tables_too():
    model = MeanOfAnything().fit(IMAGES[:, 0, 0])
    assert model.result_.details["X"].shape == (6, 3)
    with pytest.raises(ValueError, match="features"):
        model.transform(IMAGES[:, 0, :, 0])


def test_images_with_missing_values_are_refused():
    broken = IMAGES.copy()
    broken[2, 1, 1, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        MeanOfAnything().fit(broken)


def test_images_are_refused_elsewhere():
    with pytest.raises(ValueError, match="Found array with dim 4"):
        Mean().fit(IMAGES)


class MeanByLabel(Mean):
    _requires_y = True


def test_y_may_be_a_matrix_where_it_is_ignored():
    Mean().fit(IMAGES[:, 0, 0], RNG.normal(size=(6, 2)))


def test_y_may_be_a_matrix_where_a_class_allows_it():
    X, y = IMAGES[:, 0, 0], RNG.normal(size=(6, 2))
    np.testing.assert_array_equal(MeanOfAnything().fit(X, y).result_.details["y"], y)
    assert MeanOfAnything().fit(X, list("aabbcc")).result_.details["y"].shape == (6,)
    with pytest.raises(ValueError, match="1d array"):
        MeanByLabel().fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        MeanOfAnything().fit(X, y[:5])
    with pytest.raises(ValueError, match="y contains NaN"):
        MeanOfAnything().fit(X, np.where(y > 0, np.nan, y))


class MeanInDoubt(Mean):
    """It promises much, and one of its checks fails if there is a single feature."""

    def _algorithm(self, X: Any, y: Any, seed: int) -> Result:
        check = Check("several features", X.shape[1] > 1, f"{X.shape[1]}")
        return Result(MeanOfSample(), Guarantee("scale", "exact", "all"), checks=(check,))


def test_fit_says_what_is_guaranteed_given_the_checks():
    X = IMAGES[:, 0, 0]
    assert MeanInDoubt().fit(X).result_.guarantee == Guarantee("scale", "exact", "all")
    with pytest.warns(AssumptionWarning, match="several features: fails"):
        doubtful = MeanInDoubt().fit(X[:, :1]).result_
    assert (doubtful.guarantee.latents, doubtful.guarantee.graph) == ("none", "none")
    assert doubtful.guarantee.intended == Guarantee("scale", "exact", "all")
    assert doubtful.is_in_doubt
