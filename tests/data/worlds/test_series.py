# Simulated worlds always have a truth, and most have labels.
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crlearn import persist
from crlearn.data import load_weather, make_mixed_series
from crlearn.methods import PCABaseline
from crlearn.metrics import evaluate

SERIES = np.random.default_rng(0).standard_normal((103, 3)) * [1.0, 5.0, 0.1] + 7


class TestWeather:
    def test_shape_and_names(self):
        names, series = load_weather()
        assert names == (
            *("JFK temperature", "JFK dew point", "JFK pressure"),
            *("JFK wind east", "JFK wind north", "EWR wind east"),
        )
        assert series.shape == (8730, 6)
        assert series.dtype == np.float32
        assert np.isfinite(series).all()

    def test_values_are_those_of_new_york(self):
        temperature, dew_point, pressure, *winds = load_weather()[1].T
        assert (dew_point <= temperature + 0.1).all()
        assert 980 < pressure.min() < pressure.max() < 1050
        assert np.abs(winds).max() < 50
        # The first hour that the source lists: 39 degrees, west wind.
        assert temperature[0] == pytest.approx(39, abs=1)
        assert winds[0][0] > 10

    def test_no_series_is_a_linear_function_of_the_others(self):
        correlations = np.corrcoef(load_weather()[1].T)
        explained = 1 - 1 / np.diag(np.linalg.inv(correlations))
        assert explained.max() < 0.9


class TestWorld:
    def test_shape_and_truth(self):
        world = make_mixed_series(n_features=9, n_segments=10, n_layers=2, random_state=0)
        truth = world.truth
        assert world.X.shape == (8730, 9)
        assert world.environments == tuple(range(10))
        assert truth.latent_names == load_weather()[0]
        assert truth.graph is None
        assert truth.noise is None
        np.testing.assert_allclose(truth.mixing(truth.Z), world.X)
        np.testing.assert_allclose(truth.Z.mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(truth.Z.std(axis=0), 1)

    def test_segments_are_stretches_of_time(self):
        world = make_mixed_series(series=SERIES, n_segments=10, random_state=0)
        assert (np.diff(world.y) >= 0).all()
        assert set(np.bincount(world.y)) == {10, 11}
        assert make_mixed_series(series=SERIES, n_segments=1).y is None

    def test_own_series(self):
        world = make_mixed_series(2, series=SERIES, n_segments=4, mixing=np.eye(2))
        expected = (SERIES - SERIES.mean(axis=0)) / SERIES.std(axis=0)
        np.testing.assert_allclose(world.X, expected[:, :2])
        assert world.truth.latent_names is None

    def test_same_seed_same_bits_and_noise_leaves_the_mixing(self):
        options = {"series": SERIES, "n_segments": 4, "random_state": 3}
        first, again = (make_mixed_series(**options) for _ in "ab")
        np.testing.assert_array_equal(first.X, again.X)
        noisy = make_mixed_series(measurement_noise=0.5, **options)
        assert (noisy.X - first.X).std() == pytest.approx(0.5, rel=0.15)

    def test_save_and_load(self, tmp_path):
        world = make_mixed_series(series=SERIES, n_segments=4, random_state=0)
        persist.save(world, tmp_path / "world.crl")
        again = persist.load(tmp_path / "world.crl")
        np.testing.assert_array_equal(again.truth.Z, world.truth.Z)
        assert again.truth.graph is None
        assert again.truth.noise is None

    def test_parts(self):
        world = make_mixed_series(series=SERIES, n_segments=4, random_state=0)
        first, second = world.split(0.5, random_state=0)
        assert first.truth.noise is None
        assert len(first.X) + len(second.X) == 103
        with pytest.raises(ValueError, match="are real data"):
            world.truth.score(world.truth.Z)


class TestEvaluation:
    def test_metrics_of_graphs_are_left_out_unless_asked_for(self):
        world = make_mixed_series(series=SERIES, n_segments=4, random_state=0)
        model = PCABaseline(n_latents=3).fit(world.X, world.y)
        assert {"mcc", "r2"} <= set(evaluate(model, world))
        metrics = ["shd", "edge_f1", "layer_recovery", "mac", "accuracy"]
        assert not set(evaluate(model, world, metrics, unavailable="skip")) & {"shd", "edge_f1"}

    def test_a_metric_of_graphs_says_that_none_is_known(self):
        world = make_mixed_series(series=SERIES, n_segments=4, random_state=0)
        model = PCABaseline(n_latents=3).fit(world.X, world.y)
        model.result_ = replace(model.result_, adjacency=np.zeros((3, 3), dtype=bool))
        with pytest.raises(ValueError, match="computed here: the true graph is not known"):
            evaluate(model, world, ["shd"])


class TestBadInput:
    @pytest.mark.parametrize("series", [SERIES[0], SERIES[:1], SERIES[:, :0]])
    def test_shape(self, series):
        with pytest.raises(ValueError, match="'series' must have two axes"):
            make_mixed_series(series=series)

    def test_values(self):
        with pytest.raises(ValueError, match="must hold numbers only"):
            make_mixed_series(series=[["a", "b"], ["c", "d"]])
        with pytest.raises(ValueError, match="interpolate short gaps"):
            make_mixed_series(series=np.where(SERIES > 8, np.nan, SERIES))
        with pytest.raises(ValueError, match="Column 1 does not"):
            make_mixed_series(series=SERIES * [1, 0, 1])

    def test_numbers(self):
        with pytest.raises(ValueError, match="'n_latents' must be at most the number of series, 3"):
            make_mixed_series(4, series=SERIES)
        with pytest.raises(ValueError, match="'n_segments' must be at most the number of rows"):
            make_mixed_series(series=SERIES, n_segments=200)
        with pytest.raises(ValueError, match="'n_segments' must be an integer"):
            make_mixed_series(series=SERIES, n_segments=0)
