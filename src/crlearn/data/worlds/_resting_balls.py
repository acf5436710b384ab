"""Images of balls that rest at fixed positions in some of the pictures."""

from __future__ import annotations

from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from crlearn.data._dataset import Dataset, Truth
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.worlds._checks import check_choice, check_count, check_range
from crlearn.data.worlds._images import BallRendering, count_balls

Matrix = NDArray[np.floating]

_MOST_DRAWS = 10_000


def make_resting_balls(
    n_latents: int = 4,
    n_samples: int = 10_000,
    *,
    rests: Literal["balls", "coordinates"] = "balls",
    rest_probability: float = 0.5,
    standard_deviation: float = 0.1,
    place_range: tuple[float, float] = (0.2, 0.8),
    distance: float = 0.2,
    resolution: int = 64,
    radius: float | None = None,
    dtype: Literal["float32", "uint8"] = "float32",
    random_state: RandomState = None,
) -> Dataset:
    """Images of coloured balls, each of which rests at its place in some of them.

    The latents are x and y of each ball, from 0 to 1 across the picture, as in `make_ball_images`.
    Each ball has a place of its own; where it does not rest, its x and y are independent draws from
    a normal distribution around this place, truncated to the picture. Nothing says which balls
    rest: there is no ``y``, and ``truth.active`` is False where a latent rests. The latents do not
    cause each other.

    ``X`` holds one image a row; ``X.reshape(-1, 3, resolution, resolution)`` are the pictures,
    colour channels first. ``truth.mixing`` is a `BallRendering`. Latents that rest have no density,
    so that ``truth.scms`` is None; ``truth.noise`` is how far a latent would be from its place if
    it did not rest. Memory grows as ``n_samples * 3 * resolution**2``.

    Parameters
    ----------
    n_latents
        Twice the number of balls; even.
    n_samples
        Number of images.
    rests
        ``"balls"``: x and y of a ball rest together, and ``truth.blocks`` has the pair of each;
        ``"coordinates"``: each of them rests on its own.
    rest_probability
        Of each ball, or of each coordinate.
    standard_deviation
        Of x and y around the place of a ball, before they are truncated.
    place_range
        Range from which x and y of each place are drawn.
    distance
        Between any two places, at least: all of them are drawn again until this holds.
    resolution, radius, dtype
        Of the images, see `BallRendering`.
    random_state
        Seed or generator.

    Notes
    -----
    What differs from the paper: its pictures are drawn by PyGame, ours by `BallRendering`; the
    distribution of places, the covariance and the probability to rest are not legible in the text
    at hand, so that these are ours; the place at which a ball rests is the one around which it
    moves.

    References
    ----------
    Xu, Lachapelle and Magliacane, Identifiability of potentially degenerate Gaussian mixture models
    with piecewise affine mixing, 2026, appendices D.10 and D.11.

    Examples
    --------
    >>> from crlearn.data import make_resting_balls
    >>> world = make_resting_balls(n_latents=4, n_samples=20, resolution=16, random_state=0)
    >>> world.truth.blocks
    ((0, 1), (2, 3))
    """
    n_balls = count_balls(n_latents)
    check_count(n_samples, "n_samples")
    check_choice(rests, "rests", ("balls", "coordinates"))
    check_range(place_range, "place_range")
    _check_numbers(rest_probability, standard_deviation, distance)
    draw = BallRendering(n_balls, resolution, radius, dtype)
    place_seed, position_seed, rest_seed = independent_seeds(random_state, 3)
    places = _places(n_balls, place_range, distance, place_seed).reshape(n_latents)
    moving = _truncated_normal(places, standard_deviation, n_samples, position_seed)
    active = _active(n_samples, n_balls, rests, rest_probability, rest_seed)
    Z = np.where(active, moving, places)
    pairs = tuple((2 * ball, 2 * ball + 1) for ball in range(n_balls))
    return Dataset(
        draw(Z),
        truth=Truth(
            Z,
            moving - places,
            np.zeros((n_latents, n_latents), dtype=bool),
            np.zeros((1, n_latents), dtype=bool),
            draw,
            active=active,
            blocks=pairs if rests == "balls" else None,
        ),
    )


def _check_numbers(rest_probability: Any, standard_deviation: Any, distance: Any) -> None:
    if not (isinstance(rest_probability, Real) and 0 < float(rest_probability) < 1):
        raise ValueError(
            "'rest_probability' must lie between 0 and 1, so that each ball rests sometimes and "
            f"not always. Got {rest_probability!r} instead."
        )
    if not (isinstance(standard_deviation, Real) and 0 < float(standard_deviation) < np.inf):
        raise ValueError(
            f"'standard_deviation' must be a positive number. Got {standard_deviation!r} instead."
        )
    if not (isinstance(distance, Real) and float(distance) >= 0):
        raise ValueError(f"'distance' must not be negative. Got {distance!r} instead.")


def _places(n_balls: int, place_range: tuple[float, float], distance: float, seed: int) -> Matrix:
    """Draw a place for each ball, all of them again until none are too close to each other."""
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(n_balls, k=1)
    for _ in range(_MOST_DRAWS):
        places = rng.uniform(*place_range, (n_balls, 2))
        between = np.linalg.norm(places[first] - places[second], axis=1)
        if (between >= distance).all():
            return places
    raise ValueError(
        f"No places for {n_balls} balls were found that are all {distance} apart. Use a smaller "
        "'distance', a wider 'place_range' or fewer balls."
    )


def _truncated_normal(places: Matrix, deviation: float, n_samples: int, seed: int) -> Matrix:
    """Draw positions in [0, 1] around each place, by the distribution function."""
    below, above = ndtr(-places / deviation), ndtr((1 - places) / deviation)
    levels = np.random.default_rng(seed).uniform(below, above, (n_samples, len(places)))
    return np.clip(places + deviation * ndtri(levels), 0, 1)


def _active(
    n_samples: int, n_balls: int, rests: str, rest_probability: float, seed: int
) -> NDArray[np.bool_]:
    """Draw which latents do not rest."""
    n_units = n_balls if rests == "balls" else 2 * n_balls
    moves = np.random.default_rng(seed).random((n_samples, n_units)) >= rest_probability
    return np.repeat(moves, 2 * n_balls // n_units, axis=1)
