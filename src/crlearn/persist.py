"""Estimators, results and datasets in one file each: safetensors with a JSON header, never pickle.

Arrays become tensors; everything else becomes JSON in the file's metadata. Classes are rebuilt only
if they are named in `_RECORDS`, so that reading a file runs no code that the file could choose.
Whatever else is wrong with a file (cut off, altered, of another kind) ends in a `CorruptFileError`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as parse_safetensors
from safetensors.numpy import save as format_safetensors

from crlearn import __version__
from crlearn.exceptions import CorruptFileError

if TYPE_CHECKING:
    from crlearn.base import BaseCRL
    from crlearn.data import Dataset

FORMAT = 1

# The classes that a file may name, by the module they live in.
_RECORDS = {
    "crlearn.result": (
        "Alternative",
        "Check",
        "GoodnessOfFit",
        "Guarantee",
        "LinearDecoder",
        "LinearEncoder",
        "Result",
    ),
    "crlearn.nets._mlp": ("MLP", "NetworkMap"),
    "crlearn.scores._splines": ("CubicSplines",),
    "crlearn.scores._structured": ("StructuredScore",),
    "crlearn.scores._tweedie": ("Denoiser",),
    "crlearn.likelihood.observational._search": ("Mechanism", "Mechanisms"),
    "crlearn.methods._layer_regression": ("Basis", "Regression"),
    "crlearn.methods._observational": ("MechanismNoise",),
    "crlearn.methods._score_layers": ("NoiseEncoder",),
    "crlearn.data._dataset": ("Dataset", "Truth"),
    "crlearn.data._images": ("BallRendering",),
    "crlearn.data._layer": ("Layer",),
    "crlearn.data._mechanisms": (
        "Linear",
        "MLP",
        "NormSquared",
        "QuadraticForm",
        "Scaled",
        "Sine",
        "TanhCubic",
    ),
    "crlearn.data._mixing": ("Mixing",),
    "crlearn.data._node": ("Node",),
    "crlearn.data._noise": ("Exponential", "Fixed", "Gaussian", "Gumbel", "Laplace"),
    "crlearn.data._scm": ("SCM",),
}

# Where classes of older files have gone.
_MOVED = {"crlearn.methods._denoiser": "crlearn.scores._tweedie"}
# Parameters that classes had in older files: what was fitted with them is read without them.
_GONE = {
    "EmpiricalBayesCRL": (
        "shrinkage",
        "environment_weights",
        "interactions",
        "n_knots",
        "knot_range",
        "ridge",
        "estimator",
        "start",
        "max_iter",
    )
}


def save(thing: BaseCRL | Dataset, path: str | Path) -> None:
    """Write a fitted or unfitted estimator, or a dataset, to one file."""
    from crlearn.base import BaseCRL
    from crlearn.data import Dataset

    if isinstance(thing, BaseCRL):
        _refuse_unknown_class(thing)
        write_record(path, kind="estimator", record=_estimator_state(thing))
    elif isinstance(thing, Dataset):
        write_record(path, kind="dataset", record={"dataset": _without_callables(thing)})
    else:
        raise TypeError(
            f"save() takes an estimator or a Dataset. Got {type(thing).__name__} instead."
        )


def load(path: str | Path) -> Any:
    """Read what `save` wrote. Runs no code from the file, so that files of strangers are safe."""
    kind, record = _read(path)
    rebuild: dict[str, Callable[[Any], Any]] = {
        "estimator": _rebuild_estimator,
        "dataset": _rebuild_dataset,
    }
    if kind not in rebuild:
        raise CorruptFileError(f"{path} holds a {kind}; load() reads estimators and datasets.")
    with _blaming(path):
        return rebuild[kind](record)


def write_record(path: str | Path, *, kind: str, record: Mapping[str, Any]) -> None:
    """Write a nested record of plain values and arrays; the file appears whole or not at all."""
    path = Path(path)
    tensors: dict[str, NDArray[Any]] = {}
    content = _encode(record, tensors, where=kind)
    header = {"format": FORMAT, "crlearn": __version__, "kind": kind, "content": content}
    data = format_safetensors(tensors, metadata={"crlearn": json.dumps(header)})
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_record(path: str | Path, *, kind: str) -> dict[str, Any]:
    """Read what `write_record` wrote under this kind."""
    found, record = _read(path)
    if found != kind:
        raise CorruptFileError(f"{path} holds a {found}, not a {kind}.")
    return record


class _blaming:  # noqa: N801 - reads as prose in a with statement
    """Turn whatever a malformed file provokes into one clear error."""

    def __init__(self, path: str | Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if isinstance(error, CorruptFileError) or not isinstance(error, Exception):
            return
        raise CorruptFileError(
            f"{self.path} is not a whole crlearn file: it is cut off, altered or of another kind "
            f"({type(error).__name__}: {str(error)[:200]})."
        ) from error


def _read(path: str | Path) -> tuple[str, dict[str, Any]]:
    data = Path(path).read_bytes()
    with _blaming(path):
        tensors = parse_safetensors(data)
        header_size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + header_size])["__metadata__"]
        header = json.loads(metadata["crlearn"])
        if header["format"] > FORMAT:
            raise CorruptFileError(
                f"{path} was written by crlearn {header['crlearn']}, which uses a newer file "
                "format. Update crlearn to read it."
            )
        record = _decode(header["content"], tensors)
        if not isinstance(record, dict):
            raise TypeError("its content is not a record")
        return str(header["kind"]), record


def _encode(value: Any, tensors: dict[str, NDArray[Any]], where: str) -> Any:
    """Return `value` as JSON; arrays go to `tensors`. `where` names the value in error messages."""
    encode = lambda item, name: _encode(item, tensors, f"{where}.{name}")  # noqa: E731
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list):
        return [encode(item, i) for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [encode(item, i) for i, item in enumerate(value)]}
    if isinstance(value, Mapping):
        return {"$dict": [[encode(k, "key"), encode(item, k)] for k, item in value.items()]}
    if isinstance(value, nx.DiGraph):
        return {"$digraph": encode([list(value.nodes), [list(edge) for edge in value.edges]], "")}
    module, name = type(value).__module__, type(value).__name__
    if name in _RECORDS.get(module, ()):
        fields = [field.name for field in dataclasses.fields(value)]
        return {
            "$record": [module, name],
            "fields": {field: encode(getattr(value, field), field) for field in fields},
        }
    if hasattr(value, "__array__"):
        return _encode_array(np.asarray(value), tensors, where)
    raise TypeError(
        f"{where} is a {type(value).__name__}, which cannot be stored in a file. Plain values, "
        "arrays and crlearn's own classes can."
    )


def _encode_array(array: NDArray[Any], tensors: dict[str, NDArray[Any]], where: str) -> Any:
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


def _decode(value: Any, tensors: Mapping[str, NDArray[Any]]) -> Any:
    decode = lambda item: _decode(item, tensors)  # noqa: E731
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        return tensors[value["$array"]].reshape(value["shape"])
    if "$strings" in value:
        distinct = np.array(value["$strings"], dtype=object if value["object"] else str)
        return distinct[decode(value["codes"])]
    if "$tuple" in value:
        return tuple(decode(item) for item in value["$tuple"])
    if "$dict" in value:
        return {decode(key): decode(item) for key, item in value["$dict"]}
    if "$digraph" in value:
        nodes, edges = decode(value["$digraph"])
        graph = nx.DiGraph()
        graph.add_nodes_from(nodes)
        graph.add_edges_from(edges)
        return graph
    return _decode_record(value["$record"], {k: decode(v) for k, v in value["fields"].items()})


def _decode_record(record: tuple[str, str], fields: dict[str, Any]) -> Any:
    module, name = _MOVED.get(record[0], record[0]), record[1]
    if name not in _RECORDS.get(module, ()):
        raise CorruptFileError(f"The file names a class '{name}' that crlearn does not read.")
    return getattr(import_module(module), name)(**fields)


def _estimator_state(estimator: BaseCRL) -> dict[str, Any]:
    parameters = estimator.get_params(deep=False)
    if isinstance(parameters.get("random_state"), np.random.RandomState):
        parameters["random_state"] = None  # a generator in mid-stream has no place in a file
    fitted = {name: value for name, value in vars(estimator).items() if _is_fitted_name(name)}
    return {"class": type(estimator).__name__, "parameters": parameters, "fitted": fitted}


def _rebuild_estimator(record: dict[str, Any]) -> BaseCRL:
    estimators = import_module("crlearn.published").ESTIMATORS
    if record["class"] not in estimators:
        raise CorruptFileError(f"The file names an unknown estimator '{record['class']}'.")
    method = estimators[record["class"]]
    gone = _GONE.get(record["class"], ())
    estimator = method(**{k: v for k, v in record["parameters"].items() if k not in gone})
    for name, value in record["fitted"].items():
        if not _is_fitted_name(name):
            raise CorruptFileError(f"The file sets '{name}', which is no fitted attribute.")
        vars(estimator)[name] = value
    _check_consistency(estimator)
    return estimator


def _is_fitted_name(name: str) -> bool:
    if name == "_sklearn_output_config":  # where scikit-learn keeps the choice made by set_output
        return True
    return name.endswith("_") and not name.startswith("_")


def _check_consistency(estimator: BaseCRL) -> None:
    """Refuse what `fit` could not have made, before a user meets it in the middle of their work."""
    from crlearn.result import Result

    estimator._validate_params()
    if "result_" not in vars(estimator):
        return
    if not isinstance(estimator.result_, Result):
        raise TypeError("its result is not a Result")
    row = np.zeros((1, int(estimator.n_features_in_)))
    latents = estimator.result_.encoder(row)
    if latents.shape != (1, estimator.result_.n_latents) or np.isnan(latents).any():
        raise ValueError("its encoder does not fit its features")
    if estimator.result_.decoder is not None:
        estimator.result_.decoder(latents)


def _rebuild_dataset(record: dict[str, Any]) -> Dataset:
    from crlearn.data import Dataset

    if not isinstance(record["dataset"], Dataset):
        raise TypeError("its content is not a Dataset")
    return record["dataset"]


def _refuse_unknown_class(estimator: BaseCRL) -> None:
    name = type(estimator).__name__
    if import_module("crlearn.published").ESTIMATORS.get(name) is not type(estimator):
        raise TypeError(
            f"{name} is not one of crlearn's own estimators, so that load() could not rebuild it. "
            "Use joblib for classes of your own."
        )


def _without_callables(dataset: Dataset) -> Dataset:
    """Leave out structural causal models that hold a user's own function."""
    if dataset.truth is None or dataset.truth.scms is None:
        return dataset
    try:
        _encode(dataset.truth.scms, {}, where="scms")
    except TypeError:
        warnings.warn(
            "The mechanisms of this world are functions of your own, which a file cannot hold: the "
            "saved dataset keeps its latents and graph, but not its exact scores.",
            UserWarning,
            stacklevel=3,
        )
        return dataclasses.replace(dataset, truth=dataclasses.replace(dataset.truth, scms=None))
    return dataset


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
