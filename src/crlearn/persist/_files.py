"""Whole files: written at once or not at all, and read with suspicion."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as parse_safetensors
from safetensors.numpy import save as format_safetensors

from crlearn import __version__
from crlearn.exceptions import CorruptFileError
from crlearn.files import write_whole
from crlearn.persist import _format_1
from crlearn.persist._values import decode, encode

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from crlearn.base import Storable
    from crlearn.data import Dataset

FORMAT = 2
_HEADER = {"format", "crlearn", "kind", "content"}  # and the checksum


def save(thing: Storable | Pipeline | Dataset, path: str | Path) -> None:
    """Write an estimator, fitted or not, a pipeline of crlearn's own, or a dataset to one file."""
    from sklearn.pipeline import Pipeline

    from crlearn.base import Storable
    from crlearn.data import Dataset

    if isinstance(thing, Storable):
        write_record(path, kind="estimator", record=_estimator_state(thing))
    elif isinstance(thing, Pipeline):
        steps = {name: _estimator_state(step) for name, step in thing.steps}
        write_record(path, kind="pipeline", record={"steps": steps})
    elif isinstance(thing, Dataset):
        write_record(path, kind="dataset", record={"dataset": _without_callables(thing)})
    else:
        raise TypeError(
            "save() takes an estimator, a Pipeline of crlearn's own classes or a Dataset. Got "
            f"{type(thing).__name__} instead."
        )


def load(path: str | Path) -> Any:
    """Read what `save` wrote. Runs no code from the file, so that files of strangers are safe.

    Files of older versions are read, too. What was fitted is as it was; parameters that a class
    does not have any more are left out.
    """
    file = _read(path)
    rebuild: dict[str, Callable[[_File], Any]] = {
        "estimator": lambda file: _rebuild_estimator(file.record, file.format),
        "pipeline": _rebuild_pipeline,
        "dataset": _rebuild_dataset,
    }
    if file.kind not in rebuild:
        raise CorruptFileError(
            f"{path} holds a {file.kind}; load() reads estimators, pipelines and datasets."
        )
    with _blaming(path):
        return rebuild[file.kind](file)


def write_record(path: str | Path, *, kind: str, record: Mapping[str, Any]) -> None:
    """Write a nested record of plain values and arrays; the file appears whole or not at all."""
    tensors: dict[str, NDArray[Any]] = {}
    content = encode(record, tensors, where=kind)
    header = {"format": FORMAT, "crlearn": __version__, "kind": kind, "content": content}
    checksum = _checksum(json.dumps({"sha256": "", **header}), tensors)
    text = json.dumps({"sha256": checksum, **header})
    write_whole(path, format_safetensors(tensors, metadata={"crlearn": text}))


def read_record(path: str | Path, *, kind: str) -> dict[str, Any]:
    """Read what `write_record` wrote under this kind."""
    file = _read(path)
    if file.kind != kind:
        raise CorruptFileError(f"{path} holds a {file.kind}, not a {kind}.")
    return file.record


class _File(NamedTuple):
    """What was read: a record of some kind, and the format it was written in."""

    format: int
    kind: str
    record: dict[str, Any]


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


def _read(path: str | Path) -> _File:
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
        if set(header) != _HEADER:  # a file of an older version has no checksum
            _compare_checksum(path, header["sha256"], metadata["crlearn"], tensors)
        is_old = header["format"] == 1
        content = _format_1.upgraded(header["content"]) if is_old else header["content"]
        record = decode(content, tensors)
        if not isinstance(record, dict):
            raise TypeError("its content is not a record")
        return _File(int(header["format"]), str(header["kind"]), record)


def _compare_checksum(
    path: str | Path, checksum: str, header: str, tensors: Mapping[str, NDArray[Any]]
) -> None:
    """Refuse a file of which a single bit is another one."""
    if checksum != _checksum(header.replace(checksum, "", 1), tensors):
        raise CorruptFileError(
            f"{path} is damaged: its checksum does not match what it holds, so that its numbers "
            "cannot be trusted. Copy it again from where it came, or fit and save it again."
        )


def _checksum(header: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of everything that a file holds but the checksum itself."""
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _estimator_state(estimator: Any) -> dict[str, Any]:
    _refuse_unknown_class(estimator)
    parameters = estimator.get_params(deep=False)
    if isinstance(parameters.get("random_state"), np.random.RandomState):
        parameters["random_state"] = None  # a generator in mid-stream has no place in a file
    fitted = {name: value for name, value in vars(estimator).items() if _is_fitted_name(name)}
    return {"class": type(estimator).__name__, "parameters": parameters, "fitted": fitted}


def _rebuild_pipeline(file: _File) -> Pipeline:
    from sklearn.pipeline import Pipeline

    steps = file.record["steps"].items()
    return Pipeline([(name, _rebuild_estimator(state, file.format)) for name, state in steps])


def _rebuild_estimator(record: dict[str, Any], version: int) -> Storable:
    estimators = _estimators()
    name, parameters = record["class"], record["parameters"]
    if version == 1:
        name = _format_1.class_now(name, parameters, estimators)
    if name not in estimators:
        raise CorruptFileError(f"The file names an unknown estimator '{name}'.")
    estimator = _with_parameters(estimators[name], parameters, is_old=version < FORMAT)
    for attribute, value in record["fitted"].items():
        if not _is_fitted_name(attribute):
            raise CorruptFileError(f"The file sets '{attribute}', which is no fitted attribute.")
        vars(estimator)[attribute] = value
    _check_consistency(estimator)
    return estimator


def _estimators() -> dict[str, type[Storable]]:
    """Every class that files name, by its name."""
    return import_module("crlearn.estimators").STEPS


def _with_parameters(
    estimator: type[Storable], parameters: dict[str, Any], *, is_old: bool
) -> Storable:
    """Return an estimator with those parameters that its class still has.

    Of an old file, those with values that the class still takes: the others keep their defaults.
    """
    own = {name: parameters[name] for name in estimator().get_params() if name in parameters}
    if is_old:
        own = {name: value for name, value in own.items() if _is_taken(estimator, name, value)}
    return estimator(**own)


def _is_taken(estimator: type[Storable], name: str, value: Any) -> bool:
    from sklearn.utils._param_validation import (
        InvalidParameterError,
        validate_parameter_constraints,
    )

    constraints = {name: estimator._parameter_constraints[name]}
    try:
        validate_parameter_constraints(constraints, {name: value}, estimator.__name__)
    except InvalidParameterError:
        return False
    return True


def _is_fitted_name(name: str) -> bool:
    if name == "_sklearn_output_config":  # where scikit-learn keeps the choice made by set_output
        return True
    return name.endswith("_") and not name.startswith("_")


def _check_consistency(estimator: Any) -> None:
    """Refuse what `fit` could not have made, before a user meets it in the middle of their work."""
    from crlearn.base import BaseCRL
    from crlearn.result import Result

    estimator._validate_params()
    is_crl = isinstance(estimator, BaseCRL)
    if ("result_" if is_crl else "encoder_") not in vars(estimator):
        return
    row = np.zeros((1, int(estimator.n_features_in_)))
    if not is_crl:
        _latents_of(estimator.encoder_, row)
        return
    result = estimator.result_
    if not isinstance(result, Result):
        raise TypeError("its result is not a Result")
    if result.names is not None and len(set(result.names)) != result.n_latents:
        raise ValueError("its latents do not have one name each")
    latents = _latents_of(result.encoder, estimator._in_shape(row))
    if result.decoder is not None:
        result.decoder(latents)


def _latents_of(encoder: Any, row: NDArray[Any]) -> NDArray[Any]:
    latents = encoder(row)
    if latents.shape != (1, encoder.n_latents) or np.isnan(latents).any():
        raise ValueError("its encoder does not fit its features")
    return latents


def _rebuild_dataset(file: _File) -> Dataset:
    from crlearn.data import Dataset

    if not isinstance(file.record["dataset"], Dataset):
        raise TypeError("its content is not a Dataset")
    return file.record["dataset"]


def _refuse_unknown_class(estimator: Any) -> None:
    name = type(estimator).__name__
    if _estimators().get(name) is not type(estimator):
        raise TypeError(
            f"{name} is not one of crlearn's own classes, so that load() could not rebuild it. Use "
            "joblib for other classes, and for pipelines that hold some."
        )


def _without_callables(dataset: Dataset) -> Dataset:
    """Leave out structural causal models that hold a user's own function."""
    if dataset.truth is None or dataset.truth.scms is None:
        return dataset
    try:
        encode(dataset.truth.scms, {}, where="scms")
    except TypeError:
        warnings.warn(
            "The mechanisms of this world are functions of your own, which a file cannot hold: the "
            "saved dataset keeps its latents and graph, but not its exact scores.",
            UserWarning,
            stacklevel=3,
        )
        return dataclasses.replace(dataset, truth=dataclasses.replace(dataset.truth, scms=None))
    return dataset
