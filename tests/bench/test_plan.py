from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crlearn.bench import Cell, Plan, Run, Study, load_study
from crlearn.bench._plan import find_method
from crlearn.methods import IVAE

MakeStudy = Callable[..., Study]


def first_run(study: Study) -> Run:
    return next(Plan.of(study, "quick").runs())


def tiny_study(world: dict[str, Any], parameters: dict[str, Any]) -> Study:
    return Study.from_dict(
        "tiny",
        {
            "title": "Tiny",
            "source": "this test",
            "world": "segments",
            "metrics": ["mcc"],
            "grid": [world],
            "methods": [{"method": "ICABaseline", "parameters": parameters}],
            "profiles": {"quick": {"seeds": 2}},
        },
    )


WORLDS = st.fixed_dictionaries(
    {"n_latents": st.integers(2, 3)},
    optional={
        "n_samples": st.integers(5, 6),
        "noise": st.sampled_from(["gaussian", "laplace"]),
        "measurement_noise": st.sampled_from([0.0, 0.1]),
    },
)
PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "max_iter": st.integers(999, 1000),
        "contrast": st.sampled_from(["logcosh", "exp"]),
    },
)
RUNS = st.tuples(WORLDS, PARAMETERS, st.integers(0, 1))
DEFAULTS = {"n_samples": 1000, "noise": "gaussian", "measurement_noise": 0.0}
METHOD_DEFAULTS = {"max_iter": 1000, "contrast": "logcosh"}


class TestKeys:
    @settings(max_examples=60)
    @given(RUNS, RUNS)
    def test_equal_if_and_only_if_the_result_is(self, first: Any, second: Any):
        keys, meanings = [], []
        for world, parameters, seed in (first, second):
            runs = list(Plan.of(tiny_study(world, parameters), "quick").runs())
            keys.append(runs[seed].key)
            meanings.append(({**DEFAULTS, **world}, {**METHOD_DEFAULTS, **parameters}, seed))
        assert (keys[0] == keys[1]) == (meanings[0] == meanings[1])

    @pytest.mark.parametrize(
        "changes",
        [
            {"world": "latent-anm"},
            {"metrics": ["mcc"]},
            {"evaluated_on": "reference"},
            {"methods": [{"method": "ICABaseline"}]},
            {"methods": [{"method": "PCABaseline", "parameters": {"n_latents": 1}}]},
        ],
        ids=["world", "metrics", "rows", "method", "parameters"],
    )
    def test_whatever_matters_changes_them(self, make_study: MakeStudy, changes: dict[str, Any]):
        assert first_run(make_study()).key != first_run(make_study(**changes)).key

    @pytest.mark.parametrize(
        "changes",
        [
            {"title": "Other", "source": "other", "notes": "other"},
            {"metrics": ["r2", "mcc"]},
            {"grid": [{"n_samples": 20, "n_segments": 3, "n_features": 3, "n_latents": 2}]},
            {"methods": [{"method": "PCABaseline", "variant": "plain"}]},
            {"published": [{"method": "PCABaseline", "mcc": 1}]},
        ],
        ids=["words", "order of metrics", "order of parameters", "variant", "published"],
    )
    def test_nothing_else_changes_them(self, make_study: MakeStudy, changes: dict[str, Any]):
        assert first_run(make_study()).key == first_run(make_study(**changes)).key

    def test_exact_scores(self, make_study: MakeStudy):
        entry = {"method": "own_methods.Rehearsed", "scores": ["exact", "estimated"]}
        exact, estimated = Plan.of(make_study(methods=[entry]), "quick").cells
        assert exact.key != estimated.key
        assert (exact.setting["scores"], estimated.setting["scores"]) == ("exact", "estimated")

    def test_slow_methods_run_in_small_settings_only(self, make_study: MakeStudy):
        slow = {"method": "ICABaseline", "at_most": {"n_samples": 20, "unheard_of": 1}}
        grid = [{"n_latents": 2, "n_features": 3, "n_samples": [20, 40]}]
        study = make_study(grid=grid, methods=[{"method": "PCABaseline"}, slow])
        found = [(cell.label, cell.setting["n_samples"]) for cell in Plan.of(study, "quick").cells]
        assert found == [("PCABaseline", 20), ("ICABaseline", 20), ("PCABaseline", 40)]

    @pytest.mark.parametrize("own_size", [40, [30, 40]])
    def test_methods_run_in_their_own_settings_only(self, make_study: MakeStudy, own_size: Any):
        own = {"method": "ICABaseline", "only": {"n_samples": own_size}}
        grid = [{"n_latents": 2, "n_features": 3, "n_samples": [20, 40]}]
        study = make_study(grid=grid, methods=[{"method": "PCABaseline"}, own])
        found = [(cell.label, cell.setting["n_samples"]) for cell in Plan.of(study, "quick").cells]
        assert found == [("PCABaseline", 20), ("PCABaseline", 40), ("ICABaseline", 40)]

    def test_errors_of_exact_scores(self, make_study: MakeStudy):
        entry = {"method": "own_methods.Rehearsed", "scores": ["exact"]}
        (plain,) = Plan.of(make_study(methods=[entry]), "quick").cells
        noisy = Plan.of(
            make_study(methods=[{**entry, "signal_to_error": [1, 10.0]}]), "quick"
        ).cells
        assert len({plain.key, *(cell.key for cell in noisy)}) == 3
        assert [cell.setting["signal_to_error"] for cell in noisy] == [1.0, 10.0]
        assert "signal_to_error" not in {**plain.setting, **plain.identity}

    def test_a_reduction_comes_first(self, make_study: MakeStudy):
        entry = {"method": "PCABaseline"}
        reduced = {**entry, "variant": "reduced", "after": "PolynomialReduction"}
        plain, other = Plan.of(make_study(methods=[entry, reduced]), "quick").cells
        assert (plain.after, other.after) == (None, "PolynomialReduction")
        assert plain.key != other.key
        assert "after" not in plain.identity

    def test_a_new_default(self, make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch):
        study = make_study(methods=[{"method": "own_methods.Rehearsed"}])
        before = first_run(study).key
        method: Any = importlib.import_module("own_methods").Rehearsed
        defaults = {**method.__init__.__kwdefaults__, "company": 2}
        monkeypatch.setattr(method.__init__, "__kwdefaults__", defaults)
        assert first_run(study).key != before

    def test_other_code(self, make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch):
        before = first_run(make_study())
        keys = {before.key, before.cell.key}
        monkeypatch.setattr("crlearn.bench._code.fingerprint", lambda: "other")
        after = first_run(make_study())
        assert not keys & {after.key, after.cell.key}

    def test_seeds_share_a_cell(self, make_study: MakeStudy):
        first, second = Plan.of(make_study(), "quick").runs()
        assert first.cell.key == second.cell.key
        assert len({first.key, second.key, first.cell.key}) == 3

    def test_the_same_in_another_process(self):
        names = ["varici2025-table7", "xu2026-table1", "ivae-settings"]
        code = (
            "import json, sys; from crlearn.bench import Plan, load_study\n"
            "plans = [Plan.of(load_study(name), 'quick') for name in sys.argv[1:]]\n"
            "print(json.dumps([run.key for plan in plans for run in plan.runs()]))"
        )
        env = {**os.environ, "PYTHONHASHSEED": "12345"}
        there = subprocess.run(
            [sys.executable, "-c", code, *names], capture_output=True, text=True, env=env
        )
        plans = [Plan.of(load_study(name), "quick") for name in names]
        assert json.loads(there.stdout) == [run.key for plan in plans for run in plan.runs()]

    @pytest.mark.parametrize(
        "make",
        [
            lambda: {"a", "b", "c"},
            lambda: np.arange(2000),
            lambda: object(),
            lambda: np.tanh,
            lambda: IVAE,
            lambda: float("inf"),
            lambda: (1, (2, 3)),
        ],
        ids=["set", "array", "object", "function", "class", "infinity", "tuples"],
    )
    def test_defaults_that_json_does_not_know(self, make: Callable[[], Any]):
        cells = [Cell("w", {}, "m", {"a": make()}, "m", {}, "estimated", (), "all") for _ in "ab"]
        assert cells[0].key == cells[1].key

    def test_long_arrays_differ_in_the_middle(self):
        first, second = np.zeros(2000), np.zeros(2000)
        second[1000] = 1
        keys = {
            Cell("w", {}, "m", {"a": array}, "m", {}, "estimated", (), "all").key
            for array in (first, second)
        }
        assert len(keys) == 2


class TestPlan:
    def test_seed_by_seed(self, make_study: MakeStudy):
        study = make_study(methods=[{"method": "PCABaseline"}, {"method": "ICABaseline"}])
        runs = [(run.seed, run.cell.label) for run in Plan.of(study, "quick").runs()]
        assert runs == [
            (0, "PCABaseline"),
            (0, "ICABaseline"),
            (1, "PCABaseline"),
            (1, "ICABaseline"),
        ]

    def test_number_of_seeds(self, make_study: MakeStudy):
        assert Plan.of(make_study(), "full").seeds == 4
        assert Plan.of(make_study(), "full", 7).seeds == 7
        with pytest.raises(ValueError, match=r"'seeds' must be an integer of at least 1\. Got 0"):
            Plan.of(make_study(), "full", 0)
        with pytest.raises(ValueError, match="no profile 'huge'"):
            Plan.of(make_study(), "huge")

    def test_parameters_of_each_kind_of_scores(self, make_study: MakeStudy):
        entries = [
            {"method": "own_methods.Rehearsed", "parameters": {"company": n}, "scores": [kind]}
            for n, kind in [(1, "exact"), (2, "estimated")]
        ]
        profiles = {"quick": {"seeds": 1, "parameters": {"Rehearsed": {"log": "x"}}}}
        cells = Plan.of(make_study(methods=entries, profiles=profiles), "quick").cells
        found = [(cell.label, cell.scores, cell.parameters["company"]) for cell in cells]
        assert found == [("Rehearsed", "exact", 1), ("Rehearsed", "estimated", 2)]
        assert all(cell.parameters["log"] == "x" for cell in cells)

    def test_setting_names_what_a_summary_needs(self, make_study: MakeStudy):
        grid = {"n_latents": 3, "edge_probability": 0.3}
        cell = first_run(make_study(world="linear-interventional", grid=[grid])).cell
        assert cell.setting == {
            "n_latents": 3,
            "n_features": 100,
            "n_samples": 1000,
            "mechanism": "linear",
            "intervention": "hard",
            "graph": "er",
            "edge_probability": 0.3,
            "scores": "estimated",
        }

    def test_as_many_features_as_latents_by_default(self, make_study: MakeStudy):
        cell = first_run(make_study(grid=[{"n_latents": 3}])).cell
        assert cell.setting["n_features"] == 3
        assert cell.world_parameters["n_features"] is None

    def test_parameters_of_methods(self, make_study: MakeStudy):
        study = make_study(
            methods=[{"method": "ICABaseline", "parameters": {"max_iter": 7, "contrast": "exp"}}],
            profiles={"quick": {"seeds": 1, "parameters": {"ICABaseline": {"max_iter": 5}}}},
        )
        assert first_run(study).cell.parameters == {
            "n_latents": 2,
            "contrast": "exp",
            "max_iter": 5,
        }

    def test_parameters_from_the_setting_and_the_data(self, make_study: MakeStudy):
        given = {"company": "$n_samples", "gate": "$known_graph", "log": "$known_targets"}
        entry = {"method": "own_methods.Rehearsed", "parameters": given}
        parameters = first_run(make_study(methods=[entry])).cell.parameters
        assert parameters["company"] == 20
        assert parameters["gate"] == "$known_graph"  # known once the world is there
        assert parameters["log"] == "$known_targets"


class TestMistakes:
    def said_about(self, study: Study) -> str:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the tests look at the message
            _ = Plan.of(study, "quick").cells
        return str(caught.value)

    def test_unknown_parameter_of_the_world(self, make_study: MakeStudy):
        said = self.said_about(make_study(grid=[{"n_latent": 2}]))
        assert "The world 'segments' has no parameter n_latent" in said
        assert "It has: n_latents, n_features" in said

    def test_the_seed_is_not_for_studies(self, make_study: MakeStudy):
        said = self.said_about(make_study(grid=[{"n_latents": 2, "random_state": 3}]))
        assert "no parameter random_state that a study can set" in said

    def test_a_parameter_without_a_value(self, make_study: MakeStudy):
        said = self.said_about(make_study(world="world", grid=[{"n_features": 3}]))
        assert said == "The world 'world' needs a value for n_latents."

    def test_unknown_parameter_of_a_method(self, make_study: MakeStudy):
        entry = {"method": "PCABaseline", "parameters": {"depth": 3}}
        said = self.said_about(make_study(methods=[entry]))
        assert said.startswith("PCABaseline has no parameter depth that a study can set.")

    def test_unknown_name_behind_a_dollar(self, make_study: MakeStudy):
        entry = {"method": "ICABaseline", "parameters": {"contrast": "$intervention"}}
        said = self.said_about(make_study(methods=[entry]))
        assert "'$intervention' must name a parameter of the world, n_latents" in said
        assert "$known_targets, $known_graph" in said

    def test_exact_scores_for_a_method_without_scores(self, make_study: MakeStudy):
        entry = {"method": "PCABaseline", "scores": ["exact"]}
        assert "PCABaseline has no parameter 'scores'" in self.said_about(
            make_study(methods=[entry])
        )

    def test_methods_that_cannot_be_found(self):
        assert find_method("own_methods.Rehearsed").__name__ == "Rehearsed"
        with pytest.raises(ValueError, match=r"no method 'Nothing'.*PCABaseline.*by its path"):
            find_method("Nothing")
        with pytest.raises(ValueError, match="cannot be imported: No module named 'nowhere'"):
            find_method("nowhere.Nothing")
        with pytest.raises(ValueError, match=r"cannot be imported: .*no attribute 'Nothing'"):
            find_method("own_methods.Nothing")
        with pytest.raises(ValueError, match=r"'own_methods\.time' must be a class"):
            find_method("own_methods.time")


def test_worlds_of_studies_can_be_asked_for_in_json():
    """The runner hands parameters on as JSON, defaults included."""
    from crlearn.data import WORLDS as MAKERS

    for name in MAKERS:
        cell = first_run(
            Study.from_dict(
                "any",
                {
                    "title": "Any",
                    "source": "this test",
                    "world": name,
                    "metrics": ["mcc"],
                    "grid": [{"n_latents": 3}],
                    "methods": [{"method": "PCABaseline"}],
                    "profiles": {"quick": {"seeds": 1}},
                },
            )
        ).cell
        assert json.dumps(cell.world_parameters)
