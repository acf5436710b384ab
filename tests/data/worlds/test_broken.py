from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import WORLDS, make_broken
from crlearn.data.worlds._broken import BREAKS


def world(broken: str = "nothing", **options: Any) -> Any:
    return make_broken(3, 6, 200, broken=broken, random_state=0, **options)


def rank(X: np.ndarray) -> int:
    return int(np.linalg.matrix_rank(X - X.mean(axis=0), tol=1e-8 * np.linalg.norm(X)))


@pytest.mark.parametrize("kind", ["single-node", "multi-node", "observational", "segments"])
def test_nothing_is_broken_unless_asked_for(kind: Any):
    mechanism = "norm_squared" if kind == "observational" else "linear"
    whole: Any = world(kind=kind, mechanism=mechanism)
    assert kind == "segments" or rank(whole.X) == 3  # a mixing that is not linear
    np.testing.assert_allclose(whole.truth.mixing(whole.truth.Z), whole.X)
    again: Any = world(kind=kind, mechanism=mechanism)
    np.testing.assert_array_equal(whole.X, again.X)


@pytest.mark.parametrize(("broken", "share"), [("1% noise", 0.01), ("30% noise", 0.3)])
def test_noise_is_a_share_of_each_feature(broken: str, share: float):
    added = world(broken).X - world().X
    np.testing.assert_allclose(added.std(axis=0) / world().X.std(axis=0), share, rtol=0.1)


def test_a_curved_mixing_fills_all_dimensions():
    assert rank(world("curved mixing").X) == 6


def test_batches_move_each_environment_as_a_whole_inside_the_span():
    before, after = world(), world("batches")
    moves = after.truth.Z - before.truth.Z
    for label in before.environments:
        inside = moves[before.y == label]
        np.testing.assert_allclose(inside, np.tile(inside[0], (len(inside), 1)), atol=1e-12)
    assert rank(after.X) == 3
    assert np.abs(moves).max() > 0.1


def test_one_row_of_a_hundred_stands_out():
    before, after = world(), world("outliers")
    moved = (after.X != before.X).any(axis=1)
    assert moved.sum() == len(before.X) // 100
    assert rank(after.X) == 3
    distance = np.linalg.norm((after.X - before.X)[moved] / before.X.std(axis=0), axis=1)
    assert np.median(distance) > 5


def test_the_last_environment_is_missing():
    before, after = world(), world("missing environment")
    assert after.environments == before.environments[:-1]
    assert not (after.y == before.environments[-1]).any()
    assert len(after.truth.targets) == len(after.environments)


def test_one_label_of_five_is_drawn_anew():
    before, after = world(), world("wrong labels")
    np.testing.assert_array_equal(before.X, after.X)
    assert sorted(before.y) == sorted(after.y)
    assert 0.1 < (before.y != after.y).mean() < 0.2


def test_noisy_domains_have_an_observational_one_and_known_targets():
    whole = world(kind="multi-domain", mechanism="tanh5")
    assert whole.environments == (0, 1, 2, 3)
    assert not whole.known_targets[0].any()
    noise = whole.X - whole.truth.mixing(whole.truth.Z)
    assert noise.std() == pytest.approx(0.5, rel=0.05)


def test_a_target_that_nobody_says():
    before = world(kind="multi-domain", mechanism="tanh5")
    after = world("wrong targets", kind="multi-domain", mechanism="tanh5")
    np.testing.assert_array_equal(before.known_targets, after.known_targets)
    moved = after.truth.Z - before.truth.Z
    assert (moved[after.y == 3, 0] > 1).all()
    moved[after.y == 3, 0] = 0
    assert (moved == 0).all()
    noise = [each.X - each.truth.mixing(each.truth.Z) for each in (before, after)]
    np.testing.assert_allclose(noise[0], noise[1], atol=1e-9)  # the measurement is the same


def test_noise_of_another_size_in_each_feature():
    added = world("uneven noise").X - world().X
    sizes = added.std(axis=0) / world().X.std(axis=0)
    assert sizes.min() < 0.5 * sizes.max() < 0.6


def test_latents_that_are_related_in_segments():
    before = world(kind="segments")
    after = world("related latents", kind="segments")
    np.testing.assert_array_equal(before.truth.Z[:, 0], after.truth.Z[:, 0])
    np.testing.assert_allclose(after.truth.mixing(after.truth.Z), after.X)
    correlations = [
        np.corrcoef(each.truth.Z[each.y == label, :2].T)[0, 1]
        for label in before.environments
        for each in (before, after)
    ]
    assert np.abs(correlations[::2]).max() < 0.3
    assert max(correlations[1::2]) > 0.5


def test_one_environment_of_four_is_kept():
    before, after = world(kind="segments"), world("few environments", kind="segments")
    assert (len(before.environments), len(after.environments)) == (12, 3)
    assert set(after.y) == set(after.environments)


def test_a_missing_domain_takes_its_targets_along():
    after = world("missing environment", kind="multi-domain", mechanism="tanh5")
    assert len(after.known_targets) == len(after.environments) == 3


def test_unknown_break():
    with pytest.raises(ValueError, match=r"'broken' must be one of 'nothing', .* Got 'bent'"):
        world("bent")


def test_studies_know_it():
    assert WORLDS["broken"] is make_broken
    assert "nothing" in BREAKS


def test_known_batches_move_rows_and_say_so():
    found, clean = world("known batches"), world()
    moves = found.X - clean.X
    for name in np.unique(found.covariates["batch"]):
        own = moves[found.covariates["batch"] == name]
        assert own == pytest.approx(np.broadcast_to(own[0], own.shape))
