"""To and from other people's tables: pandas, polars, AnnData, CSV and Parquet files.

This is the only file that knows these packages; they are imported when they are needed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crlearn.data._dataset import Dataset, listed
from crlearn.exceptions import import_extra
from crlearn.files import TABLE_TYPES, replacing

# How a missing number may be written; labels may read like these and are labels all the same.
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A")

# The endings of the files that hold tables.

_INTEGER = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
_DECIMAL = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_LARGEST_INTEGER = 2**63 - 1


def from_pandas(
    frame: Any, environment_column: str | None = None, *, covariate_columns: Sequence[str] = ()
) -> Dataset:
    """Read a ``pandas.DataFrame``.

    Parameters
    ----------
    frame
        One row a sample; all columns but the environment's and covariates must be numeric.
    environment_column
        Column that holds the environment labels. If it is categorical, the order of its
        categories is the order of the environments.
    covariate_columns
        Columns that hold covariates, such as batches.
    """
    pandas = import_extra("pandas", "frames")
    is_numeric = pandas.api.types.is_numeric_dtype
    names = [str(name) for name in frame.columns]
    frame = frame.set_axis(names, axis=1)
    features = _feature_names(names, environment_column, covariate_columns)
    _check_rows(len(frame))
    _check_numeric([name for name in features if not is_numeric(frame[name].dtype)], frame)
    covariates = {name: frame[name].tolist() for name in covariate_columns}
    y, environments = (None, None)
    if environment_column is not None:
        y, environments = _pandas_labels(frame[environment_column], environment_column)
    X = frame[features].to_numpy(dtype=float, na_value=np.nan)
    return Dataset(X, y, names=features, environments=environments, covariates=covariates)


def to_pandas(dataset: Dataset, environment_column: str = "environment") -> Any:
    """Write X, covariates, and y as the last column, to a ``pandas.DataFrame``.

    Parameters
    ----------
    dataset
        What to convert; the truth is left behind.
    environment_column
        Name of the column for y; not used if there is no y. The columns of an auxiliary vector are
        numbered: ``environment_0``, ``environment_1`` and so on.
    """
    pandas = import_extra("pandas", "frames")
    frame = pandas.DataFrame(dataset.X, columns=list(dataset.names))
    columns = _columns_beside(dataset, environment_column)
    _check_free(columns, dataset.names)
    return frame.assign(**columns)


def from_polars(
    frame: Any, environment_column: str | None = None, *, covariate_columns: Sequence[str] = ()
) -> Dataset:
    """Read a ``polars.DataFrame``.

    Parameters
    ----------
    frame
        One row a sample; all columns but the environment's and covariates must be numeric.
    environment_column
        Column that holds the environment labels. If it is an Enum, its order is the order of the
        environments.
    covariate_columns
        Columns that hold covariates, such as batches.
    """
    polars = import_extra("polars", "frames")
    features = _feature_names(frame.columns, environment_column, covariate_columns)
    is_numeric = {
        name: dtype.is_numeric() or dtype == polars.Boolean for name, dtype in frame.schema.items()
    }
    _check_rows(len(frame))
    _check_numeric([name for name in features if not is_numeric[name]], frame)
    y, environments = (None, None)
    if environment_column is not None:
        labels = frame[environment_column]
        if isinstance(labels.dtype, polars.Enum):
            present = set(labels.drop_nulls())
            environments = [label for label in labels.dtype.categories if label in present]
        y = _without_missing(labels.to_list(), labels.is_null().any(), environment_column)
    X = np.column_stack(
        [frame[name].cast(polars.Float64).fill_null(np.nan).to_numpy() for name in features]
    )
    covariates = {name: frame[name].to_list() for name in covariate_columns}
    return Dataset(X, y, names=features, environments=environments, covariates=covariates)


def to_polars(dataset: Dataset, environment_column: str = "environment") -> Any:
    """Write X, covariates, and y as the last column, to a ``polars.DataFrame``.

    Parameters
    ----------
    dataset
        What to convert; the truth is left behind.
    environment_column
        Name of the column for y; not used if there is no y. The columns of an auxiliary vector are
        numbered: ``environment_0``, ``environment_1`` and so on.
    """
    polars = import_extra("polars", "frames")
    columns: dict[str, Any] = dict(zip(dataset.names, np.array(dataset.X.T), strict=True))
    beside = _columns_beside(dataset, environment_column)
    _check_free(beside, dataset.names)
    columns |= {name: values.tolist() for name, values in beside.items()}
    return polars.DataFrame(columns)


def from_anndata(
    adata: Any,
    environment_column: str | None = None,
    *,
    layer: str | None = None,
    covariate_columns: Sequence[str] = (),
) -> Dataset:
    """Read an ``anndata.AnnData``: cells are samples, genes are features.

    Parameters
    ----------
    adata
        Annotated matrix, dense or sparse; the values are made dense.
    environment_column
        Column of ``adata.obs`` that holds the environment labels, such as the perturbation.
    layer
        Layer to read in place of ``adata.X``.
    covariate_columns
        Columns of ``adata.obs`` that hold covariates, such as batches.
    """
    import_extra("anndata", "frames")
    if adata.isbacked:
        adata = adata.to_memory()
    if layer is not None and layer not in adata.layers:
        raise ValueError(
            f"The 'layer' must be one of {listed(list(adata.layers))}. Got {layer!r} instead."
        )
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise ValueError("This AnnData has no X. Name one of its layers with 'layer'.")
    y, environments = (None, None)
    for name in covariate_columns:
        if name not in adata.obs or name == environment_column:
            raise ValueError(
                "The 'covariate_columns' must be columns of obs beside the environment's. Got "
                f"{name!r}; the columns are: {listed(list(adata.obs.columns))}."
            )
    covariates = {name: adata.obs[name].tolist() for name in covariate_columns}
    if environment_column is not None:
        if environment_column not in adata.obs:
            raise ValueError(
                f"The 'environment_column' must be a column of obs. Got {environment_column!r}; "
                f"the columns are: {listed(list(adata.obs.columns))}."
            )
        y, environments = _pandas_labels(adata.obs[environment_column], environment_column)
    X = matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)
    return Dataset(
        X, y, names=list(adata.var_names), environments=environments, covariates=covariates
    )


def to_anndata(dataset: Dataset, environment_column: str = "environment") -> Any:
    """Write X to an ``anndata.AnnData``, and covariates and y to columns of its ``obs``.

    Parameters
    ----------
    dataset
        What to convert; the truth is left behind.
    environment_column
        Name of the column of ``obs`` for y; not used if there is no y.
    """
    anndata = import_extra("anndata", "frames")
    pandas = import_extra("pandas", "frames")
    obs = pandas.DataFrame(index=[str(i) for i in range(dataset.n_samples)])
    obs = obs.assign(**_columns_beside(dataset, environment_column))
    var = pandas.DataFrame(index=list(dataset.names))
    return anndata.AnnData(np.array(dataset.X), obs=obs, var=var)


def read_table(
    path: str | Path,
    environment_column: str | None = None,
    *,
    covariate_columns: Sequence[str] = (),
) -> Dataset:
    """Read a CSV, TSV, Parquet or AnnData (.h5ad) file.

    Parameters
    ----------
    path
        File whose columns have names; all but the environment's and covariates hold numbers.
    environment_column
        Column (of AnnData: of ``obs``) that holds the environment labels. In a text file, labels
        such as ``NA`` or ``None`` are labels like any other; they are numbers if all of them are
        written as numbers.
    covariate_columns
        Columns (of AnnData: of ``obs``) that hold covariates, such as batches.
    """
    path = Path(path)
    file_type = _checked_file(path)
    if file_type == ".h5ad":
        annotated = _read_h5ad(path)
        return from_anndata(annotated, environment_column, covariate_columns=covariate_columns)
    if file_type == ".parquet":
        frame = _read_parquet(path)
        return from_pandas(frame, environment_column, covariate_columns=covariate_columns)
    frame = _read_text(path, environment_column, covariate_columns)
    for name in (environment_column, *covariate_columns):
        if name in frame:
            frame[name] = _numbers_if_all_are(frame[name].tolist())
    return from_pandas(frame, environment_column, covariate_columns=covariate_columns)


def table_columns(path: str | Path) -> list[str]:
    """Return the names of a table's columns without reading its rows.

    Parameters
    ----------
    path
        CSV, TSV, Parquet or AnnData (.h5ad) file; of AnnData the columns of ``obs``, one of which
        may hold the environments.
    """
    path = Path(path)
    file_type = _checked_file(path)
    if file_type == ".h5ad":
        backed = _read_h5ad(path, backed="r")
        backed.file.close()
        names = backed.obs.columns
    elif file_type == ".parquet":
        names = _read_parquet_header(path).columns
    else:
        names = _read_text_header(path)
    return [str(name) for name in names]


def write_table(
    dataset: Dataset, path: str | Path, environment_column: str = "environment"
) -> None:
    """Write X, covariates, and y as the last column, to a CSV, TSV, Parquet or .h5ad file.

    Parameters
    ----------
    dataset
        What to write; the truth is left behind.
    path
        The ending decides: ``.csv``, ``.tsv``, ``.parquet`` or ``.h5ad``.
    environment_column
        Name of the column for y; not used if there is no y. The columns of an auxiliary vector are
        numbered: ``environment_0``, ``environment_1`` and so on.
    """
    path = Path(path)
    file_type = _checked_type(path)
    if file_type == ".h5ad":
        annotated = to_anndata(dataset, environment_column)
        with replacing(path) as draft:
            annotated.write_h5ad(draft)
        return
    frame = to_pandas(dataset, environment_column)
    if file_type == ".parquet":
        import_extra("pyarrow", "frames")
        with replacing(path) as draft:
            frame.to_parquet(draft, index=False)
    else:
        with replacing(path) as draft:
            frame.to_csv(draft, index=False, sep="\t" if file_type == ".tsv" else ",")


def _read_text(path: Path, environment_column: str | None, covariate_columns: Sequence[str]) -> Any:
    """Read numbers to the last digit, and labels as they are written."""
    pandas = import_extra("pandas", "frames")
    columns, as_written = _read_text_header(path), (environment_column, *covariate_columns)
    exact = {} if _version(pandas) >= (3, 1) else {"float_precision": "round_trip"}
    return _parsed_text(
        path,
        dtype={name: str for name in as_written if name in columns} or None,
        keep_default_na=False,
        na_values={name: _MISSING for name in columns if name not in as_written},
        **exact,
    )


def _read_text_header(path: Path) -> list[str]:
    names = _parsed_text(path, nrows=0).columns.tolist()
    # pandas gives columns without a name this one.
    nameless = [i + 1 for i, name in enumerate(names) if name == f"Unnamed: {i}"]
    if nameless:
        raise ValueError(
            f"All columns of '{path}' must have a name, but number {listed(nameless)} has none. "
            "Name or drop it; pandas writes the index as such a column unless index=False."
        )
    return names


def _parsed_text(path: Path, **options: Any) -> Any:
    pandas = import_extra("pandas", "frames")
    try:
        return pandas.read_csv(path, sep="\t" if path.suffix.lower() == ".tsv" else ",", **options)
    except pandas.errors.EmptyDataError:
        raise ValueError(f"The file '{path}' is empty.") from None
    except (pandas.errors.ParserError, UnicodeDecodeError) as error:
        raise ValueError(f"'{path}' cannot be read as a table: {error}") from error


def _read_parquet(path: Path) -> Any:
    pandas = import_extra("pandas", "frames")
    import_extra("pyarrow", "frames")
    try:
        return pandas.read_parquet(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"'{path}' is not a Parquet file: {error}") from error


def _read_parquet_header(path: Path) -> Any:
    """Return the table without its rows; an index that pandas wrote along is no column of it."""
    import_extra("pandas", "frames")
    parquet = import_extra("pyarrow.parquet", "frames")
    try:
        return parquet.read_schema(path).empty_table().to_pandas()
    except (OSError, ValueError) as error:
        raise ValueError(f"'{path}' is not a Parquet file: {error}") from error


def _version(package: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in package.__version__.split(".")[:2])


def _read_h5ad(path: Path, backed: str | None = None) -> Any:
    anndata = import_extra("anndata", "frames")
    try:
        return anndata.read_h5ad(path, backed=backed)
    except (OSError, KeyError) as error:
        raise ValueError(f"'{path}' is not an AnnData file: {error}.") from error


def _checked_file(path: Path) -> str:
    file_type = _checked_type(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file '{path}'.")
    return file_type


def _checked_type(path: Path) -> str:
    file_type = path.suffix.lower()
    if file_type not in TABLE_TYPES:
        raise ValueError(
            f"The type of '{path.name}' is not known. The name must end in "
            f"{', '.join(TABLE_TYPES)}."
        )
    return file_type


def _feature_names(
    columns: Sequence[str], environment_column: str | None, covariate_columns: Sequence[str]
) -> list[str]:
    if environment_column is not None and environment_column not in columns:
        raise ValueError(
            f"There is no column {environment_column!r} for the environments. "
            f"The columns are: {listed(columns)}."
        )
    for name in covariate_columns:
        if name not in columns or name == environment_column:
            raise ValueError(
                "The 'covariate_columns' must be columns beside that of the environments. Got "
                f"{name!r}; the columns are: {listed(columns)}."
            )
    if len(set(columns)) < len(columns):
        repeated = [name for name, count in Counter(columns).items() if count > 1]
        raise ValueError(f"The columns must have distinct names. Repeated: {listed(repeated)}.")
    others = {environment_column, *covariate_columns}
    features = [name for name in columns if name not in others]
    if not features:
        raise ValueError(
            "The table has no columns besides the environment and covariates; features are needed."
        )
    return features


def _check_numeric(bad_columns: list[str], frame: Any) -> None:
    if not bad_columns:
        return
    examples = [f"{name!r} (such as {_first_bad_value(frame[name])!r})" for name in bad_columns]
    raise ValueError(
        f"All features must be numeric, but these columns are not: {listed(examples)}. Drop or "
        "encode them, or name those that hold the environments with 'environment_column' and "
        "batches or other covariates with 'covariate_columns'."
    )


def _first_bad_value(column: Any) -> Any:
    for value in column:
        try:
            float(value)
        except (TypeError, ValueError):
            return value
    return next(iter(column))


def _check_rows(n_rows: int) -> None:
    if n_rows == 0:
        raise ValueError("The table has no rows.")


def _columns_beside(dataset: Dataset, environment_column: str) -> dict[str, NDArray[Any]]:
    """Return covariates and y as named columns; those of an auxiliary vector are numbered."""
    y, covariates = dataset.y, dict(dataset.covariates or {})
    if y is None:
        return covariates
    if environment_column in covariates:
        raise ValueError(
            f"There is already a covariate called {environment_column!r}. Choose another "
            "'environment_column'."
        )
    if y.ndim == 1 or y.shape[1] == 1:
        return {**covariates, environment_column: y.ravel()}
    return covariates | {f"{environment_column}_{k}": column for k, column in enumerate(y.T)}


def _check_free(columns: Iterable[str], names: Sequence[str]) -> None:
    taken = [name for name in columns if name in names]
    if taken:
        raise ValueError(
            f"There is already a feature called {taken[0]!r}. Choose another 'environment_column'."
        )


def _pandas_labels(column: Any, name: str) -> tuple[Any, list[Any] | None]:
    labels = _without_missing(column.tolist(), column.isna().any(), name)
    if hasattr(column, "cat"):
        present = set(labels)
        return labels, [label for label in column.cat.categories.tolist() if label in present]
    return labels, None


def _without_missing(labels: list[Any], some_missing: bool, name: str) -> list[Any]:
    if some_missing or "" in labels:
        raise ValueError(
            f"The column {name!r} must hold an environment label in every row. Some are missing."
        )
    return labels


def _numbers_if_all_are(labels: list[str]) -> list[Any]:
    """Text such as ``"3"`` or ``"0.5"`` becomes a number, unless one is none, as ``"003"``."""
    if all(map(_INTEGER.fullmatch, labels)):
        integers = [int(label) for label in labels]
        return integers if max(map(abs, integers), default=0) <= _LARGEST_INTEGER else labels
    if not all(map(_DECIMAL.fullmatch, labels)):
        return labels
    decimals = [float(label) for label in labels]  # a Dataset makes integers of whole ones
    return decimals if all(map(math.isfinite, decimals)) else labels
