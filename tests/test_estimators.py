from __future__ import annotations

import pytest

from crlearn import methods, published
from crlearn.estimators import ESTIMATORS, rebuild


def test_all_of_them_are_there():
    assert {*methods.ESTIMATORS, *published.ESTIMATORS} == set(ESTIMATORS)
    assert ESTIMATORS["LSCALEI"] is published.LSCALEI


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_was_saved_comes_back(name: str):
    parameters = ESTIMATORS[name]().get_params(deep=False)
    again = rebuild(name, parameters)
    assert type(again) is ESTIMATORS[name]
    assert again.get_params(deep=False) == parameters


# Files of version 0.1.0


def test_parameters_that_are_gone_are_left_out():
    old = {"n_latents": 3, "estimator": "likelihood", "scores": "ratio", "mechanisms": "linear"}
    model = rebuild("LinearInterventionCRL", old)
    assert type(model) is methods.LinearInterventionCRL
    assert model.n_latents == 3
    assert model.mechanisms == "linear"


@pytest.mark.parametrize(("threshold", "now"), [("paper", 0.01), ("test", "test")])
def test_a_published_algorithm_has_its_own_name(threshold: str, now: object):
    old = {"estimator": "paper", "edge_threshold": threshold, "edge_cut": 0.01, "targets": None}
    model = rebuild("LinearInterventionCRL", old)
    assert isinstance(model, published.LSCALEI)
    assert model.edge_cut == now


def test_layers_from_scores():
    old = {"estimator": "paper", "threshold": "paper", "noise": "score", "prune_outliers": 0.1}
    model = rebuild("ObservationalCRL", old)
    assert isinstance(model, published.ScoreLayers)
    assert (model.threshold, model.prune_outliers) == (1e-3, 0.1)
    old = {"estimator": "paper", "rank_threshold": "test", "rank_cut": 0.05}
    assert rebuild("MultiNodeCRL", old).get_params()["rank_cut"] == "test"
