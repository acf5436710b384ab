# Simulated worlds always have a truth, and most have labels.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportOptionalOperand=false
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

import numpy as np
import pytest

from crlearn import persist
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

    def test_worlds_of_earlier_versions_stay(self):
        world = make_latent_anm(n_samples=7, random_state=3)
        np.testing.assert_allclose(world.X[0], [3.7142581, -0.89053816, 2.89728855], atol=1e-7)
        wide = make_latent_anm(
            4,
            n_samples=7,
            graph="full",
            fixed_signs=False,
            quiet=0.1,
            measurement_noise=0.1,
            random_state=3,
        )
        expected = [-0.01382855, 3.21083615, -1.79135517, 2.10646979]
        np.testing.assert_allclose(wide.X[0], expected, atol=1e-7)

    def test_invariant_parts_are_in_every_segment(self):
        world = make_latent_anm(3, n_samples=5, invariant=[2], random_state=0)
        plain = make_latent_anm(3, n_samples=5, random_state=0)
        np.testing.assert_array_equal(world.truth.noise, plain.truth.noise)
        np.testing.assert_array_equal(world.truth.Z[:, :2], plain.truth.Z[:, :2])
        parents = np.linspace(-2, 2, 5)[:, None]
        parts = [
            scm.nodes[2].without_noise(parents) - without.nodes[2].without_noise(parents)
            for scm, without in zip(world.truth.scms, plain.truth.scms, strict=True)
        ]
        np.testing.assert_allclose(parts, [parts[0]] * len(parts), atol=1e-12)
        assert np.ptp(parts[0]) > 0.1
        assert all(scm.graph[1, 2] for scm in world.truth.scms)

    def test_changes_of_size_never_vanish(self):
        scms = make_latent_anm(3, n_samples=5, changes="size", random_state=0).truth.scms
        outputs = np.array([heights(scm, 2) for scm in scms])
        factors = outputs / outputs[0]
        np.testing.assert_allclose(factors, np.repeat(factors[:, :1], outputs.shape[1], axis=1))
        assert 2 < np.ptp(np.log(np.abs(outputs[:, 0]))) + 1 < np.log(5) + 1.001

    def test_post_nonlinear_latents(self):
        world = make_latent_anm(2, 4, n_samples=50, post_nonlinear=True, random_state=0)
        plain = make_latent_anm(2, 4, n_samples=50, random_state=0)
        np.testing.assert_array_equal(world.truth.noise, plain.truth.noise)
        np.testing.assert_allclose(world.truth.mixing(world.truth.Z), world.X)
        assert world.truth.scms is None
        order = np.argsort(plain.truth.Z[:, 0])  # a root cause is a function of its noise
        assert (np.diff(world.truth.Z[order, 0]) >= 0).all()
        assert np.abs(world.truth.Z - plain.truth.Z).max() > 0.5

    @pytest.mark.parametrize(
        ("name", "value"), [("auxiliary", "both"), ("changes", "grow"), ("auxiliary", None)]
    )
    def test_bad_words(self, name, value):
        with pytest.raises(ValueError, match=f"'{name}' must be '.*' or '.*'. Got"):
            make_latent_anm(**{name: value})

    def test_bad_input(self):
        with pytest.raises(ValueError, match="'quiet' is a share"):
            make_latent_anm(quiet=1.5)
        with pytest.raises(ValueError, match="'invariant' must be 'all' or a list of latents"):
            make_latent_anm(invariant=[3])

    @pytest.mark.parametrize("name", ["n_segments", "n_layers", "auxiliary_dim"])
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


class TestContinuousAuxiliary:
    def test_shape_and_truth(self):
        world = make_latent_anm(
            3, 5, 50, n_segments=10, auxiliary="continuous", auxiliary_dim=2, random_state=0
        )
        assert world.X.shape == (500, 5)
        assert world.y.shape == (500, 2)
        assert -1 <= world.y.min() < -0.9
        assert 0.9 < world.y.max() <= 1
        assert world.environments == ()
        assert world.truth.scms is None
        np.testing.assert_array_equal(world.truth.graph, chain(3))
        np.testing.assert_allclose(world.truth.mixing(world.truth.Z), world.X)

    @pytest.mark.parametrize("quiet", [0.0, 0.3, 1.0])
    def test_a_share_of_the_rows_is_without_causal_effects(self, quiet):
        truth = make_latent_anm(auxiliary="continuous", quiet=quiet, random_state=1).truth
        is_quiet = (truth.noise == truth.Z).mean(axis=0)
        assert is_quiet[0] == 1
        np.testing.assert_allclose(is_quiet[1:], quiet, atol=0.03)

    @pytest.mark.parametrize("change", [{"invariant": "all"}, {"changes": "size"}])
    def test_effects_that_never_vanish(self, change):
        truth = make_latent_anm(auxiliary="continuous", random_state=1, **change).truth
        assert (truth.noise != truth.Z)[:, 1:].all()

    def test_noise_keeps_to_its_ranges(self):
        world = make_latent_anm(
            2,
            n_samples=[1000] * 40,
            auxiliary="continuous",
            noise="uniform",
            noise_mean=(0.0, 1.0),
            noise_scale=(0.1, 0.2),
            random_state=0,
        )
        widest = np.sqrt(3) * 0.2
        assert -widest < world.truth.noise.min() < -0.15
        assert 1.15 < world.truth.noise.max() < 1 + widest

    def test_post_nonlinear(self):
        options = {"auxiliary": "continuous", "random_state": 2, "n_samples": 5}
        bent, plain = (make_latent_anm(post_nonlinear=b, **options).truth for b in (True, False))
        np.testing.assert_array_equal(bent.noise, plain.noise)
        assert (np.diff(bent.Z[np.argsort(plain.Z[:, 0]), 0]) >= 0).all()

    def test_same_seed_same_bits(self):
        first, again = (
            make_latent_anm(n_samples=5, auxiliary="continuous", random_state=2) for _ in "ab"
        )
        np.testing.assert_array_equal(first.X, again.X)
        np.testing.assert_array_equal(first.y, again.y)

    def test_save_and_load(self, tmp_path):
        world = make_latent_anm(n_samples=5, auxiliary="continuous", random_state=2)
        persist.save(world, tmp_path / "world.crl")
        again = persist.load(tmp_path / "world.crl")
        np.testing.assert_array_equal(again.y, world.y)
        np.testing.assert_array_equal(again.truth.Z, world.truth.Z)
        assert repr(again) == repr(world)


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
