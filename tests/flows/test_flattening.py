from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

from crlearn.flows import Flattening, learn_flattening, share_lost
from crlearn.persist import read_record, write_record

RNG = np.random.default_rng(0)
ANGLE = RNG.uniform(-2, 2, size=3000)
WIDTH = RNG.uniform(-1, 1, size=3000)


@pytest.fixture(scope="module")
def horseshoe() -> np.ndarray:
    """A band that is bent so far that its principal components fold it, in different units."""
    return np.column_stack([5 + np.cos(ANGLE), 100 * np.sin(ANGLE), WIDTH])


@pytest.fixture(scope="module")
def learned(horseshoe: np.ndarray) -> Any:
    return learn_flattening(horseshoe, 2, seed=0, n_steps=2000)


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    return abs(float(np.corrcoef(rankdata(one), rankdata(other))[0, 1]))


def along_the_band(codes: np.ndarray) -> float:
    """How well the best direction of the codes follows the band."""
    directions = [np.array([np.cos(t), np.sin(t)]) for t in np.linspace(0, np.pi, 60)]
    return max(rank_correlation(codes @ direction, ANGLE) for direction in directions)


def test_it_unfolds_what_principal_components_fold(horseshoe: np.ndarray, learned: Flattening):
    standard = (horseshoe - horseshoe.mean(axis=0)) / horseshoe.std(axis=0)
    components = standard @ np.linalg.svd(standard, full_matrices=False)[2][:2].T
    assert along_the_band(components) < 0.9
    assert along_the_band(learned(horseshoe)) > 0.95


def test_next_to_nothing_is_lost(horseshoe: np.ndarray, learned: Flattening):
    lost = share_lost(horseshoe, learned.inverse(learned(horseshoe)))
    assert lost < 0.05
    assert learned.error == pytest.approx(lost, rel=0.2)


def test_codes_are_white(horseshoe: np.ndarray, learned: Flattening):
    codes = learned(horseshoe)
    assert codes.dtype == np.float64
    assert learned.n_latents == 2
    np.testing.assert_allclose(codes.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(codes.T), np.eye(2), atol=1e-3)


def test_same_seed_same_codes(horseshoe: np.ndarray):
    some = horseshoe[:600]
    one, two, other = (learn_flattening(some, 2, seed=seed, n_steps=20) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one(some), two(some))
    assert np.abs(one(some) - other(some)).max() > 1e-4


def test_it_survives_saving(tmp_path: Path, horseshoe: np.ndarray, learned: Flattening):
    write_record(tmp_path / "map.crl", kind="test", record={"map": learned})
    again = read_record(tmp_path / "map.crl", kind="test")["map"]
    np.testing.assert_array_equal(again(horseshoe[:10]), learned(horseshoe[:10]))
    np.testing.assert_array_equal(
        again.inverse(again(horseshoe[:10])), learned.inverse(learned(horseshoe[:10]))
    )
