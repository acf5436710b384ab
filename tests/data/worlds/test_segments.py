# Simulated worlds always have a truth, and most have labels.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportOptionalOperand=false
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

import numpy as np
import pytest

from crlearn.data import chain, make_latent_anm, make_segments


def heights(scm, latent):
    mechanism = scm.nodes[latent].mechanism
    return None if mechanism is None else mechanism.output


class TestLatentANM:
    def test_shape_and_truth(self):
        world = make_latent_anm(3, 5, 20, n_segments=10, random_state=0)
        truth = world.truth
        assert world.X.shape == (200, 5)
        assert world.environments == tuple(range(10))
        assert truth.targets.all()
        np.testing.assert_array_equal(truth.graph, chain(3))
        np.testing.assert_allclose(truth.mixing(truth.Z), world.X)
        np.testing.assert_allclose(truth.mixing.inverse(world.X), truth.Z, atol=1e-10)
        for u, scm in enumerate(truth.scms):
            rows = world.y == u
            np.testing.assert_allclose(scm.from_noise(truth.noise[rows]), truth.Z[rows])

    def test_a_share_of_the_segments_is_quiet_for_each_latent(self):
        scms = make_latent_anm(4, n_samples=5, n_segments=20, random_state=0).truth.scms
        for latent in (1, 2, 3):
            assert sum(heights(scm, latent) is None for scm in scms) == 6

    def test_heights_change_and_signs_stay(self):
        scms = make_latent_anm(2, n_samples=5, n_segments=30, quiet=0.0, random_state=0).truth.scms
        outputs = np.array([heights(scm, 1) for scm in scms])
        assert len(np.unique(outputs[:, 0])) == 30
        assert np.abs(outputs).min() >= 1
        assert np.abs(outputs).max() <= 3
        assert (np.sign(outputs) == np.sign(outputs[0])).all()

    def test_signs_may_change(self):
        scms = make_latent_anm(
            2, n_samples=5, n_segments=30, quiet=0.0, fixed_signs=False, random_state=0
        ).truth.scms
        signs = np.sign([heights(scm, 1) for scm in scms])
        assert np.abs(signs.mean(0)).max() < 0.7

    def test_several_parents(self):
        world = make_latent_anm(4, n_samples=5, n_segments=3, graph="full", random_state=0)
        assert world.truth.scms[0].n_latents == 4

    def test_same_seed_same_bits(self):
        first, again = (make_latent_anm(n_samples=5, random_state=2) for _ in "ab")
        np.testing.assert_array_equal(first.X, again.X)

    def test_bad_input(self):
        with pytest.raises(ValueError, match="'quiet' is a share"):
            make_latent_anm(quiet=1.5)

    @pytest.mark.parametrize("name", ["n_segments", "n_layers"])
    @pytest.mark.parametrize("count", [0, -1, 2.5, "many", True])
    def test_bad_counts(self, name, count):
        with pytest.raises(ValueError, match=f"'{name}' must be an integer of at least 1"):
            make_latent_anm(**{name: count})

    @pytest.mark.parametrize("name", ["noise_mean", "noise_scale"])
    @pytest.mark.parametrize("pair", [(2.0, 1.0), 1.0, (1.0,), "ab", (1.0, np.nan), (1.0, np.inf)])
    def test_bad_ranges(self, name, pair):
        with pytest.raises(ValueError, match=rf"'{name}' must be a pair \(low, high\)"):
            make_segments(**{name: pair})

    @pytest.mark.parametrize("low", [0.0, -1.0])
    def test_scales_are_positive(self, low):
        with pytest.raises(ValueError, match="of positive numbers"):
            make_segments(noise_scale=(low, 1.0))


class TestSegments:
    def test_independent_sources_with_moments_of_their_own(self):
        world = make_segments(3, 4, 2000, n_segments=8, random_state=0)
        truth = world.truth
        assert not truth.graph.any()
        np.testing.assert_array_equal(truth.Z, truth.noise)
        for u, scm in enumerate(truth.scms):
            Z = truth.Z[world.y == u]
            scales = np.array([float(node.noise.scale) for node in scm.nodes])
            means = np.array([float(node.noise.mean) for node in scm.nodes])
            np.testing.assert_allclose(Z.std(0), scales, rtol=0.1)
            np.testing.assert_allclose(Z.mean(0), means, atol=0.2)

    def test_ranges(self):
        world = make_segments(
            2, n_samples=5, noise_mean=(1.0, 1.0), noise_scale=(0.5, 0.5), random_state=0
        )
        noise = world.truth.scms[7].nodes[1].noise
        assert (noise.mean, noise.scale) == (1.0, 0.5)

    def test_own_mixing(self):
        world = make_segments(2, n_samples=5, mixing=np.eye(2), random_state=0)
        np.testing.assert_array_equal(world.X, world.truth.Z)
