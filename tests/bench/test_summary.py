from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlearn.bench import (
    Plan,
    Record,
    Row,
    Study,
    read_summary,
    run_study,
    summarise,
    summary_schema,
)
from crlearn.exceptions import CorruptFileError
from crlearn.metrics import METRICS

MakeStudy = Callable[..., Study]

ROW = Row(
    study="tiny",
    setting={"n_latents": 2, "scores": "estimated"},
    method="IVAE[all restarts]",
    metric="mcc",
    mean=0.5,
    sd=0.1,
    n=3,
    paper=0.9,
    seconds=1.5,
)


def is_valid(rows: Any) -> bool:
    schema = summary_schema()
    validator = jsonschema.Draft202012Validator
    validator.check_schema(schema)
    return validator(schema).is_valid(rows)


@pytest.fixture
def plan(make_study: MakeStudy) -> Plan:
    study = make_study(
        methods=[
            {"method": "PCABaseline"},
            {"method": "ICABaseline"},
            {"method": "ICABaseline", "variant": "short", "parameters": {"max_iter": 5}},
        ],
        published=[
            {"method": "ICABaseline", "setting": {"n_latents": 2}, "mcc": [0.8, 0.05]},
            {"method": "ICABaseline", "setting": {"n_latents": 3}, "mcc": 0.1},
            {"method": "VaDE", "setting": {"n_latents": 2}, "mcc": 0.2},
        ],
    )
    return Plan.of(study, "quick")


@pytest.fixture
def record(plan: Plan) -> Callable[..., Record]:
    """A record of the cell with this number."""

    def make(cell: int, seed: int, **fields: Any) -> Record:
        chosen = plan.cells[cell]
        known = {"seconds": 1.0, "chance": {"mcc": 0.625, "r2": None}, "status": "done", **fields}
        return Record(
            key=f"{cell} {seed}",
            cell=chosen.key,
            study="tiny",
            setting=chosen.setting,
            method=chosen.label,
            parameters=chosen.parameters,
            seed=seed,
            **known,
        )

    return make


class TestNumbers:
    def test_mean_and_standard_deviation(self, plan: Plan, record: Callable[..., Record]):
        values = [0.25, 0.5, 0.75]
        records = [
            record(0, seed, metrics={"mcc": value, "r2": 1.0}, seconds=seed + 1.0)
            for seed, value in enumerate(values)
        ]
        mcc, r2 = summarise(plan, records)
        assert mcc == Row(
            study="tiny",
            setting=plan.cells[0].setting,
            method="PCABaseline",
            metric="mcc",
            mean=0.5,
            sd=0.25,
            n=3,
            paper=None,
            seconds=2.0,
            paper_spread=None,
            chance=0.625,
            failed=0,
            lower_quartile=0.375,
            median=0.5,
            upper_quartile=0.625,
        )
        assert (r2.metric, r2.mean, r2.sd, r2.chance) == ("r2", 1.0, 0.0, None)

    def test_a_single_run_has_no_spread(self, plan: Plan, record: Callable[..., Record]):
        (row,) = summarise(plan, [record(0, 0, metrics={"mcc": 0.2})])
        assert (row.mean, row.sd, row.n) == (0.2, None, 1)
        assert (row.lower_quartile, row.median, row.upper_quartile) == (None, None, None)

    def test_failures_are_counted_and_not_averaged(self, plan: Plan, record: Callable[..., Record]):
        rows = summarise(
            plan,
            [
                record(0, 0, metrics={"mcc": 0.2}, seconds=1.0),
                record(0, 1, status="failed", seconds=None),
                record(0, 2, status="diverged", seconds=None),
            ],
        )
        assert [(row.n, row.failed, row.mean, row.seconds) for row in rows] == [(1, 2, 0.2, 1.0)]

    def test_a_cell_with_failures_only(self, plan: Plan, record: Callable[..., Record]):
        rows = summarise(plan, [record(0, 0, status="failed", seconds=None, chance={})])
        assert [row.metric for row in rows] == ["mcc", "r2"]
        for row in rows:
            assert (row.mean, row.sd, row.n, row.failed, row.seconds) == (None, None, 0, 1, None)
        assert is_valid([row.to_dict() for row in rows])

    def test_a_metric_that_some_runs_do_not_have(self, plan: Plan, record: Callable[..., Record]):
        rows = summarise(
            plan,
            [record(0, 0, metrics={"mcc": 0.2, "r2": 0.5}), record(0, 1, metrics={"mcc": 0.4})],
        )
        assert [(row.metric, row.n) for row in rows] == [("mcc", 2), ("r2", 1)]

    def test_order_of_records_does_not_matter(self, plan: Plan, record: Callable[..., Record]):
        records = [
            record(cell, seed, metrics={"mcc": 0.1 * seed + 0.01 * cell, "r2": 1 / (seed + 1)})
            for cell in range(3)
            for seed in range(3)
        ]
        rows = summarise(plan, records)
        assert rows == summarise(plan, records[::-1])
        assert [row.method for row in rows[::2]] == [cell.label for cell in plan.cells]

    def test_records_of_other_cells_are_left_out(self, plan: Plan, record: Callable[..., Record]):
        stranger = replace(record(0, 0, metrics={"mcc": 0.1}), cell="another version")
        assert summarise(plan, [stranger]) == []


class TestPaper:
    def test_beside_the_class_it_is_about(self, plan: Plan, record: Callable[..., Record]):
        records = [record(cell, 0, metrics={"mcc": 0.5, "r2": 0.5}) for cell in range(3)]
        found = {
            (row.method, row.metric): (row.paper, row.paper_spread)
            for row in summarise(plan, records)
        }
        assert found == {
            ("PCABaseline", "mcc"): (None, None),
            ("PCABaseline", "r2"): (None, None),
            ("ICABaseline", "mcc"): (0.8, 0.05),
            ("ICABaseline", "r2"): (None, None),
            ("ICABaseline[short]", "mcc"): (0.8, 0.05),
            ("ICABaseline[short]", "r2"): (None, None),
        }


class TestSchema:
    def test_it_knows_every_metric(self):
        properties = summary_schema()["items"]["properties"]
        assert properties["metric"]["enum"] == list(METRICS)
        assert set(properties) == set(asdict(ROW))

    def test_a_whole_sweep(self, make_study: MakeStudy, tmp_path: Path):
        methods = [{"method": "PCABaseline"}, {"method": "ICABaseline", "variant": "as it is"}]
        run_study(make_study(methods=methods), tmp_path, profile="quick")
        rows = json.loads((tmp_path / "summary.json").read_text())
        assert is_valid(rows)
        assert len(rows) == 4

    @pytest.mark.parametrize(
        "change",
        [
            {"metric": "precision"},
            {"mean": "0.5"},
            {"sd": -0.1},
            {"n": 1.5},
            {"n": -1},
            {"paper": "0.9"},
            {"seconds": -1},
            {"method": "IVAE ["},
            {"method": "all restarts"},
            {"study": ""},
            {"setting": {}},
            {"setting": {"scores": "perfect"}},
            {"setting": {"scores": "exact", "n_latents": "5"}},
            {"setting": {"scores": "exact", "n_samples": [0]}},
            {"failed": -1},
            {"slope": "-0.5"},
            {"slope_error": -0.1},
            {"colour": "red"},
        ],
        ids=str,
    )
    def test_broken_rows(self, change: dict[str, Any]):
        assert is_valid([ROW.to_dict()])
        assert not is_valid([{**ROW.to_dict(), **change}])

    @pytest.mark.parametrize(
        "key", ["study", "setting", "method", "metric", "mean", "sd", "n", "paper", "seconds"]
    )
    def test_missing_entries(self, key: str):
        row = ROW.to_dict()
        del row[key]
        assert not is_valid([row])

    def test_not_a_list(self):
        assert not is_valid(ROW.to_dict())
        assert is_valid([])


NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)


class TestFile:
    @given(mean=NUMBERS, sd=NUMBERS, n=st.integers(0, 10**9), text=st.text())
    def test_there_and_back(self, tmp_path_factory: Any, mean: Any, sd: Any, n: int, text: str):
        row = replace(ROW, mean=mean, sd=sd, n=n, setting={"graph": text, "scores": "exact"})
        path = tmp_path_factory.mktemp("summary") / "summary.json"
        path.write_text(json.dumps([row.to_dict()]))
        assert read_summary(path) == [row]

    def test_the_entries_of_the_format_come_first(self):
        assert list(ROW.to_dict())[:9] == [
            *("study", "setting", "method", "metric", "mean", "sd", "n", "paper", "seconds")
        ]

    @pytest.mark.parametrize("content", ["", "[", "[3]", '[{"study": "a"}]', "3"])
    def test_other_files(self, tmp_path: Path, content: str):
        (tmp_path / "summary.json").write_text(content)
        with pytest.raises(CorruptFileError, match="is not a summary of crlearn bench"):
            read_summary(tmp_path / "summary.json")
