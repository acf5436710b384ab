# Simulated worlds always have a truth, and most have labels.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportOptionalOperand=false
# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crlearn import load
from crlearn.data import BallRendering, chain, full, make_ball_images, make_mixing, make_world
from crlearn.data.worlds._images import _truncated_normal
from crlearn.persist import save

RED = (0.9, 0.09, 0.09)
WHITE = (1.0, 1.0, 1.0)


def pictures(draw, Z):
    """Rows, columns, colours."""
    return draw(np.atleast_2d(Z)).reshape(-1, *draw.image_shape).transpose(0, 2, 3, 1)


def center_of_mass(picture):
    ink = 1 - picture.mean(axis=2)
    rows, columns = np.indices(ink.shape) + 0.5
    return (ink * columns).sum() / ink.sum(), (ink * rows).sum() / ink.sum()


def drawn_pixel_by_pixel(draw, z):
    """The same picture without any shortcut."""
    picture = np.ones((draw.resolution, draw.resolution, 3))
    centers = draw.radius + (draw.resolution - 2 * draw.radius) * np.reshape(z, (-1, 2))
    for color, (x, y) in zip(draw.colors, centers, strict=True):
        for row, column in np.ndindex(draw.resolution, draw.resolution):
            distance = np.hypot(column + 0.5 - x, draw.resolution - row - 0.5 - y)
            cover = min(max(draw.radius + 0.5 - distance, 0), 1)
            picture[row, column] = (1 - cover) * picture[row, column] + cover * color
    return picture


class TestRendering:
    def test_one_ball_in_the_middle(self):
        picture = pictures(BallRendering(1, 33, radius=5), [0.5, 0.5])[0]
        np.testing.assert_allclose(picture[16, 16], RED, rtol=1e-6)
        np.testing.assert_allclose(picture[16, 20], RED, rtol=1e-6)
        np.testing.assert_allclose(picture[16, 21], np.add(RED, WHITE) / 2, rtol=1e-6)
        np.testing.assert_array_equal(picture[16, 22], WHITE)
        np.testing.assert_array_equal(picture[0, 0], WHITE)
        np.testing.assert_array_equal(picture, picture[::-1])
        np.testing.assert_array_equal(picture, picture.transpose(1, 0, 2))

    def test_eight_bits_are_the_same_picture(self):
        Z = np.random.default_rng(0).uniform(size=(20, 4))
        fine, coarse = BallRendering(2, 16)(Z), BallRendering(2, 16, dtype="uint8")(Z)
        assert coarse.dtype == np.uint8
        assert coarse.max() == 255
        np.testing.assert_allclose(coarse / 255, fine, atol=0.5 / 255 + 1e-6)
        with pytest.raises(ValueError, match="'float32' or 'uint8'"):
            BallRendering(2, 16, dtype="int8")

    @pytest.mark.parametrize("radius", [1, 1.3, 3.75, 7.9])
    def test_no_pixel_is_forgotten(self, radius):
        draw = BallRendering(2, 16, radius)
        Z = np.random.default_rng(0).uniform(-0.4, 1.4, size=(30, 4))
        expected = [drawn_pixel_by_pixel(draw, z) for z in Z]
        np.testing.assert_allclose(pictures(draw, Z), expected, atol=1e-5)

    def test_zero_and_one_are_the_edges(self):
        draw = BallRendering(1, 32, radius=4)
        left, right, low, high = pictures(draw, [[0, 0.5], [1, 0.5], [0.5, 0], [0.5, 1]])
        assert (left[:, 0] != 1).any()
        assert (left[:, 8:] == 1).all()
        np.testing.assert_allclose(right, left[:, ::-1], atol=1e-6)
        assert (low[-1] != 1).any()
        np.testing.assert_allclose(high, low[::-1], atol=1e-6)
        np.testing.assert_allclose(high, left.transpose(1, 0, 2), atol=1e-6)

    def test_a_ball_moves_with_its_latents(self):
        draw = BallRendering(1)
        steps = np.linspace(0, 1, 50)
        right = [center_of_mass(p) for p in pictures(draw, np.c_[steps, np.full(50, 0.3)])]
        up = [center_of_mass(p) for p in pictures(draw, np.c_[np.full(50, 0.3), steps])]
        wanted = 5 + 54 * steps
        np.testing.assert_allclose(np.array(right)[:, 0], wanted, atol=0.02)
        np.testing.assert_allclose(np.array(up)[:, 1], 64 - wanted, atol=0.02)
        assert (np.diff(np.array(right)[:, 0]) > 0.5).all()
        assert np.ptp(np.array(right)[:, 1]) < 0.05

    def test_later_balls_cover_earlier_ones(self):
        draw = BallRendering(3)
        same_place, last_alone = pictures(draw, [[0.5] * 6, [-2, -2, -2, -2, 0.5, 0.5]])
        np.testing.assert_allclose(same_place[32, 32], draw.colors[2], rtol=1e-6)
        np.testing.assert_allclose(last_alone[32, 32], draw.colors[2], rtol=1e-6)

    def test_hues_are_evenly_spaced(self):
        expected = [[0.9, 0.09, 0.09], [0.09, 0.9, 0.09], [0.09, 0.09, 0.9]]
        np.testing.assert_allclose(BallRendering(3).colors, expected, rtol=1e-6)
        assert len(np.unique(BallRendering(8).colors, axis=0)) == 8

    def test_blocks_do_not_show(self, monkeypatch):
        draw, Z = BallRendering(2, 16), np.random.default_rng(1).random((10, 4))
        whole = draw(Z)
        monkeypatch.setattr("crlearn.data.worlds._images._IMAGES_PER_BLOCK", 3)
        np.testing.assert_array_equal(draw(Z), whole)
        assert whole.dtype == np.float32
        assert draw(Z[:0]).shape == (0, draw.n_features)

    def test_it_is_a_mixing(self):
        draw = BallRendering(2, 16)
        assert (draw.n_latents, draw.n_features) == (4, 768)
        assert draw.matrix is None
        assert not draw.is_linear
        assert repr(draw) == "BallRendering(2 balls, 16 x 16 pixels)"
        assert make_mixing(draw, 4) is draw
        world = make_world(4, n_samples=5, mixing=draw, noise_scale=0.1, random_state=0)
        np.testing.assert_array_equal(world.X, draw(world.truth.Z))
        with pytest.raises(ValueError, match="must map 3 latents"):
            make_mixing(draw, 3)

    def test_there_is_no_way_back(self):
        draw = BallRendering(1)
        with pytest.raises(ValueError, match=r"no inverse.* truth\.Z"):
            draw.inverse(draw([[0.5, 0.5]]))
        with pytest.raises(ValueError, match="no useful Jacobian"):
            draw.jacobian([[0.5, 0.5]])

    def test_bad_input(self):
        with pytest.raises(ValueError, match=r"'n_balls' must be an integer .* Got 0"):
            BallRendering(0)
        with pytest.raises(ValueError, match=r"'resolution' .* at least 16. Got 15"):
            BallRendering(1, 15)
        with pytest.raises(ValueError, match=r"'resolution' .* Got 64.5"):
            BallRendering(1, 64.5)
        for radius in (0.5, 32, np.nan):
            with pytest.raises(ValueError, match="room to move"):
                BallRendering(1, 64, radius)
        with pytest.raises(ValueError, match=r"\(n_samples, 2\).* Got shape \(1, 3\)"):
            BallRendering(1)([[0.5, 0.5, 0.5]])
        with pytest.raises(ValueError, match="NaN or infinite"):
            BallRendering(1)([[0.5, np.nan]])


class TestTruncatedNormal:
    @pytest.mark.parametrize(
        ("center", "scale"), [(0.0, 1.2), (0.7, 0.5), (-2.0, 1.0), (4.0, 0.3), (-4.0, 0.3)]
    )
    def test_distribution(self, center, scale):
        drawn = _truncated_normal(np.full(20_000, center), scale, np.random.default_rng(0))
        exact = stats.truncnorm((-1 - center) / scale, (1 - center) / scale, center, scale)
        assert stats.kstest(drawn, exact.cdf).pvalue > 0.01

    @pytest.mark.parametrize("center", [1e3, -1e3, 1e12])
    def test_far_outside_it_stays_at_the_edge(self, center):
        drawn = _truncated_normal(np.full(100, center), 1.0, np.random.default_rng(0))
        np.testing.assert_allclose(drawn, np.sign(center), atol=0.02)
        assert np.abs(drawn).max() <= 1


def in_box(world):
    """Latents in units in which the box is [-1, 1]."""
    return 2 * world.truth.Z - 1


class TestWorld:
    def test_shape_and_truth(self):
        world = make_ball_images(4, 20, random_state=0)
        truth = world.truth
        assert world.X.shape == (9 * 20, 3 * 64 * 64)
        assert world.environments == tuple(range(9))
        assert truth.mixing.radius == 5
        np.testing.assert_array_equal(
            truth.targets, np.vstack([np.zeros((1, 4)), np.eye(4), np.eye(4)])
        )
        np.testing.assert_array_equal(truth.mixing(truth.Z), world.X)
        assert world.X.min() >= 0
        assert world.X.max() == 1
        assert world.known_targets is None
        assert truth.scms is None
        with pytest.raises(ValueError, match="are not here"):
            truth.score(truth.Z)

    def test_same_seed_same_bits(self):
        world, again, other = (
            make_ball_images(2, 10, resolution=16, random_state=seed) for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(world.X, again.X)
        assert not np.array_equal(world.X, other.X)

    def test_the_drawing_does_not_change_the_latents(self):
        small, large = (
            make_ball_images(4, 10, resolution=size, random_state=0).truth for size in (16, 40)
        )
        np.testing.assert_array_equal(small.Z, large.Z)

    def test_sizes_rounds_and_known_targets(self):
        world = make_ball_images(
            2,
            [5, 6, 7],
            resolution=16,
            variance_factors=(0.25,),
            targets="known",
            random_state=0,
        )
        np.testing.assert_array_equal(np.bincount(world.y), [5, 6, 7])
        np.testing.assert_array_equal(world.known_targets, [[0, 0], [1, 0], [0, 1]])
        alone = make_ball_images(2, 5, resolution=16, variance_factors=(), random_state=0)
        assert alone.y is None

    @pytest.mark.parametrize("n_latents", [2, 4])
    def test_few_latents_have_a_full_graph_in_a_random_order(self, n_latents):
        graphs = [
            make_ball_images(n_latents, 1, resolution=16, random_state=seed).truth.graph
            for seed in range(6)
        ]
        assert all(graph.sum() == full(n_latents).sum() for graph in graphs)
        assert len(np.unique(graphs, axis=0)) > 1

    def test_degree(self):
        def mean_edges(degree):
            counts = [
                make_ball_images(6, 1, resolution=16, degree=degree, random_state=seed)
                for seed in range(20)
            ]
            return np.mean([world.truth.graph.sum() for world in counts])

        assert mean_edges(2.0) == pytest.approx(12, abs=1.5)
        assert mean_edges(0.0) == 0

    def test_latents_stay_in_the_box(self):
        Z = make_ball_images(6, 2000, resolution=16, random_state=0).truth.Z
        assert Z.min() >= 0
        assert Z.max() <= 1
        assert np.ptp(Z, axis=0).min() > 0.99

    def test_children_stay_with_their_parents(self):
        world = make_ball_images(
            2,
            20_000,
            resolution=16,
            graph=chain(2),
            weight_range=(1.0, 1.0),
            noise_variance=(0.01, 0.01),
            variance_factors=(),
            random_state=0,
        )
        parent, child = in_box(world).T
        noise = np.multiply(2, world.truth.noise)
        np.testing.assert_allclose(noise[:, 0], parent)
        weight = np.round((child - noise[:, 1])[0] / parent[0])
        assert abs(weight) == 1
        np.testing.assert_allclose(child, weight * parent + noise[:, 1], atol=1e-12)
        assert abs(np.corrcoef(parent, child)[0, 1]) > 0.2
        # In units of the box the noise has variance one.
        center = weight * parent
        levels = stats.truncnorm.cdf(child, -1 - center, 1 - center, center)
        assert stats.kstest(levels, "uniform").pvalue > 0.01
        near = np.abs(parent - 0.9) < 0.1
        assert stats.kstest(levels[near], "uniform").pvalue > 0.01

    def test_interventions_cut_the_parents_and_change_the_variance(self):
        n, size = 4, 5000
        world = make_ball_images(
            n,
            size,
            resolution=16,
            graph=full(n),
            weight_range=(1.0, 1.0),
            noise_variance=(0.01, 0.01),
            random_state=0,
        )
        Z = in_box(world).reshape(9, size, n)
        before = np.corrcoef(Z[0].T)
        for environment, factor in enumerate([0.25] * n + [4.0] * n, start=1):
            target = (environment - 1) % n
            scale = factor**0.5
            exact = stats.truncnorm(-1 / scale, 1 / scale, scale=scale)
            assert stats.kstest(Z[environment, :, target], exact.cdf).pvalue > 0.005
            after = np.corrcoef(Z[environment].T)
            assert np.abs(after[target, :target]).max(initial=0) < 0.06
            earlier = np.s_[:target, :target]
            np.testing.assert_allclose(after[earlier], before[earlier], atol=0.06)
            for j in range(target):
                assert stats.ks_2samp(Z[environment, :, j], Z[0, :, j]).pvalue > 0.005
        assert np.abs(before - np.eye(n)).max() > 0.2

    @pytest.mark.parametrize("mechanism", ["quadratic", "mlp", "tanh_mlp", "norm_squared"])
    def test_nonlinear_mechanisms(self, mechanism):
        world = make_ball_images(4, 500, resolution=16, mechanism=mechanism, random_state=1)
        Z = world.truth.Z
        assert ((Z >= 0) & (Z <= 1)).all()
        assert np.ptp(Z, axis=0).min() > 0.9

    def test_a_mechanism_of_ones_own_sees_parents_between_minus_one_and_one(self):
        world = make_ball_images(
            2,
            2000,
            resolution=16,
            mechanism=lambda parents: 3 * parents.sum() ** 2,
            graph=chain(2),
            variance_factors=(),
            random_state=0,
        )
        parent, child = in_box(world).T
        effect = child - 2 * world.truth.noise[:, 1]
        np.testing.assert_allclose(effect, 3 * parent**2, atol=1e-12)
        assert child[np.abs(parent) > 0.8].mean() > child[np.abs(parent) < 0.2].mean() + 0.2

    def test_save_and_load(self, tmp_path):
        world = make_ball_images(2, 5, resolution=20, radius=3.5, random_state=0)
        save(world, tmp_path / "world.crl")
        found = load(tmp_path / "world.crl")
        np.testing.assert_array_equal(found.X, world.X)
        assert isinstance(found.truth.mixing, BallRendering)
        assert found.truth.mixing.radius == 3.5
        np.testing.assert_array_equal(found.truth.mixing(world.truth.Z), world.X)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"n_latents": 3}, r"'n_latents' must be even.* Got 3; use 2 or 4"),
            ({"n_latents": 0}, r"'n_latents' must be an integer of at least 2. Got 0"),
            ({"n_latents": 4.0}, r"'n_latents' must be an integer"),
            ({"resolution": 8}, r"'resolution' must be an integer of at least 16. Got 8"),
            ({"radius": 40}, "room to move"),
            ({"degree": -1}, "'degree' must not be negative"),
            ({"targets": "all"}, "'hidden' or 'known'"),
            ({"n_samples": [5, 5]}, "one for each of the 9 environments"),
            ({"variance_factors": (0.0,)}, "must be positive"),
            ({"mechanism": lambda parents: parents.sum() / 0.0}, "not finite"),
        ],
    )
    def test_bad_input(self, options, message):
        with pytest.raises(ValueError, match=message):
            make_ball_images(**options, random_state=0)


class TestDo:
    def test_a_latent_is_set_and_its_children_follow(self):
        world = make_ball_images(
            4,
            50,
            resolution=16,
            graph=full(4),
            interventions="do",
            values=(0.2, 0.9),
            random_state=0,
        )
        assert len(world.environments) == 9
        for e in range(1, 9):
            j, value = (e - 1) % 4, 0.2 if e <= 4 else 0.9
            Z = world.truth.Z[world.y == e]
            np.testing.assert_allclose(Z[:, j], value)
            assert np.delete(Z, j, axis=1).std(axis=0).min() > 0.01

    def test_what_cannot_be_is_refused(self):
        with pytest.raises(ValueError, match="between 0 and 1"):
            make_ball_images(2, 5, interventions="do", values=(1.5,))
        with pytest.raises(ValueError, match="must be 'hard' or 'do'"):
            make_ball_images(2, 5, interventions="soft")


def test_a_world_of_8_bits_keeps_them():
    fine, coarse = (
        make_ball_images(2, 10, resolution=16, dtype=dtype, random_state=0)
        for dtype in ("float32", "uint8")
    )
    assert coarse.X.dtype == np.uint8
    np.testing.assert_allclose(coarse.X / 255, fine.X, atol=0.5 / 255 + 1e-6)
