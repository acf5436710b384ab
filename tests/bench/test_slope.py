from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from crlearn.bench import Plan, Record, Row, Study, summarise
from crlearn.bench._slope import slope_of

MakeStudy = Callable[..., Study]


def falling(power: float, factor: float = 1.0) -> dict[float, float]:
    return {place: factor * place**power for place in (100, 1000, 10000)}


class TestOneFamily:
    def test_a_power_is_found_whatever_the_factor(self):
        slope = slope_of({seed: falling(-0.5, factor=seed + 1) for seed in range(3)})
        assert slope is not None
        assert (slope.mean, slope.error) == pytest.approx((-0.5, 0.0), abs=1e-12)

    def test_least_squares_and_standard_error_over_seeds(self):
        bent = {1: 1.0, math.e: math.exp(2.0), math.e**2: math.exp(1.0)}
        slope = slope_of({0: bent, 1: {place: 1 / place for place in bent}})
        assert slope is not None
        # (1 - 0) / 2 and -1: their mean, and half of their difference.
        assert (slope.mean, slope.error) == pytest.approx((-0.25, 0.75))

    def test_one_seed_has_no_standard_error(self):
        slope = slope_of({7: falling(-1.0)})
        assert slope is not None
        assert slope.mean == pytest.approx(-1.0)
        assert slope.error is None

    def test_a_seed_that_lacks_a_place_does_not_count(self):
        lacking: dict[float, float] = {100: 1.0, 10000: 50.0}
        assert slope_of({0: falling(-0.5), 1: lacking}) == slope_of({0: falling(-0.5)})

    @pytest.mark.parametrize(
        "errors",
        [
            {},
            {0: {100: 0.1}},
            {0: {100: 0.1}, 1: {1000: 0.1}},
            {0: {100: 0.1, 1000: 0.0}},
            {0: falling(-0.5), 1: {**falling(-0.5), 1000: 1e-15}},
        ],
    )
    def test_there_is_none(self, errors: dict[int, dict[float, float]]):
        assert slope_of(errors) is None


class TestOfAStudy:
    @pytest.fixture
    def study(self, make_study: MakeStudy) -> Study:
        sizes = {"n_latents": [2, 3], "n_features": 3, "n_segments": 3, "n_samples": [10, 20, 40]}
        return make_study(
            grid=[sizes],
            slope={"along": "n_samples"},
            methods=[{"method": "PCABaseline"}, {"method": "ICABaseline"}],
            metrics=["mcc", "scale_error", "evidence_gap"],
        )

    @staticmethod
    def summary(study: Study, broken: Callable[[Any, int], bool] = lambda *_: False) -> list[Row]:
        """Errors that fall with a power: -1 for two latents, -2 for three, of PCA, else 0."""
        plan = Plan.of(study, "quick")
        records = []
        for run in plan.runs():
            setting = run.cell.setting
            power = (1 - setting["n_latents"]) * (run.cell.label == "PCABaseline")
            error = (run.seed + 1) * setting["n_samples"] ** float(power)
            failed = broken(setting, run.seed)
            records.append(
                Record(
                    key=run.key,
                    cell=run.cell.key,
                    study=study.name,
                    setting=setting,
                    method=run.cell.label,
                    parameters=run.cell.parameters,
                    seed=run.seed,
                    status="failed" if failed else "done",
                    metrics={}
                    if failed
                    else {"mcc": 1 - error / 10, "scale_error": error, "evidence_gap": error},
                )
            )
        return summarise(plan, records)

    def test_each_family_of_settings_and_each_method_has_its_own(self, study: Study):
        for row in self.summary(study):
            if row.metric == "evidence_gap":
                assert row.slope is None  # there is nothing that is perfect
                continue
            power = (1 - row.setting["n_latents"]) * (row.method == "PCABaseline")
            assert row.slope == pytest.approx(power, abs=1e-9), row
            assert row.slope_error == pytest.approx(0.0, abs=1e-9)

    def test_seeds_that_failed_somewhere_are_left_out(self, study: Study):
        rows = self.summary(study, lambda setting, seed: (setting["n_samples"], seed) == (20, 1))
        assert all(row.slope_error is None for row in rows)
        assert {row.metric for row in rows if row.slope is not None} == {"mcc", "scale_error"}

    def test_none_where_the_study_asks_for_none(self, study: Study, make_study: MakeStudy):
        asked = {key: value for key, value in study.definition.items() if key != "slope"}
        rows = self.summary(make_study(**asked))
        assert len(rows) == 36
        assert all(row.slope is None for row in rows)
