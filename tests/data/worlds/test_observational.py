# Simulated worlds always have a truth, and most have labels.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportOptionalOperand=false
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

import numpy as np
import pytest

from crlearn.data import make_observational, make_sparse_mixture, y_graph


class TestObservational:
    def test_shape_and_truth(self):
        world = make_observational(random_state=0)
        truth = world.truth
        assert world.X.shape == (1000, 4)
        assert world.y is None
        assert not truth.targets.any()
        np.testing.assert_allclose(truth.mixing(truth.Z), world.X)
        np.testing.assert_allclose(truth.scms[0].from_noise(truth.noise), truth.Z)
        np.testing.assert_allclose(truth.Z.std(0), 1.0)

    def test_minmax_as_in_the_paper(self):
        Z = make_observational(rescale="minmax", graph="y", random_state=0).truth.Z
        np.testing.assert_allclose(Z.min(0), 0.0, atol=1e-12)
        np.testing.assert_allclose(Z.max(0), 1.0)

    def test_leaf_directions_have_a_constant_score_jacobian(self):
        truth = make_observational(graph=y_graph(), random_state=0).truth
        diagonal = np.diagonal(truth.score_jacobian(truth.Z[:50]), axis1=1, axis2=2)
        spread = diagonal.std(0)
        np.testing.assert_allclose(spread[2:], 0.0, atol=1e-10)
        assert (spread[:2] > 0.01).all()

    def test_same_seed_same_bits(self):
        first, again = (make_observational(mechanism="tanh_mlp", random_state=3) for _ in "ab")
        np.testing.assert_array_equal(first.X, again.X)


class TestSparseMixture:
    def test_shape_and_truth(self):
        world = make_sparse_mixture(6, 8, 2000, random_state=0)
        truth = world.truth
        assert world.X.shape == (2000, 8)
        assert world.y is None
        assert truth.graph.sum() == 6
        np.testing.assert_allclose(truth.mixing(truth.Z), world.X)
        np.testing.assert_allclose(truth.mixing.inverse(world.X), truth.Z, atol=1e-9)

    @pytest.mark.parametrize(
        ("active", "expected"), [("one", 1), ("half", 4), ("three_quarters", 6), (3, 3)]
    )
    def test_number_of_active_latents(self, active, expected):
        truth = make_sparse_mixture(8, n_samples=3000, active=active, random_state=0).truth
        np.testing.assert_array_equal(truth.active.sum(1), expected)
        assert truth.active.any(0).all()
        assert not truth.active.all(0).any()
        np.testing.assert_array_equal(truth.Z == 0, ~truth.active)

    def test_switched_off_to_delta_standard_deviations(self):
        truth = make_sparse_mixture(4, n_samples=20_000, delta=2.0, random_state=0).truth
        for j in range(4):
            off, on = truth.Z[~truth.active[:, j], j], truth.Z[truth.active[:, j], j]
            assert np.unique(off).size == 1
            assert off[0] == pytest.approx(2.0 * on.std(), rel=0.05)

    def test_there_is_no_density(self):
        truth = make_sparse_mixture(4, n_samples=10, random_state=0).truth
        with pytest.raises(ValueError, match=r"latents that switch off, .* have none"):
            truth.score(truth.Z)

    def test_subset_keeps_activity(self):
        part = make_sparse_mixture(4, n_samples=10, random_state=0).subset(slice(3))
        assert part.truth.active.shape == (3, 4)

    def test_same_seed_same_bits(self):
        first, again = (make_sparse_mixture(4, n_samples=50, random_state=2) for _ in "ab")
        np.testing.assert_array_equal(first.X, again.X)

    def test_own_mixing(self):
        world = make_sparse_mixture(4, n_samples=50, mixing=np.eye(4), random_state=0)
        np.testing.assert_array_equal(world.X, world.truth.Z)

    @pytest.mark.parametrize("rotation", [15, 45.0, -30])
    def test_rotation_turns_what_was_switched_off(self, rotation):
        plain, turned = (
            make_sparse_mixture(4, n_samples=200, mixing=np.eye(4), rotation=angle, random_state=0)
            for angle in (0, rotation)
        )
        np.testing.assert_array_equal(turned.X, turned.truth.Z)
        np.testing.assert_array_equal(turned.truth.active, plain.truth.active)
        R = np.linalg.lstsq(plain.truth.Z, turned.truth.Z)[0]
        np.testing.assert_allclose(plain.truth.Z @ R, turned.truth.Z, atol=1e-12)
        np.testing.assert_allclose(R @ R.T, np.eye(4), atol=1e-12)
        assert np.linalg.det(R) == pytest.approx(1)
        assert not (np.abs(turned.truth.Z) < 1e-9).any()
        switched_off = (turned.truth.Z @ R.T)[~turned.truth.active]
        np.testing.assert_allclose(switched_off, 0, atol=1e-12)

    def test_rotation_by_hand(self):
        plain, turned = (
            make_sparse_mixture(2, n_samples=50, mixing=np.eye(2), rotation=angle, random_state=0)
            for angle in (0, 30)
        )
        root = 3**0.5
        np.testing.assert_allclose(turned.X, plain.X @ [[root / 2, -0.5], [0.5, root / 2]])

    def test_planes_are_turned_one_after_the_other(self):
        def plane(i, j):
            matrix = np.eye(3)
            matrix[[i, j, i, j], [i, j, j, i]] = np.array([1, 1, -1, 1]) / 2**0.5
            return matrix

        plain, turned = (
            make_sparse_mixture(
                3, n_samples=50, active=1, mixing=np.eye(3), rotation=angle, random_state=0
            )
            for angle in (0, 45)
        )
        expected = plain.X @ plane(1, 2) @ plane(0, 2) @ plane(0, 1)
        np.testing.assert_allclose(turned.X, expected, atol=1e-12)

    def test_a_right_angle_only_swaps_axes(self):
        plain, turned = (
            make_sparse_mixture(4, n_samples=500, rotation=angle, random_state=0).truth.Z
            for angle in (0, 90)
        )
        correlations = np.abs(np.corrcoef(plain.T, turned.T)[:4, 4:])
        np.testing.assert_allclose(np.sort(correlations.max(0)), 1)
        np.testing.assert_array_equal((np.abs(turned) < 1e-9).sum(1), 2)

    def test_rotation_of_translated_latents(self):
        plain, turned = (
            make_sparse_mixture(
                4, n_samples=50, delta=2.0, mixing=np.eye(4), rotation=angle, random_state=0
            )
            for angle in (0.0, 20)
        )
        lengths = [np.linalg.norm(world.X, axis=1) for world in (plain, turned)]
        np.testing.assert_allclose(*lengths)

    @pytest.mark.parametrize("rotation", ["15", np.nan, np.inf, None, [15]])
    def test_rotation_is_a_number(self, rotation):
        with pytest.raises(ValueError, match="'rotation' must be a finite number"):
            make_sparse_mixture(4, rotation=rotation)

    @pytest.mark.parametrize("active", [0, 4, "one"])
    def test_some_on_and_some_off(self, active):
        n_latents = 1 if active == "one" else 4
        with pytest.raises(ValueError, match="at least one latent on and one off"):
            make_sparse_mixture(n_latents, active=active)

    def test_unknown_share(self):
        with pytest.raises(ValueError, match="'one', 'half', 'three_quarters' or a number"):
            make_sparse_mixture(4, active="most")
