from __future__ import annotations

import gc
import json
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
import pytest

import crlearn
from crlearn.bench import Plan, Record, Run, Study
from crlearn.bench._execute import _world, execute
from crlearn.data import WORLDS, Dataset, make_segments
from crlearn.exceptions import CorruptFileError
from crlearn.methods import ICABaseline, PCABaseline
from crlearn.metrics import Evaluation, evaluate
from crlearn.scores import ExactJacobians, ExactScores, NoisyJacobians, NoisyScores

MakeStudy = Callable[..., Study]
Rehearsed = Callable[..., dict[str, Any]]


def first_run(study: Study) -> Run:
    return next(Plan.of(study, "quick").runs())


@pytest.fixture
def broken(make_study: MakeStudy, rehearsed: Rehearsed) -> Callable[[str], Record]:
    """Record of a run with this kind of trouble."""

    def run(trouble: str) -> Record:
        entry = rehearsed(trouble=trouble, troubled_seeds=[0])
        return execute(first_run(make_study(methods=[entry])), "tiny")

    return run


class TestDone:
    def test_the_record_holds_what_a_bare_fit_gives(self, make_study: MakeStudy):
        run = first_run(make_study(methods=[{"method": "ICABaseline"}]))
        record = execute(run, "tiny")
        world = make_segments(2, 3, 20, n_segments=3, random_state=0)
        model = ICABaseline(n_latents=2, random_state=0).fit(world.X, world.y)
        scores = evaluate(model, world, ["mcc", "r2"])
        assert record.metrics == dict(scores)
        assert record.chance == scores.chance
        assert (record.status, record.error, record.traceback) == ("done", None, None)
        assert (record.key, record.cell, record.study) == (run.key, run.cell.key, "tiny")
        assert (record.method, record.seed) == ("ICABaseline", 0)
        assert record.setting["n_samples"] == 20
        assert record.parameters == {"n_latents": 2, "contrast": "logcosh", "max_iter": 1000}
        assert record.seconds is not None
        assert record.seconds > 0
        assert record.versions["crlearn"] == crlearn.__version__
        assert record.machine["cores"] >= 1
        assert record.device

    def test_a_continuous_auxiliary_vector(self, make_study: MakeStudy):
        setting = {"auxiliary": "continuous", "auxiliary_dim": 2, "n_segments": 5, "n_samples": 30}
        run = first_run(make_study(world="latent-anm", grid=[{"n_latents": 2, **setting}]))
        record = execute(run, "tiny")
        assert (record.status, record.error) == ("done", None)
        assert set(record.metrics) == {"mcc", "r2"}

    def test_real_series_have_no_graph_to_compare_with(self, make_study: MakeStudy):
        metrics = ["mcc", "shd", "mac"]
        study = make_study(world="mixed-series", grid=[{"n_latents": 2}], metrics=metrics)
        record = execute(first_run(study), "tiny")
        assert (record.status, record.error) == ("done", None)
        assert set(record.metrics) == {"mcc"}

    def test_a_worker_with_other_code_than_the_runner(
        self, make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch
    ):
        run = first_run(make_study())
        monkeypatch.setattr("crlearn.bench._code.fingerprint", lambda: "of-the-worker")
        record = execute(run, "tiny")
        assert (record.status, record.key, record.code) == ("failed", run.key, run.cell.code)
        assert "not that of the runner (fingerprints of-the-worker and" in str(record.error)
        assert "Install the same crlearn on both" in str(record.error)

    def test_again_it_is_the_same(self, make_study: MakeStudy):
        run = first_run(make_study(methods=[{"method": "ICABaseline"}]))
        first, second = execute(run, "tiny"), execute(run, "tiny")
        assert first == replace(second, seconds=first.seconds, finished=first.finished)

    def test_metrics_that_a_method_does_not_have_are_left_out(self, make_study: MakeStudy):
        record = execute(first_run(make_study(metrics=["mcc", "shd", "mac"])), "tiny")
        assert record.is_done
        assert set(record.metrics) == {"mcc"}

    def test_reference_rows_only(self, make_study: MakeStudy):
        grid = {"n_latents": 2, "n_features": 3, "n_samples": 50}
        study = make_study(world="linear-interventional", grid=[grid], evaluated_on="reference")
        record = execute(first_run(study), "tiny")
        world = WORLDS["linear-interventional"](**grid, random_state=0)
        model = PCABaseline(n_latents=2).fit(world.X, world.y)
        assert record.metrics["mcc"] == evaluate(model, world.environment(0))["mcc"]
        assert record.metrics["mcc"] != evaluate(model, world)["mcc"]

    def test_a_world_without_a_reference(self, make_study: MakeStudy):
        grid = {"n_latents": 2, "n_features": 3, "n_samples": 50, "graph": "chain"}
        study = make_study(world="multi-domain", grid=[grid], evaluated_on="reference")
        assert "must be one of the environments" in str(execute(first_run(study), "tiny").error)

    def test_segments_have_no_reference(self, make_study: MakeStudy):
        """Every latent changes in each of them: all rows are evaluated."""
        grid = {"kind": "segments", "n_latents": 2, "n_features": 3, "n_samples": 20}
        study = make_study(world="broken", grid=[grid], evaluated_on="reference")
        record = execute(first_run(study), "tiny")
        world = WORLDS["broken"](**grid, random_state=0)
        model = PCABaseline(n_latents=2).fit(world.X, world.y)
        assert record.metrics["mcc"] == evaluate(model, world)["mcc"]

    def test_what_is_known_of_the_data_is_handed_over(
        self, make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch
    ):
        seen: dict[str, Any] = {}

        def look(model: Any, X: Any, y: Any = None) -> Any:
            seen.update(model.get_params())
            return PCABaseline.fit(model, X, y)

        monkeypatch.setattr("own_methods.Rehearsed.fit", look)
        grid = {"n_latents": 2, "n_features": 3, "n_samples": 20, "graph": "chain"}
        parameters = {"gate": "$known_graph", "log": "$known_targets"}
        entry = {"method": "own_methods.Rehearsed", "parameters": parameters}
        record = execute(
            first_run(make_study(world="multi-domain", grid=[grid], methods=[entry])), "tiny"
        )
        assert record.is_done, record.error
        assert np.array_equal(seen["gate"], [[False, True], [False, False]])
        assert np.array_equal(seen["log"], np.eye(2, dtype=bool))
        assert record.parameters["gate"] == "$known_graph"
        parameters = {"gate": "$true_mixing", "log": "$truth", "company": "$true_noise_variance"}
        entry = {"method": "own_methods.Rehearsed", "parameters": parameters}
        study = make_study(world="multi-domain", grid=[grid], methods=[entry])
        assert execute(first_run(study), "tiny").is_done
        assert seen["gate"].shape == (3, 2)
        assert seen["log"].measurement_noise == pytest.approx(2**0.5)
        assert seen["company"] == pytest.approx(2.0)

    def test_exact_scores_are_jacobians_without_environments(
        self, make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch
    ):
        seen: list[Any] = []

        def look(model: Any, X: Any, y: Any = None) -> Any:
            seen.append(model.scores)
            return PCABaseline.fit(model, X, y)

        monkeypatch.setattr("own_methods.Rehearsed.fit", look)
        entry = {"method": "own_methods.Rehearsed", "scores": ["exact"]}
        grid = [{"n_latents": 2, "n_samples": 20}]
        for errors in ({}, {"signal_to_error": [4.0]}):
            methods = [{**entry, **errors}]
            study = make_study(world="observational", grid=grid, methods=methods)
            assert execute(first_run(study), "tiny").is_done
        assert isinstance(seen[0], ExactJacobians)
        assert isinstance(seen[1], NoisyJacobians)
        assert seen[1].signal_to_error == 4.0
        study = make_study(methods=[entry], world="linear-interventional", grid=grid)
        assert execute(first_run(study), "tiny").is_done
        assert isinstance(seen[2], ExactScores)
        noisy = [{**entry, "signal_to_error": [4.0]}]
        study = make_study(methods=noisy, world="linear-interventional", grid=grid)
        assert execute(first_run(study), "tiny").is_done
        assert isinstance(seen[3], NoisyScores)
        assert seen[3].signal_to_error == 4.0

    def test_a_reduction_sees_x_first(self, make_study: MakeStudy):
        grid = [{"n_latents": 2, "n_features": 5, "n_samples": 200, "mixing": "quadratic"}]
        entry = {"method": "PCABaseline", "after": "PolynomialReduction"}
        study = make_study(world="linear-interventional", grid=grid, methods=[entry])
        record = execute(first_run(study), "tiny")
        assert record.is_done, record.error
        assert record.seconds is not None
        assert record.metrics["mcc"] > 0.5
        plain = make_study(
            world="linear-interventional", grid=grid, methods=[{"method": "PCABaseline"}]
        )
        assert record.metrics != execute(first_run(plain), "tiny").metrics

    def test_a_reference_may_start_at_the_truth(
        self, make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch
    ):
        seen: dict[str, Any] = {}

        def look(model: Any, X: Any, y: Any = None) -> Any:
            seen.update(encoder=model.log, X=X)
            return PCABaseline.fit(model, X, y)

        monkeypatch.setattr("own_methods.Rehearsed.fit", look)
        entry = {"method": "own_methods.Rehearsed", "parameters": {"log": "$true_encoder"}}
        grid = [{"n_latents": 3, "n_features": 5, "n_samples": 20, "graph": "chain"}]
        study = make_study(world="observational", grid=grid, methods=[entry])
        record = execute(first_run(study), "tiny")
        assert record.is_done, record.error
        assert record.parameters["log"] == "$true_encoder"
        truth = WORLDS["observational"](**grid[0], random_state=0).truth
        assert truth is not None
        np.testing.assert_allclose(seen["X"] @ seen["encoder"].T, truth.Z, atol=1e-8)
        study = make_study(methods=[entry], world="sparse-mixture", grid=[{"n_samples": 50}])
        assert execute(first_run(study), "tiny").is_done
        assert seen["encoder"] is None  # there is no linear mixing to undo

    def test_correlations_of_noises_are_kept(
        self, make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch
    ):
        def fit(model: Any, X: Any, y: Any = None) -> Any:
            PCABaseline.fit(model, X, y)
            model.result_ = replace(model.result_, noise_encoder=model.result_.encoder)
            return model

        monkeypatch.setattr("own_methods.Rehearsed.fit", fit)
        grid = [{"n_latents": 3, "n_samples": 50}]
        methods = [{"method": "own_methods.Rehearsed"}]
        study = make_study(world="observational", grid=grid, methods=methods, metrics=["mac"])
        record = execute(first_run(study), "tiny")
        kept = np.array(record.noise_correlations)
        assert kept.shape == (3, 3)
        assert kept.diagonal().mean() == pytest.approx(record.metrics["mac"], abs=1e-4)
        assert Record.from_json(record.to_json()) == record
        many = make_study(
            world="observational", grid=[{**grid[0], "n_latents": 11}], methods=methods
        )
        assert execute(first_run(many), "tiny").noise_correlations is None

    def test_failed_checks_are_named_and_do_not_warn(self, make_study: MakeStudy):
        entry = {"method": "ICABaseline", "parameters": {"max_iter": 1}}
        record = execute(first_run(make_study(methods=[entry])), "tiny")
        assert record.failed_checks == ("the rotation converged",)

    def test_one_world_for_all_methods_of_a_seed(
        self, make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch
    ):
        made: list[int] = []

        @wraps(make_segments)
        def make(**parameters: Any) -> Dataset:
            made.append(parameters["random_state"])
            return make_segments(**parameters)

        monkeypatch.setitem(WORLDS, "segments", make)
        _world.cache_clear()
        study = make_study(methods=[{"method": "PCABaseline"}, {"method": "ICABaseline"}])
        for run in Plan.of(study, "quick").runs():
            execute(run, "tiny")
        _world.cache_clear()
        assert made == [0, 1]

    def test_infinite_parameters_reach_the_world(
        self, make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch
    ):
        seen: list[Any] = []

        def make(*, bound: float = 1.0, random_state: int) -> Dataset:
            seen.append(bound)
            return make_segments(2, 3, 5, n_segments=2, random_state=random_state)

        monkeypatch.setitem(WORLDS, "segments", make)
        execute(first_run(make_study(grid=[{"bound": float("inf")}])), "tiny")
        assert seen == [float("inf")]


class TestFailed:
    def test_an_error(self, broken: Callable[[str], Record]):
        record = broken("error")
        assert record.status == "failed"
        assert record.error == "ValueError: this was to be expected"
        assert record.traceback is not None
        assert "own_methods.py" in record.traceback
        assert (record.metrics, record.seconds) == ({}, None)

    def test_divergence(self, broken: Callable[[str], Record]):
        record = broken("divergence")
        assert record.status == "diverged"
        assert record.error == "DivergenceError: no finite loss"

    def test_a_method_that_calls_exit(self, broken: Callable[[str], Record]):
        assert broken("exit").error == "SystemExit: enough"

    def test_an_interrupt_is_not_a_failure(self, broken: Callable[[str], Record]):
        with pytest.raises(KeyboardInterrupt):
            broken("interrupt")

    def test_a_metric_that_is_not_finite(
        self, make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch
    ):
        def give_nan(*_: Any, **__: Any) -> Evaluation:
            scores = {"mcc": float("nan"), "r2": 0.5}
            levels = dict.fromkeys(scores, 0.0)
            return Evaluation(scores, chance=levels, perfect=levels, matching=np.arange(2))

        monkeypatch.setattr("crlearn.bench._execute.evaluate", give_nan)
        record = execute(first_run(make_study()), "tiny")
        assert record.status == "failed"
        assert "mcc is not a finite number" in str(record.error)

    def test_a_world_that_cannot_be_made(self, make_study: MakeStudy):
        record = execute(first_run(make_study(grid=[{"n_latents": 2, "n_samples": -1}])), "tiny")
        assert record.status == "failed"
        assert "n_samples" in str(record.error)


class TestLine:
    def test_there_and_back(self, make_study: MakeStudy, broken: Callable[[str], Record]):
        for record in (execute(first_run(make_study()), "tiny"), broken("error")):
            line = record.to_json()
            assert "\n" not in line
            assert Record.from_json(line) == record
            assert Record.from_json(line.encode()) == record

    def test_the_fields_of_the_format(self, make_study: MakeStudy):
        content = json.loads(execute(first_run(make_study()), "tiny").to_json())
        assert list(content) == [
            *("key", "cell", "study", "setting", "method", "parameters", "seed", "status"),
            *("metrics", "chance", "seconds", "error", "traceback", "failed_checks", "versions"),
            *("machine", "device", "finished", "noise_correlations", "code"),
        ]

    def test_a_record_from_before_there_were_fingerprints(self, make_study: MakeStudy):
        record = execute(first_run(make_study()), "tiny")
        assert record.code
        content = json.loads(record.to_json())
        del content["code"]
        assert Record.from_json(json.dumps(content)) == replace(record, code="")

    @pytest.mark.parametrize(
        "line",
        ["", "{", "[]", "3", "null", "{}", '{"failed_checks": []}', '{"key": "a"', "[" * 100_000],
        ids=lambda line: line[:20] or "nothing",
    )
    def test_other_lines(self, line: str):
        gc.collect()  # what is finalised at the depth where parsing gives up would itself fail
        with pytest.raises(CorruptFileError, match="not the record of a run"):
            Record.from_json(line)
