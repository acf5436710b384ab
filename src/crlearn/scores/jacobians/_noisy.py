"""Exact Jacobians with errors of a known size: they show how good estimated ones have to be."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from crlearn.scores._base import Rows
from crlearn.scores.jacobians._make import ExactJacobians, symmetric


class NoisyJacobians:
    """Jacobians of a simulated world with independent Gaussian errors in every entry.

    Scores stay exact. Errors are drawn in the coordinates that are asked for, the same ones at
    each call.

    Parameters
    ----------
    exact
        The world's Jacobians.
    signal_to_error
        Mean square of the Jacobians over that of their errors.
    random_state
        Seed of the errors.

    Examples
    --------
    >>> from crlearn.data import make_observational
    >>> from crlearn.scores import ExactJacobians
    >>> world = make_observational(n_samples=10, random_state=0)
    >>> noisy = NoisyJacobians(ExactJacobians(world.truth), 100.0, random_state=0)
    >>> noisy.evaluate(world.X)[1].shape
    (10, 4, 4)
    """

    original_coordinates = True

    def __init__(
        self, exact: ExactJacobians, signal_to_error: float, random_state: Any = None
    ) -> None:
        if not signal_to_error > 0:
            raise ValueError(
                f"'signal_to_error' must be positive. Got {signal_to_error!r} instead."
            )
        self.exact = exact
        self.signal_to_error = signal_to_error
        self.random_state = random_state

    @property
    def accuracy(self) -> float:
        """Error of the Jacobians, relative to their size."""
        return float(self.signal_to_error**-0.5)

    def fit(self, X: ArrayLike) -> Self:
        """Do nothing: the truth is known."""
        return self

    def evaluate(self, X: ArrayLike) -> tuple[Rows, Rows]:
        """Return scores and Jacobians with errors at the rows."""
        return self._with_errors(*self.exact.evaluate(X))

    def marginal(self, X: ArrayLike, encoder: Rows, n_kept: int) -> tuple[Rows, Rows]:
        """Return scores and Jacobians with errors of the first coordinates of ``encoder @ x``."""
        return self._with_errors(*self.exact.marginal(X, encoder, n_kept))

    def _with_errors(self, scores: Rows, jacobians: Rows) -> tuple[Rows, Rows]:
        errors = symmetric(check_random_state(self.random_state).normal(size=jacobians.shape))
        size = np.sqrt((jacobians**2).mean() / (errors**2).mean())
        return scores, jacobians + self.accuracy * size * errors

    def __repr__(self) -> str:
        return f"NoisyJacobians({self.exact!r}, {self.signal_to_error:g})"

    def __sklearn_clone__(self) -> Self:
        return self  # nothing is ever learned, and the truth may be large
