"""Values as JSON and tensors, and back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from crlearn.tags import class_of, tag_of

Tensors = dict[str, NDArray[Any]]

# A type of number that numpy does not have: its bits are stored as whole numbers.
_HALF_PRECISION = "bfloat16"


def encode(value: Any, tensors: Tensors, where: str) -> Any:
    """Return `value` as JSON; arrays go to `tensors`. `where` names the value in error messages."""
    inside = lambda item, name: encode(item, tensors, f"{where}.{name}")  # noqa: E731
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic) and value.dtype.name != _HALF_PRECISION:
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list):
        return [inside(item, i) for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [inside(item, i) for i, item in enumerate(value)]}
    if isinstance(value, Mapping):
        return {"$dict": [[inside(k, "key"), inside(item, k)] for k, item in value.items()]}
    if isinstance(value, nx.DiGraph):
        return {"$digraph": inside([list(value.nodes), [list(edge) for edge in value.edges]], "")}
    tag = tag_of(type(value))
    if tag is not None:
        fields = [field.name for field in dataclasses.fields(cast(Any, value))]
        return {
            "$record": tag,
            "fields": {field: inside(getattr(value, field), field) for field in fields},
        }
    if hasattr(value, "__array__"):
        return _encode_array(np.asarray(value), tensors, where)
    raise TypeError(
        f"{where} is a {type(value).__name__}, which cannot be stored in a file. Plain values, "
        "arrays and crlearn's own classes can."
    )


def _encode_array(array: NDArray[Any], tensors: Tensors, where: str) -> Any:
    if array.dtype.name == _HALF_PRECISION:
        return {**_encode_array(array.view(np.uint16), tensors, where), "dtype": _HALF_PRECISION}
    if array.dtype.kind in "fiub":
        name = str(len(tensors))
        tensors[name] = np.ascontiguousarray(array)
        return {"$array": name, "shape": list(array.shape)}
    if all(isinstance(item, str) for item in array.flat):
        distinct, codes = np.unique(array.astype(str), return_inverse=True)
        return {
            "$strings": distinct.tolist(),
            "codes": _encode_array(codes.reshape(array.shape), tensors, where),
            "object": array.dtype == object,
        }
    raise TypeError(f"{where} is an array of {array.dtype}, which cannot be stored in a file.")


def decode(value: Any, tensors: Mapping[str, NDArray[Any]]) -> Any:
    """Return the value that `encode` was given."""
    inside = lambda item: decode(item, tensors)  # noqa: E731
    if isinstance(value, list):
        return [inside(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        return _decode_array(value, tensors)
    if "$strings" in value:
        distinct = np.array(value["$strings"], dtype=object if value["object"] else str)
        return distinct[inside(value["codes"])]
    if "$tuple" in value:
        return tuple(inside(item) for item in value["$tuple"])
    if "$dict" in value:
        return {inside(key): inside(item) for key, item in value["$dict"]}
    if "$digraph" in value:
        nodes, edges = inside(value["$digraph"])
        graph = nx.DiGraph()
        graph.add_nodes_from(nodes)
        graph.add_edges_from(edges)
        return graph
    fields = {name: inside(field) for name, field in value["fields"].items()}
    return class_of(value["$record"])(**fields)


def _decode_array(value: dict[str, Any], tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    array = tensors[value["$array"]].reshape(value["shape"])
    if value.get("dtype") != _HALF_PRECISION:
        return array
    from jax.dtypes import bfloat16

    return array.view(bfloat16)


def plain(value: Any) -> Any:
    """Return `value` in terms of JSON; numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return repr(value)
