"""Covariates of the rows, such as batches: read, and their effects on X taken off.

A row of X is the mean of its environment, plus effects of its covariates, plus what is of interest.
Effects are those of a regression inside of environments, and the same in all of them: what differs
between the means of environments is no effect of covariates. Where an environment has rows of one
batch alone, the effect of that batch is known from other environments, if these have rows of it and
of others, and otherwise stays in the environment's mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.result import Check
from crlearn.tags import stored

Matrix = NDArray[np.floating]
Codes = NDArray[np.intp]
Kind = Literal["labels", "numbers"]

_MOST_LISTED = 8
_RANK = 1e-9  # singular values of regressors in units of their sd
_LEVEL = 1e-3  # p-value below which effects differ between environments
_MOST_DIRECTIONS, _MOST_EFFECTS = 10, 2000  # of X in which that is looked for; on all of these
_EQUAL = {"False": "0", "True": "1", "0": "False", "1": "True"}  # truth values, and numbers
_ADVICE = (
    "give one label or number a row and column, as an array, a dictionary of columns or a data "
    "frame"
)


@dataclass(frozen=True, eq=False)
class Column:
    """One covariate: texts for labels, or numbers."""

    name: str
    values: NDArray[Any]

    @property
    def labels(self) -> tuple[str, ...]:
        """Its distinct labels; none where it holds numbers."""
        return tuple(np.unique(self.values).tolist()) if self.values.dtype.kind == "U" else ()

    def regressors(self, labels: Sequence[str]) -> Matrix:
        """Return one column for each label, or the numbers."""
        if not labels:
            return self.values.astype(float)[:, None]
        unseen = set(self.values.tolist()) - set(labels)
        equal = {label: _EQUAL[label] for label in unseen if _EQUAL.get(label) in labels}
        unknown = sorted(unseen - equal.keys())
        if unknown:
            raise ValueError(
                f"The covariate {self.name!r} has labels that fit has not seen, so that their "
                f"effect is not known: {_listed(unknown)}. Those of fit are {_listed(labels)}."
            )
        values = np.array([equal.get(label, label) for label in self.values.tolist()], dtype=str)
        return (values[:, None] == np.array(labels)).astype(float)


def read_covariates(
    covariates: Any, n_rows: int, kinds: Sequence[Kind] | None = None
) -> tuple[Column, ...]:
    """Read covariates: texts, truth values and whole numbers are labels, others are numbers.

    Whole numbers are labels because batches are often numbered, and an effect of each explains at
    least as much as a line through all of them. `kinds` says what columns hold, if that is known.
    """
    named = _named_columns(covariates)
    if not named:
        raise ValueError(f"'covariates' have no column; {_ADVICE}.")
    names = [name for name, _ in named]
    if len(set(names)) < len(names):
        raise ValueError(f"'covariates' must have distinct names. Got {', '.join(names)}.")
    known = [None] * len(named) if kinds is None else kinds
    columns = tuple(
        _read_column(name, values, kind) for (name, values), kind in zip(named, known, strict=True)
    )
    for column in columns:
        if len(column.values) != n_rows:
            raise ValueError(
                f"'covariates' must have one entry for each of the {n_rows} rows of X. "
                f"{column.name!r} has {len(column.values)}."
            )
    return columns


def _named_columns(covariates: Any) -> list[tuple[str, Any]]:
    if isinstance(covariates, Mapping):
        return [(str(name), values) for name, values in covariates.items()]
    if hasattr(covariates, "columns"):
        return [(str(name), covariates[name]) for name in covariates.columns]
    values = np.asarray(covariates)
    if values.dtype.kind in "US" and not isinstance(covariates, np.ndarray):
        values = np.array(covariates, dtype=object)  # numbers beside texts stay numbers
    if values.ndim == 1:
        return [(str(getattr(covariates, "name", None) or "covariate 0"), values)]
    if values.ndim != 2:
        raise ValueError(f"'covariates' have the shape {values.shape}; {_ADVICE}.")
    return [(f"covariate {k}", column) for k, column in enumerate(values.T)]


def _read_column(name: str, values: Any, kind: Kind | None) -> Column:
    values = np.asarray(values)
    if values.ndim != 1:
        raise ValueError(f"The covariate {name!r} has the shape {values.shape}; {_ADVICE}.")
    entries = values.tolist()
    missing = sum(_is_missing(entry) for entry in entries)
    if missing:
        raise ValueError(
            f"The covariate {name!r} is missing in {missing} of {len(entries)} rows. Drop these "
            "rows, or give them a label or number of their own."
        )
    if kind is None:
        kind = "labels" if all(map(_is_label, entries)) else "numbers"
    if kind == "labels":
        return Column(name, np.array([_label(entry) for entry in entries], dtype=str))
    odd = [entry for entry in entries if not isinstance(entry, int | float)]
    if odd:
        raise ValueError(
            f"The covariate {name!r} must hold labels (texts or whole numbers) or numbers, all of "
            f"one kind. Got {odd[0]!r} beside numbers."
        )
    numbers = np.array(entries, dtype=float)
    if not np.isfinite(numbers).all():
        raise ValueError(f"The covariate {name!r} must be finite. Got infinite entries.")
    return Column(name, numbers)


def _is_missing(entry: Any) -> bool:
    itself = entry == entry  # NaN is not, and the NA of pandas says neither yes nor no
    is_known = isinstance(itself, bool | np.bool_) and bool(itself)
    return not is_known or entry is None or entry == ""


def _is_label(entry: Any) -> bool:
    return isinstance(entry, str | int) or (isinstance(entry, float) and entry.is_integer())


def _label(entry: Any) -> str:
    is_whole = isinstance(entry, float) and entry.is_integer()
    return str(int(entry)) if is_whole else str(entry)


@stored("covariate-effects")
@dataclass(frozen=True, eq=False)
class CovariateEffects:
    """What covariates do to X, relative to their mean over the rows of the fit.

    Attributes
    ----------
    names
        Of the covariates.
    labels
        Those of each covariate; none for numbers.
    means
        Of the regressors: one for each label, one for each covariate of numbers.
    matrix
        Effect of each regressor on each feature.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    means: NDArray[np.floating]
    matrix: Matrix

    def __call__(self, covariates: Any, n_rows: int) -> Matrix:
        """Return the effects on so many rows; covariates must be those of the fit.

        Columns with names are found by these, others by their place.
        """
        if hasattr(covariates, "columns") or isinstance(covariates, Mapping):
            given = {
                str(name): covariates[name] for name in getattr(covariates, "columns", covariates)
            }
            self._refuse_others(list(given), set(given) != set(self.names))
            covariates = {name: given[name] for name in self.names}
        n_given = len(_named_columns(covariates))
        self._refuse_others([f"{n_given} columns"], n_given != len(self.names))
        kinds: list[Kind] = ["labels" if own else "numbers" for own in self.labels]
        columns = read_covariates(covariates, n_rows, kinds)
        return (_regressors(columns, self.labels) - self.means) @ self.matrix

    def _refuse_others(self, given: Sequence[str], differ: bool) -> None:
        if differ:
            raise ValueError(
                f"'covariates' must be those of fit: {_listed(self.names)}. Got {_listed(given)}."
            )


def _regressors(columns: Sequence[Column], labels: Sequence[Sequence[str]]) -> Matrix:
    return np.hstack([column.regressors(own) for column, own in zip(columns, labels, strict=True)])


def without_effects(
    X: Matrix,
    codes: Codes,
    columns: Sequence[Column],
    chosen: NDArray[np.bool_] | None = None,
) -> tuple[Matrix, CovariateEffects, tuple[Check, ...]]:
    """Take the effects of covariates off X.

    A regression also takes off some of what is of interest, as much as it has effects. Rows are
    made larger by as much around the mean of their environment, whose covariances are then right
    on average.

    Parameters
    ----------
    X, columns
        Rows and their covariates.
    codes
        Number of each row's environment.
    chosen
        The rows that the regression sees; None: all.
    """
    chosen = np.ones(len(X), dtype=bool) if chosen is None else chosen
    labels = tuple(column.labels for column in columns)
    for column in columns:
        if column.labels:
            _refuse_too_many(columns, _least_lost(column.values[chosen], codes[chosen]))
    C = _regressors(columns, labels)
    means, units = C.mean(axis=0), C.std(axis=0)
    units = np.where(units > _RANK * np.abs(C).max(axis=0), units, np.inf)
    scaled = (C - means) / units
    inside, some = _centred(scaled[chosen], codes[chosen]), codes[chosen]
    left, sizes, right = np.linalg.svd(inside, full_matrices=False)
    rank = int((sizes > _RANK * np.sqrt(len(inside))).sum())
    left, sizes, right = left[:, :rank], sizes[:rank], right[:rank]
    lost = np.bincount(some, weights=(left**2).sum(axis=1)) / np.bincount(some)
    _refuse_too_many(columns, lost)
    effects = (right.T / sizes) @ (left.T @ _centred(X[chosen], some)) / units[:, None]
    rows = X - (C - means) @ effects
    n_all = int(np.linalg.matrix_rank(scaled, tol=_RANK * np.sqrt(len(scaled))))
    checks = (
        _effects_check(columns, rank, n_all - rank),
        _likeness_check(_centred(rows[chosen], some), some, inside, rank),
    )
    for e, share in enumerate(lost):
        own = codes == e
        centre = rows[own & chosen].mean(axis=0)
        rows[own] = centre + (rows[own] - centre) / np.sqrt(1 - share)
    record = CovariateEffects(tuple(column.name for column in columns), labels, means, effects)
    return rows, record, checks


def _centred(values: Matrix, codes: Codes) -> Matrix:
    """Take the mean of each environment off."""
    counts = np.bincount(codes)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, codes, values)
    return values - (sums / np.maximum(counts, 1)[:, None])[codes]


def _least_lost(labels: NDArray[Any], codes: Codes) -> NDArray[np.floating]:
    """Return which share of what varies in each environment effects of labels take off at least.

    A label takes off as much as one row, shared by all rows that have it, and the mean of an
    environment, which is taken off anyway, is at most one of these. No matrix of labels is needed.
    """
    _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return (np.bincount(codes, weights=1 / counts[places]) - 1) / np.bincount(codes)


def _refuse_too_many(columns: Sequence[Column], lost: NDArray[np.floating]) -> None:
    if (lost <= 0.5).all():
        return
    numbers = [f"{column.name!r} has {len(column.labels)} labels" for column in columns]
    raise ValueError(
        "'covariates' have too many effects for the rows: in an environment more than half of what "
        f"varies would be taken off. {_listed(numbers)}. Join labels, or leave some out; whole "
        "numbers are read as labels, so that amounts should be given in other units (logarithms, "
        "thousands) that are not whole."
    )


def _effects_check(columns: Sequence[Column], rank: int, n_confounded: int) -> Check:
    names = _listed([column.name for column in columns])
    said = f"{rank} effects of {names} were taken off, found inside of environments"
    if not rank:
        said = f"{names} do not vary inside of environments, and nothing was taken off"
    if n_confounded:
        said += (
            f"; {n_confounded} cannot be told from those of environments, and stay in their means"
        )
    return Check("effects of covariates", True, said)


def _likeness_check(rows: Matrix, codes: Codes, inside: Matrix, rank: int) -> Check:
    """Test whether covariates explain more if each environment has effects of its own.

    In leading directions of what is left, and in units of each environment's covariance there: what
    effects of their own explain, less what shared ones do that are the best in these units.
    """
    name = "effects of covariates are alike in all environments"
    scale, k = rows.std(axis=0), inside.shape[1]
    rows = rows / np.where(scale > 0, scale, 1.0)
    values, axes = np.linalg.eigh(rows.T @ rows)
    n = min(_MOST_DIRECTIONS, int((values > _RANK * values[-1]).sum()), max(1, _MOST_EFFECTS // k))
    along = rows @ axes[:, -n:]
    statistic, freedom = 0.0, -n * rank
    normal, right_side = np.zeros((n * k, n * k)), np.zeros(n * k)
    for e in range(int(codes.max()) + 1):
        own, regressors = along[codes == e], inside[codes == e]
        precision = np.linalg.pinv(own.T @ own / len(own), hermitian=True)
        left, sizes, _ = np.linalg.svd(regressors, full_matrices=False)
        left = left[:, sizes > _RANK * np.sqrt(len(inside))]
        projected = left.T @ own
        statistic += float(((projected @ precision) * projected).sum())
        freedom += n * left.shape[1]
        normal += np.kron(precision, regressors.T @ regressors)
        right_side += (precision @ own.T @ regressors).ravel()
    if freedom <= 0:
        return Check(name, True, "no two environments tell of the same effect")
    statistic -= float(right_side @ np.linalg.pinv(normal, _RANK, hermitian=True) @ right_side)
    p_value = float(chi2.sf(statistic, freedom))
    detail = f"statistic {statistic:.0f} with {freedom} degrees of freedom, p = {p_value:.2g}"
    if p_value >= _LEVEL:
        return Check(name, True, detail)
    advice = "make labels distinct, such as environment and batch in one"
    return Check(name, False, f"{detail}; if batches of environments are not the same, {advice}")


def _listed(items: Sequence[str]) -> str:
    return ", ".join(items[:_MOST_LISTED]) + (", ..." if len(items) > _MOST_LISTED else "")
