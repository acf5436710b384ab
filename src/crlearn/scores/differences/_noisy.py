"""Exact score differences with errors of a known size: they show how good scores have to be."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from crlearn.scores._base import Rows
from crlearn.scores.differences._exact import ExactScores


class NoisyScores:
    """Score differences of a simulated world with independent Gaussian errors in every entry.

    Errors are drawn in the coordinates of X, anew for each environment and the same ones at each
    call.

    Parameters
    ----------
    exact
        The world's score differences.
    signal_to_error
        Mean square of the differences over that of their errors, in each environment.
    seed
        Of the errors.

    Examples
    --------
    >>> from crlearn.data import make_linear_interventional
    >>> world = make_linear_interventional(n_latents=2, n_features=4, random_state=0)
    >>> NoisyScores(ExactScores(world.truth), 100.0).difference(world.X, 1).shape
    (3000, 4)
    """

    original_coordinates = True

    def __init__(self, exact: ExactScores, signal_to_error: float, seed: int = 0) -> None:
        if not signal_to_error > 0:
            raise ValueError(
                f"'signal_to_error' must be positive. Got {signal_to_error!r} instead."
            )
        self.exact = exact
        self.signal_to_error = signal_to_error
        self.seed = seed

    def fit(self, X: ArrayLike, codes: ArrayLike) -> Self:
        """Do nothing: the truth is known."""
        return self

    def difference(self, X: ArrayLike, environment: int) -> Rows:
        """Return score of the reference minus score of the environment, with errors."""
        exact = self.exact.difference(X, environment)
        errors = np.random.default_rng([self.seed, environment]).normal(size=exact.shape)
        size = np.sqrt((exact**2).mean() / (errors**2).mean() / self.signal_to_error)
        return exact + size * errors

    def __sklearn_clone__(self) -> Self:
        return self  # nothing is ever learned, and the truth may be large
