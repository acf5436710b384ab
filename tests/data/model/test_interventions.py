from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.data import SCM, Gaussian, Intervention, Linear, Node, chain

BASE = SCM(
    chain(3),
    [
        Node(None, Gaussian(1.0)),
        Node(Linear([2.0]), Gaussian(0.5)),
        Node(Linear([3.0]), Gaussian(2.0, 1.0)),
    ],
)
NOISE = np.array([[1.0, 0.5, -1.0]])


def test_soft_halves_the_effect_by_default():
    changed = BASE.intervene(Intervention(1, "soft"))
    np.testing.assert_array_equal(changed.from_noise(NOISE), [[1.0, 1.5, 3.5]])
    np.testing.assert_array_equal(changed.graph, BASE.graph)


def test_soft_with_another_mechanism():
    changed = BASE.intervene(Intervention(1, "soft", mechanism=lambda p: jnp.sin(p[0])))
    np.testing.assert_allclose(changed.from_noise(NOISE)[0, 1], np.sin(1.0) + 0.5)


def test_soft_changes_the_variance():
    changed = BASE.intervene(Intervention(1, "soft", effect=1.0, variance_factor=4.0))
    assert changed.nodes[1].noise.scale == pytest.approx(1.0)
    np.testing.assert_array_equal(changed.from_noise(NOISE), BASE.from_noise(NOISE))


def test_hard_cuts_the_parents():
    changed = BASE.intervene(Intervention(1, "hard", variance=9.0, mean=-2.0))
    assert changed.parents(1) == ()
    assert changed.parents(2) == (1,)
    noise = changed.nodes[1].noise
    assert (noise.scale, noise.mean) == (3.0, -2.0)
    np.testing.assert_array_equal(changed.from_noise(NOISE), [[1.0, 0.5, 0.5]])


def test_hard_keeps_its_own_noise_and_offset_otherwise():
    shifted = BASE.intervene(Intervention(2, "shift", shift=5.0))
    changed = shifted.intervene(Intervention(2, "hard")).nodes[2]
    assert (changed.noise.scale, changed.noise.mean, changed.offset) == (2.0, 1.0, 5.0)
    assert shifted.intervene(Intervention(2, "hard", mean=1.0)).nodes[2].offset == 0.0


def test_shift_keeps_mechanism_and_variance():
    changed = BASE.intervene(Intervention(1, "shift", shift=10.0))
    difference = changed.from_noise(NOISE) - BASE.from_noise(NOISE)
    np.testing.assert_allclose(difference, [[0.0, 10.0, 30.0]])


def test_soft_with_a_shift_keeps_the_effect():
    changed = BASE.intervene(Intervention(1, "soft", shift=10.0))
    difference = changed.sample(5, 0)[0] - BASE.sample(5, 0)[0]
    np.testing.assert_allclose(difference, np.tile([0.0, 10.0, 30.0], (5, 1)))


def test_do_sets_the_value_and_moves_the_children():
    changed = BASE.intervene(Intervention(1, "do", value=4.0))
    np.testing.assert_allclose(changed.from_noise(NOISE), [[1.0, 4.0, 11.0]])
    np.testing.assert_array_equal(changed.sample(5, 0)[0][:, 1], 4.0)


def test_several_targets_with_their_own_numbers():
    changed = BASE.intervene(Intervention([0, 2], "hard", variance_factor=[4.0, 9.0]))
    assert [float(node.noise.scale) for node in changed.nodes] == [2.0, 0.5, 6.0]
    assert changed.graph.sum() == 1


def test_variance_add():
    changed = BASE.intervene(Intervention(0, "hard", variance_add=3.0))
    assert changed.nodes[0].noise.scale == pytest.approx(2.0)


def test_score_changes_only_along_target_and_parents():
    changed = BASE.intervene(Intervention(2, "soft", variance_factor=0.5))
    Z, _ = BASE.sample(10, 0)
    difference = BASE.score(Z) - changed.score(Z)
    np.testing.assert_array_equal(difference[:, 0], 0.0)
    assert (np.abs(difference[:, 1:]) > 0).all()


def test_original_is_untouched():
    before = BASE.from_noise(NOISE)
    BASE.intervene(Intervention(1, "do", value=4.0))
    np.testing.assert_array_equal(BASE.from_noise(NOISE), before)


class TestBadInput:
    def test_target_out_of_range(self):
        with pytest.raises(ValueError, match=r"between 0 and 2.* Got \[3\]"):
            BASE.intervene(Intervention(3))

    @pytest.mark.parametrize("targets", [-1, [0, 0]])
    def test_repeated_or_negative_targets(self, targets):
        with pytest.raises(ValueError, match="distinct and not negative"):
            Intervention(targets)

    @pytest.mark.parametrize("targets", [[], 0.5, "z0", [[0]]])
    def test_targets_that_are_no_indices(self, targets):
        with pytest.raises(ValueError, match="must be the index of a latent"):
            Intervention(targets)

    def test_unknown_kind(self):
        with pytest.raises(ValueError, match=r"'soft', 'hard', 'do', 'shift'. Got 'perfect'"):
            Intervention(0, "perfect")  # pyright: ignore[reportArgumentType]

    @pytest.mark.parametrize("option", ["variance", "variance_factor"])
    @pytest.mark.parametrize("value", [0.0, -1.0])
    def test_variance_must_be_positive(self, option, value):
        with pytest.raises(ValueError, match=f"'{option}' of an intervention must be positive"):
            Intervention(0, "hard", **{option: value})

    def test_variance_add_must_leave_some(self):
        with pytest.raises(ValueError, match="must leave a positive variance"):
            BASE.intervene(Intervention(0, "hard", variance_add=-1.0))

    def test_only_one_change_of_variance(self):
        with pytest.raises(ValueError, match="only one of"):
            Intervention(0, "hard", variance=1.0, variance_factor=2.0)

    def test_option_of_another_kind(self):
        with pytest.raises(ValueError, match=r"'value' does not apply .* kind 'soft'"):
            Intervention(0, "soft", value=1.0)

    def test_missing_value(self):
        with pytest.raises(ValueError, match="kind 'do' needs 'value'"):
            Intervention(0, "do")

    def test_wrong_number_of_numbers(self):
        with pytest.raises(ValueError, match=r"one for each of the 2 targets. Got 3"):
            Intervention([0, 1], "shift", shift=[1.0, 2.0, 3.0])

    def test_mechanism_for_a_root(self):
        with pytest.raises(ValueError, match="Latent 0 has no parents"):
            BASE.intervene(Intervention(0, "soft", mechanism=Linear([1.0])))
