"""Scores in closed form, for environments that are Gaussian."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from crlearn.scores._base import (
    Rows,
    Whitening,
    check_environment,
    check_environments,
    check_rows,
    refuse_unfitted,
)


class GaussianScores(BaseEstimator):
    """Closed form: ``s(x) = -inverse(covariance) (x - mean)`` in each environment.

    Exact up to sampling noise if every environment is Gaussian, as with linear mechanisms and
    Gaussian noise; biased otherwise, however many rows there are. The published code of LSCALE-I
    evaluates ``-inverse(covariance) x`` without centring, which is the same only where no
    environment shifts the mean.

    Cost: O(N d^2 + E d^3) time, O(E d^2) memory for E environments.

    Attributes
    ----------
    means_
        Mean of each environment, ``(E, d)``.
    precisions_
        Inverse covariance of each environment, ``(E, d, d)``.

    Examples
    --------
    A reference with variance 1 and an environment with variance 4:

    >>> X = [[-1.0], [1.0], [-2.0], [2.0]]
    >>> GaussianScores().fit(X, [0, 0, 1, 1]).difference([[1.0]], 1)
    array([[-0.75]])
    """

    means_: Rows
    precisions_: Rows

    def fit(self, X: ArrayLike, codes: ArrayLike) -> Self:
        """Measure mean and covariance of each environment."""
        X, codes = check_environments(X, codes)
        environments = [X[codes == code] for code in range(codes.max() + 1)]
        whitenings = [
            Whitening.of_rows(rows, f"The rows of environment {code}")
            for code, rows in enumerate(environments)
        ]
        self.means_ = np.array([whitening.mean for whitening in whitenings])
        self.precisions_ = np.array([w.matrix.T @ w.matrix for w in whitenings])
        return self

    def difference(self, X: ArrayLike, environment: int) -> Rows:
        """Return score of the reference minus score of the environment at each row."""
        refuse_unfitted(self, "means_")
        X = check_rows(X, self.means_.shape[1])
        return self._score(X, 0) - self._score(X, check_environment(environment, len(self.means_)))

    def log_ratio(self, X: ArrayLike, environment: int) -> Rows:
        """Return the log-density in the environment minus that in the reference, ``(N,)``."""
        refuse_unfitted(self, "means_")
        X = check_rows(X, self.means_.shape[1])
        environment = check_environment(environment, len(self.means_))
        return self._log_density(X, environment) - self._log_density(X, 0)

    def _log_density(self, X: Rows, environment: int) -> Rows:
        """Return the log-density up to a constant that all environments share."""
        square = -((X - self.means_[environment]) * self._score(X, environment)).sum(axis=1)
        return 0.5 * (np.linalg.slogdet(self.precisions_[environment])[1] - square)

    def _score(self, X: Rows, environment: int) -> Rows:
        return (self.means_[environment] - X) @ self.precisions_[environment]
