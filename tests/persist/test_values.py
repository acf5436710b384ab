from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlearn.persist import plain, read_record, write_record
from crlearn.result import Check

plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(-5, 5), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(value=plain_values)
def test_plain_values_come_back_equal(tmp_path_factory: pytest.TempPathFactory, value: Any):
    path = tmp_path_factory.mktemp("record") / "file.crl"
    write_record(path, kind="test", record={"value": value})
    found = read_record(path, kind="test")["value"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.array([True, False]),
        np.float64(3.5) * np.ones((2, 2)).T,
        np.zeros((0, 3)),
        np.array(2.5),
        np.array(["a", "bc"]),
        np.array(["a", "bc"], dtype=object),
        np.arange(12.0).reshape(3, 4)[:, ::2],
        np.asarray(jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3) / 7),
        np.asarray(jnp.asarray(1.5, dtype=jnp.bfloat16)),
    ],
)
def test_arrays_come_back_equal(tmp_path: Path, array: Any):
    write_record(tmp_path / "file.crl", kind="test", record={"array": array})
    found = read_record(tmp_path / "file.crl", kind="test")["array"]
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype
    assert found.shape == array.shape


def test_jax_arrays_graphs_and_numpy_scalars(tmp_path: Path):
    graph = nx.DiGraph([("a", "b"), ("b", "c")])
    record = {"jax": jnp.ones(3), "graph": graph, "number": np.int64(3)}
    write_record(tmp_path / "file.crl", kind="test", record=record)
    found = read_record(tmp_path / "file.crl", kind="test")
    np.testing.assert_array_equal(found["jax"], np.ones(3))
    assert nx.utils.graphs_equal(found["graph"], graph)
    assert found["number"] == 3


def test_what_cannot_be_stored_is_named(tmp_path: Path):
    with pytest.raises(
        TypeError, match=r"test\.inner\.score is a function, which cannot be stored"
    ):
        write_record(tmp_path / "f.crl", kind="test", record={"inner": {"score": lambda x: x}})
    assert list(tmp_path.iterdir()) == []


def test_records_are_named_by_tag(tmp_path: Path):
    write_record(tmp_path / "f.crl", kind="test", record={"check": Check("a", True, "b")})
    data = (tmp_path / "f.crl").read_bytes()
    assert b"result/check" in data
    assert b"crlearn.result" not in data
    assert read_record(tmp_path / "f.crl", kind="test")["check"] == Check("a", True, "b")


def test_plain_values_for_json():
    value = {"a": np.array([1.0, np.nan]), 2: (np.int64(3), None), "check": Check}
    assert plain(value) == {"a": [1.0, None], "2": [3, None], "check": repr(Check)}
