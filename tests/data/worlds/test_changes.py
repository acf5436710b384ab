# pyright: reportOptionalMemberAccess=false, reportOptionalCall=false
from __future__ import annotations

import numpy as np
import pytest

from crlearn.data import Gaussian, chain
from crlearn.data.worlds._changes import (
    invariant_parts,
    quiet_segments,
    quiet_shares,
    random_steps_on,
    resized,
    segment_model,
    vanishing,
)

GRAPH = chain(3)
PARENTS = np.linspace(-2, 2, 9)[:, None]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_quiet_segments_are_as_many_for_each_latent():
    is_quiet = quiet_segments(10, quiet_shares(0.3, 4), rng())
    np.testing.assert_array_equal(is_quiet.sum(axis=0), 3)
    assert len(np.unique(is_quiet, axis=1).T) > 1


def test_each_latent_may_have_a_share_of_its_own():
    is_quiet = quiet_segments(10, quiet_shares([0.0, 0.5, 1.0], 3), rng())
    assert is_quiet.sum(axis=0).tolist() == [0, 5, 10]
    with pytest.raises(ValueError, match="one for each of the 3 latents"):
        quiet_shares([0.1, 0.2], 3)
    with pytest.raises(ValueError, match="'quiet' is a share"):
        quiet_shares([0.1, 0.2, 1.2], 3)


def test_quiet_mechanisms_are_none():
    is_quiet = np.array([[True, True, True], [False, False, False]])
    first, second = vanishing(random_steps_on(GRAPH, rng()), is_quiet, True, rng())
    assert first == [None, None, None]
    assert [step is None for step in second] == [True, False, False]


def test_resized_mechanisms_are_one_function_times_a_factor():
    steps = random_steps_on(GRAPH, rng())
    for in_segment in resized(steps, 20, rng(1)):
        ratio = in_segment[1](PARENTS) / steps[1](PARENTS)
        np.testing.assert_allclose(ratio, ratio[0])
        assert 0.2 <= ratio[0] <= 1


def test_a_fixed_part_is_added_and_stays_where_the_rest_vanishes():
    changing, fixed = random_steps_on(GRAPH, rng()), invariant_parts([2], GRAPH, rng(1))
    assert fixed[1] is None
    noises = [Gaussian()] * 3
    both = segment_model(GRAPH, changing, fixed, noises)
    expected = changing[2](PARENTS) + fixed[2](PARENTS)
    np.testing.assert_allclose(both.nodes[2].without_noise(PARENTS), expected)
    quiet = segment_model(GRAPH, [None] * 3, fixed, noises)
    np.testing.assert_array_equal(quiet.graph, [[0, 0, 0], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_allclose(quiet.nodes[2].without_noise(PARENTS), fixed[2](PARENTS))


def test_the_fixed_part_of_a_latent_does_not_depend_on_the_others():
    alone, with_others = (invariant_parts(which, GRAPH, rng(1)) for which in ([2], "all"))
    np.testing.assert_array_equal(alone[2](PARENTS), with_others[2](PARENTS))
    assert invariant_parts((), GRAPH, rng()) == [None, None, None]


@pytest.mark.parametrize("bad", ["some", [3], [-1], [0.5], [True]])
def test_bad_latents(bad):
    with pytest.raises(ValueError, match="'invariant' must be 'all' or a list of latents, numbers"):
        invariant_parts(bad, GRAPH, rng())
