"""What is seen of an articulated arm in the plane: markers on its links, or a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.data.model._layer import Layer
from crlearn.data.model._mixing import Mixing
from crlearn.data.worlds._checks import check_choice, check_count
from crlearn.tags import stored

Matrix = NDArray[np.floating]

LENGTHS = (1.0, 0.9, 0.7)  # of upper arm, forearm and hand

_LINKS = ("upper arm", "forearm", "hand")
_JOINTS = ("shoulder", "elbow", "wrist")
_LIMIT = 1.2  # no joint turns further, in radians: links never fold onto each other
_EASE = 5.0  # where a joint is three quarters of the way to its limit, in units of the latents
_HALF_WIDTH = 0.15  # of the upper arm in a picture, in units of lengths; other links are thinner
_SMALLEST_RESOLUTION = 16
_IMAGES_PER_BLOCK = 512


@dataclass(frozen=True, eq=False)
class Arm(Mixing):
    """Chain of links in the plane; one latent drives each joint.

    The shoulder is at the origin, and the arm points along x where all latents are zero. A joint
    turns by ``1.2 tanh(z / 5)`` radians from the direction of the link before it, so that latents
    of all sizes are allowed and links never fold onto each other.

    Attributes
    ----------
    lengths
        Of the links, the one at the shoulder first.
    """

    # An arm is not made of layers: it takes their place in the base class.
    layers: ClassVar[Sequence[Layer]] = ()  # pyright: ignore[reportIncompatibleVariableOverride]

    lengths: tuple[float, ...] = LENGTHS

    def __post_init__(self) -> None:
        lengths = np.asarray(self.lengths, dtype=float)
        if (
            lengths.ndim != 1
            or not len(lengths)
            or not (np.isfinite(lengths) & (lengths > 0)).all()
        ):
            raise ValueError(
                "The 'lengths' of an arm must be positive numbers, one for each link. "
                f"Got {self.lengths!r} instead."
            )
        object.__setattr__(self, "lengths", tuple(lengths.tolist()))

    @property
    def n_latents(self) -> int:
        """Number of joints."""
        return len(self.lengths)

    @cached_property
    def matrix(self) -> None:
        """None: the map is not linear."""
        return None

    def angles(self, Z: ArrayLike) -> Matrix:
        """Return how far each joint turns, in radians: ``(N, n_latents)``."""
        return _LIMIT * np.tanh(self._checked_latents(Z) / _EASE)

    def joints(self, Z: ArrayLike) -> Matrix:
        """Return where links begin and the last one ends: ``(N, n_latents + 1, 2)``."""
        steps = np.array(self.lengths)[:, None] * _directions(self.angles(Z).cumsum(axis=1))
        ends = steps.cumsum(axis=1)
        return np.concatenate([np.zeros_like(ends[:, :1]), ends], axis=1)

    def _checked_latents(self, Z: ArrayLike) -> Matrix:
        Z = np.asarray(Z, dtype=float)
        if Z.ndim != 2 or Z.shape[1] != self.n_latents or not np.isfinite(Z).all():
            raise ValueError(
                f"'Z' must be a finite array of shape (n_samples, {self.n_latents}), one column "
                f"for each joint. Got shape {Z.shape}"
                f"{'' if np.isfinite(Z).all() else ' with NaN or infinite entries'}."
            )
        return Z


@stored("mixing/arm-markers")
@dataclass(frozen=True, eq=False)
class ArmMarkers(Arm):
    """Positions of markers on an arm, x and y of each.

    Markers divide each link evenly, and the last one of a link is at its end. The map is one to
    one, with an exact Jacobian and inverse. See `make_arm` for how joints turn with their latents.

    Attributes
    ----------
    lengths
        Of the links, the one at the shoulder first.
    n_markers
        Number of markers on each link.

    Examples
    --------
    >>> from crlearn.data import ArmMarkers
    >>> ArmMarkers(lengths=(2.0, 1.0), n_markers=1)([[0.0, 0.0]])  # x and y of elbow and wrist
    array([[2., 0., 3., 0.]])
    """

    n_markers: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.n_markers, "n_markers")

    @property
    def n_features(self) -> int:
        """Number of outputs: two for each marker."""
        return 2 * self.n_markers * self.n_latents

    @property
    def names(self) -> tuple[str, ...]:
        """What each output is, such as ``"forearm 2 y"``."""
        return tuple(
            f"{link} {marker} {axis}"
            for link in link_names(self.n_latents)
            for marker in range(1, self.n_markers + 1)
            for axis in "xy"
        )

    def __call__(self, Z: ArrayLike) -> Matrix:
        """Return the positions for each row, ``(N, n_features)``."""
        joints = self.joints(Z)
        starts, ends = joints[:, :-1, None], joints[:, 1:, None]
        return (starts + self._shares[:, None] * (ends - starts)).reshape(len(joints), -1)

    def jacobian(self, Z: ArrayLike) -> NDArray[np.floating]:
        """Jacobian at each row, ``(N, n_features, n_latents)``."""
        angles = self.angles(Z)
        slopes = _LIMIT / _EASE * (1 - (angles / _LIMIT) ** 2)
        along = _directions(angles.cumsum(axis=1))
        across = np.array(self.lengths)[:, None] * np.stack([-along[..., 1], along[..., 0]], -1)
        jacobian = np.zeros((len(angles), self.n_latents, self.n_markers, 2, self.n_latents))
        for link in range(self.n_latents):
            before = np.zeros((len(angles), 1, 2))
            # A joint turns all links behind it: the nearer it is to the shoulder, the more of them.
            for joint in range(link, -1, -1):
                share = self._shares[:, None] if joint == link else 1.0
                before = before + share * across[:, None, joint]
                jacobian[:, link, ..., joint] = before * slopes[:, None, None, joint]
        return jacobian.reshape(len(angles), self.n_features, self.n_latents)

    def inverse(self, X: ArrayLike) -> Matrix:
        """Recover the latents from the ends of the links of noise-free markers."""
        X = np.asarray(X, dtype=float)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(
                f"'X' must have shape (n_samples, {self.n_features}), x and y of each marker. "
                f"Got shape {X.shape} instead."
            )
        ends = X.reshape(len(X), self.n_latents, self.n_markers, 2)[:, :, -1]
        links = np.diff(ends, axis=1, prepend=0.0)
        turns = np.diff(np.arctan2(links[..., 1], links[..., 0]), axis=1, prepend=0.0)
        turns = (turns + np.pi) % (2 * np.pi) - np.pi
        n_outside = int((np.abs(turns) >= _LIMIT).sum())
        if n_outside:
            raise ValueError(
                f"These markers have no inverse: {n_outside} joints turn by {_LIMIT} radians or "
                "more, which this arm's do not. Do they carry measurement noise?"
            )
        return _EASE * np.arctanh(turns / _LIMIT)

    def __repr__(self) -> str:
        return f"ArmMarkers({self.n_latents} joints, {self.n_markers} markers on each link)"

    @property
    def _shares(self) -> NDArray[np.floating]:
        """Where on a link its markers are, 1 at its end."""
        return np.arange(1, self.n_markers + 1) / self.n_markers


@stored("mixing/arm-rendering")
@dataclass(frozen=True, eq=False)
class ArmRendering(Arm):
    """Picture of an arm: grey links on a white ground, the darker the further from the shoulder.

    The edges of the links are smooth over one pixel, and later links cover earlier ones. See
    `make_arm` for how joints turn with their latents.

    Attributes
    ----------
    lengths
        Of the links, the one at the shoulder first.
    resolution
        Height and width of the picture in pixels.
    dtype
        ``"float32"``: real numbers from 0 to 1; ``"uint8"``: whole ones from 0 to 255, in a quarter
        of the memory.

    Examples
    --------
    >>> from crlearn.data import ArmRendering
    >>> draw = ArmRendering(resolution=32)
    >>> draw([[1.0, -2.0, 0.5]]).reshape(draw.image_shape).shape
    (1, 32, 32)
    """

    resolution: int = 32
    dtype: Literal["float32", "uint8"] = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.resolution, "resolution", _SMALLEST_RESOLUTION)
        check_choice(self.dtype, "dtype", ("float32", "uint8"))

    @property
    def n_features(self) -> int:
        """Number of outputs: one for each pixel."""
        return self.resolution**2

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape of one picture: one channel, rows from the top, columns from the left."""
        return 1, self.resolution, self.resolution

    def __call__(self, Z: ArrayLike) -> NDArray[Any]:
        """Draw each row: ``(N, n_features)``, from white, 1 or 255, to black, 0.

        Reshape it to ``(N, *image_shape)`` for pictures.
        """
        joints = self.joints(Z).astype(np.float32)
        pictures = np.empty((len(joints), self.n_features), dtype=self.dtype)
        for start in range(0, len(joints), _IMAGES_PER_BLOCK):
            block = slice(start, start + _IMAGES_PER_BLOCK)
            canvas = self._drawn(joints[block])
            pictures[block] = canvas if self.dtype == "float32" else np.rint(255 * canvas)
        return pictures

    def jacobian(self, Z: ArrayLike) -> NoReturn:
        """Raise: the picture has kinks where the edge of a link meets a pixel."""
        raise ValueError(
            "Rendered images have no useful Jacobian: a pixel changes only while the edge of a "
            "link passes over it. Use view='markers', or learn a smooth decoder from the images."
        )

    def inverse(self, X: ArrayLike) -> NoReturn:
        """Raise: a picture of pixels has no inverse in closed form."""
        raise ValueError(
            "Rendered images have no inverse in closed form. The latents behind the images of a "
            "world are in its truth.Z; view='markers' has an inverse."
        )

    def __repr__(self) -> str:
        pixels = f"{self.resolution} x {self.resolution} pixels"
        return f"ArmRendering({self.n_latents} joints, {pixels})"

    @cached_property
    def _pixels(self) -> NDArray[np.float32]:
        """Positions of the centres of the pixels, ``(n_features, 2)``; the whole arm has room."""
        reach = sum(self.lengths) + 2 * _HALF_WIDTH
        steps = (np.arange(self.resolution) + 0.5) / self.resolution
        # The arm reaches further forward than back.
        x, y = np.meshgrid(2 * reach * (steps - 0.3), reach * (1 - 2 * steps))
        return np.column_stack([x.ravel(), y.ravel()]).astype(np.float32)

    def _drawn(self, joints: NDArray[np.float32]) -> NDArray[np.float32]:
        """Draw links from the shoulder on: ``(N, n_links + 1, 2)`` in, ``(N, n_features)`` out."""
        canvas = np.ones((len(joints), self.n_features), dtype=np.float32)
        pixel = np.float32(2 * (sum(self.lengths) + 2 * _HALF_WIDTH) / self.resolution)
        for link in range(self.n_latents):
            is_last = (link + 1) / self.n_latents
            distance = _distance_to_segments(self._pixels, joints[:, link], joints[:, link + 1])
            half_width = np.float32(_HALF_WIDTH * (1.3 - 0.6 * is_last))
            cover = np.clip((half_width - distance) / pixel + np.float32(0.5), 0, 1)
            canvas += cover * (np.float32(0.7 - 0.7 * is_last) - canvas)
        return canvas


def joint_names(n_joints: int) -> tuple[str, ...]:
    """Return what the joints are called, the shoulder first."""
    return tuple(_JOINTS[:n_joints]) + tuple(f"joint {k + 1}" for k in range(3, n_joints))


def link_names(n_links: int) -> tuple[str, ...]:
    """Return what the links are called, the upper arm first."""
    return tuple(_LINKS[:n_links]) + tuple(f"link {k + 1}" for k in range(3, n_links))


def _directions(angles: Matrix) -> Matrix:
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def _distance_to_segments(
    points: NDArray[np.float32], starts: NDArray[np.float32], ends: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the distance of each point (columns) from each segment (rows)."""
    along = ends - starts
    length = np.sqrt((along**2).sum(axis=1, keepdims=True))
    along = along / length
    # In coordinates along and across the segment, from its start.
    forward = along @ points.T - (along * starts).sum(axis=1, keepdims=True)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    sideways = across @ points.T - (across * starts).sum(axis=1, keepdims=True)
    beyond = forward - np.clip(forward, 0, length)
    return np.sqrt(beyond**2 + sideways**2)
