from __future__ import annotations

import numpy as np
import pytest

from crlearn.data import ArmMarkers, ArmRendering
from crlearn.data.worlds._arm_views import joint_names, link_names

STRAIGHT = np.zeros((1, 3))
Z = 3 * np.random.default_rng(0).standard_normal((40, 3))


def drive(angle: float) -> float:
    """Latent at which a joint turns by an angle."""
    return float(5 * np.arctanh(angle / 1.2))


class TestMarkers:
    def test_a_straight_arm_lies_along_x(self):
        arm = ArmMarkers((1.0, 0.8, 0.5), n_markers=2)
        expected = [[0.5, 0, 1, 0, 1.4, 0, 1.8, 0, 2.05, 0, 2.3, 0]]
        np.testing.assert_allclose(arm(STRAIGHT), expected, atol=1e-12)

    def test_a_bent_elbow_turns_what_is_behind_it(self):
        arm = ArmMarkers((1.0, 1.0, 1.0), n_markers=1)
        sixty = np.pi / 3
        root = np.sqrt(3) / 2
        bent = arm([[0, drive(sixty), 0]])
        np.testing.assert_allclose(bent, [[1, 0, 1.5, root, 2, 2 * root]], atol=1e-12)
        back = arm([[drive(sixty), drive(-sixty), 0]])
        np.testing.assert_allclose(back, [[0.5, root, 1.5, root, 2.5, root]], atol=1e-12)

    def test_joints_stay_within_their_limits(self):
        assert np.abs(ArmMarkers().angles(100 * Z)).max() <= 1.2
        np.testing.assert_allclose(ArmMarkers().angles([[drive(0.7), 0, 0]]), [[0.7, 0, 0]])

    @pytest.mark.parametrize("n_joints", [1, 3, 4])
    def test_inverse(self, n_joints):
        arm = ArmMarkers((1.0, 0.9, 0.7, 0.7)[:n_joints])
        latents = 3 * np.random.default_rng(1).standard_normal((40, n_joints))
        np.testing.assert_allclose(arm.inverse(arm(latents)), latents, atol=1e-8)

    def test_jacobian(self):
        arm, step = ArmMarkers(), 1e-6
        numeric = np.stack(
            [(arm(Z + step * e) - arm(Z - step * e)) / (2 * step) for e in np.eye(3)], axis=-1
        )
        np.testing.assert_allclose(arm.jacobian(Z), numeric, atol=1e-8)

    def test_names(self):
        names = ArmMarkers(n_markers=2).names
        assert len(names) == 12
        assert names[:2] == ("upper arm 1 x", "upper arm 1 y")
        assert names[-1] == "hand 2 y"
        assert joint_names(2) == ("shoulder", "elbow")
        assert joint_names(4)[-1] == "joint 4"
        assert link_names(5)[-1] == "link 5"

    def test_not_linear(self):
        assert not ArmMarkers().is_linear
        assert repr(ArmMarkers()) == "ArmMarkers(3 joints, 3 markers on each link)"

    def test_bad_input(self):
        with pytest.raises(ValueError, match="'lengths' of an arm must be positive"):
            ArmMarkers((1.0, 0.0))
        with pytest.raises(ValueError, match="'n_markers' must be an integer of at least 1"):
            ArmMarkers(n_markers=0)
        with pytest.raises(ValueError, match=r"shape \(n_samples, 3\), one column for each joint"):
            ArmMarkers()([[0.0, 0.0]])
        with pytest.raises(ValueError, match="with NaN or infinite entries"):
            ArmMarkers()([[0.0, 0.0, np.nan]])
        with pytest.raises(ValueError, match="x and y of each marker"):
            ArmMarkers().inverse([[0.0, 0.0]])
        with pytest.raises(ValueError, match=r"no inverse: 1 joints turn by 1\.2"):
            ArmMarkers((1.0,), 1).inverse([[-1.0, 0.0]])


class TestRendering:
    def test_a_straight_arm_is_a_horizontal_line_from_the_shoulder(self):
        draw = ArmRendering(resolution=64)
        picture = draw(STRAIGHT).reshape(64, 64)
        inked = np.argwhere(picture < 0.9)
        assert set(inked[:, 0]) <= set(range(29, 35))
        columns = inked[:, 1]
        pixel = 2 * (2.6 + 0.3) / 64
        assert columns.min() == pytest.approx(0.3 * 64, abs=2.5)
        assert np.ptp(columns) == pytest.approx(2.6 / pixel, abs=4)
        np.testing.assert_array_equal(picture, picture[::-1])

    def test_links_darken_towards_the_hand(self):
        picture = ArmRendering(resolution=64)(STRAIGHT).reshape(64, 64)
        row = picture[31]
        pixel = 2 * (2.6 + 0.3) / 64
        shades = [row[int(0.3 * 64 + place / pixel)] for place in (0.5, 1.45, 2.3)]
        assert np.all(np.diff(shades) < 0)

    def test_positive_angles_point_up(self):
        picture = ArmRendering()([[drive(1.0), 0.0, 0.0]]).reshape(32, 32)
        assert (1 - picture[:16]).sum() > 5 * (1 - picture[16:]).sum()

    def test_the_arm_stays_in_the_picture(self):
        corners = np.stack(np.meshgrid(*[[-50.0, 0.0, 50.0]] * 3), -1).reshape(-1, 3)
        pictures = ArmRendering()(corners).reshape(-1, 32, 32)
        for edge in (pictures[:, 0], pictures[:, -1], pictures[:, :, 0], pictures[:, :, -1]):
            np.testing.assert_array_equal(edge, 1.0)

    def test_bytes_are_the_rounded_picture(self):
        exact, rounded = ArmRendering()(Z), ArmRendering(dtype="uint8")(Z)
        assert (exact.dtype, rounded.dtype) == (np.float32, np.uint8)
        np.testing.assert_array_equal(rounded, np.rint(255 * exact))

    def test_blocks_make_no_difference(self):
        many = np.tile(Z, (15, 1))
        np.testing.assert_allclose(ArmRendering()(many)[-40:], ArmRendering()(Z), atol=1e-5)

    def test_every_joint_changes_the_picture(self):
        draw = ArmRendering()
        for joint in np.eye(3):
            assert np.abs(draw(STRAIGHT + 0.5 * joint) - draw(STRAIGHT)).max() > 0.02

    def test_no_jacobian_and_no_inverse(self):
        with pytest.raises(ValueError, match="no useful Jacobian"):
            ArmRendering().jacobian(STRAIGHT)
        with pytest.raises(ValueError, match="no inverse in closed form"):
            ArmRendering().inverse(STRAIGHT)

    def test_bad_input(self):
        with pytest.raises(ValueError, match="'resolution' must be an integer of at least 16"):
            ArmRendering(resolution=8)
        with pytest.raises(ValueError, match="'dtype' must be 'float32' or 'uint8'"):
            ArmRendering(dtype="float16")  # pyright: ignore[reportArgumentType]
