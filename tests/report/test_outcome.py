from __future__ import annotations

from dataclasses import replace

import pytest

from crlearn.bench import Sweep
from crlearn.report._outcome import SECONDS, Outcome


def marks_of(outcome: Outcome, metric: str, method: str, **setting) -> list:
    return [
        mark
        for mark in outcome.marks
        if (mark.metric, mark.method) == (metric, method)
        and setting.items() <= dict(mark.setting).items()
    ]


def test_means_over_seeds_with_the_paper_beside_them(make_sweep):
    outcome = Outcome.of(make_sweep())
    (mark,) = marks_of(outcome, "mcc", "ICABaseline", n_latents=3, n_samples=100)
    assert mark.ours.mean == pytest.approx(0.91)
    assert mark.ours.spread == pytest.approx(0.01)
    assert mark.ours.best
    assert (mark.paper.mean, mark.paper.spread) == (0.95, 0.02)
    assert mark.n == 3
    assert [seed for seed, _ in mark.seeds] == [0, 1, 2]
    assert mark.chance == pytest.approx(0.7)
    (other,) = marks_of(outcome, "mcc", "PCABaseline", n_latents=3, n_samples=100)
    assert not other.ours.best
    assert other.paper.mean is None


def test_published_values_of_methods_that_were_not_run(make_sweep):
    outcome = Outcome.of(make_sweep())
    (mark,) = marks_of(outcome, "mcc", "VaDE")
    assert (mark.n, mark.ours.mean, mark.paper.mean) == (0, None, 0.5)
    assert dict(mark.setting)["n_samples"] == 1000
    assert outcome.methods == ["PCABaseline", "ICABaseline", "VaDE"]


def test_a_variant_does_not_hide_what_was_published_for_the_class(make_sweep):
    outcome = Outcome.of(
        make_sweep(
            methods=[{"method": "ICABaseline", "variant": "exp"}],
            published=[
                {"method": "ICABaseline", "setting": {"n_latents": 3}, "mcc": 0.3},
                {"method": "ICABaseline[exp]", "setting": {"n_latents": 3}, "mcc": 0.4},
                {"method": "ICABaseline", "setting": {"n_latents": 5}, "mcc": 0.5},
            ],
        )
    )
    found = {mark.method: mark.paper.mean for mark in outcome.marks if mark.metric == "mcc"}
    assert found == {"ICABaseline[exp]": 0.5, "ICABaseline": 0.3}
    (mark,) = marks_of(outcome, "mcc", "ICABaseline[exp]", n_latents=3, n_samples=100)
    assert mark.paper.mean == 0.4


def test_a_metric_that_some_runs_do_not_have(make_sweep, good_result):
    def without(run):
        result = good_result(run)
        metrics = {"mcc": result["metrics"]["mcc"], **({} if run.seed else {"evidence_gap": 7.0})}
        return {**result, "metrics": metrics}

    outcome = Outcome.of(make_sweep(without, metrics=["mcc", "evidence_gap"]))
    (mark,) = marks_of(outcome, "evidence_gap", "ICABaseline", n_latents=3, n_samples=100)
    assert (mark.n, mark.ours.mean, list(mark.seeds)) == (1, 7.0, [(0, 7.0)])


def test_seconds_have_a_spread_too(make_sweep):
    outcome = Outcome.of(make_sweep())
    mark = marks_of(outcome, SECONDS, "PCABaseline")[0]
    assert mark.ours.mean == pytest.approx(1.5)
    assert mark.ours.spread == pytest.approx(1.0)
    assert mark.seeds == [(0, 0.5), (1, 1.5), (2, 2.5)]


def test_failures_and_what_is_left(make_sweep, failed_result, good_result):
    def some(run):
        if run.seed == 2:
            return None
        return failed_result(run) if run.cell.label == "PCABaseline" else good_result(run)

    outcome = Outcome.of(make_sweep(some))
    assert (len(outcome.done), len(outcome.failures), outcome.left) == (12, 12, 12)
    (mark,) = marks_of(outcome, "mcc", "PCABaseline", n_latents=3, n_samples=100)
    assert (mark.ours.mean, mark.ours.failed, mark.n) == (None, 2, 0)
    assert not marks_of(outcome, SECONDS, "PCABaseline")


def test_settings_are_reduced_to_what_varies(make_sweep):
    outcome = Outcome.of(make_sweep())
    assert outcome.settings[0] == {"n_latents": 3, "n_samples": 100}
    assert len(outcome.settings) == 6


def test_no_run_yet(make_sweep):
    outcome = Outcome.of(make_sweep(lambda run: None))
    assert (outcome.rows, outcome.marks, outcome.settings, outcome.methods) == ([], [], [], [])
    assert outcome.left == 36


def test_a_folder_of_other_code_is_shown_by_its_own_summary(make_sweep, monkeypatch):
    sweep = make_sweep()
    sweep.write_summary({record.key: record for record in sweep.records()})
    monkeypatch.setattr("crlearn.bench._code.fingerprint", lambda: "other")
    outcome = Outcome.of(Sweep.read(sweep.folder))
    assert (len(outcome.done), outcome.left) == (36, 0)
    assert marks_of(outcome, "mcc", "PCABaseline")[0].n == 3
    assert len(marks_of(outcome, "mcc", "PCABaseline")[0].seeds) == 3
    (sweep.folder / "summary.json").unlink()
    assert Outcome.of(Sweep.read(sweep.folder)).rows == []


def test_records_of_another_plan_do_not_count(make_sweep):
    sweep = make_sweep(seeds=2)
    fewer = replace(sweep, study=replace(sweep.study, grids=sweep.study.grids[:1]), seeds=1)
    assert Outcome.of(fewer).left == 0
    other = {"n_features": 10, "n_latents": 4, "n_samples": 100}
    changed = Outcome.of(replace(sweep, study=replace(sweep.study, grids=(other,))))
    assert (changed.records, changed.left) == ([], 4)
