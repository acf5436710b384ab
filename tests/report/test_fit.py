from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from crlearn import ICABaseline, PCABaseline
from crlearn.base import BaseCRL
from crlearn.data import (
    Dataset,
    make_latent_anm,
    make_linear_interventional,
    make_mixed_series,
)
from crlearn.metrics import match
from crlearn.report import write_report
from crlearn.result import Alternative, Check, GoodnessOfFit, Guarantee, LinearDecoder, Result

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def world() -> Dataset:
    return make_linear_interventional(
        3, 5, 100, min_edge_effect=None, graph="chain", random_state=0
    )


@pytest.fixture(scope="module")
def model(world: Dataset) -> PCABaseline:
    return PCABaseline(n_latents=3, random_state=0).fit(world.X)


@pytest.fixture(scope="module")
def page(world: Dataset, model: PCABaseline, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of the plain model and the world it was fitted to."""
    return source_of(tmp_path_factory.mktemp("page"), model, world)


def source_of(tmp_path: Path, *args, **options) -> str:
    return write_report(tmp_path / "report.html", *args, **options).read_text(encoding="utf-8")


def titles(document) -> list[str]:
    return [section["id"] for section in document.all("section")]


def with_result(model: PCABaseline, **changes) -> PCABaseline:
    changed = PCABaseline(**model.get_params())
    changed.n_features_in_ = model.n_features_in_
    changed.result_ = replace(model.result_, **changes)
    return changed


def test_page_with_truth(parse, tmp_path: Path, world: Dataset, model: PCABaseline):
    ica = ICABaseline(n_latents=3, random_state=0).fit(world.X)
    source = source_of(tmp_path, model, world, baselines={"ICA": ica})
    document = parse(source)
    assert titles(document) == [
        "checks",
        "metrics",
        "recovered-and-true-latents",
        "graph",
        "parameters",
    ]
    assert len(document.all("h1")) == 1
    assert "http" not in source.replace("http-equiv", "")
    assert all(svg.get("aria-label") and svg.get("role") == "img" for svg in document.all("svg"))
    assert {"mcc", "chance", "perfect", "ICA", "holds", "400 rows, 5 features"} <= set(
        document.text
    )
    assert "PCABaseline recovers no graph." in document.text


def test_ids_are_unique(parse, page: str):
    ids = [attributes["id"] for _, attributes in parse(page).tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_same_model_same_page(tmp_path: Path, page: str, world: Dataset, model: PCABaseline):
    assert source_of(tmp_path, model, world) == page


def test_page_of_a_users_own_data(parse, tmp_path: Path, world: Dataset, model: PCABaseline):
    labels = np.where(np.arange(len(world.X)) % 2, "<b>control", "drug")
    own = Dataset(world.X, labels, names=[HOSTILE, "$x$", "c", "d", "e"])
    document = parse(source_of(tmp_path, model, own, title=HOSTILE))
    assert titles(document) == [
        "checks",
        "latents",
        "latents-by-environment",
        "features-behind-the-latents",
        "graph",
        "parameters",
    ]
    assert len(document.all("script")) == 1
    assert not document.all("b")
    assert HOSTILE in document.text
    assert any(HOSTILE in text for text in document.text if "(" in text)
    assert "<b>control" in document.text
    assert "mcc" not in document.text


def test_page_of_a_model_that_recovers_noises_and_layers(
    parse, tmp_path: Path, world: Dataset, model: PCABaseline
):
    found = with_result(
        model,
        guarantee=Guarantee("layers", "layers", "up to layers"),
        noise_encoder=model.result_.encoder,
        layers=((1, 2), (0,)),
    )
    document = parse(source_of(tmp_path, found, world))
    assert "recovered-and-true-noises" in titles(document)
    assert {"true noise", "recovered noise", "true latent"} <= set(document.text)
    assert any("Childless latents first: z1, z2; z0." in text for text in document.text)
    own_data = parse(source_of(tmp_path, found, Dataset(world.X)))
    assert "recovered-and-true-noises" not in titles(own_data)


def test_page_of_a_model_that_tests_its_graph(
    parse, tmp_path: Path, world: Dataset, model: PCABaseline
):
    adjacency = np.eye(3, k=1, dtype=bool)
    found = with_result(
        model,
        adjacency=adjacency,
        edge_p_values=np.where(adjacency, 0.0125, 1.0),
        goodness_of_fit=GoodnessOfFit(10.5, 7, 0.25),
    )
    document = parse(source_of(tmp_path, found))
    assert any("likelihood ratio 10.5, 7 degrees of freedom, p = 0.25" in t for t in document.text)
    assert [text for text in document.text if text.startswith("z0 →")] == ["z0 → z1"]
    assert document.text.count("0.013") == 2
    assert "competing-structures" not in titles(document)


def test_page_of_a_model_with_alternatives(parse, tmp_path: Path, model: PCABaseline):
    none, chain = np.zeros((3, 3), dtype=bool), np.eye(3, k=1, dtype=bool)
    others = (
        Alternative(chain, None, gap=1.25, agreement=0.99),
        Alternative(none, None, gap=2.5, agreement=0.4),
        Alternative(none, None, gap=40.0, agreement=0.3),
    )
    document = parse(source_of(tmp_path, with_result(model, alternatives=others)))
    assert "competing-structures" in titles(document)
    said = "3 competing structures, 2 within 5 nats, 1 of these with another answer."
    assert said in document.text
    assert "z0 → z1, z1 → z2" in document.text
    assert document.text.count("another") == 2


def test_page_of_data_without_labels(parse, tmp_path: Path, world: Dataset, model: PCABaseline):
    document = parse(source_of(tmp_path, model, Dataset(world.X)))
    assert "latents-by-environment" not in titles(document)


def test_page_of_latents_whose_graph_is_not_known(parse, tmp_path: Path):
    series = np.random.default_rng(0).normal(size=(60, 2))
    world = make_mixed_series(series=series, n_segments=3, random_state=0)
    document = parse(source_of(tmp_path, PCABaseline(n_latents=2).fit(world.X), world))
    assert "graph" in titles(document)


@pytest.mark.parametrize("n_columns", [None, 1, 2])
def test_page_of_data_with_a_continuous_y(
    parse, tmp_path: Path, world: Dataset, model: PCABaseline, n_columns: int | None
):
    y = np.linspace(0, 1, len(world.X))
    if n_columns is not None:
        y = np.tile(y[:, None], n_columns)
    assert "latents-and-side-information" in titles(
        parse(source_of(tmp_path, model, Dataset(world.X, y)))
    )


def test_unfitted_model(tmp_path: Path):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        write_report(tmp_path / "report.html", PCABaseline())


def test_page_without_data(parse, tmp_path: Path, model: PCABaseline):
    document = parse(source_of(tmp_path, model))
    assert titles(document) == ["checks", "graph", "parameters"]


@pytest.mark.parametrize(
    ("level", "title"),
    [
        ("exact", "true graph"),
        ("closure", "true graph: who is an ancestor of whom"),
        ("cpdag", "true graph up to equivalence"),
    ],
)
def test_recovered_graph_beside_the_true_one(
    parse, tmp_path: Path, world: Dataset, model: PCABaseline, level, title: str
):
    assert world.truth is not None
    partner = match(world.truth.Z, model.transform(world.X))[:, 1]
    adjacency = np.zeros((3, 3), dtype=bool)
    adjacency[np.ix_(partner, partner)] = world.truth.graph
    found = with_result(
        model, adjacency=adjacency, guarantee=Guarantee("scale", level, "all of it")
    )
    document = parse(source_of(tmp_path, found, world))
    assert title in document.text
    if level == "exact":
        labels = [svg["aria-label"] or "" for svg in document.all("svg")]
        a, b, c = (f"z{i}" for i in partner)
        assert any(
            f"recovered graph: nodes {a}, {b}, {c}; edges {a} → {b}, {b} → {c}" in label
            for label in labels
        )


def test_more_true_latents_than_recovered_ones(tmp_path: Path, world: Dataset):
    few = with_result(PCABaseline(2).fit(world.X), adjacency=np.eye(2, k=1, dtype=bool))
    assert "–" in source_of(tmp_path, few, world)


def test_more_recovered_latents_than_true_ones(tmp_path: Path):
    world = make_linear_interventional(
        2, 5, 50, min_edge_effect=None, measurement_noise=0.1, random_state=0
    )
    many = with_result(PCABaseline(4).fit(world.X), adjacency=np.eye(4, k=1, dtype=bool))
    assert "recovered z3" in source_of(tmp_path, many, world)


def test_recovered_graph_without_truth(parse, tmp_path: Path, model: PCABaseline):
    found = with_result(model, adjacency=np.eye(3, k=1, dtype=bool))
    assert "recovered graph" in parse(source_of(tmp_path, found)).text


def test_checks_say_how_they_came_out(parse, tmp_path: Path, model: PCABaseline):
    checks = (Check("one", True, "a"), Check("two", False, "b"), Check("three", None, "c"))
    document = parse(source_of(tmp_path, with_result(model, checks=checks)))
    assert {"holds", "fails", "untested"} <= set(document.text)


def test_what_fails_stands_before_everything_else(parse, tmp_path: Path, model: PCABaseline):
    checks = (Check("one", True, "a"), Check("two", None, "b"), Check("three", False, "c"))
    promise = Guarantee("scale", "exact", "all of it")
    doubtful = with_result(model, checks=checks, guarantee=promise)
    document = parse(source_of(tmp_path, doubtful))
    assert document.all("div")[0]["class"] == "banner bad"
    said = [
        doubtful.result_.verdict,
        "three: fails (c)",
        "two: untested (b)",
        "Guarantee: all of it.",
        "method",
    ]
    places = [document.text.index(words) for words in said]
    assert places == sorted(places)


def test_a_guarantee_stands_before_everything_else(parse, tmp_path: Path, model: PCABaseline):
    sure = with_result(model, guarantee=Guarantee("scale", "exact", "all of it"))
    document = parse(source_of(tmp_path, sure))
    assert document.all("div")[0]["class"] == "banner good"
    assert document.text.index("Guarantee: all of it.") < document.text.index("method")


def test_the_page_uses_the_names_of_latents_and_says_what_intervenes_on_them(
    parse, tmp_path: Path, world: Dataset, model: PCABaseline
):
    named = with_result(
        model,
        adjacency=np.eye(3, k=1, dtype=bool),
        targets=np.eye(4, 3, k=-1, dtype=bool),
        names=("iron", "a name that is far too long for a figure", "heat"),
        environments=("control", "e1", "e2", "e3"),
    )
    document = parse(source_of(tmp_path, named, Dataset(world.X, world.y)))
    assert "interventions" in titles(document)
    rows = [cell["data-sort"] for cell in document.all("td")]
    assert rows[rows.index("iron") + 1] == "e1"
    assert rows[rows.index("a name that is far too long for a figure") + 1] == "e2"
    assert "On no latent: control." in document.text
    assert "a name that…" in document.text
    labels = [svg["aria-label"] or "" for svg in document.all("svg")]
    assert any("iron → a name that…" in label for label in labels)
    with_truth = parse(source_of(tmp_path, named, world))
    assert {"recovered iron", "true z0"} <= set(with_truth.text)


def test_training_curve_of_a_trained_method(parse, tmp_path: Path, model: PCABaseline):
    losses = np.array([3.0, 2.0, 1.0])
    history = {"epoch": np.arange(3), "train_loss": losses, "validation_loss": losses}
    trained = with_result(model, history=history)
    assert "training" in titles(parse(source_of(tmp_path, trained)))


def test_parameters_that_were_changed_stand_out(parse, tmp_path: Path, model: PCABaseline):
    cells = parse(source_of(tmp_path, model)).all("td")
    assert any("best" in (cell["class"] or "") and cell["data-sort"] == "3" for cell in cells)


def test_twenty_latents_in_reasonable_size(tmp_path: Path):
    world = make_latent_anm(20, 20, 30, n_segments=10, random_state=0)
    source = source_of(tmp_path, PCABaseline(20).fit(world.X), world)
    assert "only the 20 matched pairs" in source
    assert len(source) < 1_500_000


def test_features_of_huge_scale(parse, tmp_path: Path, world: Dataset):
    own = Dataset(1e200 * world.X, world.y)
    model = PCABaseline(n_latents=2).fit(own.X)
    with np.errstate(over="raise", invalid="raise"):
        document = parse(source_of(tmp_path, model, own))
    assert "nan" not in " ".join(document.text)


def test_control_characters_are_left_out(parse, tmp_path: Path, world: Dataset, model: PCABaseline):
    labels = np.where(np.arange(len(world.X)) % 2, "con\x00trol\x1b", "dr\ud800ug")
    own = Dataset(world.X, labels, names=["gene\x07", "b", "c", "d", "e"])
    document = parse(source_of(tmp_path, model, own, title="a\x0btitle"))
    assert {"control", "drug", "atitle"} <= set(document.text)


def test_model_of_a_data_frame_without_a_warning_about_names(tmp_path: Path, world: Dataset):
    pandas = pytest.importorskip("pandas")
    model = PCABaseline(n_latents=2).fit(pandas.DataFrame(world.X, columns=list(world.names)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source_of(tmp_path, model, world)


class Pixels(BaseCRL):
    """Its latents are two of the pixels."""

    _allows_images = True

    def __init__(self, n_latents=None, random_state=None):
        self.n_latents, self.random_state = n_latents, random_state

    def _algorithm(self, X, y, seed):
        decoder = LinearDecoder(np.eye(12, 2), np.full(12, 0.2))
        return Result(TwoPixels(), Guarantee("none", "none", "none"), decoder=decoder)


class TwoPixels:
    n_latents = 2

    def __call__(self, X):
        return X.reshape(len(X), -1)[:, :2]


@pytest.mark.parametrize("as_images", [True, False])
def test_images_have_traversals_and_reconstructions(tmp_path: Path, as_images: bool):
    X = np.random.default_rng(0).uniform(size=(30, 12))
    model = Pixels().fit(X.reshape(30, 1, 3, 4) if as_images else X)
    page = source_of(tmp_path, model, Dataset(X))
    assert ("Each latent from its 2% to its 98% quantile" in page) == as_images
    assert ("below each its reconstruction" in page) == as_images
    assert ("Features behind the latents" in page) != as_images
