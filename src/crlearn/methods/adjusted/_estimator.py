"""`AdjustedCRL`: what estimators share that take covariates, and can leave rows far out aside.

Before the method sees the rows, effects of covariates are taken off, environment by environment,
and rows that stand far out of their environment get the weight zero, if that is asked for. Each
needs the other: effects are those of the rows that are left, distances those without effects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from crlearn.base import BaseCRL
from crlearn.inputs import (
    MOST_FAR_OUT,
    CovariateEffects,
    read_covariates,
    read_environments,
    robust_distances,
    without_effects,
)
from crlearn.result import Check, Encoder, Result

Matrix = NDArray[np.floating]

_ROUNDS = 3  # of effects and weights in turn
_MOST_FITS = 4  # in which rows are judged by their noises
_CENTRAL = 0.9  # share of the rows that the first of these sees


@dataclass(frozen=True, eq=False)
class Adjusted:
    """Rows without effects of covariates, and their weights.

    Attributes
    ----------
    rows
        All of them.
    weights
        0 for those that stand far out; None: nobody asked.
    effects
        Of covariates; None: there are none.
    checks
        What is to be said about them.
    """

    rows: Matrix
    weights: NDArray[np.floating] | None
    effects: CovariateEffects | None
    checks: tuple[Check, ...]

    @property
    def kept(self) -> NDArray[np.bool_]:
        """The rows that the method is to see."""
        return np.ones(len(self.rows), dtype=bool) if self.weights is None else self.weights > 0

    @property
    def details(self) -> dict[str, Any]:
        """What the result has of it."""
        found = {"weights": self.weights, "covariate_effects": self.effects}
        return {name: value for name, value in found.items() if value is not None}


def adjust(
    X: Matrix,
    codes: NDArray[np.intp],
    covariates: Any = None,
    *,
    downweight: bool = False,
    n_latents: int | None = None,
) -> Adjusted:
    """Take effects of covariates off rows of environments, and weigh the rows."""
    columns = None if covariates is None else read_covariates(covariates, len(X))
    weights = np.ones(len(X))
    rows, effects, checks = X, None, ()
    for _ in range(_ROUNDS):
        if columns is not None:
            rows, effects, checks = without_effects(X, codes, columns, weights > 0)
        if not downweight:
            return Adjusted(rows, None, effects, checks)
        before, weights = weights, robust_distances(rows, codes, n_latents).weights()
        if columns is None or np.array_equal(weights, before):
            break
    return Adjusted(rows, weights, effects, checks)


def _weights_check(weights: NDArray[np.floating], codes: NDArray[np.intp]) -> Check:
    """Say how many rows are left out; of many in one environment one cannot say that they err."""
    name, far = "rows left out are few", weights == 0
    said = f"{int(far.sum())} of {len(far)} rows stand far out and have weight 0"
    most = float((np.bincount(codes, weights=far) / np.bincount(codes)).max())
    if most <= MOST_FAR_OUT:
        return Check(name, True, said)
    return Check(
        name,
        False,
        f"{said}, {most:.0%} of an environment: no errors of single rows, but perhaps a group of "
        "its own, which is to have an environment or covariate of its own",
    )


def _weights_by_noises(
    noise_encoder: Encoder, adjusted: Adjusted, codes: NDArray[np.intp]
) -> NDArray[np.floating]:
    """Return 0 for rows that have weight 0 already, and for those whose noises stand far out.

    Rows too far out for the mechanisms have no finite noises.
    """
    weights, near = np.zeros(len(adjusted.rows)), np.flatnonzero(adjusted.kept)
    noises = noise_encoder(adjusted.rows[near])
    told = np.isfinite(noises).all(axis=1)
    weights[near[told]] = robust_distances(noises[told], codes[near[told]]).weights()
    return weights


class AdjustedCRL(BaseCRL):
    """Base class of estimators that take covariates, with a parameter `outliers`.

    A class says whether its results have a `noise_encoder` (`_tells_noises`), by which rows are
    judged then.
    """

    outliers: str

    _tells_noises: ClassVar[bool] = False
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "outliers": [StrOptions({"keep", "downweight"})],
    }

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, *, covariates: Any = None) -> Self:
        """Recover the latents behind `X`.

        Parameters
        ----------
        X
            Observations, one row a sample: array or data frame.
        y
            Side information, one entry a row; the class says which.
        covariates
            What else differs between rows, such as batches: an array, a dictionary of columns or a
            data frame, one row a sample. Texts and whole numbers are labels, others are numbers.
            Their effects on X, found inside of environments, are taken off.
        """
        return self._fitted(X, y, partial(self._adjusted, covariates))

    def _adjusted(self, covariates: Any, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        """Return the result of the method on adjusted rows."""
        if covariates is None and self.outliers == "keep":
            return self._algorithm(X, y, seed)
        labels = y if self._requires_y and y is not None else np.zeros(len(X), dtype=int)
        codes = read_environments(labels, fewest=1).codes
        found = adjust(
            X,
            codes,
            covariates,
            downweight=self.outliers == "downweight",
            n_latents=self._given_number(),
        )
        if found.weights is not None and self._tells_noises:
            result, found = self._judged_by_noises(found, codes, y, seed)
        else:
            result = self._on_kept(found, y, seed)
        weighed = () if found.weights is None else (_weights_check(found.weights, codes),)
        return replace(
            result,
            checks=(*found.checks, *weighed, *result.checks),
            details={**result.details, **found.details},
        )

    def _given_number(self) -> int | None:
        """Return the number of latents, or None where it is yet to be found."""
        n_latents = self.get_params()["n_latents"]
        return None if isinstance(n_latents, str) else n_latents

    def _on_kept(self, adjusted: Adjusted, y: NDArray[Any] | None, seed: int) -> Result:
        kept = adjusted.kept
        numbers = None if adjusted.weights is None else np.flatnonzero(kept)
        some = None if y is None else y[kept]
        return self._algorithm_on_some(adjusted.rows[kept], some, seed, numbers)

    def _algorithm_on_some(
        self, X: Matrix, y: NDArray[Any] | None, seed: int, numbers: NDArray[np.intp] | None
    ) -> Result:
        """Return the result of the method on the rows that are left, for what it says of them.

        `numbers` are those of the rows as the user gave them; None: none was to be left out.
        """
        return self._algorithm(X, y, seed)

    def _judged_by_noises(
        self, adjusted: Adjusted, codes: NDArray[np.intp], y: NDArray[Any] | None, seed: int
    ) -> tuple[Result, Adjusted]:
        """Fit, and judge rows by their noises; again while these say otherwise of some row.

        Tails of latents may be so heavy that rows which do not belong there cannot be told from
        others, but their noises can. The first fit sees the rows in the middle.
        """
        outside = adjusted.weights
        assert outside is not None
        distances = robust_distances(adjusted.rows, codes, self._given_number())
        central = np.zeros(len(outside))
        central[np.concatenate(distances.nearest(_CENTRAL))] = 1.0
        weighed = replace(adjusted, weights=central * outside)
        for _ in range(_MOST_FITS):
            result = self._on_kept(weighed, y, seed)
            assert result.noise_encoder is not None
            weights = _weights_by_noises(result.noise_encoder, adjusted, codes)
            if np.array_equal(weights > 0, weighed.kept):
                break
            weighed = replace(weighed, weights=weights)
        else:
            result = self._on_kept(weighed, y, seed)
        return result, weighed

    def transform(self, X: ArrayLike, *, covariates: Any = None) -> Matrix:
        """Return the latents of each row of `X`, one column each.

        Parameters
        ----------
        X
            Rows, as in `fit`.
        covariates
            Of each row, if `fit` had some; their effects are taken off.
        """
        return self._encoded_without_effects(X, covariates, self.result_.encoder, "transform")

    def fit_transform(
        self, X: ArrayLike, y: ArrayLike | None = None, *, covariates: Any = None, **_: Any
    ) -> Matrix:
        """Return what `fit` and then `transform` do, each told all that is known of the rows."""
        self.fit(X, y, covariates=covariates)
        by_label = {"y": y} if self._requires_y else {}
        return self.transform(X, covariates=covariates, **by_label)

    def _encoded_without_effects(
        self, X: ArrayLike, covariates: Any, encoder: Encoder, name: str
    ) -> Matrix:
        """Return what an encoder makes of `X` without effects; `name` is the method's."""
        check_is_fitted(self)
        encode = cast(Any, lambda rows: encoder(self._without_effects(rows, covariates)))
        return self._encoded(X, encode, name)

    def _without_effects(self, rows: Matrix, covariates: Any) -> Matrix:
        """Take the effects of covariates, as `fit` found them, off checked rows."""
        effects = self.result_.details.get("covariate_effects")
        if effects is None and covariates is None:
            return rows
        if effects is None:
            raise ValueError(
                f"This {type(self).__name__} was fitted without covariates and knows no effects of "
                "them: leave 'covariates' out, or fit with them."
            )
        if covariates is None:
            raise ValueError(
                f"This {type(self).__name__} was fitted with covariates "
                f"({', '.join(effects.names)}), whose effects have to be taken off: give "
                "'covariates' of these rows, too."
            )
        return rows - effects(covariates, len(rows))
