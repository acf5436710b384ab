import json
import pickle

import numpy as np
import pytest

from crlearn.metrics import Evaluation


@pytest.fixture
def evaluation():
    return Evaluation(
        scores={"mcc": 0.9123, "shd": 2.0},
        chance={"mcc": 0.7736, "shd": None},
        perfect={"mcc": 1.0, "shd": 0.0},
        matching=[[0, 1], [1, 0]],
    )


def test_it_is_a_mapping(evaluation):
    assert dict(evaluation) == {"mcc": 0.9123, "shd": 2.0}
    assert list(evaluation) == ["mcc", "shd"]
    assert len(evaluation) == 2
    assert "r2" not in evaluation
    with pytest.raises(KeyError):
        evaluation["r2"]


def test_it_cannot_be_changed(evaluation):
    evaluation.chance["mcc"] = 0.0
    evaluation.perfect["mcc"] = 0.0
    evaluation.matching[0] = 9
    assert evaluation.chance["mcc"] == 0.7736
    assert evaluation.perfect["mcc"] == 1.0
    assert evaluation.matching.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(TypeError):
        evaluation["mcc"] = 1.0
    for name in ("chance", "perfect", "matching"):
        with pytest.raises(AttributeError):
            setattr(evaluation, name, None)


def test_table(evaluation):
    assert str(evaluation).splitlines() == [
        "metric     value    chance   perfect",
        "mcc        0.912     0.774         1",
        "shd            2         -         0",
    ]
    assert repr(evaluation) == str(evaluation)


def test_empty_table():
    assert repr(Evaluation({}, {}, {}, np.empty((0, 2)))).startswith("metric")


def test_plain_data(evaluation):
    plain = evaluation.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["scores"] == dict(evaluation)
    assert plain["matching"] == [[0, 1], [1, 0]]


def test_pickle(evaluation):
    assert pickle.loads(pickle.dumps(evaluation)) == evaluation
