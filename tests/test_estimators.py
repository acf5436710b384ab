from __future__ import annotations

import pytest

from crlearn import methods, published
from crlearn.estimators import ESTIMATORS, STEPS

SCORE_BASED = {"LSCALEI", "UMNICRL", "GSCALEI", "ScoreLayers"}


def test_ours_and_the_published_ones_are_there():
    assert {*methods.ESTIMATORS, *published.ESTIMATORS} == set(ESTIMATORS)
    assert not methods.ESTIMATORS.keys() & published.ESTIMATORS.keys()
    assert ESTIMATORS["LSCALEI"] is published.LSCALEI


@pytest.mark.parametrize("name", STEPS)
def test_they_are_found_by_their_own_names(name: str):
    assert STEPS[name].__name__ == name


@pytest.mark.parametrize("name", sorted({*methods.ESTIMATORS, *published.ESTIMATORS} - {"IVAE"}))
def test_what_belongs_to_the_one_cannot_be_given_to_the_other(name: str):
    parameters = ESTIMATORS[name]().get_params()
    which_rows_count = {"outliers", "environment_weights"}
    shared = {"n_latents", "random_state", "checkpoint"} | which_rows_count
    assert len(parameters.keys() - shared) <= 8
    assert "estimator" not in parameters
    assert ("scores" in parameters) == (name in SCORE_BASED)
