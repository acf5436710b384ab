"""Score differences that are known: from a simulated world, or from a user's function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from crlearn.scores._base import Rows, ScoreFunction, check_environment, check_rows

if TYPE_CHECKING:
    from crlearn.data import Truth


class ExactScores:
    """Score differences of a simulated world, from its own densities.

    Shows what a method reaches when the scores are no source of error. Rows are led back to the
    latents through the inverse of the mixing, so X has to be free of measurement noise.

    Cost: O(N n d) for n latents behind a linear mixing; O(N n^2 d) behind others.

    Parameters
    ----------
    truth
        Of a `crlearn.data.Dataset`.
    environments
        ``environments[code]`` is the place in the world of the environment that a method calls
        `code`; by default they are counted alike, and the world's first one is the reference.

    Examples
    --------
    >>> from crlearn.data import make_linear_interventional
    >>> world = make_linear_interventional(n_latents=2, n_features=4, random_state=0)
    >>> ExactScores(world.truth).difference(world.X, 1).shape
    (3000, 4)
    """

    original_coordinates = True

    def __init__(self, truth: Truth, environments: Sequence[int] | None = None) -> None:
        if truth.measurement_noise:
            raise ValueError(
                "'truth' must be that of a world without measurement noise. Got one with noise of "
                f"sd {truth.measurement_noise}: its observations have no exact scores here."
            )
        self.truth = truth
        self.environments = environments

    def fit(self, X: ArrayLike, codes: ArrayLike) -> Self:
        """Do nothing: the truth is known."""
        return self

    def difference(self, X: ArrayLike, environment: int) -> Rows:
        """Return score of the reference minus score of the environment at each row."""
        places = self.environments
        if places is None:
            places = range(len(self.truth.targets))
        code = check_environment(environment, len(places))
        Z = self.truth.mixing.inverse(check_rows(X, self.truth.mixing.n_features))
        return self.truth.observed_score_difference(Z, places[code], reference=places[0])

    def __sklearn_clone__(self) -> Self:
        return self  # nothing is ever learned, and the truth may be large


class FunctionScores:
    """Score differences from a user's function, such as a network trained elsewhere.

    Parameters
    ----------
    function
        ``function(X, environment)`` returns score of the reference minus score of the environment
        at each row of X, in the coordinates of X.
    """

    original_coordinates = True

    def __init__(self, function: ScoreFunction) -> None:
        self.function = function

    def fit(self, X: ArrayLike, codes: ArrayLike) -> Self:
        """Do nothing: the function is known."""
        return self

    def difference(self, X: ArrayLike, environment: int) -> Rows:
        """Return the function's values, checked."""
        X = check_rows(X)
        values = np.asarray(self.function(X, environment), dtype=np.float64)
        if values.shape != X.shape:
            raise ValueError(
                f"The score function must return one row of {X.shape[1]} numbers for each of the "
                f"{len(X)} rows of X. Got shape {values.shape} instead."
            )
        if not np.isfinite(values).all():
            raise ValueError(
                f"The score function must return finite numbers. For environment {environment} "
                "some are missing or infinite."
            )
        return values
