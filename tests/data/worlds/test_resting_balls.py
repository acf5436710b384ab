# Simulated worlds always have a truth.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalOperand=false, reportArgumentType=false, reportAttributeAccessIssue=false
from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crlearn import load
from crlearn.data import make_resting_balls
from crlearn.persist import save


def places_of(truth):
    """Where each latent rests."""
    return np.array([column[~on][0] for column, on in zip(truth.Z.T, truth.active.T, strict=True)])


def test_shape_and_truth():
    world = make_resting_balls(6, 40, resolution=16, random_state=0)
    truth = world.truth
    assert world.X.shape == (40, 3 * 16 * 16)
    assert world.y is None
    assert truth.blocks == ((0, 1), (2, 3), (4, 5))
    assert not truth.graph.any()
    assert not truth.targets.any()
    assert truth.mixing.image_shape == (3, 16, 16)
    np.testing.assert_array_equal(truth.mixing(truth.Z), world.X)
    with pytest.raises(ValueError, match="latents that switch off"):
        truth.score(truth.Z)


def test_a_ball_rests_whole_at_one_place():
    truth = make_resting_balls(4, 4000, resolution=16, random_state=1).truth
    np.testing.assert_array_equal(truth.active[:, ::2], truth.active[:, 1::2])
    np.testing.assert_allclose(truth.active.mean(axis=0), 0.5, atol=0.03)
    places = places_of(truth)
    np.testing.assert_array_equal(places == truth.Z, ~truth.active)
    np.testing.assert_allclose((places + truth.noise)[truth.active], truth.Z[truth.active])
    # Whether one ball rests says nothing about the other.
    assert np.corrcoef(truth.active[:, 0], truth.active[:, 2])[0, 1] == pytest.approx(0, abs=0.05)


def test_coordinates_rest_on_their_own():
    truth = make_resting_balls(
        4, 4000, rests="coordinates", rest_probability=0.25, resolution=16, random_state=1
    ).truth
    assert truth.blocks is None
    np.testing.assert_allclose(truth.active.mean(axis=0), 0.75, atol=0.03)
    np.testing.assert_allclose(np.corrcoef(truth.active.T), np.eye(4), atol=0.05)
    np.testing.assert_array_equal(places_of(truth) == truth.Z, ~truth.active)


@pytest.mark.parametrize("deviation", [0.1, 1.0])
def test_where_balls_move(deviation):
    truth = make_resting_balls(
        4, 3000, standard_deviation=deviation, resolution=16, random_state=0
    ).truth
    assert truth.Z.min() >= 0
    assert truth.Z.max() <= 1
    for j, place in enumerate(places_of(truth)):
        law = stats.truncnorm(-place / deviation, (1 - place) / deviation, place, deviation)
        assert stats.kstest(truth.Z[truth.active[:, j], j], law.cdf).pvalue > 0.001


@pytest.mark.parametrize("seed", range(5))
def test_places_are_apart(seed):
    truth = make_resting_balls(12, 200, resolution=16, random_state=seed).truth
    places = places_of(truth).reshape(6, 2)
    between = np.linalg.norm(places[:, None] - places, axis=-1)[np.triu_indices(6, k=1)]
    assert between.min() >= 0.2
    assert places.min() >= 0.2
    assert places.max() <= 0.8


def test_places_do_not_depend_on_what_else_is_asked_for():
    first = make_resting_balls(4, 50, resolution=16, random_state=3).truth
    other = make_resting_balls(
        4, 80, rests="coordinates", standard_deviation=0.2, resolution=16, random_state=3
    ).truth
    np.testing.assert_array_equal(places_of(first), places_of(other))


def test_same_seed_same_bits_and_files(tmp_path):
    first, again = (
        make_resting_balls(4, 20, resolution=16, dtype="uint8", random_state=2) for _ in "ab"
    )
    np.testing.assert_array_equal(first.X, again.X)
    assert first.X.dtype == np.uint8
    save(first, tmp_path / "world")
    assert load(tmp_path / "world").truth.blocks == first.truth.blocks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_latents": 3}, "'n_latents' must be even"),
        ({"n_samples": 0}, "'n_samples' must be an integer of at least 1"),
        ({"rests": "all"}, "'rests' must be 'balls' or 'coordinates'"),
        ({"rest_probability": 0}, "rests sometimes and not always"),
        ({"rest_probability": 1.0}, "rests sometimes and not always"),
        ({"standard_deviation": 0}, "'standard_deviation' must be a positive number"),
        ({"distance": -1}, "'distance' must not be negative"),
        ({"distance": 2.0}, r"No places for 2 balls .* 2.0 apart"),
        ({"place_range": (0.8, 0.2)}, "'place_range' must be a pair"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        make_resting_balls(**options)
