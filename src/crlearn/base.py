"""`BaseCRL`: what all estimators share, so that a method file holds only its method.

Checks the arrays, reads `y`, draws the seed, times the algorithm and stores its `Result`. A method
says in `_algorithm` how X and y become a `Result`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self, cast
from warnings import warn

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from crlearn import persist
from crlearn.exceptions import AssumptionWarning, CorruptFileError
from crlearn.result import Encoder, Result

# What `n_latents` may be where it can be counted.
COUNTED = [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"}), None]
# How pandas and polars name the types of columns that may hold text.
_TEXT_DTYPES = ("object", "str", "string", "large_string", "categor", "enum")
_MOST_LISTED = 8  # columns

Algorithm = Callable[[NDArray[Any], NDArray[Any] | None, int], Result]


class Storable(BaseEstimator):
    """What files hold: parameters, and what `fit` has set."""

    _parameter_constraints: ClassVar[dict[str, Any]]

    def save(self, path: str | Path) -> None:
        """Write the estimator to one file; `crlearn.load` reads it."""
        persist.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator of this class from a file."""
        estimator = persist.load(path)
        if not isinstance(estimator, cls):
            raise CorruptFileError(
                f"{path} holds a {type(estimator).__name__}, not a {cls.__name__}."
            )
        return estimator


class BaseCRL(TransformerMixin, Storable):
    """Base class of all estimators; see the module's text.

    A class says what it takes: whether it needs `y` (`_requires_y`), whether `y` may have several
    columns (`_allows_matrix_y`), whether X of single precision stays so (`_keeps_float32`; others
    get float64), whether whole numbers of 8 bits do (`_keeps_uint8`), whether a row of X may be an
    image or any other array (`_allows_images`; `sample_shape_` is its shape, and `n_features_in_`
    the number of its entries), and whether `n_latents` may be more than there are features
    (`_may_ask_for_too_many`).
    """

    result_: Result
    n_features_in_: int
    sample_shape_: tuple[int, ...]

    _requires_y: ClassVar[bool] = False
    _allows_matrix_y: ClassVar[bool] = False
    _keeps_float32: ClassVar[bool] = False
    _keeps_uint8: ClassVar[bool] = False
    _allows_images: ClassVar[bool] = False
    _may_ask_for_too_many: ClassVar[bool] = False
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_latents": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }

    def _algorithm(self, X: NDArray[np.floating], y: NDArray[Any] | None, seed: int) -> Result:
        """Return the result of the method on checked arrays."""
        raise TypeError(f"{type(self).__name__} has no algorithm; it is a base class.")

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Recover the latents behind `X`.

        Parameters
        ----------
        X
            Observations, one row a sample: array or data frame; images where the class takes them.
        y
            Side information, one entry a row; the class says which.
        """
        return self._fitted(X, y, self._algorithm)

    def _fitted(self, X: ArrayLike, y: ArrayLike | None, algorithm: Algorithm) -> Self:
        """Fit by an algorithm: that of the class, or one that prepares rows for it."""
        self._validate_params()
        self._refuse_truth_values()
        observations, side_information = self._read(X, y)
        seed = int(check_random_state(self.get_params()["random_state"]).randint(2**31 - 1))
        start = time.perf_counter()
        result = algorithm(observations, side_information, seed)
        guarantee = result.guarantee.given(result.checks)
        seconds = time.perf_counter() - start
        self.result_ = replace(result, guarantee=guarantee, seconds=seconds)
        for check in self.result_.failed_checks:
            warn(f"{type(self).__name__}: {check}", AssumptionWarning, stacklevel=3)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Return the latents of each row of `X`, one column each."""
        check_is_fitted(self)
        return self._encoded(X, self.result_.encoder, "transform")

    def _encoded(self, X: ArrayLike, encoder: Encoder, name: str) -> NDArray[np.floating]:
        """Return what a fitted encoder makes of `X`; `name` is the method that was called."""
        _refuse_text(X)
        if self._allows_images:
            X = self._flattened(X)
        rows = self._checked(X, reset=False)
        return _finite(encoder(self._in_shape(rows)), name)

    def _can_decode(self) -> bool:
        check_is_fitted(self)
        return self.result_.decoder is not None

    @available_if(_can_decode)
    def inverse_transform(self, Z: ArrayLike) -> NDArray[np.floating]:
        """Return the observations that the model expects at the latents `Z`."""
        Z = np.asarray(Z, dtype=np.float64)
        if Z.ndim != 2 or Z.shape[1] != self.result_.n_latents:
            raise ValueError(
                f"Z must have one column for each of the {self.result_.n_latents} latents. "
                f"Got an array of shape {Z.shape}."
            )
        assert self.result_.decoder is not None
        return _finite(self.result_.decoder(Z), "inverse_transform")

    @property
    def graph_(self) -> nx.DiGraph | None:
        """Recovered causal graph over the latents; None if the method recovers none."""
        return self._fitted_result().graph

    @property
    def _n_features_out(self) -> int:
        return self._fitted_result().n_latents

    def _fitted_result(self) -> Result:
        if "result_" not in vars(self):
            raise AttributeError(f"This {type(self).__name__} is not fitted yet: call fit first.")
        return self.result_

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the latents."""
        check_is_fitted(self)
        return np.array(self.result_.latent_names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return "result_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._requires_y
        tags.target_tags.multi_output = self._allows_matrix_y
        tags.input_tags.three_d_array = self._allows_images
        return tags

    def _read(self, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        _refuse_text(X)
        if self._allows_images:
            self.sample_shape_ = _shape_of_rows(X)
            X = self._flattened(X)
        X = self._checked(X, order="C", ensure_min_samples=2)
        if not self._may_ask_for_too_many:
            _refuse_more_latents_than_features(self.get_params()["n_latents"], X.shape[1])
        return self._in_shape(X), self._read_y(y, len(X))

    def _checked(self, X: Any, **options: Any) -> NDArray[Any]:
        """Return X as an array of numbers; the model remembers its columns unless told not to."""
        try:
            return cast(Any, validate_data(self, X, dtype=self._dtypes, **options))
        except ValueError as error:
            if "contains NaN" in str(error):
                _refuse_missing_values(X)
            raise

    def _refuse_truth_values(self) -> None:
        """Refuse True where a number is asked for: to Python it is the number one."""
        for name, value in self.get_params(deep=False).items():
            allowed = self._parameter_constraints.get(name, "no_validation")
            is_number = isinstance(allowed, list) and "boolean" not in allowed
            if isinstance(value, bool | np.bool_) and is_number:
                raise InvalidParameterError(
                    f"The {name!r} parameter of {type(self).__name__} must be a number, not a "
                    f"truth value. Got {value} instead."
                )

    def _read_y(self, y: Any, n_rows: int) -> NDArray[Any] | None:
        name = type(self).__name__
        if y is None:
            if self._requires_y:
                raise ValueError(
                    f"{name} requires y to be passed, but the target y is None: "
                    "give one environment label (or auxiliary value) a row."
                )
            return None
        takes_matrix = self._allows_matrix_y or not self._requires_y  # what is ignored may be any
        if takes_matrix and len(_shape_of_rows(y)) == 1 and _shape_of_rows(y) != (1,):
            y = check_array(y, input_name="y", estimator=name)
        else:
            y = column_or_1d(y, warn=not takes_matrix)
        check_consistent_length(range(n_rows), y)
        assert_all_finite(y, estimator_name=name, input_name="y")
        return y

    @property
    def _dtypes(self) -> Any:
        """Number types that X may keep; the first is what others become."""
        kept = {np.float32: self._keeps_float32, np.uint8: self._keeps_uint8}
        return [np.float64, *(dtype for dtype, stays in kept.items() if stays)]

    def _flattened(self, X: Any) -> Any:
        """Return images as rows of numbers; tables are rows already."""
        shape = _shape_of_rows(X)
        if len(shape) < 2:
            return X
        if shape != self.sample_shape_:
            raise ValueError(
                f"Each sample of X must have the shape {self.sample_shape_} of those that the "
                f"model was fitted to. Got {shape} instead."
            )
        return np.asarray(X).reshape(len(X), -1)

    def _in_shape(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return rows of numbers as the images they are."""
        return rows.reshape(len(rows), *self.sample_shape_) if self._allows_images else rows


def counted(n_latents: int | str | None) -> int | str:
    """Return `n_latents` of a class that counts latents by default.

    None, the default in files of earlier versions, is "auto".
    """
    return "auto" if n_latents is None else n_latents


def latents_of(model: Any, X: Any, y: Any = None, covariates: Any = None) -> Any:
    """Return ``model.transform(X)``; a model is told the labels and covariates that it asks for."""
    return model.transform(X, **_asked_for(model, model.transform, y, covariates))


def posterior_of(model: Any, X: Any, y: Any = None, covariates: Any = None) -> Any:
    """Return ``model.posterior(X)``; a model is told the labels and covariates that it asks for."""
    return model.posterior(X, **_asked_for(model, model.posterior, y, covariates))


def _asked_for(model: Any, method: Callable[..., Any], y: Any, covariates: Any) -> dict[str, Any]:
    """Return what there is beside `X` for a method of a model."""
    by_label = y is not None and "y" in signature(method).parameters
    known = {"y": y} if by_label else {}
    return known | ({"covariates": covariates} if _knows_effects(model) else {})


def without_effects_of(model: Any, X: Any, covariates: Any) -> Any:
    """Return what the encoders of a model are to see of `X`: rows without effects of covariates."""
    return model._without_effects(X, covariates) if _knows_effects(model) else X


def _knows_effects(model: Any) -> bool:
    """Whether a model was fitted with covariates."""
    result = getattr(model, "result_", None)
    return result is not None and "covariate_effects" in result.details


def _refuse_more_latents_than_features(n_latents: int | str | None, n_features: int) -> None:
    if n_latents is not None and not isinstance(n_latents, str) and n_latents > n_features:
        raise ValueError(
            f"The 'n_latents' parameter must be at most the number of features, {n_features}: a "
            f"mixture with fewer outputs than latents cannot be undone. Got {n_latents} instead."
        )


def _shape_of_rows(values: Any) -> tuple[int, ...]:
    """Return the shape of one row of an array, a data frame or a nested list."""
    return tuple(getattr(values, "shape", None) or np.asarray(values).shape)[1:]


def _refuse_text(X: Any) -> None:
    """Name the columns of a data frame that hold text, which numpy's own message does not."""
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return
    text = [
        str(name)
        for name, dtype in zip(X.columns, X.dtypes, strict=True)
        if str(dtype).lower().startswith(_TEXT_DTYPES) and not _is_numeric(X[name])
    ]
    if text:
        raise ValueError(
            f"X must hold numbers only. These columns hold text: {', '.join(text)}. Drop or encode "
            "them; environment labels belong into y."
        )


def _refuse_missing_values(X: Any) -> None:
    """Say where values are missing, and what to do."""
    try:
        missing = np.isnan(np.asarray(X, dtype=float))
    except (TypeError, ValueError):
        return
    by_column = missing.reshape(len(missing), -1).sum(axis=0)
    columns = np.flatnonzero(by_column)
    names = getattr(X, "columns", range(len(by_column)))
    listed = ", ".join(f"{by_column[j]} in {names[j]!r}" for j in columns[:_MOST_LISTED])
    more = ", ..." if len(columns) > _MOST_LISTED else ""
    raise ValueError(
        f"Input X contains NaN: {missing.sum()} values in {missing.any(axis=-1).sum()} of its "
        f"{len(missing)} rows are missing; by column: {listed}{more}. Nothing here fills them in: "
        "drop these rows or columns, or fill them before (sklearn.impute in a pipeline)."
    )


def _is_numeric(column: Any) -> bool:
    try:
        np.asarray(column).astype(float)
    except (TypeError, ValueError):
        return False
    return True


def _finite(values: NDArray[np.floating], name: str) -> NDArray[np.floating]:
    if not np.isfinite(values).all():
        raise ValueError(
            f"{name} would have returned values that are not finite: its input lies far outside "
            "the range of the data that the model was fitted to. Check the units of the input."
        )
    return values
