"""Rendered scenes: coloured balls whose positions are the latents."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NoReturn

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri_exp

from crlearn.data._dataset import Dataset, Truth
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.model._graphs import make_graph
from crlearn.data.model._interventions import Intervention
from crlearn.data.model._layer import Layer
from crlearn.data.model._mixing import Mixing
from crlearn.data.model._scm import SCM, make_scm
from crlearn.data.worlds._checks import check_count
from crlearn.data.worlds._world import Secrecy, Sizes, samples_by_environment, target_matrix
from crlearn.tags import stored

Matrix = NDArray[np.floating]
Picture = NDArray[np.float32]

_HALF_WIDTH = 0.1
_SMALLEST_RESOLUTION = 16
_IMAGES_PER_BLOCK = 512


@stored("mixing/ball-rendering")
@dataclass(frozen=True, eq=False)
class BallRendering(Mixing):
    """Map from positions to a picture: balls of different colours on a white ground.

    The latents are x, y of the first ball, x, y of the second, and so on. At 0 a ball touches the
    left (lower) edge of the picture, at 1 the right (upper) edge; beyond that it leaves the
    picture. The edges of the balls are smooth over one pixel, and later balls cover earlier ones:
    where one covers another whole, the position of the hidden one is lost. So there is no inverse,
    and ``matrix`` is None.

    Attributes
    ----------
    n_balls
        Number of balls; their hues are evenly spaced, the first is red.
    resolution
        Height and width of the picture in pixels.
    radius
        Of the balls, in pixels; by default 5/64 of the resolution.
    dtype
        ``"float32"``: real numbers from 0 to 1; ``"uint8"``: whole ones from 0 to 255, in a quarter
        of the memory.

    Examples
    --------
    >>> from crlearn.data import BallRendering
    >>> draw = BallRendering(n_balls=2, resolution=32)
    >>> draw([[0.2, 0.2, 0.8, 0.5]]).reshape(draw.image_shape).shape
    (3, 32, 32)
    """

    # A picture is not made of layers: it takes their place in the base class.
    layers: ClassVar[Sequence[Layer]] = ()  # pyright: ignore[reportIncompatibleVariableOverride]

    n_balls: int
    resolution: int = 64
    radius: float | None = None
    dtype: Literal["float32", "uint8"] = "float32"

    def __post_init__(self) -> None:
        for name, smallest in (("n_balls", 1), ("resolution", _SMALLEST_RESOLUTION)):
            check_count(getattr(self, name), name, smallest)
        if self.dtype not in ("float32", "uint8"):
            raise ValueError(
                f"The 'dtype' of images must be 'float32' or 'uint8'. Got {self.dtype!r} instead."
            )
        if self.radius is None:
            object.__setattr__(self, "radius", self.resolution * 5 / 64)
        if not 1 <= self._radius < self.resolution / 2:
            raise ValueError(
                "The 'radius' of the balls must be at least 1 pixel, and less than half the "
                f"resolution, so that they have room to move. Got {self.radius} at a resolution "
                f"of {self.resolution}."
            )

    @property
    def n_latents(self) -> int:
        """Number of inputs: two for each ball."""
        return 2 * self.n_balls

    @property
    def n_features(self) -> int:
        """Number of outputs: three for each pixel."""
        return 3 * self.resolution**2

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape of one picture: colour channels, rows from the top, columns from the left."""
        return 3, self.resolution, self.resolution

    @cached_property
    def colors(self) -> NDArray[np.float32]:
        """Red, green and blue of each ball, ``(n_balls, 3)``."""
        hues = np.arange(self.n_balls) / self.n_balls
        return np.array([colorsys.hsv_to_rgb(hue, 0.9, 0.9) for hue in hues], dtype=np.float32)

    @cached_property
    def matrix(self) -> None:
        """None: the map is not linear."""
        return None

    def __call__(self, Z: ArrayLike) -> NDArray[Any]:
        """Draw each row: ``(N, n_features)``, from white, 1 or 255, to black, 0.

        Reshape it to ``(N, *image_shape)`` for pictures.
        """
        Z = self._checked_positions(Z)
        pictures = np.empty((len(Z), *self.image_shape), dtype=self.dtype)
        for start in range(0, len(Z), _IMAGES_PER_BLOCK):
            block = slice(start, start + _IMAGES_PER_BLOCK)
            canvas = np.ones(pictures[block].shape, dtype=np.float32)
            for ball, color in enumerate(self.colors):
                self._draw(canvas, Z[block, 2 * ball : 2 * ball + 2], color)
            pictures[block] = canvas if self.dtype == "float32" else np.rint(255 * canvas)
        return pictures.reshape(len(Z), self.n_features)

    def jacobian(self, Z: ArrayLike) -> NoReturn:
        """Raise: the picture has kinks where the edge of a ball meets a pixel."""
        raise ValueError(
            "Rendered images have no useful Jacobian: a pixel changes only while the edge of a "
            "ball passes over it. Learn a smooth decoder from the images and differentiate that."
        )

    def inverse(self, X: ArrayLike) -> NoReturn:
        """Raise: a ball that another one covers cannot be found."""
        raise ValueError(
            "Rendered images have no inverse: a ball may cover another one whole. The positions "
            "behind the images of a world are in its truth.Z."
        )

    def __repr__(self) -> str:
        balls = "1 ball" if self.n_balls == 1 else f"{self.n_balls} balls"
        return f"BallRendering({balls}, {self.resolution} x {self.resolution} pixels)"

    @property
    def _radius(self) -> float:
        assert self.radius is not None
        return self.radius

    def _draw(self, pictures: Picture, position: Matrix, color: NDArray[np.float32]) -> None:
        """Draw one ball into each picture; only the pixels around it are touched."""
        center = self._radius + (self.resolution - 2 * self._radius) * position
        width = min(int(np.ceil(2 * self._radius)) + 1, self.resolution)
        start = np.clip(np.floor(center - self._radius), 0, self.resolution - width)
        pixels = start.astype(np.intp)[:, :, None] + np.arange(width)
        x, y = np.moveaxis(pixels + 0.5 - center[:, :, None], 1, 0)
        distance = np.sqrt(x[:, None, :] ** 2 + y[:, :, None] ** 2)
        cover = np.clip(self._radius + 0.5 - distance, 0, 1).astype(np.float32)[..., None]
        columns, rows = np.moveaxis(pixels, 1, 0)
        rows = self.resolution - 1 - rows  # y points up, rows are counted from the top
        patch = (np.arange(len(pictures))[:, None, None], slice(None), rows[:, :, None])
        patch = (*patch, columns[:, None, :])
        pictures[patch] = (1 - cover) * pictures[patch] + cover * color

    def _checked_positions(self, Z: ArrayLike) -> Matrix:
        Z = np.asarray(Z, dtype=float)
        if Z.ndim != 2 or Z.shape[1] != self.n_latents or not np.isfinite(Z).all():
            raise ValueError(
                f"'Z' must be a finite array of shape (n_samples, {self.n_latents}): x and y of "
                f"each ball. Got shape {Z.shape}"
                f"{'' if np.isfinite(Z).all() else ' with NaN or infinite entries'}."
            )
        return Z


def make_ball_images(
    n_latents: int = 4,
    n_samples: Sizes = 1000,
    *,
    resolution: int = 64,
    radius: float | None = None,
    dtype: Literal["float32", "uint8"] = "float32",
    mechanism: str | Callable[[Any], Any] = "linear",
    interventions: Literal["hard", "do"] = "hard",
    variance_factors: tuple[float, ...] = (0.25, 4.0),
    values: tuple[float, ...] = (0.25, 0.75),
    graph: str | ArrayLike | nx.DiGraph = "er",
    degree: float = 2.0,
    weight_range: tuple[float, float] = (0.25, 1.0),
    noise_variance: tuple[float, float] = (0.01, 0.02),
    targets: Secrecy = "hidden",
    random_state: RandomState = None,
) -> Dataset:
    """Images of coloured balls, interventions on their positions (GSCALE-I on images).

    The latents are x and y of each ball. Each is the effect of its parents plus Gaussian noise,
    truncated to [-0.1, 0.1]; afterwards [-0.1, 0.1] becomes [0, 1], the width of the picture.
    Environment 0 is observational; environments 1, ..., n_latents intervene on the latents in order
    with the first variance factor (or value), the next n_latents with the second, and so on.

    ``X`` holds one image a row, values between 0 and 1, or up to 255 in 8 bits;
    ``X.reshape(-1, 3, resolution, resolution)`` are the pictures, colour channels first.
    ``truth.mixing`` is a `BallRendering`. How far a latent is truncated depends on its parents, so
    that the noise is not independent of them and no `SCM` has this density: ``truth.scms`` is None.
    ``truth.noise`` is what remained of the noise, in the units of ``truth.Z``.

    Memory grows as ``n_samples * (1 + len(variance_factors) * n_latents) * 3 * resolution**2``:
    the default is 9,000 images with 12,288 numbers each.

    Parameters
    ----------
    n_latents
        Twice the number of balls; even.
    n_samples
        Images in each environment, one number or one for each.
    resolution, radius
        Height and width of the images and radius of the balls in pixels, see `BallRendering`.
    dtype
        ``"float32"``, or ``"uint8"`` for whole numbers from 0 to 255 in a quarter of the memory.
    mechanism
        ``"linear"``, ``"quadratic"``, ``"mlp"``, or whatever `make_scm` takes. A mechanism receives
        the parents divided by 0.1, so that they lie in [-1, 1], and its effect is multiplied by
        0.1: to a linear one this makes no difference, and others would be all but linear without
        it. An effect far outside [-1, 1] presses the latent against the edge of the picture.
    interventions
        ``"hard"``: a latent loses its parents, and the variance of its noise changes; ``"do"``: it
        is set to a value.
    variance_factors
        Hard: factors on the variance of the noise before it is truncated, one for each round of
        interventions; ``(0.25,)`` for one intervention on each latent.
    values
        Do: positions, one for each round of interventions, from 0 to 1 across the picture.
    graph, degree
        See `make_graph`; ``"er"`` draws each edge with probability ``2 degree / (n_latents - 1)``,
        at most 1, so that there are ``degree`` edges for each latent.
    weight_range
        Range of the magnitudes of the weights of linear mechanisms.
    noise_variance
        Range from which the variance of each latent is drawn, before the noise is truncated.
    targets
        ``"known"`` also gives the targets as ``known_targets``.
    random_state
        Seed or generator.

    Notes
    -----
    What differs from the published generator: (1) Each row keeps its parents. There, the draws that
    survive the truncation are put together in another order than their parents, so that children
    and parents are all but independent. (2) The truncated noise is drawn from its distribution
    function and not by rejection: the same distribution at a fixed cost. (3) The balls are drawn
    on the whole picture and in real numbers; there, by matplotlib inside the frame of its axes,
    which makes them smaller by nearly a quarter, and rounded to 8 bits. (4) The interventions come
    in the order of the latents, not in a random one. (5) It has linear mechanisms only.

    References
    ----------
    Varıcı, Acartürk, Shanmugam, Kumar and Tajer, Score-based causal representation learning: linear
    and general transformations, JMLR 26, 2025.
    """
    draw = BallRendering(count_balls(n_latents), resolution, radius, dtype)
    rounds = _rounds(n_latents, interventions, variance_factors, values)
    if targets not in ("hidden", "known"):
        raise ValueError(f"'targets' must be 'hidden' or 'known'. Got {targets!r} instead.")
    sizes = samples_by_environment(n_samples, 1 + len(rounds))
    model_seed, sample_seed = independent_seeds(random_state, 2)
    scm = _draw_scm(n_latents, mechanism, graph, degree, weight_range, noise_variance, model_seed)
    scms = [scm, *map(scm.intervene, rounds)]
    rng = np.random.default_rng(sample_seed)
    samples = [_sample_in_box(*pair, rng) for pair in zip(scms, sizes, strict=True)]
    in_box, noise = (np.concatenate(parts) for parts in zip(*samples, strict=True))
    Z = (1 + in_box) / 2
    target_sets = target_matrix([None, *rounds], n_latents)
    return Dataset(
        draw(Z),
        np.repeat(np.arange(len(scms)), sizes) if rounds else None,
        known_targets=target_sets if targets == "known" else None,
        truth=Truth(Z, noise / 2, scm.graph, target_sets, draw),
    )


def _rounds(
    n_latents: int, kind: str, variance_factors: tuple[float, ...], values: tuple[float, ...]
) -> list[Intervention]:
    """Return one intervention on each latent for each factor or value."""
    if kind == "hard":
        changes: list[dict[str, Any]] = [{"variance_factor": factor} for factor in variance_factors]
    elif kind == "do":
        if not all(0 <= value <= 1 for value in values):
            raise ValueError(
                "The 'values' of interventions must lie between 0 and 1, the edges of the picture. "
                f"Got {values} instead."
            )
        changes = [{"value": 2 * value - 1} for value in values]  # the box is [-1, 1]
    else:
        raise ValueError(f"'interventions' must be 'hard' or 'do'. Got {kind!r} instead.")
    return [Intervention(j, kind, **change) for change in changes for j in range(n_latents)]


def _draw_scm(
    n_latents: int,
    mechanism: str | Callable[[Any], Any],
    graph: str | ArrayLike | nx.DiGraph,
    degree: float,
    weight_range: tuple[float, float],
    noise_variance: tuple[float, float],
    seed: int,
) -> SCM:
    """Draw the model before truncation, in units in which the box is [-1, 1]."""
    if not degree >= 0:
        raise ValueError(f"The 'degree' must not be negative. Got {degree} instead.")
    rng = np.random.default_rng(seed)
    edge_probability = min(1.0, 2 * degree / (n_latents - 1))
    return make_scm(
        make_graph(graph, n_latents, rng, edge_probability=edge_probability),
        mechanism,
        noise_scale=np.sqrt(rng.uniform(*noise_variance, size=n_latents)) / _HALF_WIDTH,
        mechanism_options={"weight_range": weight_range} if mechanism == "linear" else None,
        random_state=rng,
    )


def _sample_in_box(scm: SCM, n_samples: int, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Draw latents given that each lies in [-1, 1], causes first, and what their noise was."""
    Z, noise = np.zeros((2, n_samples, scm.n_latents))
    for j in scm.order:
        node = scm.nodes[j]
        center = node.without_noise(Z[:, scm.parents(j)]) + np.zeros(n_samples)
        if not np.isfinite(center).all():
            raise ValueError(
                f"The mechanism of latent {j} gave values that are not finite, for parents between "
                "-1 and 1."
            )
        if node.noise.has_density:
            Z[:, j] = _truncated_normal(center, float(node.noise.scale), rng)
        else:
            Z[:, j] = center
        noise[:, j] = Z[:, j] - center
    return Z, noise


def _truncated_normal(center: Matrix, scale: float, rng: np.random.Generator) -> Matrix:
    """Draw one value in [-1, 1] around each center."""
    # Mirrored so that the box lies in the lower tail, where logarithms keep their digits.
    distance = np.abs(center)
    below = log_ndtr((-1 - distance) / scale)
    up_to = log_ndtr((1 - distance) / scale)
    share = 1 - rng.random(len(center))  # in (0, 1], as its logarithm is taken
    level = up_to + np.log(share + (1 - share) * np.exp(below - up_to))
    values = np.clip(distance + scale * ndtri_exp(level), -1, 1)
    return np.where(center < 0, -values, values)


def count_balls(n_latents: int) -> int:
    """Return the number of balls that have so many latents."""
    check_count(n_latents, "n_latents", 2)
    if n_latents % 2:
        raise ValueError(
            "'n_latents' must be even: each ball has two, x and y. "
            f"Got {n_latents}; use {n_latents - 1} or {n_latents + 1}."
        )
    return n_latents // 2
