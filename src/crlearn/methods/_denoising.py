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
from crlearn.inputs import Environments, KnownDomains, Scaling, intervened_rows
from crlearn.scores import Denoiser, Posterior

Matrix = NDArray[np.floating]

# Rows this much farther outside the knots than those of the fit, in lengths of their interval, are
# worth a warning.
_FAR = 1.0

NO_GRAPH = (
    "'targets' number the nodes of a graph, so that 'graph' has to be given too. If no latent "
    "causes another, give a matrix of zeros."
)


class DenoisingCRL(BaseCRL):
    """Base class of estimators with posteriors; the encoder is a `crlearn.scores.Denoiser`.

    Encoders of another kind say with `beyond` and `reach` which rows are far, too, and their class
    has a `_posterior` of its own.
    """

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
                "outside the range of the fit, where nothing is known of their distribution. "
                "Check their units and environments.",
                AssumptionWarning,
                stacklevel=3,
            )


def refuse_small_environments(environments: Environments, n: int) -> None:
    """Refuse environments of which no covariance can be told."""
    small = environments.labels[environments.counts <= n]
    if len(small):
        raise ValueError(
            f"Every environment needs more than {n} rows, one for each latent and one more, for "
            f"its covariance. Too few are in: {', '.join(map(str, small[:8]))}. Leave them out of "
            "the fit; transform takes them."
        )


def offset_of(
    X: Matrix, environments: Environments, known: KnownDomains | None
) -> NDArray[np.floating]:
    """Return the mean of the observational rows, or of all if there are none."""
    if known is None:
        return Scaling.of(X).mean
    free = ~np.asarray(known.targets.any(axis=1))[environments.codes]
    return Scaling.of(X[free] if free.any() else X).mean
