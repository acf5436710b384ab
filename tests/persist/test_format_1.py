"""Files that were written before their classes moved: `tests/files`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save as format_safetensors

from crlearn import load
from crlearn.persist._format_1 import _TAGS, PUBLISHED, class_now, upgraded
from crlearn.result import Alternative, GoodnessOfFit
from crlearn.tags import class_of

FILES = Path(__file__).parents[1] / "files"
EXPECTED: dict[str, Any] = json.loads((FILES / "expected.json").read_text())


def test_every_old_file_is_here():
    assert {path.stem for path in FILES.glob("*.crl")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"dataset"}))
def test_an_old_model_gives_the_latents_that_it_gave(name: str):
    model = load(FILES / f"{name}.crl")
    rows = np.random.default_rng(0).standard_normal((3, model.n_features_in_))
    np.testing.assert_allclose(model.transform(rows), EXPECTED[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"dataset"}))
def test_an_old_model_is_written_anew(name: str, tmp_path: Path):
    model = load(FILES / f"{name}.crl")
    model.save(tmp_path / "new.crl")
    rows = np.random.default_rng(0).standard_normal((3, model.n_features_in_))
    again = load(tmp_path / "new.crl")
    np.testing.assert_array_equal(again.transform(rows), model.transform(rows))
    assert {**again.get_params(), **arrays_left_out(again)} == {
        **model.get_params(),
        **arrays_left_out(model),
    }


def arrays_left_out(model: Any) -> dict[str, None]:
    parameters = model.get_params().items()
    return {name: None for name, value in parameters if isinstance(value, np.ndarray)}


def test_an_old_dataset_has_its_truth():
    world = load(FILES / "dataset.crl")
    np.testing.assert_array_equal(world.X[:3], EXPECTED["dataset"])
    assert world.truth.score(world.truth.Z[:2]).shape == (2, 2)


def test_every_old_class_has_a_new_place():
    assert all(class_of(tag) for tag in _TAGS.values())


def test_details_have_become_fields():
    result = load(FILES / "ObservationalCRL.crl").result_
    assert result.layers == ((2,), (1,), (0,))
    assert result.noise_encoder(np.zeros((2, 3))).shape == (2, 3)
    assert all(isinstance(other, Alternative) for other in result.alternatives)
    assert result.alternatives[0].gap == pytest.approx(1.0108117953938063)
    assert not {"layers", "noise_encoder", "rivals"} & set(result.details)
    assert "evidence" in result.details


def test_tests_have_become_fields():
    result = load(FILES / "MultiNodeCRL.crl").result_
    assert result.goodness_of_fit == GoodnessOfFit(24.031441806321013, 17, 0.11858318729284106)
    assert result.edge_p_values.shape == result.encoder_standard_errors.shape == (3, 3)
    assert set(result.details) == {"mechanisms", "noise", "bic"}


@pytest.mark.parametrize(("old", "new"), sorted(PUBLISHED.items()))
def test_published_algorithms_have_names_of_their_own(old: str, new: str):
    both = {old, new}
    assert class_now(old, {"estimator": "paper"}, both) == new
    assert class_now(old, {"estimator": "likelihood"}, both) == old
    assert class_now(old, {"estimator": "paper"}, {old}) == old


def test_parameter_values_that_the_class_refuses_now_keep_their_defaults(tmp_path: Path):
    parameters = [["n_latents", "as many as there are"], ["random_state", 3]]
    entries = [["class", "PCABaseline"], ["parameters", {"$dict": parameters}]]
    content = {"$dict": [*entries, ["fitted", {"$dict": []}]]}
    header = {"format": 1, "crlearn": "0.1.0", "kind": "estimator", "content": content}
    data = format_safetensors({}, metadata={"crlearn": json.dumps(header)})
    (tmp_path / "f.crl").write_bytes(data)
    assert load(tmp_path / "f.crl").get_params() == {"n_latents": "auto", "random_state": 3}


def test_other_values_stay():
    content = {"$dict": [["a", {"$tuple": [1, {"$array": "0", "shape": [2]}]}], ["b", None]]}
    assert upgraded(content) == content
