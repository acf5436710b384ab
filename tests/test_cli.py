from __future__ import annotations

import errno
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import crlearn
import crlearn.files
from crlearn.cli import app
from crlearn.cli._choices import methods, read_settings, read_value, worlds
from crlearn.cli._files import Run, read_data
from crlearn.data import (
    TABLE_TYPES,
    Dataset,
    make_broken,
    make_linear_interventional,
    make_observational,
    make_segments,
    to_anndata,
    write_table,
)
from crlearn.persist import save
from crlearn.result import Alternative, GoodnessOfFit

HOSTILE = "<script>alert(1)</script>"


def run(command: str, *paths: str | Path) -> Result:
    """Run a command; each ``{}`` in it is one of the paths."""
    left = list(map(str, paths))
    words = [left.pop(0) if word == "{}" else word for word in shlex.split(command)]
    return CliRunner().invoke(app, words + left)


def good(command: str, *paths: str | Path) -> str:
    result = run(command, *paths)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def bad(command: str, *paths: str | Path) -> str:
    """Return the error: one line on stderr, exit code 2, nothing raised."""
    result = run(command, *paths)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("world") / "world.crl"
    save(make_segments(2, 3, 40, n_segments=6, random_state=0), path)
    return path


@pytest.fixture(scope="module")
def pca_run(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "pca"
    good("fit {} --method PCABaseline --n-latents 2 --out {}", world, out)
    return out


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def own_table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.normal(size=60) for name in (HOSTILE, "$b$", "[red]c")})
    frame["batch"] = ["control", "[bold]drug", "<b>other"] * 20
    path = tmp_path / "own.csv"
    frame.to_csv(path, index=False)
    return path


class TestWholeChain:
    def test_simulate_fit_evaluate_report(self, tmp_path: Path):
        world, run_folder, page = tmp_path / "world.crl", tmp_path / "run", tmp_path / "page.html"
        said = good(
            "simulate segments --out {} --n-latents 2 --n-features 3 --n-samples 40 --seed 1 "
            "--set n_segments=6",
            world,
        )
        assert "240 rows, 3 features, 6 environments, 2 known latents" in said
        said = good(
            "fit {} --method ivae --n-latents 2 --out {} --set max_epochs=2 --set n_restarts=2 "
            "--set width=8 --reference 0 --checkpoint",
            world,
            run_folder,
        )
        assert "IVAE: 2 latents" in said
        assert "latents are independent given y" in said
        assert {file.name for file in run_folder.iterdir()} == {
            "model.crl",
            "latents.csv",
            "result.json",
            "checkpoint.crl",
        }
        assert "mcc" in good("evaluate {} {}", run_folder, world)
        assert "wrote" in good("report {} --data {} --out {}", run_folder, world, page)
        assert "Recovered and true latents" in page.read_text()
        assert "Training" in page.read_text()

    def test_a_users_own_table(self, tmp_path: Path, own_table: Path):
        run_folder, page = tmp_path / "run", tmp_path / "page.html"
        said = good(
            "fit {} --method PCABaseline --env-column batch --n-latents 2 --out {}",
            own_table,
            run_folder,
        )
        assert "60 rows, 3 features, 3 environments" in said
        latents = pd.read_csv(run_folder / "latents.csv")
        assert list(latents) == ["z0", "z1", "environment"]
        assert set(latents["environment"]) == {"control", "[bold]drug", "<b>other"}
        good("report {} --data {} --out {}", run_folder, own_table, page)
        source = page.read_text()
        assert "<script>alert" not in source
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in source
        assert "holds no truth" in bad("evaluate {}", run_folder)

    def test_same_seed_same_latents(self, tmp_path: Path, world: Path):
        for name in ("a", "b"):
            good("fit {} --method ICABaseline --seed 3 --out {}", world, tmp_path / name)
        first, second = ((tmp_path / name / "latents.csv").read_bytes() for name in ("a", "b"))
        assert first == second


class TestSimulate:
    def test_list(self):
        said = good("simulate --list")
        assert "linear-interventional" in said
        assert "segments" in said

    def test_all_listed_worlds_make_datasets(self):
        makers = {name: maker for name, maker in vars(crlearn.data).items() if "make_" in name}
        worlds_made = {
            name.removeprefix("make_").replace("_", "-"): maker
            for name, maker in makers.items()
            if maker.__annotations__["return"] == "Dataset"
        }
        assert worlds() == crlearn.data.WORLDS == worlds_made
        assert "graph" not in worlds_made

    @pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "h5ad"])
    def test_tables_leave_the_truth_out_and_say_so(self, tmp_path: Path, ending: str):
        out = tmp_path / f"new/world.{ending}"
        said = good("simulate make_segments --out {} --set n_samples=5", out)
        assert "only .crl files keep the truth" in said
        dataset = read_data(out)
        assert dataset.n_environments == 40
        assert "environment" not in dataset.names

    def test_errors(self, tmp_path: Path):
        out = tmp_path / "x.crl"
        assert "There are: world, linear-interventional" in bad("simulate nothing --out {}", out)
        assert "must end in .crl, .csv" in bad("simulate segments --out {}", tmp_path / "x.txt")
        assert "--out" in bad("simulate segments")
        assert "needs n_latents" in bad("simulate world --out {}", out)
        assert "no parameter 'n_latent'" in bad("simulate segments --set n_latent=3 --out {}", out)
        assert "cannot be made with these settings" in bad(
            "simulate segments --set measurement_noise=abc --out {}", out
        )
        assert "'noise_mean' must be a pair" in bad(
            "simulate segments --set noise_mean=abc --out {}", out
        )
        assert "must hold one Intervention" in bad(
            "simulate world --n-latents 2 --set interventions=[1] --out {}", out
        )
        assert "key=value" in bad("simulate segments --set n_latents --out {}", out)
        assert not out.exists()

    def test_too_little_memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        def fail(*_: object) -> None:
            raise MemoryError("Unable to allocate 7 TiB")

        monkeypatch.setattr("crlearn.cli._choices.make_world", fail)
        said = bad("simulate segments --out {}", tmp_path / "x.crl")
        assert "not enough memory" in said
        assert "7 TiB" in said


class TestFit:
    def test_result_file(self, pca_run: Path, world: Path):
        result = json.loads((pca_run / "result.json").read_text())
        assert result["method"] == "PCABaseline"
        assert result["latents"] == ["z0", "z1"]
        assert result["interventions"] is None
        assert result["guarantee"]["latents"] == "span"
        assert result["checks"][0] == {
            "name": "columns vary",
            "passed": True,
            "detail": "all 3 columns of X do",
        }
        assert result["parameters"] == {"n_latents": 2, "random_state": 0}
        assert result["data"]["file"] == str(world.resolve())
        assert result["data"]["features"] == ["x0", "x1", "x2"]
        assert result["versions"]["crlearn"] == crlearn.__version__
        assert result["seconds"] > 0

    def test_layers_are_in_the_result_file(self, pca_run: Path, world: Path, tmp_path: Path):
        model, dataset = crlearn.load(pca_run / "model.crl"), crlearn.load(world)
        other = Alternative(np.eye(2, k=1, dtype=bool), ((1,), (0,)), gap=1.0, agreement=0.5)
        model.result_ = replace(
            model.result_,
            layers=((1,), (0,)),
            goodness_of_fit=GoodnessOfFit(10.5, 7, 0.25),
            alternatives=(other,),
            details={"gain": 3.5, "table": np.eye(2)},
        )
        Run(tmp_path, model, world, None, dataset.names).write(dataset)
        result = json.loads((tmp_path / "result.json").read_text())
        assert result["details"] == {"gain": 3.5}
        assert result["layers"] == [[1], [0]]
        assert result["blocks"] is None
        assert result["goodness_of_fit"]["p_value"] == 0.25
        assert result["evidence_gap"] == 1.0
        (found,) = result["alternatives"]
        assert found["adjacency"] == [[False, True], [False, False]]
        assert (found["gap"], found["agreement"]) == (1.0, 0.5)

    def test_only_x_and_y_reach_the_method(self, pca_run: Path, world: Path):
        model = crlearn.load(pca_run / "model.crl")
        direct = crlearn.PCABaseline(n_latents=2).fit(crlearn.load(world).X)
        X = crlearn.load(world).X
        assert np.array_equal(model.transform(X), direct.transform(X))

    @pytest.mark.parametrize("name", ["pca-baseline", "PCABASELINE", "pca_baseline"])
    def test_names_of_methods_are_forgiving(self, tmp_path: Path, world: Path, name: str):
        good("fit {} --method {} --out {}", world, name, tmp_path / "run")

    def test_anndata(self, tmp_path: Path):
        dataset = make_segments(2, 3, 10, n_segments=3, random_state=0)
        path = tmp_path / "cells.h5ad"
        to_anndata(dataset, "batch").write_h5ad(path)
        said = good(
            "fit {} --env-column batch --method PCABaseline --out {}", path, tmp_path / "run"
        )
        assert "30 rows, 3 features, 3 environments" in said
        assert "the columns are: batch" in bad(
            "fit {} --env-column dose --method PCABaseline --out {}", path, tmp_path / "r"
        )

    def test_data(self, tmp_path: Path, own_table: Path, world: Path):
        def fit(data: Path, *more: str) -> str:
            return bad("fit --method PCABaseline --out {} {}", tmp_path / "run", data, *more)

        assert "There is no file" in fit(tmp_path / "missing.csv")
        assert "The columns are: <script>alert(1)</script>, $b$, [red]c, batch." in fit(
            own_table, "--env-column", "dose"
        )
        assert "'batch' (such as 'control')" in fit(own_table)
        assert "with --env-column" in fit(own_table)
        assert "leave out --env-column" in fit(world, "--env-column", "batch")
        for name in ("x.crl", "x.h5ad", "x.parquet", "x.csv"):
            broken = tmp_path / name
            broken.write_bytes(b"\x80abc" * 50)
            assert name in fit(broken)
        text = tmp_path / "notes.txt"
        text.write_text("hello")
        assert "must end in .csv, .tsv, .parquet, .h5ad, .crl" in fit(text)
        assert not (tmp_path / "run").exists()

    def test_method_and_parameters(self, tmp_path: Path, world: Path):
        def fit(method: str, *more: str) -> str:
            return bad("fit {} --out {} --method {}", world, tmp_path / "run", method, *more)

        assert f"There are: {', '.join(methods())}" in fit("nothing")
        assert "no parameter 'depht'. It has: n_latents" in fit("IVAE", "--set", "depht=2")
        assert "The 'width' parameter of IVAE must be" in fit("IVAE", "--set", "width=-1")
        assert "at most the number of features" in fit("PCABaseline", "--n-latents", "9")
        assert "no parameter 'reference'" in fit("PCABaseline", "--reference", "0")
        assert "no parameter 'checkpoint'" in fit("PCABaseline", "--checkpoint")
        assert "must be one of the environments, 0, 1, 2" in fit("IVAE", "--reference", "x")

    def test_method_that_needs_labels(self, tmp_path: Path):
        path = tmp_path / "plain.csv"
        write_table(make_observational(2, 2, 20, random_state=0), path)
        assert "with --env-column" in bad("fit {} --method IVAE --out {}", path, tmp_path / "run")
        own = tmp_path / "plain.crl"
        save(make_observational(2, 2, 20, random_state=0), own)
        said = bad("fit {} --method IVAE --out {}", own, tmp_path / "run")
        assert "several environments" in said
        assert "--env-column" not in said

    @pytest.mark.parametrize("ending", TABLE_TYPES)
    def test_a_column_called_environment_holds_the_labels(self, tmp_path: Path, ending: str):
        path = tmp_path / f"table{ending}"
        write_table(Dataset(np.eye(4), ["drug", "control"] * 2), path)
        assert read_data(path).environments == ("control", "drug")

    def test_an_index_that_was_written_along(self, tmp_path: Path):
        path = tmp_path / "table.csv"
        pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 1.0]}).to_csv(path)
        said = bad("fit {} --method PCABaseline --out {}", path, tmp_path / "run")
        assert "Name or drop it" in said

    def test_folder_that_cannot_be_written(self, tmp_path: Path, world: Path):
        (tmp_path / "file").write_text("in the way")
        said = bad("fit {} --method PCABaseline --out {}", world, tmp_path / "file" / "run")
        assert "cannot be read or written" in said

    @pytest.mark.parametrize("name", ["model.crl", "latents.csv", "result.json", "graph.gml"])
    def test_a_full_disk(
        self, tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ):
        model = crlearn.PCABaseline(n_latents=2).fit(read_data(world).X)
        graph = np.array([[False, True], [False, False]])
        model.result_ = replace(model.result_, adjacency=graph)
        monkeypatch.setattr("crlearn.cli._choices.build_method", lambda *_: model)
        monkeypatch.setattr(crlearn.PCABaseline, "fit", lambda *_: model)
        replacing = crlearn.files.replacing

        @contextmanager
        def on_a_full_disk(path: Path) -> Iterator[Path]:
            with replacing(path) as draft:
                yield draft
                if Path(path).name == name:  # the last bytes do not go to the disk
                    raise OSError(errno.ENOSPC, "No space left on device")

        for module in ("files", "data._convert", "cli._files"):
            monkeypatch.setattr(f"crlearn.{module}.replacing", on_a_full_disk)
        said = bad("fit {} --method PCABaseline --out {}", world, tmp_path / "run")
        file = tmp_path / "run" / name
        assert f"'{file}' cannot be read or written: No space left on device. Free some" in said
        assert not file.exists()

    def test_a_recovered_graph_is_written_and_an_old_one_removed(self, tmp_path: Path, world: Path):
        dataset = read_data(world)
        model = crlearn.PCABaseline(n_latents=2).fit(dataset.X)
        without_graph = model.result_
        graph = np.array([[False, True], [False, False]])
        model.result_ = replace(without_graph, adjacency=graph)
        folder = Run(tmp_path, model, world, None, dataset.names)
        assert [file.name for file in folder.write(dataset)][-1] == "graph.gml"
        assert list(nx.read_gml(tmp_path / "graph.gml").edges) == [("z0", "z1")]
        model.result_ = without_graph
        folder.write(dataset)
        assert not (tmp_path / "graph.gml").exists()


class TestFolderThatHoldsAFit:
    def test_it_is_not_replaced(self, tmp_path: Path, world: Path):
        out = tmp_path / "run"
        good("fit {} --method PCABaseline --out {}", world, out)
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        for method in ("ICABaseline", "PCABaseline"):
            said = bad("fit {} --method {} --out {}", world, method, out)
            assert f"'{out}' holds a fit of PCABaseline to '{world.resolve()}' already" in said
            assert "(model.crl, latents.csv, result.json). Choose another folder" in said
            assert "--force" in said
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
        good("fit {} --method ICABaseline --out {} --force", world, out)
        assert json.loads((out / "result.json").read_text())["method"] == "ICABaseline"

    def test_files_of_ones_own_are_not_replaced_either(self, tmp_path: Path, world: Path):
        (tmp_path / "latents.csv").write_text("mine")
        said = bad("fit {} --method PCABaseline --out {}", world, tmp_path)
        assert "holds files of a fit already (latents.csv)" in said
        assert (tmp_path / "latents.csv").read_text() == "mine"

    def test_others_are_not_in_the_way(self, tmp_path: Path, world: Path):
        (tmp_path / "notes.txt").write_text("mine")
        good("fit {} --method PCABaseline --out {}", world, tmp_path)


class TestInterrupt:
    def interrupted(self, *words: str | Path) -> str:
        result = run("fit {} --out {} --method PCABaseline", *words)
        assert result.exit_code == 130
        assert result.stderr.count("\n") == 1
        return result.stderr

    def test_nothing_was_written(
        self, tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(crlearn.PCABaseline, "fit", interrupt)
        said = self.interrupted(world, tmp_path / "run")
        assert said == f"warning: interrupted. Nothing was written to '{tmp_path / 'run'}'.\n"
        assert list((tmp_path / "run").iterdir()) == []

    def test_some_was_written(self, tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch):
        (tmp_path / "notes.txt").write_text("mine")
        monkeypatch.setattr("crlearn.cli._files.write_table", interrupt)
        said = self.interrupted(world, tmp_path)
        assert f"Written to '{tmp_path}' was only model.crl. This is no whole run" in said

    def test_a_checkpoint_was_written(
        self, tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def fit(*_: object) -> None:
            (tmp_path / "checkpoint.crl").touch()
            raise KeyboardInterrupt

        monkeypatch.setattr(crlearn.PCABaseline, "fit", fit)
        said = self.interrupted(world, tmp_path)
        assert "was only checkpoint.crl. The same command again goes on from the" in said

    def test_of_another_command(
        self, tmp_path: Path, pca_run: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("crlearn.report.write_report", interrupt)
        result = run("report {} --out {}", pca_run, tmp_path / "page.html")
        assert result.exit_code == 130
        assert result.stderr == "warning: interrupted. Files are as they were before, or whole.\n"


class TestTargets:
    WORDS = ("control", "drug", "knockout", "other drug", "heat")

    @pytest.fixture
    def world_of_pairs(self) -> Dataset:
        """Two environments for each of two latents: 1 and 3, 2 and 4."""
        world = make_linear_interventional(2, 4, 300, random_state=0)
        assert world.y is not None
        second = (np.arange(len(world.y)) % 2 == 1) & (world.y > 0)
        return Dataset(world.X, world.y + 2 * second)

    @pytest.mark.parametrize(
        "targets",
        ['{"1": "a", "3": "a", "2": "b", "4": "b"}', "{1: 'a', 3: 'a', 2: 'b', 4: 'b'}"],
        ids=["JSON", "Python"],
    )
    def test_labels_that_are_numbers(self, tmp_path: Path, world_of_pairs: Dataset, targets: str):
        self.check(tmp_path, world_of_pairs, targets, {1: "a", 3: "a", 2: "b", 4: "b"})

    def test_labels_that_are_words(self, tmp_path: Path, world_of_pairs: Dataset):
        labels = np.array(self.WORDS, dtype=object)[world_of_pairs.y]
        targets = {"drug": 0, "other drug": 0, "knockout": 1, "heat": 1}
        self.check(tmp_path, Dataset(world_of_pairs.X, labels), json.dumps(targets), targets)

    def check(self, tmp_path: Path, data: Dataset, typed: str, targets: dict[Any, Any]) -> None:
        path, out = tmp_path / "data.csv", tmp_path / "run"
        write_table(data, path)
        reference = str(data.environments[0])
        good(
            "fit {} --out {} --method LinearInterventionCRL --reference {} --set {}",
            *(path, out, reference, f"targets={typed}"),
        )
        model = crlearn.load(out / "model.crl")
        assert model.targets == targets
        assert model.result_.n_latents == 2
        direct = crlearn.LinearInterventionCRL(
            targets=targets, reference=data.environments[0], random_state=0
        ).fit(data.X, data.y)
        np.testing.assert_allclose(model.transform(data.X), direct.transform(data.X))

    def test_a_label_that_is_missing(self, tmp_path: Path, world_of_pairs: Dataset):
        write_table(world_of_pairs, tmp_path / "data.csv")
        said = bad(
            "fit {} --out {} --method LinearInterventionCRL --set {}",
            *(tmp_path / "data.csv", tmp_path / "run", 'targets={"1": 0, "2": 1, "3": 0}'),
        )
        assert "must name a target for every environment but the reference" in said
        assert "none for 4" in said


class TestEvaluate:
    def test_table(self, pca_run: Path):
        said = good("evaluate {}", pca_run)
        assert "metric value chance perfect" in said
        assert "mcc" in said

    def test_json(self, pca_run: Path, world: Path):
        printed = json.loads(run("evaluate {} {} --json", pca_run, world).stdout)
        assert printed["method"] == "PCABaseline"
        assert 0 < printed["scores"]["mcc"] <= 1
        assert printed["chance"]["mcc"] == pytest.approx(0.9, abs=0.01)
        assert printed["chance"]["r2"] is None

    def test_errors(self, tmp_path: Path, pca_run: Path, world: Path):
        assert "is not the folder of a fit" in bad("evaluate {}", tmp_path)
        table = tmp_path / "world.csv"
        write_table(crlearn.load(world), table)
        assert "holds no truth to compare with" in bad("evaluate {} {}", pca_run, table)
        write_table(Dataset(np.ones((3, 3)) + np.eye(3), names=["x1", "x0", "x2"]), table)
        assert "Their order differs" in bad("evaluate {} {}", pca_run, table)
        write_table(Dataset(np.eye(3), names=["x0", "x1", "other"]), table)
        assert "Missing: x2" in bad("evaluate {} {}", pca_run, table)
        write_table(Dataset(np.eye(4), names=["x0", "x1", "x2", "x3"]), table)
        assert "Not known to the model: x3" in bad("evaluate {} {}", pca_run, table)

    def test_altered_run(self, tmp_path: Path, pca_run: Path, world: Path):
        (tmp_path / "model.crl").write_bytes((pca_run / "model.crl").read_bytes())
        (tmp_path / "result.json").write_text("{}")
        assert "is not what crlearn fit wrote" in bad("evaluate {}", tmp_path)
        (tmp_path / "model.crl").write_bytes(world.read_bytes())
        assert "holds a Dataset, not a" in bad("evaluate {}", tmp_path)


class TestReport:
    def test_comparison_with_another_run(self, tmp_path: Path, pca_run: Path, world: Path):
        ica = tmp_path / "my-ica"
        good("fit {} --method ICABaseline --n-latents 2 --out {}", world, ica)
        page = tmp_path / "page.html"
        good("report {} --compare {} --title 'Two & two' --out {}", pca_run, ica, page)
        assert "my-ica" in page.read_text()
        assert "<h1>Two &amp; two</h1>" in page.read_text()

    def test_data_that_is_gone(self, tmp_path: Path, own_table: Path):
        folder, page = tmp_path / "run", tmp_path / "page.html"
        good("fit {} --method PCABaseline --env-column batch --out {}", own_table, folder)
        own_table.unlink()
        result = run("report {} --out {}", folder, page)
        assert result.exit_code == 0
        assert "is gone" in result.stderr
        assert "Guarantee" in page.read_text()

    def test_errors(self, tmp_path: Path, pca_run: Path):
        (tmp_path / "file").write_text("in the way")
        assert "cannot be read or written" in bad(
            "report {} --out {}", pca_run, tmp_path / "file" / "page.html"
        )
        assert "There is no file" in bad("report {} --data {}", pca_run, tmp_path / "missing.crl")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    (folder / "own.toml").write_text(
        """
        title = "A study of <b>ours</b>"
        source = "nobody"
        world = "observational"
        metrics = ["mcc"]
        grid = [{ n_latents = 2, n_samples = [30, 60] }]
        methods = [{ method = "PCABaseline" }]
        profiles = { full = { seeds = 1 } }
        """
    )
    good("bench run {} --out {}", folder / "own.toml", folder / "sweep")
    return folder / "sweep"


class TestReportOfAStudy:
    def test_is_recognised(self, tmp_path: Path, sweep: Path):
        page = tmp_path / "page.html"
        assert f"wrote {page}" in good("report {} --out {}", sweep, page)
        source = page.read_text()
        assert "<h1>A study of &lt;b&gt;ours&lt;/b&gt;</h1>" in source
        assert "2 done, 0 failed, 0 left" in source
        good("report {} --out {} --title Mine", sweep, page)
        assert "<h1>Mine</h1>" in page.read_text()

    def test_that_has_not_begun(self, tmp_path: Path, sweep: Path):
        (tmp_path / "study.json").write_text((sweep / "study.json").read_text())
        good("report {} --out {}", tmp_path, tmp_path / "page.html")
        assert "No run has finished yet" in (tmp_path / "page.html").read_text()

    @pytest.mark.parametrize("option", ["--data", "--env-column", "--compare"])
    def test_options_of_fits(self, tmp_path: Path, sweep: Path, option: str):
        said = bad("report {} --out {} {} x", sweep, tmp_path / "page.html", option)
        assert f"{option} is for the page of a single fit" in said
        assert "the study 'own'" in said
        assert not (tmp_path / "page.html").exists()

    def test_folders_that_are_neither(self, tmp_path: Path, sweep: Path):
        assert "neither the folder of a fit nor that of a study" in bad("report {}", tmp_path)
        (tmp_path / "runs.jsonl").write_text("")
        assert "it has no study.json" in bad("report {}", tmp_path)
        (tmp_path / "study.json").write_text("{}")
        assert "is not what crlearn bench run wrote" in bad("report {}", tmp_path)


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from crlearn.cli import _demo

    world = make_segments(2, 3, 30, n_segments=5, random_state=0)
    models = [crlearn.ICABaseline(2, random_state=0), crlearn.PCABaseline(2)]
    monkeypatch.setattr(_demo, "demo_world", lambda seed: world)
    monkeypatch.setattr(_demo, "demo_models", lambda seed: models)
    said = good("demo --out {}", tmp_path / "demo")
    assert "method MCC chance R2 seconds" in said
    assert "the page is" in said
    assert "PCABaseline" in (tmp_path / "demo" / "report.html").read_text()
    assert "mcc" in good("evaluate {}", tmp_path / "demo" / "icabaseline")


def test_the_models_of_the_demo_suit_its_world():
    from crlearn.cli._demo import demo_models, demo_world

    world = demo_world(0)
    assert world.truth is not None
    assert {model.get_params()["n_latents"] for model in demo_models(0)} == {world.truth.n_latents}


def test_values_are_read_as_what_they_look_like():
    pairs = ["a=1", "b=0.5", "c=true", "d=None", "e=chain", "f=[1, 2.5]", "g=1e-3", "n-x=x=y"]
    assert read_settings(pairs) == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": None,
        "e": "chain",
        "f": (1, 2.5),
        "g": 1e-3,
        "n_x": "x=y",
    }
    with pytest.raises(ValueError, match="begins like a list"):
        read_value("[1, 2")
    with pytest.raises(ValueError, match="begins like a dictionary but is none"):
        read_value("{drug: 0}")


def test_every_estimator_is_offered():
    assert {"IVAE", "ICABaseline", "PCABaseline"} <= set(methods())
    assert "ivae" not in methods()


def test_version():
    assert good("--version") == f"crlearn {crlearn.__version__}"


def test_no_command_shows_help():
    assert "simulate" in run("").output


def test_debug_shows_where_an_error_comes_from(tmp_path: Path):
    result = run("--debug evaluate {}", tmp_path)
    assert isinstance(result.exception, FileNotFoundError)


def test_python_m_crlearn_and_missing_extra():
    command = [sys.executable, "-m", "crlearn", "--version"]
    assert crlearn.__version__ in subprocess.run(command, capture_output=True, text=True).stdout
    hide = "import sys; sys.modules['typer'] = None; from crlearn.__main__ import main; main()"
    hidden = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True)
    assert hidden.returncode == 2
    assert "pip install 'crlearn[cli]'" in hidden.stderr
    assert "Traceback" not in hidden.stderr


class TestCovariates:
    @pytest.fixture
    def table(self, tmp_path: Path) -> Path:
        world = make_broken(2, 4, 300, broken="known batches", random_state=0)
        path = tmp_path / "measured.csv"
        write_table(world, path)
        return path

    def test_columns_are_named(self, table: Path, tmp_path: Path):
        fit = "fit {} --method LinearInterventionCRL --covariate batch --set outliers=downweight"
        said = good(f"{fit} --out {{}}", table, tmp_path / "run")
        assert "4 features, 3 environments, covariates batch" in said
        assert "2 effects of batch" in said
        assert "rows stand far out and have weight 0" in said
        good("report {} --out {}", tmp_path / "run", tmp_path / "page.html")
        assert "2 effects of batch" in (tmp_path / "page.html").read_text()
        result = json.loads((tmp_path / "run" / "result.json").read_text())
        assert result["data"]["covariates"] == ["batch"]

    def test_own_files_hold_theirs(self, tmp_path: Path):
        path = tmp_path / "world.crl"
        save(make_broken(2, 4, 300, broken="known batches", random_state=0), path)
        good("fit {} --method LinearInterventionCRL --out {}", path, tmp_path / "run")
        assert "mcc" in good("evaluate {}", tmp_path / "run")
        fit = "fit {} --method LinearInterventionCRL --covariate batch --out {}"
        assert "leave out --covariate" in bad(fit, path, tmp_path / "other")

    def test_what_cannot_be(self, table: Path, tmp_path: Path):
        fit = "fit {} --method LinearInterventionCRL --covariate plate --out {}"
        assert "The --covariate must be columns" in bad(fit, table, tmp_path / "run")
        fit = "fit {} --method PCABaseline --covariate batch --out {}"
        assert "PCABaseline takes no covariates" in bad(fit, table, tmp_path / "run")
        fit = "fit {} --method LinearInterventionCRL --out {}"
        assert "covariates with --covariate" in bad(fit, table, tmp_path / "run")
