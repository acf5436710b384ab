# Simulated worlds always have a truth, and these have labels.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportArgumentType=false, reportAttributeAccessIssue=false
from __future__ import annotations

import numpy as np
import pytest

from crlearn import persist
from crlearn.data import ArmRendering, full, make_arm


class TestTasks:
    def test_shape_and_truth(self):
        world = make_arm(n_samples=20, n_tasks=8, random_state=0)
        assert world.X.shape == (160, 18)
        assert world.environments == tuple(range(8))
        assert world.truth.latent_names == ("shoulder", "elbow", "wrist")
        assert world.names[0] == "upper arm 1 x"
        np.testing.assert_array_equal(world.truth.graph, full(3))
        np.testing.assert_allclose(world.truth.mixing(world.truth.Z), world.X)
        np.testing.assert_allclose(world.truth.mixing.inverse(world.X), world.truth.Z, atol=1e-7)

    def test_quiet_tasks_are_without_dependence(self):
        world = make_arm(n_samples=5, n_tasks=10, quiet=0.4, random_state=0)
        truth = world.truth
        for joint in (1, 2):
            moves_alone = np.array([not scm.graph[:, joint].any() for scm in truth.scms])
            assert moves_alone.sum() == 4
            rows = moves_alone[world.y]
            np.testing.assert_array_equal(truth.Z[rows, joint], truth.noise[rows, joint])
            assert (truth.Z[~rows, joint] != truth.noise[~rows, joint]).all()

    def test_images(self):
        world = make_arm(n_samples=3, n_tasks=4, view="images", resolution=24, random_state=0)
        assert world.X.shape == (12, 24 * 24)
        assert world.X.dtype == np.float32
        assert world.truth.mixing.image_shape == (1, 24, 24)
        markers = make_arm(n_samples=3, n_tasks=4, random_state=0)
        np.testing.assert_array_equal(world.truth.Z, markers.truth.Z)

    def test_measurement_noise(self):
        noisy, clean = (
            make_arm(n_samples=50, n_tasks=4, measurement_noise=size, random_state=0)
            for size in (0.05, 0.0)
        )
        assert (noisy.X - clean.X).std() == pytest.approx(0.05, rel=0.05)

    def test_own_graph_and_more_joints(self):
        world = make_arm(4, 5, n_tasks=4, graph=np.eye(4, k=1), random_state=0)
        assert world.truth.latent_names[-1] == "joint 4"
        assert world.truth.graph.sum() == 3

    @pytest.mark.parametrize("view", ["markers", "images"])
    def test_same_seed_same_bits_also_from_a_file(self, view, tmp_path):
        first, again = (make_arm(n_samples=3, n_tasks=4, view=view, random_state=2) for _ in "ab")
        np.testing.assert_array_equal(first.X, again.X)
        persist.save(first, tmp_path / "arm.crl")
        loaded = persist.load(tmp_path / "arm.crl")
        np.testing.assert_array_equal(loaded.X, first.X)
        np.testing.assert_array_equal(loaded.truth.mixing(first.truth.Z), first.X)
        assert loaded.truth.latent_names == first.truth.latent_names
        assert repr(loaded.truth.mixing) == repr(first.truth.mixing)


class TestInterventions:
    def test_two_hard_interventions_on_each_joint(self):
        world = make_arm(
            n_samples=2000, environments="interventions", targets="known", random_state=0
        )
        truth = world.truth
        expected = np.concatenate([np.zeros((1, 3)), np.eye(3), np.eye(3)])
        np.testing.assert_array_equal(truth.targets, expected)
        np.testing.assert_array_equal(world.known_targets, expected)
        for environment, factor in ((3, 0.25), (6, 4.0)):
            rows = world.y == environment
            np.testing.assert_array_equal(truth.Z[rows, 2], truth.noise[rows, 2])
            usual = truth.noise[world.y == 0, 2].var()
            assert truth.noise[rows, 2].var() / usual == pytest.approx(factor, rel=0.2)

    def test_images_of_bytes(self):
        world = make_arm(
            n_samples=4, environments="interventions", view="images", dtype="uint8", random_state=0
        )
        assert world.X.dtype == np.uint8
        assert isinstance(world.truth.mixing, ArmRendering)
        assert world.n_environments == 7
        assert world.known_targets is None


class TestBadInput:
    @pytest.mark.parametrize(
        ("name", "value"),
        [("view", "film"), ("environments", "both"), ("targets", "guessed")],
    )
    def test_words(self, name, value):
        with pytest.raises(ValueError, match=f"'{name}' must be"):
            make_arm(**{name: value})

    @pytest.mark.parametrize("name", ["n_latents", "n_tasks", "n_markers"])
    def test_counts(self, name):
        with pytest.raises(ValueError, match=f"'{name}' must be an integer of at least 1"):
            make_arm(**{name: 0})

    def test_ranges(self):
        with pytest.raises(ValueError, match="'noise_scale' must be a pair"):
            make_arm(environments="interventions", noise_scale=(0.0, 1.0))

    def test_bytes_carry_no_noise(self):
        with pytest.raises(ValueError, match="cannot carry 'measurement_noise'"):
            make_arm(view="images", dtype="uint8", measurement_noise=0.1)
