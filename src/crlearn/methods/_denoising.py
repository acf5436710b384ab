"""What estimators share that take measurement noise off latents, environment by environment."""

from __future__ import annotations

from typing import Any, cast
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from crlearn.base import BaseCRL
from crlearn.exceptions import AssumptionWarning
from crlearn.inputs import intervened_rows
from crlearn.scores import Denoiser, Posterior

Matrix = NDArray[np.floating]

# Rows this much farther outside the knots than those of the fit, in lengths of their interval, are
# worth a warning.
_FAR = 1.0


class DenoisingCRL(BaseCRL):
    """Base class of estimators whose encoder is a `crlearn.scores.Denoiser`."""

    _requires_y = True

    def transform(self, X: ArrayLike, y: ArrayLike | None = None) -> Matrix:
        """Return the posterior means of the latents.

        Parameters
        ----------
        X
            Rows, as in `fit`.
        y
            Environment label of each row: one of those in `targets`. None: not known; the rows are
            denoised as a mixture of all environments, less precisely.
        """
        check_is_fitted(self)
        by_label = cast(Any, lambda rows: self._posterior(rows, y).mean)
        means = self._encoded(X, by_label, "transform")
        self._warn_if_far(X)
        return means

    def fit_transform(self, X: ArrayLike, y: ArrayLike | None = None, **_: Any) -> Matrix:
        """Return what ``fit(X, y).transform(X, y)`` does: `transform` is told the labels."""
        return self.fit(X, y).transform(X, y)

    def posterior(self, X: ArrayLike, y: ArrayLike | None = None) -> Posterior:
        """Return posterior means and variances of the latents; arguments as for `transform`."""
        check_is_fitted(self)
        rows = self._checked(X, reset=False)
        self._warn_if_far(rows)
        return self._posterior(rows, y)

    def _posterior(self, rows: Matrix, y: ArrayLike | None) -> Posterior:
        encoder = cast(Denoiser, self.result_.encoder)
        if y is None or self.result_.targets is None:
            return encoder.posterior(rows)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(rows, labels)
        details = self.result_.details
        return encoder.posterior(
            rows, intervened_rows(details["target_labels"], details["target_rows"], labels)
        )

    def _warn_if_far(self, X: ArrayLike) -> None:
        rows = np.asarray(X, dtype=float)
        encoder = cast(Denoiser, self.result_.encoder)
        far = encoder.beyond(rows) > encoder.reach + _FAR
        if far.any():
            warn(
                f"{type(self).__name__}: {int(far.sum())} of {len(far)} rows have latents far "
                "outside the range of the fit, where nothing is known of their distribution: "
                "their score is continued along straight lines. Check their units and "
                "environments.",
                AssumptionWarning,
                stacklevel=3,
            )
