from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load as parse_safetensors
from safetensors.numpy import save as format_safetensors
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from crlearn import LinearInterventionCRL, PCABaseline, load
from crlearn.data import make_linear_interventional, make_observational, make_segments
from crlearn.exceptions import CorruptFileError
from crlearn.methods import PolynomialReduction
from crlearn.persist import FORMAT, read_record, save, write_record
from crlearn.result import Check, Guarantee, LinearEncoder, Result


def test_other_things_are_refused(tmp_path: Path):
    with pytest.raises(TypeError, match=r"takes an estimator, .* or a Dataset\. Got dict"):
        save({}, tmp_path / "f.crl")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "world",
    [
        make_linear_interventional(3, 5, 50, mechanism="mlp", random_state=0),
        make_observational(n_samples=50, random_state=0),
        make_segments(n_latents=2, n_samples=20, n_segments=5, random_state=0),
    ],
    ids=["interventional", "observational", "segments"],
)
def test_a_world_comes_back_with_its_truth(tmp_path: Path, world: Any):
    save(world, tmp_path / "world.crl")
    found = load(tmp_path / "world.crl")
    np.testing.assert_array_equal(found.X, world.X)
    np.testing.assert_array_equal(found.truth.Z, world.truth.Z)
    np.testing.assert_array_equal(found.truth.graph, world.truth.graph)
    np.testing.assert_array_equal(
        found.truth.mixing(world.truth.Z), world.truth.mixing(world.truth.Z)
    )
    np.testing.assert_array_equal(
        found.truth.score(world.truth.Z[:5]), world.truth.score(world.truth.Z[:5])
    )
    assert found.names == world.names
    assert found.environments == world.environments


def test_a_world_with_a_callable_is_saved_without_its_scores(tmp_path: Path):
    world: Any = make_observational(
        n_samples=30, mechanism=lambda parents: jnp.sin(parents).sum(), random_state=0
    )
    with pytest.warns(UserWarning, match="functions of your own, which a file cannot hold"):
        save(world, tmp_path / "world.crl")
    found = load(tmp_path / "world.crl")
    np.testing.assert_array_equal(found.truth.Z, world.truth.Z)
    with pytest.raises(ValueError, match="they are not here"):
        found.truth.score(world.truth.Z)


def test_a_class_that_moves_leaves_files_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = PCABaseline().fit(np.random.default_rng(0).normal(size=(20, 3)))
    model.save(tmp_path / "before.crl")
    for cls in (LinearEncoder, Result, Guarantee, PCABaseline):
        monkeypatch.setattr(cls, "__module__", "crlearn.elsewhere")
    model.save(tmp_path / "after.crl")
    assert (tmp_path / "before.crl").read_bytes() == (tmp_path / "after.crl").read_bytes()


def test_parameters_that_the_class_has_no_more_are_left_out(tmp_path: Path):
    record = {
        "class": "PCABaseline",
        "parameters": {"n_latents": 2, "forgotten": "paper"},
        "fitted": {},
    }
    write_record(tmp_path / "f.crl", kind="estimator", record=record)
    assert load(tmp_path / "f.crl").get_params() == {"n_latents": 2, "random_state": None}


@pytest.mark.parametrize(
    "name", ["MultiNodeCRL", "ObservationalCRL", "EmpiricalBayesCRL", "PCABaseline", "ICABaseline"]
)
def test_the_default_of_earlier_versions_is_read(name: str, tmp_path: Path):
    record = {"class": name, "parameters": {"n_latents": None}, "fitted": {}}
    write_record(tmp_path / "f.crl", kind="estimator", record=record)
    assert load(tmp_path / "f.crl").get_params()["n_latents"] is None


@pytest.fixture(scope="module")
def frame() -> Any:
    world = make_linear_interventional(2, 6, 400, mixing="quadratic", random_state=0)
    return pd.DataFrame(world.X, columns=cast(Any, list(world.names))).assign(label=world.y)


@pytest.fixture(scope="module")
def pipeline(frame: Any) -> Any:
    steps = PolynomialReduction(2, random_state=0), LinearInterventionCRL(2, random_state=0)
    model: Any = make_pipeline(*steps).set_output(transform="pandas")
    return model.fit(frame.drop(columns="label"), frame["label"])


class TestPipelines:
    def test_every_step_comes_back(self, tmp_path: Path, frame: Any, pipeline: Any):
        save(pipeline, tmp_path / "f.crl")
        found = load(tmp_path / "f.crl")
        assert isinstance(found, Pipeline)
        assert str(found) == str(pipeline)
        X = frame.drop(columns="label")
        pd.testing.assert_frame_equal(found.transform(X), pipeline.transform(X))
        assert list(found.feature_names_in_) == list(X.columns)

    def test_an_unfitted_one(self, tmp_path: Path):
        save(make_pipeline(PolynomialReduction(), PCABaseline(2)), tmp_path / "f.crl")
        found = load(tmp_path / "f.crl")
        assert found[-1].get_params() == {"n_latents": 2, "random_state": None}
        with pytest.raises(NotFittedError):
            found.transform(np.zeros((3, 5)))

    def test_steps_of_others_are_refused(self, tmp_path: Path):
        with pytest.raises(TypeError, match=r"StandardScaler is not one of crlearn's own classes"):
            save(make_pipeline(StandardScaler(), PCABaseline()), tmp_path / "f.crl")
        assert not (tmp_path / "f.crl").exists()

    def test_a_reduction_whose_map_does_not_fit(self, tmp_path: Path, pipeline: Any):
        other: Any = copy(pipeline[0])
        other.n_features_in_ = 3
        other.save(tmp_path / "f.crl")
        with pytest.raises(CorruptFileError, match="not a whole crlearn file"):
            load(tmp_path / "f.crl")


class TestHostileFiles:
    @pytest.fixture
    def good(self, tmp_path: Path) -> Path:
        X = np.random.default_rng(0).normal(size=(20, 3))
        model = PCABaseline().fit(X)
        # With its last digit changed, this text is still the same number.
        model.result_ = replace(model.result_, seconds=0.1 + 0.2)
        model.save(tmp_path / "model.crl")
        return tmp_path / "model.crl"

    def forged(self, tmp_path: Path, content: Any, version: int = FORMAT) -> Path:
        header = {"format": version, "crlearn": "0", "kind": "estimator", "content": content}
        path = tmp_path / "forged.crl"
        path.write_bytes(format_safetensors({}, metadata={"crlearn": json.dumps(header)}))
        return path

    @pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
    def test_truncated(self, good: Path, share: float):
        data = good.read_bytes()
        good.write_bytes(data[: int(share * len(data))])
        with pytest.raises(CorruptFileError, match="not a whole crlearn file"):
            load(good)

    def test_a_bit_that_is_another_one(self, good: Path):
        """Wherever it is: in the numbers, in the header, or in what describes the two."""
        data = good.read_bytes()
        for place in range(len(data)):
            altered = bytearray(data)
            altered[place] ^= 1
            good.write_bytes(altered)
            with pytest.raises(CorruptFileError):
                load(good)

    def test_numbers_that_are_others(self, good: Path):
        data = bytearray(good.read_bytes())
        data[-1] ^= 1
        good.write_bytes(data)
        with pytest.raises(CorruptFileError, match=r"checksum does not match.* Copy it again"):
            load(good)

    def test_a_file_from_before_there_were_checksums(self, good: Path):
        data = good.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["crlearn"])
        assert len(header.pop("sha256")) == 64
        tensors = parse_safetensors(data)
        X = np.eye(3)
        before = load(good).transform(X)
        good.write_bytes(format_safetensors(tensors, metadata={"crlearn": json.dumps(header)}))
        np.testing.assert_array_equal(load(good).transform(X), before)

    @pytest.mark.parametrize(
        "data", [b"", b"\x80\x04K\x01.", b"PK\x03\x04" + bytes(100), bytes(range(256)) * 10]
    )
    def test_other_formats(self, tmp_path: Path, data: bytes):
        (tmp_path / "other").write_bytes(data)
        with pytest.raises(CorruptFileError, match="not a whole crlearn file"):
            load(tmp_path / "other")

    def test_a_header_that_claims_to_be_huge(self, tmp_path: Path):
        (tmp_path / "huge").write_bytes((2**62).to_bytes(8, "little") + b"{}")
        with pytest.raises(CorruptFileError):
            load(tmp_path / "huge")

    def test_safetensors_of_somebody_else(self, tmp_path: Path):
        (tmp_path / "other").write_bytes(format_safetensors({"a": np.ones(3)}))
        with pytest.raises(CorruptFileError, match="not a whole crlearn file"):
            load(tmp_path / "other")

    @pytest.mark.parametrize(
        ("version", "content"),
        [
            (1, {"$record": ["os", "system"], "fields": {"command": "touch owned"}}),
            (1, {"$record": ["crlearn.result", "replace"], "fields": {}}),
            (1, {"$record": ["builtins", "eval"], "fields": {"source": "1"}}),
            (2, {"$record": "os/system", "fields": {"command": "touch owned"}}),
            (2, {"$record": "crlearn.result.replace", "fields": {}}),
        ],
    )
    def test_classes_off_the_list_are_not_built(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, content: Any
    ):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(CorruptFileError, match="that crlearn does not read"):
            load(self.forged(tmp_path, content, version))
        assert not (tmp_path / "owned").exists()

    @pytest.mark.parametrize("name", ["os", "__class__", "BaseCRL", "ivae", "pca_baseline"])
    def test_estimators_off_the_list_are_not_built(self, tmp_path: Path, name: str):
        content = {"$dict": [["class", name], ["parameters", {"$dict": []}], ["fitted", []]]}
        with pytest.raises(CorruptFileError):
            load(self.forged(tmp_path, content))

    @pytest.mark.parametrize("version", [1, 2])
    @pytest.mark.parametrize(
        "content",
        [
            [],
            {},
            {"$dict": [["class", "PCABaseline"]]},
            {"$array": "0", "shape": [1]},
            {"$dict": [[["unhashable"], 1]]},
            {"$record": ["crlearn.result", "Check"], "fields": {"surprise": 1}},
            {"$record": "result/check", "fields": {"surprise": 1}},
            {"$record": ["crlearn.result", "Result"], "fields": {"details": 1}},
        ],
    )
    def test_content_that_makes_no_sense(self, tmp_path: Path, content: Any, version: int):
        with pytest.raises(CorruptFileError):
            load(self.forged(tmp_path, content, version))

    @pytest.mark.parametrize("name", ["transform", "_algorithm", "__sklearn_tags__"])
    def test_fitted_values_may_not_replace_methods(self, tmp_path: Path, name: str):
        content = {
            "$dict": [
                ["class", "PCABaseline"],
                ["parameters", {"$dict": []}],
                ["fitted", {"$dict": [[name, 1]]}],
            ]
        }
        with pytest.raises(CorruptFileError):
            load(self.forged(tmp_path, content))

    @pytest.mark.parametrize(
        ("attribute", "value"),
        [
            ("result_", 5),
            ("n_features_in_", 7),
            ("result_", Result(cast(Any, Check("a", True, "b")), Guarantee("span", "none", ""))),
            (
                "result_",
                Result(
                    LinearEncoder(np.full((2, 3), np.nan), np.zeros(3)),
                    Guarantee("span", "none", ""),
                ),
            ),
            (
                "result_",
                Result(
                    LinearEncoder(np.ones((2, 3)), np.zeros(3)),
                    Guarantee("span", "none", ""),
                    names=("one", "one"),
                ),
            ),
        ],
    )
    def test_a_model_that_fit_could_not_have_made(self, good: Path, attribute: str, value: Any):
        model: Any = load(good)
        vars(model)[attribute] = value
        model.save(good)
        with pytest.raises(CorruptFileError):
            load(good)

    def test_parameters_that_the_class_refuses(self, good: Path):
        model: Any = load(good)
        model.n_latents = "many"
        model.save(good)
        with pytest.raises(CorruptFileError, match="n_latents"):
            load(good)

    def test_a_dataset_that_is_none(self, tmp_path: Path):
        write_record(tmp_path / "f.crl", kind="dataset", record={"dataset": [1, 2]})
        with pytest.raises(CorruptFileError, match="not a Dataset"):
            load(tmp_path / "f.crl")

    def test_a_newer_format_says_so(self, tmp_path: Path):
        header = {"format": 99, "crlearn": "9.9", "kind": "estimator", "content": {}}
        path = tmp_path / "new.crl"
        path.write_bytes(format_safetensors({}, metadata={"crlearn": json.dumps(header)}))
        with pytest.raises(CorruptFileError, match=r"written by crlearn 9\.9, which uses a newer"):
            load(path)

    def test_another_kind_says_so(self, tmp_path: Path):
        write_record(tmp_path / "f.crl", kind="checkpoint", record={})
        with pytest.raises(CorruptFileError, match="holds a checkpoint; load"):
            load(tmp_path / "f.crl")
        with pytest.raises(CorruptFileError, match="holds a checkpoint, not a dataset"):
            read_record(tmp_path / "f.crl", kind="dataset")

    def test_a_missing_file_is_a_missing_file(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError):
            load(tmp_path / "nothing.crl")
