from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from crlearn import LinearInterventionCRL, PCABaseline
from crlearn.cli._files import Run, check_labels, read_data, write_data
from crlearn.data import Dataset
from crlearn.exceptions import CorruptFileError

RNG = np.random.default_rng(0)
DATA = Dataset(RNG.normal(size=(12, 3)), np.repeat(["a", "b"], 6), names=("u", "v", "w"))


@pytest.mark.parametrize("ending", ["crl", "csv"])
def test_data_come_back(tmp_path: Path, ending: str):
    write_data(DATA, tmp_path / f"folder/data.{ending}")
    found = read_data(tmp_path / f"folder/data.{ending}")
    np.testing.assert_allclose(found.X, DATA.X)
    assert found.names == DATA.names
    assert list(found.y if found.y is not None else []) == list(DATA.y)  # type: ignore[arg-type]


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_data(tmp_path / "nothing.csv")
    (tmp_path / "data.txt").write_text("1 2 3")
    with pytest.raises(ValueError, match=r"type of 'data.txt' is not known.*\.csv"):
        read_data(tmp_path / "data.txt")
    PCABaseline().save(tmp_path / "model.crl")
    with pytest.raises(CorruptFileError, match="holds a PCABaseline, not a dataset"):
        read_data(tmp_path / "model.crl")


def test_methods_that_need_labels(tmp_path: Path):
    unlabelled = Dataset(DATA.X)
    check_labels(unlabelled, tmp_path / "data.csv", PCABaseline())
    with pytest.raises(ValueError, match=r"needs an environment label .* with --env-column"):
        check_labels(unlabelled, tmp_path / "data.csv", LinearInterventionCRL())


class TestRun:
    @pytest.fixture
    def written(self, tmp_path: Path) -> Run:
        write_data(DATA, tmp_path / "data.csv")
        model = PCABaseline(n_latents=2).fit(DATA.X)
        run = Run(tmp_path / "run", model, tmp_path / "data.csv", None, DATA.names)
        files = run.write(DATA)
        assert [file.name for file in files] == ["model.crl", "latents.csv", "result.json"]
        return run

    def test_comes_back(self, written: Run):
        found = Run.read(written.folder)
        np.testing.assert_array_equal(
            found.model.transform(DATA.X), written.model.transform(DATA.X)
        )
        assert found.features == DATA.names
        np.testing.assert_allclose(found.data().X, DATA.X)
        latents = read_data(written.folder / "latents.csv")
        np.testing.assert_allclose(latents.X, written.model.transform(DATA.X))

    def test_a_folder_is_no_run_until_all_is_written(
        self, written: Run, monkeypatch: pytest.MonkeyPatch
    ):
        """Files of an earlier fit and of one that was interrupted must not be taken for one run."""

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("crlearn.cli._files.write_table", interrupt)
        with pytest.raises(KeyboardInterrupt):
            written.write(DATA)
        with pytest.raises(FileNotFoundError, match="is not the folder of a fit"):
            Run.read(written.folder)

    def test_other_features_are_refused(self, written: Run, tmp_path: Path):
        other = Dataset(DATA.X[:, ::-1], DATA.y, names=("w", "v", "u"))
        write_data(other, tmp_path / "other.csv")
        with pytest.raises(ValueError, match="Their order differs"):
            written.data(tmp_path / "other.csv")
        write_data(Dataset(DATA.X[:, :2], DATA.y, names=("u", "v")), tmp_path / "other.csv")
        with pytest.raises(ValueError, match="Missing: w"):
            written.data(tmp_path / "other.csv")

    def test_altered_folders_are_refused(self, written: Run, tmp_path: Path):
        (written.folder / "result.json").write_text(json.dumps({"data": {}}))
        with pytest.raises(CorruptFileError, match="is not what crlearn fit wrote"):
            Run.read(written.folder)
        with pytest.raises(FileNotFoundError, match="is not the folder of a fit"):
            Run.read(tmp_path)
