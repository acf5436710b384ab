"""What the commands read and write: data files, and the folder of a run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from crlearn import persist
from crlearn.base import BaseCRL, latents_of
from crlearn.cli._paths import (
    GRAPH,
    LATENTS,
    MODEL,
    OWN_TYPE,
    RESULT,
    check_data_file,
    check_is_run,
)
from crlearn.data import Dataset, read_table, table_columns, write_table
from crlearn.exceptions import CorruptFileError
from crlearn.files import replacing, write_whole
from crlearn.result import Result

ENVIRONMENT_COLUMN = "environment"


def read_data(path: Path, env_column: str | None = None, covariates: Sequence[str] = ()) -> Dataset:
    """Read a data file of any type; `covariates` are columns of a table.

    In tables without `env_column`, a column called ``environment``, as `crlearn simulate` writes
    it, is taken for the labels (in AnnData files: of obs): as a feature it would give the answer
    away.
    """
    check_data_file(path)
    if path.suffix.lower() == OWN_TYPE:
        return _read_own(path, env_column, covariates)
    try:
        if env_column is None and ENVIRONMENT_COLUMN in table_columns(path):
            env_column = ENVIRONMENT_COLUMN
        return read_table(path, env_column, covariate_columns=covariates)
    except ValueError as error:
        raise ValueError(_naming_the_option(error)) from error


def write_data(dataset: Dataset, path: Path) -> None:
    """Write a dataset to crlearn's own file, or X and y to a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == OWN_TYPE:
        persist.save(dataset, path)
    else:
        write_table(dataset, path, ENVIRONMENT_COLUMN)


def check_labels(dataset: Dataset, path: Path, model: BaseCRL) -> None:
    """Refuse data without environments for a method that needs them."""
    if dataset.y is not None or not model._requires_y:
        return
    advice = (
        "Simulate a world with several environments."
        if path.suffix.lower() == OWN_TYPE
        else "Name the column that holds them with --env-column."
    )
    raise ValueError(
        f"{type(model).__name__} needs an environment label (or auxiliary value) in every row, but "
        f"'{path.name}' was read without environments. {advice}"
    )


def covariates_for(model: BaseCRL, dataset: Dataset, *, named: bool) -> dict[str, Any]:
    """Return the covariates of the data for a method that takes some; refuse named ones else."""
    takes_some = "covariates" in signature(model.fit).parameters
    if named and not takes_some:
        raise ValueError(f"{type(model).__name__} takes no covariates: leave out --covariate.")
    return {"covariates": dataset.covariates} if takes_some and dataset.covariates else {}


def prepare_folder(folder: Path) -> None:
    """Make the folder and try to write to it, so that a long fit does not fail at its end."""
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()


@dataclass(frozen=True)
class Run:
    """The folder of a fit.

    Attributes
    ----------
    folder
        Where it is.
    model
        The fitted estimator.
    data_file, env_column, covariates
        What it was fitted on.
    features
        Names of the features, in order.
    """

    folder: Path
    model: BaseCRL
    data_file: Path
    env_column: str | None
    features: tuple[str, ...]
    covariates: tuple[str, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Read the folder that `write` made."""
        check_is_run(folder)
        model = BaseCRL.load(folder / MODEL)
        try:
            data = json.loads((folder / RESULT).read_text(encoding="utf-8"))["data"]
            return cls(
                folder,
                model,
                Path(data["file"]),
                data["env_column"],
                tuple(data["features"]),
                tuple(data.get("covariates", ())),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(
                f"'{folder / RESULT}' is not what crlearn fit wrote ({error!r})."
            ) from error

    def write(self, dataset: Dataset) -> list[Path]:
        """Write model, latents, result and graph; return the files.

        The result is the last: a folder without it is no run, so that the files of an earlier fit
        and of one whose writing was interrupted are not taken for one run.
        """
        prepare_folder(self.folder)
        result, folder = self.model.result_, self.folder
        for name in (RESULT, GRAPH):  # of an earlier fit into this folder
            (folder / name).unlink(missing_ok=True)
        self.model.save(folder / MODEL)
        latents = np.asarray(latents_of(self.model, dataset.X, dataset.y, dataset.covariates))
        write_table(Dataset(latents, dataset.y, names=result.latent_names), folder / LATENTS)
        files = [folder / name for name in (MODEL, LATENTS, RESULT)]
        if result.graph is not None:
            files.append(folder / GRAPH)
            with replacing(files[-1]) as draft:
                nx.write_gml(result.graph, draft)
        write_whole(folder / RESULT, _as_json(self.summary(dataset)))
        return files

    def summary(self, dataset: Dataset) -> dict[str, Any]:
        """Return what result.json says."""
        result = self.model.result_
        return {
            "method": type(self.model).__name__,
            "n_latents": result.n_latents,
            "latents": result.latent_names,
            "interventions": result.interventions,
            "guarantee": asdict(result.guarantee),
            "checks": [vars(check) for check in result.checks],
            "training": _training_summary(result.history),
            **_structure(result),
            "details": {name: v for name, v in result.details.items() if np.isscalar(v)},
            "parameters": self.model.get_params(deep=False),
            "data": {
                "file": str(self.data_file),
                "env_column": self.env_column,
                "covariates": self.covariates,
                "rows": dataset.n_samples,
                "features": self.features,
                "environments": dataset.environments,
            },
            "seconds": result.seconds,
            "device": result.device,
            "versions": result.versions,
        }

    def data(self, path: Path | None = None, env_column: str | None = None) -> Dataset:
        """Read the data of the fit, or other data with the same features."""
        path = path or self.data_file
        if path.suffix.lower() == OWN_TYPE:
            dataset = read_data(path, env_column)
        else:
            dataset = read_data(path, env_column or self.env_column, self.covariates)
        if dataset.names != self.features:
            raise ValueError(
                f"The features of '{path}' must be those that the model was fitted on, in that "
                f"order. {_difference(self.features, dataset.names)}."
            )
        return dataset


def _structure(result: Result) -> dict[str, Any]:
    """Return what was found besides latents and graph, which have files of their own."""
    test = result.goodness_of_fit
    return {
        "layers": result.layers,
        "blocks": result.blocks,
        "goodness_of_fit": None if test is None else vars(test),
        "edge_p_values": result.edge_p_values,
        "alternatives": [vars(other) for other in result.alternatives],
        "evidence_gap": result.evidence_gap,
    }


def _training_summary(history: Mapping[str, Any]) -> dict[str, Any]:
    if "epoch" not in history:
        return {}
    return {
        "epochs": history["epoch"][-1],
        "train_loss": history["train_loss"][-1],
        "best_validation_loss": np.nanmin(history["validation_loss"]),
        "restart_loss": history["restart_loss"],
    }


def _difference(expected: tuple[str, ...], found: tuple[str, ...]) -> str:
    missing = [name for name in expected if name not in set(found)]
    surplus = [name for name in found if name not in set(expected)]
    if missing:
        return f"Missing: {', '.join(missing[:5])}" + (", ..." if len(missing) > 5 else "")
    if surplus:
        return f"Not known to the model: {', '.join(surplus[:5])}"
    return "Their order differs"


def _read_own(path: Path, env_column: str | None, covariates: Sequence[str]) -> Dataset:
    if covariates:
        raise ValueError(f"'{path.name}' holds its covariates: leave out --covariate.")
    if env_column is not None:
        raise ValueError(f"'{path.name}' holds its environments: leave out --env-column.")
    dataset = persist.load(path)
    if not isinstance(dataset, Dataset):
        raise CorruptFileError(f"'{path}' holds a {type(dataset).__name__}, not a dataset.")
    return dataset


def _naming_the_option(error: ValueError) -> str:
    """Return the library's message with the option's name in place of the argument's."""
    said = str(error).replace("'environment_column'", "--env-column")
    return said.replace("'covariate_columns'", "--covariate")


def _as_json(value: Any) -> str:
    return json.dumps(persist.plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
