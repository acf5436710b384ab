from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from crlearn.data import (
    Dataset,
    from_anndata,
    from_pandas,
    from_polars,
    make_multi_node,
    read_table,
    table_columns,
    to_anndata,
    to_pandas,
    to_polars,
    write_table,
)
from crlearn.exceptions import MissingExtraError

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
ad = pytest.importorskip("anndata")
sparse = pytest.importorskip("scipy.sparse")

RNG = np.random.default_rng(0)
DATASETS = {
    "integers": make_multi_node(2, 3, 7, random_state=0),
    "strings": Dataset(
        RNG.standard_normal((4, 2)) * 1e-7, ["ctrl", "b", "b", "ctrl"], names=["gene 1", "gene,2"]
    ),
    "continuous": Dataset(RNG.standard_normal((4, 2)), [1e-7, -0.25, 3.0, 1e22]),
    "unlabelled": Dataset(RNG.standard_normal((4, 2)), names=["a", "b"]),
}
CONVERTERS = {
    "pandas": (to_pandas, from_pandas),
    "polars": (to_polars, from_polars),
    "anndata": (to_anndata, from_anndata),
}


def assert_same(first, second):
    np.testing.assert_array_equal(first.X, second.X)
    assert first.names == second.names
    assert first.environments == second.environments
    if first.y is None:
        assert second.y is None
    else:
        np.testing.assert_array_equal(first.y, second.y)
        assert first.y.dtype.kind == second.y.dtype.kind


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS.keys())
@pytest.mark.parametrize(("to", "back"), CONVERTERS.values(), ids=CONVERTERS.keys())
def test_round_trip(dataset, to, back):
    column = None if dataset.y is None else "environment"
    assert_same(back(to(dataset), environment_column=column), dataset)


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS.keys())
@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "h5ad", "CSV"])
def test_file_round_trip(dataset, ending, tmp_path):
    path = tmp_path / f"table.{ending}"
    column = None if dataset.y is None else "batch"
    write_table(dataset, path, environment_column="batch")
    assert_same(read_table(str(path), environment_column=column), dataset)


@pytest.mark.parametrize("to", [to_pandas, to_polars])
def test_auxiliary_vectors_are_numbered_columns(to):
    vectors = np.array([[0.5, 1.5], [2.5, 3.5]])
    frame = to(Dataset(np.ones((2, 1)), vectors, names=["x"]), environment_column="u")
    assert list(frame.columns) == ["x", "u_0", "u_1"]
    np.testing.assert_array_equal(frame.to_numpy()[:, 1:], vectors)
    column = to(Dataset(np.ones((2, 1)), vectors[:, :1], names=["x"]))
    assert list(column.columns) == ["x", "environment"]


def test_converted_frames_hold_the_environment_last():
    for frame in (to_pandas(DATASETS["strings"]), to_polars(DATASETS["strings"])):
        assert list(frame.columns) == ["gene 1", "gene,2", "environment"]


def test_categories_give_the_order():
    labels = ["low", "high", "low"]
    frame = pd.DataFrame({"a": [1, 2, 3]})
    frame["dose"] = pd.Categorical(labels, categories=["none", "low", "high"], ordered=True)
    assert from_pandas(frame, "dose").environments == ("low", "high")
    polars_frame = pl.DataFrame(
        {"a": [1, 2, 3], "dose": pl.Series(labels, dtype=pl.Enum(["none", "low", "high"]))}
    )
    assert from_polars(polars_frame, "dose").environments == ("low", "high")


def test_integers_booleans_and_nullable_numbers_are_numbers():
    frame = pd.DataFrame({"a": [1, 2], "b": [True, False], "c": pd.array([1, 2], dtype="Int64")})
    np.testing.assert_array_equal(from_pandas(frame).X, [[1, 1, 1], [2, 0, 2]])
    polars_frame = pl.DataFrame({"a": [1, 2], "b": [True, False]})
    np.testing.assert_array_equal(from_polars(polars_frame).X, [[1, 1], [2, 0]])


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix, sparse.csc_array])
def test_anndata_dense_and_sparse(container):
    X = np.array([[0.0, 1.5], [2.0, 0.0], [0.0, 0.0]])
    obs = pd.DataFrame({"guide": ["a", "b", "a"]}, index=list("123"))
    adata = ad.AnnData(container(X), obs=obs)
    adata.layers["doubled"] = container(2 * X)
    dataset = from_anndata(adata, "guide")
    np.testing.assert_array_equal(dataset.X, X)
    assert dataset.environments == ("a", "b")
    np.testing.assert_array_equal(from_anndata(adata, layer="doubled").X, 2 * X)


def test_labels_that_look_like_missing_values(tmp_path):
    path = tmp_path / "screen.csv"
    path.write_text("gene,guide\n1.0,NA\n2.0,None\n3.0,KRAS\n")
    assert read_table(path, "guide").environments == ("KRAS", "NA", "None")


def test_empty_labels_are_missing(tmp_path):
    path = tmp_path / "screen.csv"
    path.write_text("gene,guide\n1.0,KRAS\n2.0,\n")
    with pytest.raises(ValueError, match="Some are missing"):
        read_table(path, "guide")


def test_labels_with_leading_zeros_stay_text(tmp_path):
    path = tmp_path / "plates.csv"
    path.write_text("gene,plate\n1.0,001\n2.0,002\n")
    assert read_table(path, "plate").environments == ("001", "002")


@pytest.mark.parametrize(
    ("written", "labels"),
    [
        (["3", "-1"], [3, -1]),
        (["0.0", "1.0"], [0, 1]),
        (["0.5", "2"], [0.5, 2.0]),
        (["1e-3", "2.5E+2"], [1e-3, 250.0]),
        (["003", "004"], ["003", "004"]),
        (["1.5", "high"], ["1.5", "high"]),
        (["1_000", "2"], ["1_000", "2"]),
        (["1e999", "0.5"], ["1e999", "0.5"]),
        ([str(10**30), "1"], [str(10**30), "1"]),
    ],
)
def test_labels_in_text_are_numbers_if_all_are(tmp_path, written, labels):
    path = tmp_path / "table.csv"
    path.write_text("gene,label\n" + "".join(f"{i},{text}\n" for i, text in enumerate(written)))
    y = read_table(path, "label").y
    assert y is not None
    assert y.tolist() == labels
    assert [type(label) for label in y.tolist()] == [type(label) for label in labels]


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "h5ad"])
def test_columns_of_a_table(tmp_path, ending):
    path = tmp_path / f"table.{ending}"
    write_table(DATASETS["strings"], path, environment_column="batch")
    features = [] if ending == "h5ad" else ["gene 1", "gene,2"]
    assert table_columns(path) == [*features, "batch"]


def test_columns_of_a_parquet_file_with_an_index(tmp_path):
    path = tmp_path / "table.parquet"
    pd.DataFrame({"a": [1.0, 2.0]}, index=["x", "y"]).to_parquet(path)
    assert table_columns(path) == ["a"]


def test_anndata_on_disk(tmp_path):
    path = tmp_path / "cells.h5ad"
    write_table(DATASETS["strings"], path)
    assert_same(from_anndata(ad.read_h5ad(path, backed="r"), "environment"), DATASETS["strings"])


class TestBadInput:
    @pytest.mark.parametrize("read", [read_table, table_columns])
    def test_index_that_was_written_along(self, tmp_path, read):
        path = tmp_path / "table.csv"
        pd.DataFrame({"a": [1.0, 2.0]}).to_csv(path)
        with pytest.raises(ValueError, match=r"number 1 has none. Name or drop it"):
            read(path)

    @pytest.mark.parametrize("ending", ["csv", "parquet", "h5ad"])
    def test_columns_of_a_broken_file(self, tmp_path, ending):
        path = tmp_path / f"table.{ending}"
        with pytest.raises(FileNotFoundError, match="There is no file"):
            table_columns(path)
        path.write_bytes(b"\x80abc" * 50)
        with pytest.raises(ValueError, match=path.name):
            table_columns(path)

    @pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
    def test_missing_environment_column(self, make):
        read = from_pandas if make is pd.DataFrame else from_polars
        with pytest.raises(ValueError, match=r"no column 'batch'.* The columns are: a, b"):
            read(make({"a": [1.0], "b": [2.0]}), "batch")

    @pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
    def test_columns_that_are_not_numbers(self, make):
        read = from_pandas if make is pd.DataFrame else from_polars
        frame = make({"a": [1.0, 2.0], "sex": ["f", "m"], "site": ["x", "y"]})
        with pytest.raises(ValueError, match=r"not: 'sex' \(such as 'f'\), 'site' \(such as 'x'\)"):
            read(frame)

    @pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
    def test_missing_values_are_located(self, make):
        read = from_pandas if make is pd.DataFrame else from_polars
        with pytest.raises(ValueError, match="in the features b"):
            read(make({"a": [1.0, 2.0], "b": [1.0, None]}))

    @pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
    def test_missing_labels(self, make):
        read = from_pandas if make is pd.DataFrame else from_polars
        with pytest.raises(ValueError, match="'batch' must hold an environment label in every row"):
            read(make({"a": [1.0, 2.0], "batch": ["x", None]}), "batch")

    @pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
    def test_no_rows_and_no_features(self, make):
        read = from_pandas if make is pd.DataFrame else from_polars
        with pytest.raises(ValueError, match="no rows"):
            read(make({"a": np.empty(0)}))
        with pytest.raises(ValueError, match="features are needed"):
            read(make({"batch": [1, 2]}), "batch")

    def test_repeated_columns(self):
        with pytest.raises(ValueError, match=r"distinct names. Repeated: a"):
            from_pandas(pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]))

    def test_name_that_is_taken(self):
        dataset = Dataset(np.ones((2, 1)), [0, 1], names=["environment"])
        for convert in (to_pandas, to_polars):
            with pytest.raises(ValueError, match="already a feature called 'environment'"):
                convert(dataset)

    def test_anndata_column_and_layer(self):
        adata = to_anndata(DATASETS["strings"])
        with pytest.raises(ValueError, match="'guide'; the columns are: environment"):
            from_anndata(adata, "guide")
        with pytest.raises(ValueError, match="Got 'counts' instead"):
            from_anndata(adata, layer="counts")

    def test_bad_numbers_in_a_file(self, tmp_path):
        path = tmp_path / "table.csv"
        path.write_text("width,height\n1.0,2.0\n3.0,tall\n")
        with pytest.raises(ValueError, match=r"'height' \(such as 'tall'\)"):
            read_table(path)

    @pytest.mark.parametrize("text", ["", "\n"])
    def test_empty_file(self, tmp_path, text):
        path = tmp_path / "table.csv"
        path.write_text(text)
        with pytest.raises(ValueError, match="is empty"):
            read_table(path)

    def test_header_only(self, tmp_path):
        path = tmp_path / "table.csv"
        path.write_text("a,b\n")
        with pytest.raises(ValueError, match="no rows"):
            read_table(path)

    def test_ragged_file(self, tmp_path):
        path = tmp_path / "table.csv"
        path.write_text("a,b\n1,2\n1,2,3,4\n")
        with pytest.raises(ValueError, match="cannot be read as a table"):
            read_table(path)

    def test_broken_parquet(self, tmp_path):
        path = tmp_path / "table.parquet"
        path.write_bytes(b"not a table")
        with pytest.raises(ValueError, match="is not a Parquet file"):
            read_table(path)

    def test_unknown_type(self, tmp_path):
        with pytest.raises(ValueError, match=r"must end in \.csv, \.tsv, \.parquet"):
            read_table(tmp_path / "table.xlsx")

    def test_no_such_file(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="There is no file"):
            read_table(tmp_path / "table.csv")

    def test_package_that_is_not_installed(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "polars", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'crlearn\[frames\]'"):
            to_polars(DATASETS["unlabelled"])


def test_frames_are_not_imported_with_the_folder():
    code = (
        "import sys, crlearn.data; "
        "print(sorted({'pandas', 'polars', 'anndata', 'pyarrow'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".h5ad"])
def test_covariates_of_a_table(tmp_path: Path, ending: str):
    """Labels that read like missing values, and numbers, come back as they were."""
    columns = {"batch": np.array(["NA", "b", "NA"]), "age": np.array([1.5, 2.0, 3.25])}
    dataset = Dataset(np.eye(3), ["u", "v", "u"], covariates=columns)
    path = tmp_path / f"table{ending}"
    write_table(dataset, path)
    again = read_table(path, "environment", covariate_columns=["batch", "age"])
    assert again.names == dataset.names
    assert again.covariates is not None
    assert again.covariates["batch"].tolist() == ["NA", "b", "NA"]
    assert again.covariates["age"].tolist() == [1.5, 2.0, 3.25]


def test_covariates_of_polars():
    frame = pl.DataFrame({"x": [1.0, 2.0], "batch": ["a", "b"]})
    dataset = from_polars(frame, covariate_columns=["batch"])
    assert dataset.names == ("x",)
    assert dataset.covariates is not None
    assert dataset.covariates["batch"].tolist() == ["a", "b"]
    assert to_polars(dataset).columns == ["x", "batch"]


@pytest.mark.parametrize("name", ["plate", "condition"])
def test_covariates_are_columns_beside_the_environment(name: str):
    frame = pd.DataFrame({"x": [1.0, 2.0], "condition": ["a", "b"]})
    with pytest.raises(ValueError, match=f"'covariate_columns' must be columns.* Got '{name}'"):
        from_pandas(frame, "condition", covariate_columns=[name])


def test_missing_covariates_are_refused():
    frame = pd.DataFrame({"x": [1.0, 2.0], "age": [1.5, None]})
    with pytest.raises(ValueError, match="'age' must hold labels or finite numbers"):
        from_pandas(frame, covariate_columns=["age"])
