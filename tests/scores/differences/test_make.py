from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.scores import (
    SCORES,
    FunctionScores,
    GaussianScores,
    RatioScores,
    SlicedScores,
    make_score,
)


class Own:
    """A user's score without scikit-learn."""

    def __init__(self) -> None:
        self.fitted = False

    def fit(self, X: Any, codes: Any) -> Own:
        self.fitted = True
        return self

    def difference(self, X: Any, environment: int) -> Any:
        return X


def test_names_stand_for_classes():
    assert isinstance(make_score("gaussian", random_state=3), GaussianScores)
    for name, kind in (("ratio", RatioScores), ("sliced", SlicedScores)):
        score = make_score(name, random_state=3)
        assert isinstance(score, kind)
        assert score.random_state == 3
    assert set(SCORES) == {"gaussian", "ratio", "sliced"}


def test_objects_are_copied_and_keep_their_parameters():
    given = RatioScores(width=8, random_state=1)
    score = make_score(given, random_state=3)
    assert isinstance(score, RatioScores)
    assert score is not given
    assert (score.width, score.random_state) == (8, 1)
    own = Own()
    make_score(own).fit([[1.0]], [0])
    assert not own.fitted


def test_a_function_becomes_a_score():
    score = make_score(lambda X, environment: X + environment)
    assert isinstance(score, FunctionScores)
    np.testing.assert_array_equal(score.difference(np.zeros((1, 1)), 2), [[2.0]])


def test_bad_scores_are_refused():
    with pytest.raises(ValueError, match=r"one of 'gaussian', 'sliced', 'ratio'.*Got 'kernel'"):
        make_score("kernel")
    with pytest.raises(ValueError, match=r"Exact scores need a world: give ExactScores\(truth\)"):
        make_score("exact")
    with pytest.raises(ValueError, match=r"Got RatioScores; write RatioScores\(\)"):
        make_score(RatioScores)
    with pytest.raises(ValueError, match="Got None instead"):
        make_score(None)
