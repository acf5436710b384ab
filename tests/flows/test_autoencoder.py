from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crlearn.data import curved_mixing, smooth_mixing
from crlearn.flows import Autoencoder, learn_autoencoder
from crlearn.persist import read_record, write_record

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def bow() -> np.ndarray:
    """Rows on a curved surface of two dimensions, in features of very different units."""
    latents = RNG.uniform(-1, 1, size=(4000, 2))
    bent = np.column_stack([latents, latents[:, 0] ** 2, latents[:, 0] * latents[:, 1]])
    return bent * [1.0, 100.0, 1e-3, 1.0] + [5.0, 0.0, 1.0, 0.0]


@pytest.fixture(scope="module")
def learned(bow: np.ndarray) -> Any:
    return learn_autoencoder(bow, 2, seed=0, n_steps=600, width=32)


def lost(map_: Any, X: np.ndarray) -> float:
    """Share of the variance of standardised features that is lost."""
    return float(((map_.inverse(map_(X)) - X) ** 2).mean(axis=0) @ (1 / X.var(axis=0)) / X.shape[1])


def test_it_loses_less_than_principal_components(bow: np.ndarray, learned: Autoencoder):
    assert lost(learn_autoencoder(bow, 2, seed=0, n_steps=1, width=32), bow) > 0.2
    assert lost(learned, bow) < 0.02


def test_the_error_is_the_share_of_the_variance_that_is_lost(bow: np.ndarray, learned: Autoencoder):
    assert learned.error == pytest.approx(lost(learned, bow), rel=0.5)


def test_codes_are_white(bow: np.ndarray, learned: Autoencoder):
    codes = learned(bow)
    assert codes.dtype == np.float64
    np.testing.assert_allclose(codes.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(codes.T), np.eye(2), atol=1e-3)


def test_a_flat_surface_takes_no_training():
    X = smooth_mixing(2, 5, 0)(RNG.normal(size=(500, 2)))
    map_ = learn_autoencoder(X, 2, seed=0, n_steps=10**9)
    np.testing.assert_allclose(map_.inverse(map_(X)), X, atol=1e-5)
    assert map_.error == 0
    assert map_.n_latents == 2


def test_more_codes_than_dimensions_are_refused():
    X = smooth_mixing(2, 5, 0)(RNG.normal(size=(500, 2)))
    with pytest.raises(ValueError, match="rank of X, which is 2"):
        learn_autoencoder(X, 3, seed=0)


def test_same_seed_same_codes():
    X = curved_mixing(2, 4, 0)(RNG.normal(size=(600, 2)))
    one, two, other = (
        learn_autoencoder(X, 2, seed=seed, n_steps=20, width=8) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one(X), two(X))
    assert np.abs(one(X) - other(X)).max() > 1e-4


def test_constant_columns_come_back(bow: np.ndarray):
    X = np.column_stack([bow[:600], np.full(600, 7.0)])
    map_ = learn_autoencoder(X, 2, seed=0, n_steps=20, width=8)
    np.testing.assert_allclose(map_.inverse(map_(X))[:, -1], 7.0)


def test_it_survives_saving(tmp_path: Path, bow: np.ndarray, learned: Autoencoder):
    write_record(tmp_path / "map.crl", kind="test", record={"map": learned})
    again = read_record(tmp_path / "map.crl", kind="test")["map"]
    np.testing.assert_array_equal(again(bow[:10]), learned(bow[:10]))
    np.testing.assert_array_equal(
        again.inverse(again(bow[:10])), learned.inverse(learned(bow[:10]))
    )
