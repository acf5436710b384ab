"""`BaseCRL`: what all estimators share, so that a method file holds only its method.

Checks the arrays, reads `y`, draws the seed, times the algorithm and stores its `Result`. A method
says in `_algorithm` how X and y become a `Result`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    assert_all_finite,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from crlearn import persist
from crlearn.exceptions import AssumptionWarning, CorruptFileError, IdentifiabilityError
from crlearn.result import Check, Encoder, Result

# Singular values of standardised data below this share of the largest one count as zero.
_RANK_TOLERANCE = 1e-6
# A column whose sd is below this share of its largest value is constant up to rounding.
_CONSTANT_TOLERANCE = 1e-14
# Rows that are standardised at a time.
_FEWEST_ROWS, _MOST_ROWS = 1024, 4096
# How pandas and polars name the types of columns that may hold text.
_TEXT_DTYPES = ("object", "str", "string", "large_string", "categor", "enum")


class BaseCRL(TransformerMixin, BaseEstimator):
    """Base class of all estimators; see the module's text."""

    result_: Result
    n_features_in_: int

    _requires_y: ClassVar[bool] = False
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
            Observations, one row a sample: array or data frame.
        y
            Side information, one entry a row; the class says which.
        """
        self._validate_params()
        observations, side_information = self._read(X, y)
        seed = int(check_random_state(self.get_params()["random_state"]).randint(2**31 - 1))
        start = time.perf_counter()
        result = self._algorithm(observations, side_information, seed)
        self.result_ = replace(result, seconds=time.perf_counter() - start)
        for check in self.result_.failed_checks:
            warn(f"{type(self).__name__}: {check}", AssumptionWarning, stacklevel=2)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Return the latents of each row of `X`, one column each."""
        check_is_fitted(self)
        return self._encoded(X, self.result_.encoder, "transform")

    def _encoded(self, X: ArrayLike, encoder: Encoder, name: str) -> NDArray[np.floating]:
        """Return what a fitted encoder makes of `X`; `name` is the method that was called."""
        _refuse_text(X)
        observations = cast(Any, validate_data(self, cast(Any, X), dtype=np.float64, reset=False))
        return _finite(encoder(observations), name)

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

    def __sklearn_is_fitted__(self) -> bool:
        return "result_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._requires_y
        return tags

    def _read(self, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        _refuse_text(X)
        X = cast(
            "NDArray[Any]",
            validate_data(self, X, dtype=np.float64, order="C", ensure_min_samples=2),
        )
        _refuse_more_latents_than_features(self.get_params()["n_latents"], X.shape[1])
        if y is None:
            if self._requires_y:
                raise ValueError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None: "
                    "give one environment label (or auxiliary value) a row."
                )
            return X, None
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        assert_all_finite(y, estimator_name=type(self).__name__, input_name="y")
        return X, y


def latents_of(model: Any, X: Any, y: Any = None) -> Any:
    """Return ``model.transform(X)``; a model that denoises by environment is told the labels."""
    by_label = y is not None and "y" in signature(model.transform).parameters
    return model.transform(X, y) if by_label else model.transform(X)


@dataclass(frozen=True, eq=False)
class Environments:
    """`y` read as environment labels.

    Attributes
    ----------
    labels
        The distinct labels in order.
    codes
        Position of each row's label in `labels`.
    counts
        Rows of each environment.
    reference
        Position of the reference (observational) environment, or None.
    """

    labels: NDArray[Any]
    codes: NDArray[np.intp]
    counts: NDArray[np.intp]
    reference: int | None = None

    def __len__(self) -> int:
        return len(self.labels)


def read_environments(y: NDArray[Any], reference: Any = None, *, fewest: int = 2) -> Environments:
    """Read environment labels; the reference environment is the one labelled `reference`."""
    try:
        labels, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise ValueError(
            "y must hold labels of one kind, all numbers or all strings, and none missing. "
            f"Got a mixture ({error})."
        ) from error
    shown = _listed(labels)
    if len(labels) < fewest:
        raise IdentifiabilityError(
            f"y must name at least {fewest} environments. Got {len(labels)} ({shown}). "
            "Data of a single environment need a method that works without labels."
        )
    if reference is None:
        return Environments(labels, codes, counts)
    places = np.flatnonzero(labels == reference) if np.ndim(reference) == 0 else []
    if len(places) == 0:
        raise ValueError(
            f"The reference environment {reference!r} is not among the labels in y: {shown}. "
            "Name one of these with reference=."
        )
    return Environments(labels, codes, counts, int(places[0]))


def check_environment_sizes(environments: Environments, n_latents: int) -> Check:
    """Check that each environment has more rows than there are latents."""
    small = environments.labels[environments.counts <= n_latents]
    return Check(
        "environment sizes",
        len(small) == 0,
        f"environments with no more rows than the {n_latents} latents: {_listed(small) or 'none'}",
    )


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and standard deviation of each column; constant columns keep scale 1."""

    mean: NDArray[np.floating]
    scale: NDArray[np.floating]
    constant: NDArray[np.bool_]

    @classmethod
    def of(cls, X: NDArray[np.floating]) -> Scaling:
        """Measure the columns of `X`."""
        n_rows, n_columns = X.shape
        largest, mean = np.zeros(n_columns), np.zeros(n_columns)
        for rows in _blocks(X):
            largest = np.maximum(largest, np.maximum(rows.max(axis=0), -rows.min(axis=0)))
            mean += np.full(len(rows), 1 / n_rows) @ rows
        unit = np.where(largest > 0, largest, 1.0)  # keeps the squares of 1e200 finite
        first, second = np.zeros(n_columns), np.zeros(n_columns)
        for rows in _blocks(X):
            centred = (rows - mean) / unit
            first += centred.sum(axis=0) / n_rows
            second += np.einsum("ij,ij->j", centred, centred) / n_rows
        # What rounding has left of the mean is taken off.
        scale = np.sqrt(np.maximum(second - first**2, 0.0)) * unit
        constant = scale <= _CONSTANT_TOLERANCE * largest
        return cls(mean + first * unit, np.where(constant, 1.0, scale), constant)

    def __call__(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return `X` with mean zero and standard deviation one; constant columns become zero."""
        standardised = (X - self.mean) / self.scale
        standardised[:, self.constant] = 0.0
        return standardised

    def gram(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the Gram matrix of the standardised columns, or of the rows if they are fewer.

        It is divided by the number of rows: correlations, in the first case. No copy of X is made.
        """
        n_rows, n_columns = X.shape
        if n_columns > n_rows:
            parts = (self._columns(X, slice(k, k + n_rows)) for k in range(0, n_columns, n_rows))
            return sum((part @ part.T for part in parts), np.zeros((n_rows, n_rows))) / n_rows
        total = np.zeros((n_columns, n_columns))
        for rows in _blocks(X):
            standardised = self(rows)
            total += standardised.T @ standardised
        return total / n_rows

    def _columns(self, X: NDArray[np.floating], chosen: slice) -> NDArray[np.floating]:
        return Scaling(self.mean[chosen], self.scale[chosen], self.constant[chosen])(X[:, chosen])


def _blocks(X: NDArray[np.floating]) -> Iterator[NDArray[np.floating]]:
    """Yield some rows at a time: few enough for a processor's cache, where columns are not many."""
    size = min(max(_FEWEST_ROWS, 2 * X.shape[1]), _MOST_ROWS)
    return (X[start : start + size] for start in range(0, len(X), size))


def check_columns(
    X: NDArray[np.floating], scaling: Scaling, variances: NDArray[np.floating] | None = None
) -> tuple[int, tuple[Check, ...]]:
    """Return the numerical rank of the standardised columns, and what is to be said about them.

    `variances` are the eigenvalues of `Scaling.gram`, if they are known.
    """
    if variances is None:
        variances = np.linalg.eigvalsh(scaling.gram(X))
    singular_values = np.sqrt(np.maximum(variances, 0.0))
    rank = int((singular_values > _RANK_TOLERANCE * singular_values.max(initial=0.0)).sum())
    n_constant = int(scaling.constant.sum())
    n_varying = len(scaling.constant) - n_constant
    checks = (
        Check(
            "columns vary",
            n_constant == 0,
            f"{n_constant} of {len(scaling.constant)} columns of X are constant and carry nothing",
        ),
        Check("rank of X", rank > 0, f"the {n_varying} columns that vary have rank {rank}"),
    )
    return rank, checks


def choose_n_latents(n_latents: int | None, rank: int) -> int:
    """Return `n_latents`, or the rank of X if it is None; refuse more latents than the rank."""
    if rank == 0:
        raise ValueError("All columns of X are constant: there is nothing to recover from them.")
    if n_latents is None:
        return rank
    if n_latents > rank:
        raise IdentifiabilityError(
            f"The 'n_latents' parameter must be at most the rank of X, which is {rank} (columns "
            "are constant, repeated or combinations of others, or there are few rows). "
            f"Got {n_latents} instead."
        )
    return n_latents


def _listed(labels: NDArray[Any], at_most: int = 10) -> str:
    return ", ".join(map(str, labels[:at_most])) + (", ..." if len(labels) > at_most else "")


def _refuse_more_latents_than_features(n_latents: int | None, n_features: int) -> None:
    if n_latents is not None and n_latents > n_features:
        raise ValueError(
            f"The 'n_latents' parameter must be at most the number of features, {n_features}: a "
            f"mixture with fewer outputs than latents cannot be undone. Got {n_latents} instead."
        )


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
