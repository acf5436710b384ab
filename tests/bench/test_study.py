from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlearn.bench import Plan, Study, list_studies, load_study, run_study, summary_schema
from crlearn.bench._study import SCORES, Entry, class_of
from crlearn.data import WORLDS

SHIPPED = list_studies()
NAMED_IN_THE_PLAN = {
    "welch2024-table2",
    "welch2024-figure3",
    "welch2024-figure4",
    "varici2025-table6",
    "varici2025-table7",
    "varici2025-table9",
    "varici2025-table14",
    "varici2024-umni",
    "wu2026-figure3",
    "liu2024-chain",
    "xu2026-table1",
    "xu2026-scaling",
    "xu2026-misspecified",
    "xu2026-blocks",
    "xu2026-balls",
    "xu2026-ablations",
    "xu2026-violations",
    "xu2026-harder",
}
PUBLISHED_ALGORITHM = [
    "varici2025-linear-hard",
    "varici2025-quadratic-soft",
    "varici2025-table6",
    "varici2025-table6-quadratic",
    "varici2025-table7",
]
OBSERVATIONAL = [
    "welch2024-table2",
    "welch2024-figure3",
    "welch2024-figure4",
    "observational-standardised",
]
CHEAP = ["varici2025-table7", "wu2026-figure3", "liu2024-chain", "xu2026-blocks", "xu2026-balls"]
LABEL = re.compile(summary_schema()["items"]["properties"]["method"]["pattern"])

MakeStudy = Callable[..., Study]


def without_scores(setting: Any) -> dict[str, Any]:
    return {key: value for key, value in setting.items() if key != "scores"}


class TestShipped:
    def test_all_are_there(self):
        assert set(SHIPPED) >= NAMED_IN_THE_PLAN

    @pytest.mark.parametrize("name", SHIPPED)
    def test_both_profiles_expand(self, name: str):
        study = load_study(name)
        assert set(study.profiles) == {"quick", "full"}
        for profile in study.profiles:
            cells = Plan.of(study, profile).cells
            # Two variants may come down to the same runs in a small profile.
            assert len({(cell.key, cell.label) for cell in cells}) == len(cells) > 0
            assert all(LABEL.match(cell.label) for cell in cells)

    @pytest.mark.parametrize("name", SHIPPED)
    def test_it_says_what_it_is(self, name: str):
        study = load_study(name)
        assert study.title
        assert "\n" not in study.title
        assert study.source
        assert study.notes

    @pytest.mark.parametrize("name", SHIPPED)
    def test_quick_is_small(self, name: str):
        plan = Plan.of(load_study(name), "quick")
        assert len(list(plan.runs())) <= 100
        assert plan.seeds <= 3
        assert max(cell.world_parameters["n_samples"] for cell in plan.cells) <= 1000

    @pytest.mark.parametrize("name", SHIPPED)
    def test_smallest_world_of_quick_is_made(self, name: str):
        cells = Plan.of(load_study(name), "quick").cells
        smallest = min(cells, key=lambda cell: _size(cell.world_parameters))
        world = WORLDS[smallest.world](**smallest.world_parameters, random_state=0)
        assert world.n_samples <= 20_000
        assert world.truth is not None
        assert world.truth.n_latents == smallest.world_parameters["n_latents"]

    @pytest.mark.parametrize("name", SHIPPED)
    def test_published_values_stand_beside_a_cell(self, name: str):
        study = load_study(name)
        settings = [without_scores(cell.setting) for cell in Plan.of(study, "full").cells]
        for published in study.published:
            wanted = without_scores(published.setting)
            assert any(wanted.items() <= setting.items() for setting in settings), wanted
            assert set(published.values) <= {*study.metrics, "seconds"}
            for value, spread in published.values.values():
                assert math.isfinite(value)
                assert spread is None or spread >= 0

    @pytest.mark.parametrize("name", PUBLISHED_ALGORITHM)
    def test_each_kind_of_scores_has_its_cut(self, name: str):
        cells = Plan.of(load_study(name), "full").cells
        own = [cell for cell in cells if cell.label == "LinearInterventionCRL[paper]"]
        cuts = {(cell.scores, cell.parameters["edge_cut"]) for cell in own}
        assert cuts == {("exact", 0.001), ("estimated", 0.01)}

    @pytest.mark.parametrize("name", CHEAP)
    def test_first_seed_of_quick(self, name: str, tmp_path: Path):
        study = _baselines_of(load_study(name))
        sweep = run_study(study, tmp_path, profile="quick", seeds=1)
        progress = sweep.progress()
        assert (progress.failed, progress.left) == (0, 0)
        assert {row.method for row in sweep.summary()} == {"PCABaseline", "ICABaseline"}
        assert all(row.n == 1 for row in sweep.summary())

    @pytest.mark.parametrize("name", OBSERVATIONAL)
    def test_the_published_algorithm_on_observational_data(self, name: str, tmp_path: Path):
        definition = dict(load_study(name).definition)
        definition["methods"] = [
            entry for entry in definition["methods"] if entry["method"] == "ScoreLayers"
        ]
        setting = {**definition["profiles"]["quick"].get("setting", {}), "n_samples": 300}
        parameters = definition["profiles"]["quick"].get("parameters", {})
        quick = {"seeds": 1, "setting": setting, "parameters": parameters}
        study = Study.from_dict(name, {**definition, "profiles": {"quick": quick}})
        sweep = run_study(study, tmp_path, profile="quick")
        assert sweep.progress().failed == 0
        rows = [row for row in sweep.summary() if row.metric == "layer_recovery"]
        assert all(row.chance is not None for row in rows)
        exact = [row for row in rows if row.setting["scores"] == "exact"]
        # Regressions on noises are harder to fit, and 300 rows too few for them.
        exact = [row for row in exact if "on noises" not in row.method]
        best = [row for row in exact if row.setting.get("signal_to_error", 1e6) == 1e6]
        assert min(row.mean or 0 for row in best) > 0.9

    @pytest.mark.parametrize("name", [name for name in OBSERVATIONAL if "figure4" not in name])
    def test_ours_stands_beside_the_same_likelihood_from_the_truth(self, name: str):
        cells = Plan.of(load_study(name), "full").cells
        inits = {cell.label: cell.parameters["init"] for cell in cells if "init" in cell.parameters}
        assert inits["ObservationalCRL"] is None
        assert inits["ObservationalCRL[from the truth]"] == "$true_encoder"


def _size(parameters: Any) -> int:
    return parameters["n_latents"] * parameters["n_samples"]


def _baselines_of(study: Study) -> Study:
    definition = dict(study.definition)
    names = ("PCABaseline", "ICABaseline")
    definition["methods"] = [entry for entry in definition["methods"] if entry["method"] in names]
    quick = {**definition["profiles"]["quick"], "parameters": {}}
    definition["profiles"] = {"quick": quick}
    return Study.from_dict(study.name, definition)


class TestReading:
    def test_a_file_of_ones_own(self, study_file: Callable[..., Path], definition: dict[str, Any]):
        study = load_study(study_file())
        assert study.name == "tiny"
        assert study == Study.from_dict("tiny", definition)
        assert load_study(str(study_file())) == study

    def test_a_class_of_ones_own(self, study_file: Callable[..., Path], tmp_path: Path):
        path = study_file(methods=[{"method": "own_methods.Rehearsed"}])
        sweep = run_study(path, tmp_path / "out", profile="quick")
        assert sweep.progress().done == 2
        assert {row.method for row in sweep.summary()} == {"Rehearsed"}

    def test_a_mark_in_front_of_the_text(self, study_file: Callable[..., Path]):
        path = study_file()
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert load_study(path).title == "Tiny"

    def test_not_utf8(self, tmp_path: Path):
        path = tmp_path / "latin.toml"
        path.write_bytes(b'title = "caf\xe9"')
        with pytest.raises(ValueError, match=r"latin\.toml' is not a text in UTF-8"):
            load_study(path)

    def test_not_toml(self):
        with pytest.raises(ValueError, match=r"'mine' is not valid TOML: .*line 2"):
            Study.parse("mine", "\ntitle = 'a' b")

    def test_no_such_study(self):
        with pytest.raises(ValueError, match=r"no study 'varici'.*varici2025-table7.*\.toml"):
            load_study("varici")

    def test_no_such_file(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError):
            load_study(tmp_path / "missing.toml")

    def test_defaults(self, make_study: MakeStudy):
        study = make_study()
        assert (study.notes, study.spread, study.evaluated_on) == ("", "standard error", "all")
        assert study.figures == ()
        assert study.published == ()
        assert study.methods == (Entry("PCABaseline"),)

    def test_slopes_in_theory_are_those_of_the_setting(self, make_study: MakeStudy):
        theory = [{"setting": {"kind": "hard"}, "mcc": -1}, {"setting": {"kind": "soft"}, "r2": -2}]
        slope = make_study(slope={"along": "n_samples", "theory": theory}, grid=ROWS).slope
        assert slope is not None
        assert slope.along == "n_samples"
        assert slope.in_theory({"kind": "hard", "n_latents": 2}, "mcc") == -1
        assert slope.in_theory({"kind": "hard", "n_latents": 2}, "r2") is None
        assert slope.in_theory({"kind": "soft"}, "r2") == -2
        assert slope.in_theory({}, "r2") is None
        assert make_study().slope is None

    def test_notes_are_one_paragraph(self, make_study: MakeStudy):
        assert make_study(notes="\nOne\ntwo.  Three.\n").notes == "One two. Three."


QUICK = {"seeds": 2}
ROWS = [{"n_latents": 2, "n_samples": [10, 20, 40]}]
MISTAKES = {
    "slope not a table": ({"slope": "n_samples"}, "'slope' of the file must be a table"),
    "slope along nothing": ({"slope": {}}, r"\[slope\] needs a 'along'"),
    "unknown key of a slope": (
        {"slope": {"along": "n_samples", "rate": 1}},
        r"\[slope\] has no place for rate; known are along, theory",
    ),
    "slope along too few values": (
        {"slope": {"along": "n_samples"}, "grid": [{"n_samples": [10, 20, 20]}]},
        r"'along' of \[slope\] must name a parameter with 3 values or more in every \[\[grid\]\]",
    ),
    "slope along a stranger": (
        {"slope": {"along": "n_rows"}, "grid": ROWS},
        "must name a parameter with 3 values .* Got 'n_rows'",
    ),
    "slope along what has no logarithm": (
        {"slope": {"along": "delta"}, "grid": [{"delta": [0, 1, 2]}]},
        r"'delta', on whose logarithm .* must have positive numbers. Got \[0, 1, 2\]",
    ),
    "a profile along what has no logarithm": (
        {
            "slope": {"along": "n_samples"},
            "grid": ROWS,
            "profiles": {"quick": {"seeds": 1, "setting": {"n_samples": "few"}}},
        },
        "must have positive numbers. Got 'few'",
    ),
    "theory not tables": (
        {"slope": {"along": "n_samples", "theory": [3]}, "grid": ROWS},
        r"'theory' of \[slope\] must be written as tables \[\[slope.theory\]\]",
    ),
    "theory of another metric": (
        {"slope": {"along": "n_samples", "theory": [{"shd": -1}]}, "grid": ROWS},
        r"\[\[slope.theory\]\] must be about metrics of the study that can be .* Got 'shd'",
    ),
    "theory of what cannot be perfect": (
        {
            "slope": {"along": "n_samples", "theory": [{"evidence_gap": -1}]},
            "metrics": ["evidence_gap"],
            "grid": ROWS,
        },
        "metrics of the study that can be perfect. Got 'evidence_gap'",
    ),
    "theory not a number": (
        {"slope": {"along": "n_samples", "theory": [{"mcc": "fast"}]}, "grid": ROWS},
        r"'mcc' of \[\[slope.theory\]\] must be a number. Got 'fast'",
    ),
    "no title": ({"title": None}, "the file needs a 'title'"),
    "title not text": ({"title": 3}, "'title' of the file must be a text. Got 3 instead"),
    "notes not text": ({"notes": ["a"]}, "'notes' of the file must be a text"),
    "no grid": ({"grid": None}, "the file needs a 'grid'"),
    "grid a table": ({"grid": {"n_latents": 2}}, r"'grid' must be written as .* \[\[grid\]\]"),
    "no grids": ({"grid": []}, "'grid' must be written as one or more tables"),
    "empty axis": ({"grid": [{"n_latents": []}]}, "n_latents in .* has no values"),
    "no methods": ({"methods": []}, "'methods' must be written as one or more tables"),
    "nameless method": ({"methods": [{}]}, r"\[\[methods\]\] needs a 'method'"),
    "method not text": ({"methods": [{"method": 3}]}, r"'method' of .* must be a text"),
    "parameters not a table": (
        {"methods": [{"method": "IVAE", "parameters": 3}]},
        "'parameters' of .* must be a table",
    ),
    "unknown key of a method": (
        {"methods": [{"method": "IVAE", "params": {}}]},
        r"\[\[methods\]\] has no place for params; known are method, parameters",
    ),
    "unknown scores": (
        {"methods": [{"method": "IVAE", "scores": ["true"]}]},
        "'scores' must be among exact, estimated",
    ),
    "scores not a list": (
        {"methods": [{"method": "IVAE", "scores": "exact"}]},
        "'scores' of .* must be a list",
    ),
    "a class twice": (
        {"methods": [{"method": "IVAE"}, {"method": "mine.IVAE"}]},
        "IVAE comes more than once with the same scores; give each entry a 'variant', or different",
    ),
    "a class twice with some scores in common": (
        {"methods": [{"method": "IVAE", "scores": list(SCORES)}, {"method": "IVAE"}]},
        "IVAE comes more than once with the same scores",
    ),
    "errors that are none": (
        {"methods": [{"method": "IVAE", "scores": ["exact"], "signal_to_error": [0]}]},
        r"'signal_to_error' must be a list of positive numbers. Got \[0\]",
    ),
    "errors of estimated scores": (
        {"methods": [{"method": "IVAE", "signal_to_error": [1]}]},
        "'signal_to_error' goes with scores = .* only",
    ),
    "bounds that are no numbers": (
        {"methods": [{"method": "IVAE", "at_most": {"n_samples": "few"}}]},
        "'at_most' must hold the largest number of each parameter",
    ),
    "unknown figures": ({"figures": ["maps"]}, "'figures' must be among noises"),
    "unknown world": ({"world": "flatland"}, "'world' must be one of .*segments.* Got 'flatland'"),
    "unknown metric": ({"metrics": ["mmc"]}, "metrics must be among mcc, .* Got 'mmc'"),
    "no metrics": ({"metrics": []}, "'metrics' must be a list of names"),
    "metrics not a list": ({"metrics": "mcc"}, "'metrics' of the file must be a list"),
    "unknown spread": ({"spread": "variance"}, "'spread' must be one of standard error"),
    "unknown rows": ({"evaluated_on": "some"}, "'evaluated_on' must be one of all, reference"),
    "unknown key": ({"author": "me"}, "the file has no place for author; known are title"),
    "no profiles": ({"profiles": {}}, "it needs a profile"),
    "profiles not a table": ({"profiles": 3}, "'profiles' of the file must be a table"),
    "profile not a table": ({"profiles": {"quick": 3}}, "'quick' of .* must be a table"),
    "no seeds": ({"profiles": {"quick": {}}}, r"\[profiles.quick\] needs 'seeds', an integer"),
    "seeds not a number": ({"profiles": {"quick": {"seeds": True}}}, "needs 'seeds'.* Got True"),
    "unknown key of a profile": (
        {"profiles": {"quick": {**QUICK, "sizes": {}}}},
        r"\[profiles.quick\] has no place for sizes",
    ),
    "setting not a table": (
        {"profiles": {"quick": {**QUICK, "setting": 3}}},
        "'setting' of .* must be a table",
    ),
    "parameters for a stranger": (
        {"profiles": {"quick": {**QUICK, "parameters": {"IVAE": {}}}}},
        "has parameters for IVAE, which is not among its methods, PCABaseline",
    ),
    "parameters not a table of tables": (
        {"profiles": {"quick": {**QUICK, "parameters": {"PCABaseline": 3}}}},
        "'PCABaseline' of 'parameters' of .* must be a table",
    ),
    "nameless published": ({"published": [{"mcc": 1}]}, r"\[\[published\]\] needs a 'method'"),
    "published not a table": ({"published": ["IVAE"]}, r"'published' must be written as"),
    "unknown published metric": (
        {"published": [{"method": "IVAE", "mmc": 1}]},
        "metrics must be among .* Got 'mmc'",
    ),
    "three numbers": (
        {"published": [{"method": "IVAE", "mcc": [1, 2, 3]}]},
        r"a number or \[value, spread\]. Got \[1, 2, 3\]",
    ),
    "published text": (
        {"published": [{"method": "IVAE", "mcc": "0.9"}]},
        r"a number or \[value, spread\]. Got '0.9'",
    ),
    "published truth": (
        {"published": [{"method": "IVAE", "mcc": True}]},
        r"a number or \[value, spread\]. Got True",
    ),
}


class TestMistakes:
    @pytest.mark.parametrize(("changes", "message"), MISTAKES.values(), ids=list(MISTAKES))
    def test_each_is_named(self, definition: dict[str, Any], changes: dict[str, Any], message: str):
        broken = {key: item for key, item in {**definition, **changes}.items() if item is not None}
        with pytest.raises(ValueError, match=f"The study 'broken' cannot be read: .*{message}"):
            Study.from_dict("broken", broken)

    def test_dates_are_refused(self, study_file: Callable[..., Path]):
        path = study_file()
        path.write_text(path.read_text() + "\nnotes = 2026-01-01\n")
        with pytest.raises(ValueError, match=r"must stand in quotes\. Got '2026-01-01'"):
            load_study(path)

    def test_unknown_profile(self, make_study: MakeStudy):
        with pytest.raises(ValueError, match=r"no profile 'huge'\. It has: quick, full"):
            make_study().profile("huge")


class TestSettings:
    def test_product_of_each_grid_and_their_union(self, make_study: MakeStudy):
        grids = [{"n_latents": [2, 3], "n_samples": [5, 6]}, {"n_latents": [3, 4], "n_samples": 5}]
        found = make_study(grid=grids).settings("quick")
        pairs = [(setting["n_latents"], setting["n_samples"]) for setting in found]
        assert pairs == [(2, 5), (2, 6), (3, 5), (3, 6), (4, 5)]  # (3, 5) comes once

    def test_a_list_of_lists_is_an_axis_of_lists(self, make_study: MakeStudy):
        grid = {"n_latents": 2, "n_segments": 2, "n_samples": [[5, 6], [7, 8]]}
        found = make_study(grid=[grid]).settings("quick")
        assert [setting["n_samples"] for setting in found] == [[5, 6], [7, 8]]

    def test_a_profile_replaces_in_every_grid(self, make_study: MakeStudy):
        profiles = {"quick": {"seeds": 1, "setting": {"n_latents": 3, "noise": "laplace"}}}
        grids = [{"n_latents": [4, 5], "n_samples": 5}, {"n_latents": 6, "n_samples": [5, 6]}]
        found = make_study(grid=grids, profiles=profiles).settings("quick")
        assert found == [
            {"n_latents": 3, "n_samples": 5, "noise": "laplace"},
            {"n_latents": 3, "n_samples": 6, "noise": "laplace"},
        ]


class TestLabels:
    def test_variants(self):
        assert Entry("IVAE").label == "IVAE"
        assert Entry("mine.here.IVAE", variant="wide").label == "IVAE[wide]"
        assert Entry("X", {"estimator": "paper"}).label == "X[paper]"
        assert Entry("X", {"estimator": "paper"}, "old").label == "X[old]"
        assert Entry("X", {"estimator": "likelihood"}).label == "X"

    def test_a_label_of_its_own(self, make_study: MakeStudy):
        entry = {"method": "LSCALEI", "label": "LinearInterventionCRL[paper]"}
        study = make_study(methods=[entry])
        assert study.labels == ("LinearInterventionCRL[paper]",)
        assert study.methods[0].method == "LSCALEI"

    def test_one_label_for_both_kinds_of_scores(self, make_study: MakeStudy):
        entries = [{"method": "IVAE", "scores": [kind]} for kind in SCORES]
        assert make_study(methods=[*entries, {"method": "PCABaseline"}]).labels == (
            "IVAE",
            "PCABaseline",
        )

    def test_class_of(self):
        assert class_of("IVAE[rate 0.01]") == class_of("a.b.IVAE") == class_of("IVAE") == "IVAE"


class TestPublished:
    @pytest.fixture
    def study(self, make_study: MakeStudy) -> Study:
        return make_study(
            published=[
                {"method": "A", "setting": {"n_latents": 2}, "mcc": [0.5, 0.1], "r2": 1},
                {"method": "A[wide]", "setting": {"n_latents": 2}, "mcc": 0.7, "shd": 3},
                {"method": "VaDE", "setting": {"n_latents": 2}, "mcc": 0.1},
            ]
        )

    def test_beside_the_class_and_its_variants(self, study: Study):
        setting = {"n_latents": 2, "n_samples": 5}
        assert study.paper(setting, "A", "mcc") == (0.5, 0.1)
        assert study.paper(setting, "A[paper]", "mcc") == (0.5, 0.1)

    def test_a_named_variant_is_closer(self, study: Study):
        assert study.paper({"n_latents": 2}, "A[wide]", "mcc") == (0.7, None)
        assert study.paper({"n_latents": 2}, "A[wide]", "r2") == (1.0, None)
        assert study.paper({"n_latents": 2}, "A[wide]", "shd") == (3.0, None)

    def test_nothing_beside_others(self, study: Study):
        assert study.paper({"n_latents": 3}, "A", "mcc") == (None, None)
        assert study.paper({}, "A", "mcc") == (None, None)
        assert study.paper({"n_latents": 2}, "B", "mcc") == (None, None)
        assert study.paper({"n_latents": 2}, "A", "shd") == (None, None)  # only for A[wide]
        assert study.paper({"n_latents": 2}, "A[narrow]", "shd") == (None, None)

    def test_each_method_once(self, study: Study):
        assert study.published_methods == ("A", "A[wide]", "VaDE")
