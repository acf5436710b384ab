# Simulated worlds always have a truth.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportOptionalOperand=false
# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crlearn import load
from crlearn.data import make_sparse_mixture
from crlearn.data.worlds._sparse_mixture import _are_apart
from crlearn.persist import save


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


class TestSameDraws:
    """Figures of earlier versions stay what they were: values were written down before."""

    def test_plain(self):
        world = make_sparse_mixture(3, n_samples=2, random_state=0)
        np.testing.assert_allclose(
            world.X,
            [[0.21052041, 0.27986474, 0.65462846], [-0.01532165, -0.6310928, -0.65105344]],
            atol=1e-8,
        )
        np.testing.assert_allclose(
            world.truth.Z, [[0, 0, 1.71146509], [0, 0, -1.73352497]], atol=1e-8
        )

    def test_rotated_and_moved(self):
        world = make_sparse_mixture(3, n_samples=2, delta=1, rotation=30, random_state=0)
        np.testing.assert_allclose(
            world.X,
            [[0.59827185, -0.87964006, 0.61935977], [-0.05106831, -0.93821936, -0.86746583]],
            atol=1e-8,
        )

    @pytest.mark.parametrize(
        "option", [{"inactive_scale": 0.5}, {"mean_scale": 1.0}, {"activation": "sigmoid"}]
    )
    def test_options_do_not_change_what_else_is_drawn(self, option):
        plain, other = (
            make_sparse_mixture(5, n_samples=100, random_state=3, **chosen).truth
            for chosen in ({}, option)
        )
        for name in ("active", "noise", "graph"):
            np.testing.assert_array_equal(getattr(plain, name), getattr(other, name))
        for before, after in zip(plain.mixing.layers, other.mixing.layers, strict=True):
            np.testing.assert_array_equal(before.weight, after.weight)


class TestBlocks:
    @pytest.mark.parametrize(
        ("sizes", "n_active"), [((2, 2, 2, 2, 2), 2), ((1, 1, 1, 3, 4), 2), ((1, 1, 2, 6), 2)]
    )
    def test_blocks_are_active_together(self, sizes, n_active):
        truth = make_sparse_mixture(10, n_samples=2000, blocks=sizes, random_state=0).truth
        assert tuple(map(len, truth.blocks)) == sizes
        assert sum(truth.blocks, ()) == tuple(range(10))
        first = np.array([block[0] for block in truth.blocks])
        for block in truth.blocks:
            together = truth.active[:, list(block)]
            np.testing.assert_array_equal(together.all(axis=1), together.any(axis=1))
        on = truth.active[:, first]
        np.testing.assert_array_equal(on.sum(axis=1), n_active)
        for i in range(len(sizes)):  # no block is on wherever another one is
            assert np.delete(on[~on[:, i]], i, axis=1).any(axis=0).all()
        np.testing.assert_array_equal(truth.Z == 0, ~truth.active)

    def test_blocks_of_one_are_no_blocks(self):
        plain = make_sparse_mixture(4, n_samples=50, random_state=1)
        ones = make_sparse_mixture(4, n_samples=50, blocks=[1, 1, 1, 1], random_state=1)
        np.testing.assert_array_equal(plain.X, ones.X)
        assert plain.truth.blocks is None
        assert ones.truth.blocks == ((0,), (1,), (2,), (3,))

    @pytest.mark.parametrize(
        ("masks", "expected"),
        [
            ([[1, 0], [0, 1]], True),
            ([[1, 0], [1, 1]], False),  # the second is on with the first only
            ([[1, 1, 0], [0, 1, 1], [1, 0, 1]], True),
            ([[1, 1, 0], [0, 1, 1], [0, 1, 0]], False),
        ],
    )
    def test_blocks_that_can_be_told_apart(self, masks, expected):
        assert _are_apart(np.array(masks, dtype=bool)) is expected

    def test_a_file_and_a_subset_keep_them(self, tmp_path):
        world = make_sparse_mixture(4, n_samples=20, blocks=(1, 3), random_state=0)
        assert world.subset(slice(3)).truth.blocks == ((0,), (1, 2, 3))
        save(world, tmp_path / "world")
        assert load(tmp_path / "world").truth.blocks == ((0,), (1, 2, 3))

    def test_bad_sizes(self):
        with pytest.raises(ValueError, match=r"add up to 4, .* Got \[1, 2\], which add up to 3"):
            make_sparse_mixture(4, blocks=(1, 2))
        with pytest.raises(ValueError, match=r"'blocks' must be an integer of at least 1. Got 0"):
            make_sparse_mixture(4, blocks=(0, 4))
        with pytest.raises(ValueError, match="at least one block on and one off"):
            make_sparse_mixture(4, blocks=(4,))


class TestFullRank:
    def test_inactive_latents_vary_less(self):
        plain, wide = (
            make_sparse_mixture(
                4, n_samples=500, delta=2, inactive_scale=scale, mixing=np.eye(4), random_state=0
            ).truth
            for scale in (0, 0.25)
        )
        np.testing.assert_array_equal(wide.active, plain.active)
        on = plain.active
        np.testing.assert_array_equal(wide.Z[on], plain.Z[on])
        moved = wide.Z - plain.Z
        for j in range(4):
            off, others = moved[~on[:, j], j], plain.Z[on[:, j], j]
            assert np.unique(off).size == off.size
            assert off.std() == pytest.approx(0.25 * others.std(), rel=0.2)
            assert off.mean() == pytest.approx(0, abs=0.1)

    def test_no_component_is_degenerate(self):
        truth = make_sparse_mixture(
            4, n_samples=4000, inactive_scale=0.3, mean_scale=1.0, random_state=0
        ).truth
        for mask in np.unique(truth.active, axis=0):
            rows = truth.Z[(truth.active == mask).all(axis=1)]
            assert np.linalg.eigvalsh(np.cov(rows.T))[0] > 0.01

    def test_each_component_has_its_own_means(self):
        plain, moved = (
            make_sparse_mixture(6, n_samples=3000, mean_scale=scale, random_state=0).truth
            for scale in (0, 2.0)
        )
        shift = moved.Z - plain.Z
        means = [
            shift[(plain.active == mask).all(axis=1)] for mask in np.unique(plain.active, axis=0)
        ]
        for rows in means:
            np.testing.assert_allclose(rows, np.broadcast_to(rows[0], rows.shape), atol=1e-12)
        spread = np.array([rows[0] for rows in means])
        assert np.unique(spread).size == spread.size
        relative = spread / plain.Z[plain.active].std()
        assert relative.std() == pytest.approx(2, rel=0.25)

    @pytest.mark.parametrize("name", ["inactive_scale", "mean_scale"])
    @pytest.mark.parametrize("value", [-0.1, np.nan, "1", np.inf])
    def test_scales_are_not_negative(self, name, value):
        with pytest.raises(ValueError, match=f"'{name}' must be a finite number"):
            make_sparse_mixture(4, **{name: value})


class TestTwoBases:
    @pytest.mark.parametrize("share", [0, 0.5, 1])
    def test_a_share_of_the_components_is_rotated(self, share):
        plain, turned = (
            make_sparse_mixture(
                6, n_samples=5000, active=3, rotation=angle, rotated_share=share, random_state=2
            ).truth
            for angle in (0, 30)
        )
        masks = np.unique(plain.active, axis=0)
        full = make_sparse_mixture(6, n_samples=5000, active=3, rotation=30, random_state=2).truth.Z
        n_turned = 0
        for mask in masks:
            rows = (plain.active == mask).all(axis=1)
            is_turned = not np.array_equal(plain.Z[rows], turned.Z[rows])
            same_as = full if is_turned else plain.Z
            np.testing.assert_allclose(turned.Z[rows], same_as[rows], atol=1e-12)
            n_turned += is_turned
        assert n_turned == round(share * len(masks))

    def test_a_share_lies_between_zero_and_one(self):
        with pytest.raises(ValueError, match="'rotated_share' is a share"):
            make_sparse_mixture(4, rotated_share=1.5)


def exchange_upper_rays(Z, crossing, deviations, first, second):
    """Exchange what lies above the crossing on two axes, in units of standard deviations."""
    steps = (Z - crossing) / deviations
    changed = steps.copy()
    for old, new in ((first, second), (second, first)):
        upper = steps[:, old] > 0
        changed[upper, old] = 0
        changed[upper, new] = steps[upper, old]
    return crossing + changed * deviations


@pytest.fixture(scope="module", params=[0.0, 1.0])
def crossing_lines(request):
    truth = make_sparse_mixture(
        5, n_samples=40_000, active="one", delta=request.param, random_state=0
    ).truth
    off = [truth.Z[~truth.active[:, j], j][0] for j in range(5)]
    on = [truth.Z[truth.active[:, j], j].std() for j in range(5)]
    return truth, np.array(off), np.array(on), request.param


class TestGenericity:
    """Example E.2: lines that cross at the same Mahalanobis distance from all means."""

    def test_all_lines_cross_at_one_distance(self, crossing_lines):
        truth, crossing, deviations, delta = crossing_lines
        on = truth.active.argmax(axis=1)
        steps = (truth.Z - crossing) / deviations
        np.testing.assert_array_equal(steps[~truth.active], 0)
        for j in range(5):
            distance = -steps[on == j, j].mean()
            assert distance == pytest.approx(delta, abs=0.05)

    def test_a_map_that_is_not_affine_keeps_the_distribution(self, crossing_lines):
        truth, crossing, deviations, delta = crossing_lines
        changed = exchange_upper_rays(truth.Z, crossing, deviations, 0, 1)
        again = exchange_upper_rays(changed, crossing, deviations, 0, 1)
        np.testing.assert_allclose(again, truth.Z, atol=1e-9)  # one to one
        np.testing.assert_allclose(changed[:, 2:], truth.Z[:, 2:], atol=1e-12)
        for j in (0, 1):
            before, after = (Z[np.abs(Z - crossing)[:, j] > 1e-9, j] for Z in (truth.Z, changed))
            assert len(after) / len(before) == pytest.approx(1, abs=0.05)
            assert stats.ks_2samp(before, after).pvalue > 0.001
            law = stats.norm(crossing[j] - delta * deviations[j], deviations[j])
            assert stats.kstest(after, law.cdf).pvalue > 0.001
        # Line 0 is mapped on two half axes, which no affine map does.
        line = truth.active[:, 0]
        assert np.linalg.matrix_rank(np.cov(changed[line].T), tol=1e-6) == 2
        assert np.linalg.matrix_rank(np.cov(truth.Z[line].T), tol=1e-6) == 1

    def test_continuous(self, crossing_lines):
        _, crossing, deviations, _ = crossing_lines
        near = crossing + 1e-9 * np.concatenate([np.eye(5), -np.eye(5)])
        changed = exchange_upper_rays(near, crossing, deviations, 0, 1)
        np.testing.assert_allclose(changed, np.broadcast_to(crossing, (10, 5)), atol=1e-8)


class TestMixings:
    @pytest.mark.parametrize("n_features", [6, 12])
    @pytest.mark.parametrize(
        "options",
        [
            {"slope_range": (0.2, 0.4), "bias_scale": 0.7},
            {"slope_range": [0.5, 1.5]},
            {"activation": "smooth_leaky_relu"},
            {"activation": "sigmoid", "n_layers": 3},
        ],
    )
    def test_all_are_one_to_one(self, options, n_features):
        world = make_sparse_mixture(6, n_features, 500, random_state=0, **options)
        mixing = world.truth.mixing
        np.testing.assert_allclose(mixing.inverse(world.X), world.truth.Z, atol=1e-7)
        smallest = np.linalg.svd(mixing.jacobian(world.truth.Z), compute_uv=False)[:, -1]
        assert (smallest > 0).all()
        assert {layer.activation for layer in mixing.layers[:-1]} == {
            options.get("activation", "leaky_relu")
        }

    def test_slopes_come_from_their_range(self):
        slopes = [
            layer.slope
            for layer in make_sparse_mixture(
                4, n_samples=10, n_layers=200, slope_range=(0.5, 1.5), random_state=0
            ).truth.mixing.layers[:-1]
        ]
        assert 0.5 < min(slopes) < 0.52
        assert 1.48 < max(slopes) < 1.5
        fixed = make_sparse_mixture(4, n_samples=10, slope=0.3, slope_range=(0.5, 1.5))
        assert {layer.slope for layer in fixed.truth.mixing.layers[:-1]} == {0.3}

    def test_biases_in_every_layer(self):
        world = make_sparse_mixture(4, n_samples=10, bias_scale=0.7, random_state=0)
        assert all(layer.bias is not None for layer in world.truth.mixing.layers)

    def test_bad_options(self):
        with pytest.raises(ValueError, match="'slope_range' must be a pair"):
            make_sparse_mixture(4, slope_range=(0.0, 1.0))
        with pytest.raises(ValueError, match="'activation' must be 'leaky_relu' or"):
            make_sparse_mixture(4, activation="relu")

    @pytest.mark.parametrize("noise", ["exponential", "gumbel"])
    def test_other_noises_have_mean_zero_and_variance_one(self, noise):
        truth = make_sparse_mixture(4, n_samples=50_000, noise=noise, random_state=0).truth
        np.testing.assert_allclose(truth.noise.mean(axis=0), 0, atol=0.03)
        np.testing.assert_allclose(truth.noise.std(axis=0), 1, atol=0.03)
        assert (stats.skew(truth.noise) > 1).all()
        np.testing.assert_array_equal(truth.Z == 0, ~truth.active)
