"""One run: make the world, fit the method, measure; whatever happens, there is a record of it."""

from __future__ import annotations

import json
import math
import os
import platform
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from inspect import signature
from typing import Any, Literal

import numpy as np
from sklearn.pipeline import Pipeline, make_pipeline

from crlearn.base import without_effects_of
from crlearn.bench import _code
from crlearn.bench._plan import FROM_THE_DATA, Cell, Run, find_method
from crlearn.bench._references import truth_parameters
from crlearn.bench._wrong import WRONG, wrong_graphs
from crlearn.config import config_context
from crlearn.data import WORLDS, Dataset
from crlearn.exceptions import CorruptFileError, DivergenceError
from crlearn.graph import topological_order
from crlearn.metrics import Evaluation, correlation_matrix, evaluate
from crlearn.persist import plain
from crlearn.result import installed_versions
from crlearn.scores import ExactJacobians, ExactScores, NoisyJacobians, NoisyScores

Status = Literal["done", "failed", "diverged"]

_MOST_NOISES = 10  # of which a record keeps the correlations


@dataclass(frozen=True)
class Record:
    """What came out of one run: a line of ``runs.jsonl``.

    Attributes
    ----------
    key, cell
        Hashes of everything that determines the result, with and without the seed.
    study, setting, method, parameters, seed
        Which run it was; `method` is the label in tables.
    status
        ``"done"``, ``"failed"`` or ``"diverged"``.
    metrics, chance
        Value of each metric that the method has, and its level of chance.
    seconds
        Time to fit.
    error, traceback
        What went wrong, if something did.
    failed_checks
        Assumptions that the data contradict.
    versions, machine, device
        What it ran on.
    code
        Fingerprint of crlearn's source; empty in records from before there was one.
    finished
        When, in UTC.
    noise_correlations
        Absolute correlations of true (rows) with recovered exogenous noises, in the order in which
        they were recovered; None if the method recovers none, or if they are many.
    """

    key: str
    cell: str
    study: str
    setting: Mapping[str, Any]
    method: str
    parameters: Mapping[str, Any]
    seed: int
    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    chance: Mapping[str, float | None] = field(default_factory=dict)
    seconds: float | None = None
    error: str | None = None
    traceback: str | None = None
    failed_checks: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    finished: str = ""
    noise_correlations: Sequence[Sequence[float]] | None = None
    code: str = ""

    @property
    def is_done(self) -> bool:
        """Whether the run gave a result."""
        return self.status == "done"

    def to_json(self) -> str:
        """Return the record as one line."""
        return json.dumps(plain(asdict(self)), allow_nan=False)

    @classmethod
    def from_json(cls, line: str | bytes) -> Record:
        """Read a record from a line."""
        try:
            content = json.loads(line)
            return cls(**{**content, "failed_checks": tuple(content["failed_checks"])})
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise CorruptFileError(f"This is not the record of a run: {error!r}.") from error


def execute(run: Run, study: str) -> Record:
    """Do a run. Only an interrupt leaves this function as an exception."""
    try:
        with warnings.catch_warnings(), config_context(progress=False):
            warnings.simplefilter("ignore")  # what the checks found is in the record
            return _succeed(run, study)
    except (Exception, SystemExit) as error:  # a method that calls exit() ends its run only
        return failure(run, study, error)


def failure(run: Run, study: str, error: BaseException) -> Record:
    """Return the record of a run that ended in an error."""
    return _record(
        run,
        study,
        "diverged" if isinstance(error, DivergenceError) else "failed",
        error=f"{type(error).__name__}: {error}",
        traceback="".join(traceback.format_exception(error)),
    )


def _succeed(run: Run, study: str) -> Record:
    _refuse_other_code(run)
    world = _world(run.cell.world, _frozen(run.cell.world_parameters), run.seed)
    model = _model(run, world)
    model.fit(_observations(model, world), world.y, **_covariates(model, world))
    estimator: Any = model[-1] if isinstance(model, Pipeline) else model
    result = estimator.result_
    scores = _measure(model, world, run.cell)
    return _record(
        run,
        study,
        "done",
        metrics=dict(scores),
        chance=scores.chance,
        seconds=result.seconds,
        failed_checks=tuple(check.name for check in result.failed_checks),
        device=result.device,
        noise_correlations=_noise_correlations(model, world),
    )


def _observations(model: Any, world: Dataset) -> Any:
    """Return X, as images to models that take images."""
    image_shape = getattr(world.truth and world.truth.mixing, "image_shape", None)
    if image_shape is None or not model.__sklearn_tags__().input_tags.three_d_array:
        return world.X
    return world.X.reshape(len(world.X), *image_shape)


def _covariates(model: Any, world: Dataset) -> dict[str, Any]:
    """Return the covariates of the world for models that take some."""
    takes_some = "covariates" in signature(model.fit).parameters
    return {"covariates": world.covariates} if takes_some and world.covariates else {}


def _refuse_other_code(run: Run) -> None:
    """Keep a worker of a cluster from doing a run in the name of code that it does not have."""
    here = _code.fingerprint()
    if run.cell.code != here:
        raise RuntimeError(
            f"The crlearn of this worker is not that of the runner (fingerprints {here} and "
            f"{run.cell.code}). Install the same crlearn on both, restart the workers, and run the "
            "study again with --retry-failed."
        )


def _record(run: Run, study: str, status: Status, **outcome: Any) -> Record:
    return Record(
        key=run.key,
        cell=run.cell.key,
        study=study,
        setting=plain(run.cell.setting),
        method=run.cell.label,
        parameters=plain(run.cell.parameters),
        seed=run.seed,
        status=status,
        versions=installed_versions(),
        machine=_machine(),
        code=run.cell.code,
        finished=datetime.now(UTC).isoformat(timespec="milliseconds"),
        **outcome,
    )


@lru_cache(maxsize=1)
def _world(name: str, parameters: str, seed: int) -> Dataset:
    """Make a world; the next run is often another method on the same one."""
    return WORLDS[name](**json.loads(parameters), random_state=seed)


def _frozen(parameters: Mapping[str, Any]) -> str:
    """Return parameters that came from TOML as a text, which a cache can compare."""
    return json.dumps(parameters, sort_keys=True)


def _asks_for_a_wrong_graph(run: Run) -> bool:
    return any(isinstance(value, str) and value in WRONG for value in run.cell.parameters.values())


def _model(run: Run, world: Dataset) -> Any:
    known = {
        "$known_targets": world.known_targets,
        "$targets_without_doses": None if world.known_targets is None else world.known_targets != 0,
        "$known_graph": _graph_of(world),
        **(wrong_graphs(world) if _asks_for_a_wrong_graph(run) else {}),
        "$true_encoder": _encoder_of(world),
        **({} if world.truth is None else truth_parameters(world.truth)),
    }
    parameters = {
        name: known[value] if isinstance(value, str) and value in FROM_THE_DATA else value
        for name, value in run.cell.parameters.items()
    }
    if run.cell.scores == "exact":
        parameters["scores"] = _exact_scores(world, run)
    model = find_method(run.cell.method)(**parameters, random_state=run.seed)
    if run.cell.after is None:
        return model
    n_latents = run.cell.world_parameters["n_latents"]
    return make_pipeline(find_method(run.cell.after)(n_latents, random_state=run.seed), model)


def _graph_of(world: Dataset) -> np.ndarray | None:
    if world.truth is None or world.truth.graph is None:
        return None
    return np.array(world.truth.graph)


def _encoder_of(world: Dataset) -> np.ndarray | None:
    """Return the rows that undo a linear mixing, causes first: where only a reference may start."""
    matrix = getattr(world.truth and world.truth.mixing, "matrix", None)
    if world.truth is None or world.truth.graph is None or matrix is None:
        return None
    return np.linalg.pinv(matrix)[topological_order(world.truth.graph)]


def _exact_scores(world: Dataset, run: Run) -> Any:
    """Return exact score differences, or score Jacobians where there is one environment only."""
    assert world.truth is not None  # every world of a study is simulated
    errors = run.cell.signal_to_error
    if world.y is None:
        exact = ExactJacobians(world.truth)
        return exact if errors is None else NoisyJacobians(exact, errors, random_state=run.seed)
    exact = ExactScores(world.truth)
    return exact if errors is None else NoisyScores(exact, errors, run.seed)


def _measure(model: Any, world: Dataset, cell: Cell) -> Evaluation:
    rows = world
    if cell.evaluated_on == "reference" and _has_reference(world):
        rows = world.environment(0)
    scores = evaluate(model, rows, cell.metrics, unavailable="skip")
    bad = [name for name, value in scores.items() if not math.isfinite(value)]
    if bad:
        raise ValueError(f"The method ran, but {', '.join(bad)} is not a finite number.")
    return scores


def _has_reference(world: Dataset) -> bool:
    """Whether the first environment is observational; where all latents change in it, none is."""
    truth = world.truth
    return len(world.environments) > 0 and (truth is None or not truth.targets[0].all())


def _noise_correlations(model: Any, world: Dataset) -> list[list[float]] | None:
    if isinstance(model, Pipeline):
        return None
    encoder = model.result_.noise_encoder
    noise = None if world.truth is None else world.truth.noise
    if encoder is None or noise is None or noise.shape[1] > _MOST_NOISES:
        return None
    rows = without_effects_of(model, world.X, world.covariates)
    return correlation_matrix(noise, encoder(rows)).round(4).tolist()


@lru_cache(maxsize=1)
def _machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
