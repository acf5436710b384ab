"""The page of one fit: what was found, how good it is, and what that rests on."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from crlearn.base import BaseCRL, latents_of, without_effects_of
from crlearn.data import Dataset, Truth
from crlearn.graph import cpdag, transitive_closure
from crlearn.inputs import Scaling
from crlearn.metrics import Evaluation, evaluate, match
from crlearn.report._curves import count_curve, training_curve
from crlearn.report._drawing import Drawing, graph_drawing, graphs_beside_each_other
from crlearn.report._heatmap import correlation_map, environment_means
from crlearn.report._images import image_shape_of, reconstructions, traversals
from crlearn.report._matched import Matched
from crlearn.report._page import (
    Banner,
    Block,
    Cell,
    Page,
    Section,
    Table,
    Text,
    Tone,
    write_page,
)
from crlearn.report._scatter import Coloring, latents_against, pair_plot, scatter_matrix
from crlearn.report._svg import shortened
from crlearn.report._wording import first_line, meaning, shown
from crlearn.result import Check, GraphLevel, Result

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

_FEATURES_PER_LATENT = 5
_MOST_ALTERNATIVES = 20
_LONGEST_NAME = 12  # in a figure


def write_report(
    out: str | Path,
    model: BaseCRL,
    dataset: Dataset | None = None,
    *,
    baselines: Mapping[str, BaseCRL] | None = None,
    title: str | None = None,
) -> Path:
    """Write one HTML page about a fitted model. It needs no network and no other file.

    Parameters
    ----------
    out
        Where to write the page.
    model
        Fitted estimator.
    dataset
        Rows to show the latents of; if it holds the truth, the latents are compared with it.
        Without a dataset the page has the guarantee, the checks, the graph and the training only.
    baselines
        Other fitted estimators by name, for the table of metrics.
    title
        Heading of the page.

    Returns
    -------
    path
        Where the page is.

    Examples
    --------
    >>> from crlearn import PCABaseline
    >>> from crlearn.data import make_observational
    >>> from crlearn.report import write_report
    >>> world = make_observational(random_state=0)
    >>> model = PCABaseline(n_latents=4).fit(world.X)
    >>> write_report("report.html", model, world)  # doctest: +SKIP
    """
    check_is_fitted(model)
    fit = Fit(model, dataset, baselines or {})
    return write_page(fit_page(fit, title), out)


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model, the rows it is shown on, and the models that it is compared with."""

    model: BaseCRL
    dataset: Dataset | None
    baselines: Mapping[str, BaseCRL]

    @property
    def name(self) -> str:
        """Name of the method."""
        return type(self.model).__name__

    @property
    def result(self) -> Result:
        """Result of the fit."""
        return self.model.result_

    @property
    def short_names(self) -> list[str]:
        """Names of the latents that fit into figures."""
        return [shortened(name, _LONGEST_NAME) for name in self.result.latent_names]

    @property
    def truth(self) -> Truth | None:
        """What is known about the latents."""
        return None if self.dataset is None else self.dataset.truth

    @cached_property
    def latents(self) -> Matrix:
        """Recovered latents of the dataset."""
        assert self.dataset is not None
        with warnings.catch_warnings():
            # A dataset keeps its names beside X, so a model of a data frame's would miss them.
            warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            return np.asarray(latents_of(self.model, *_given(self.dataset)))

    @cached_property
    def image_shape(self) -> tuple[int, ...] | None:
        """Shape of the images that the rows are, if they are."""
        return image_shape_of(getattr(self.model, "sample_shape_", ()))

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """Scores of the model, if the truth is known."""
        if self.dataset is None or self.truth is None:
            return None
        return evaluate(self.model, self.dataset)

    @cached_property
    def matched(self) -> Matched | None:
        """True and recovered latents, if the truth is known."""
        if self.truth is None or self.evaluation is None:
            return None
        matching = self.evaluation.matching
        return Matched.of(self.truth.Z, self.latents, matching, names=self.short_names)

    @cached_property
    def matched_noises(self) -> Matched | None:
        """True and recovered exogenous noises, if the truth is known and the model has some."""
        encoder = self.result.noise_encoder
        true = None if self.truth is None else self.truth.noise
        if self.dataset is None or true is None or encoder is None:
            return None
        X, _, covariates = _given(self.dataset)
        noises = np.asarray(encoder(without_effects_of(self.model, X, covariates)))
        return Matched.of(true, noises, match(true, noises), "noise")


def _given(dataset: Dataset) -> tuple[Any, Any, Any]:
    """Return what a model may be told of a dataset."""
    return dataset.X, dataset.y, dataset.covariates


def fit_page(fit: Fit, title: str | None = None) -> Page:
    """Compose the page of one fit."""
    sections = [
        _checks(fit),
        _interventions(fit.result),
        _metrics(fit),
        _recovered_and_true(fit),
        _noises(fit),
        _latents(fit),
        _images(fit),
        _environments(fit),
        _features(fit),
        _graph(fit),
        _alternatives(fit),
        _count(fit.result),
        _training(fit),
        _parameters(fit),
    ]
    n = fit.result.n_latents
    return Page(
        title=title or f"{fit.name}: {n} latent{'s' if n > 1 else ''}",
        lead=first_line(type(fit.model)),
        facts=_facts(fit),
        sections=[section for section in sections if section is not None],
        banner=_verdict(fit.result),
    )


def _facts(fit: Fit) -> dict[str, str]:
    facts = {"method": fit.name, "latents": str(fit.result.n_latents)}
    if fit.dataset is not None:
        facts["data"] = f"{fit.dataset.n_samples:,} rows, {fit.dataset.n_features:,} features"
        if fit.dataset.environments:
            facts["environments"] = str(fit.dataset.n_environments)
    facts["time to fit"] = f"{fit.result.seconds:.1f} s on {fit.result.device}"
    facts["versions"] = ", ".join(f"{name} {v}" for name, v in fit.result.versions.items())
    return facts


def _verdict(result: Result) -> Banner:
    """Say first how far the answer can be trusted."""
    return Banner(
        title=result.verdict,
        items=[str(check) for check in result.open_checks],
        text=f"Guarantee: {result.claim}.",
        tone="bad" if result.is_in_doubt else "good",
    )


def _checks(fit: Fit) -> Section | None:
    if not fit.result.checks:
        return None
    worst_first = [*fit.result.open_checks, *(c for c in fit.result.checks if c.passed)]
    rows = [[check.name, _mark(check), check.detail] for check in worst_first]
    return Section("Checks", [Table(["assumption", "on these data", "detail"], rows)])


def _interventions(result: Result) -> Section | None:
    """Say which environments intervene on which latent."""
    if result.interventions is None or result.environments is None:
        return None
    rows = [[name, ", ".join(own) or "none"] for name, own in result.interventions.items()]
    acting = {label for own in result.interventions.values() for label in own}
    idle = [label for label in result.environments if label not in acting]
    blocks: list[Block] = [Table(["latent", "environments that intervene on it"], rows)]
    if idle:
        blocks.append(Text(f"On no latent: {', '.join(idle)}.", "quiet"))
    return Section("Interventions", blocks)


def _mark(check: Check) -> Cell:
    if check.passed is None:
        return Cell("untested", tone="unknown")
    return Cell("holds", tone="good") if check.passed else Cell("fails", tone="bad")


def _metrics(fit: Fit) -> Section | None:
    if fit.evaluation is None or fit.dataset is None:
        return None
    own = fit.evaluation
    others = {name: evaluate(model, fit.dataset) for name, model in fit.baselines.items()}
    rows: list[Sequence[Any]] = []
    for name in own:
        values = [own[name], *(other.get(name) for other in others.values())]
        first, *rest = _with_the_best_marked(values, own.perfect[name])
        words = Cell(meaning(name), tone="quiet")
        rows.append([name, first, own.chance[name], own.perfect[name], *rest, words])
    own_seconds, *seconds = (
        Cell(f"{model.result_.seconds:.1f}", model.result_.seconds)
        for model in (fit.model, *fit.baselines.values())
    )
    rows.append(["seconds", own_seconds, None, None, *seconds, Cell("time to fit", tone="quiet")])
    blocks: list[Block] = [
        Text(
            "Recovered latents against the known truth. Chance is what a random rotation of "
            "whitened latents scores: correlations below it say nothing. Perfect is what the truth "
            "itself scores."
        ),
        Table(["metric", fit.name, "chance", "perfect", *others, "meaning"], rows),
    ]
    return Section("Metrics", blocks)


def _with_the_best_marked(values: Sequence[float | None], perfect: float | None) -> list[Cell]:
    cells = [Cell.of(value) for value in values]
    if perfect is None:
        return cells
    distances = [None if value is None else abs(value - perfect) for value in values]
    smallest = min(distance for distance in distances if distance is not None)
    return [
        Cell(cell.text, cell.sort, "best" if distance == smallest and len(values) > 1 else "")
        for cell, distance in zip(cells, distances, strict=True)
    ]


def _recovered_and_true(fit: Fit) -> Section | None:
    if fit.matched is None:
        return None
    blocks = [scatter_matrix(fit.matched), correlation_map(fit.matched)]
    return Section("Recovered and true latents", blocks)


def _noises(fit: Fit) -> Section | None:
    if fit.matched_noises is None:
        return None
    blocks: list[Block] = [scatter_matrix(fit.matched_noises), correlation_map(fit.matched_noises)]
    if fit.result.guarantee.latents == "layers":
        blocks.insert(0, Text("Noises of one layer are recovered up to a mixture of them."))
    return Section("Recovered and true noises", blocks)


def _latents(fit: Fit) -> Section | None:
    if fit.dataset is None or fit.truth is not None:
        return None
    names = fit.short_names
    coloring = Coloring.by_environment(fit.dataset.y, fit.dataset.n_samples)
    return Section("Latents", [pair_plot(fit.latents, names, coloring)])


def _environments(fit: Fit) -> Section | None:
    """Show how the latents change with y: by environment, or along a continuous y."""
    if fit.dataset is None or fit.truth is not None or fit.dataset.y is None:
        return None
    y, names = fit.dataset.y, fit.short_names
    if not fit.dataset.environments:
        sketches = [latents_against(fit.latents, names, column) for column in _columns(y)]
        return Section("Latents and side information", sketches)
    present = [label for label in fit.dataset.environments if (y == label).any()]
    standardised = _standardised(fit.latents)
    means = np.array([standardised[y == label].mean(axis=0) for label in present])
    return Section("Latents by environment", [environment_means(means, present, names)])


def _columns(y: NDArray[Any]) -> Matrix:
    """Return the numbers that a continuous y holds, each of them as a row."""
    return y.reshape(len(y), -1).T


def _standardised(columns: Matrix) -> Matrix:
    largest = np.abs(columns).max(axis=0)
    columns = columns / np.where(largest > 0, largest, 1.0)  # keeps the squares of 1e200 finite
    return Scaling.of(columns)(columns)


def _images(fit: Fit) -> Section | None:
    """Show what each latent does to the images, and what the model keeps of them."""
    decoder, shape = fit.result.decoder, fit.image_shape
    if fit.dataset is None or decoder is None or shape is None:
        return None
    blocks = [
        traversals(decoder, fit.latents, fit.short_names, shape),
        reconstructions(decoder, fit.latents, fit.dataset.X, shape),
    ]
    return Section("Images", blocks)


def _features(fit: Fit) -> Section | None:
    """Name the features that go with each latent most closely; a pixel has no name."""
    if fit.dataset is None or fit.truth is not None or fit.image_shape is not None:
        return None
    X, Z_hat = _standardised(fit.dataset.X), _standardised(fit.latents)
    correlations = Z_hat.T @ X / len(X)
    rows = []
    for latent, row in zip(fit.result.latent_names, correlations, strict=True):
        strongest = np.argsort(-np.abs(row), kind="stable")[:_FEATURES_PER_LATENT]
        features = [f"{fit.dataset.names[i]} ({row[i]:+.2f})" for i in strongest]
        rows.append([latent, ", ".join(features)])
    caption = "The features that correlate most with each latent, with the correlation."
    return Section("Features behind the latents", [Table(["latent", "features"], rows, caption)])


def _graph(fit: Fit) -> Section:
    found, blocks = fit.result.adjacency, []
    true = None if fit.truth is None else fit.truth.graph
    if found is None:
        blocks.append(Text(_instead_of_a_graph(fit)))
        if true is not None:
            names = [f"z{i}" for i in range(len(true))]
            blocks.append(graph_drawing(Drawing("true graph", true, names)))
    elif true is None or fit.matched is None:
        blocks.append(graph_drawing(Drawing("recovered graph", found, fit.short_names)))
    else:
        title, true = _as_far_as_it_can_be_known(true, fit.result.guarantee.graph)
        n_nodes = max(fit.matched.correlations.shape)
        blocks.append(
            graphs_beside_each_other(
                _in_order(Drawing(title, true, fit.matched.true_names), fit.matched.true, n_nodes),
                _in_order(
                    Drawing("recovered graph", found, fit.matched.recovered_names),
                    fit.matched.recovered,
                    n_nodes,
                ),
                "Each recovered latent stands where the true latent stands that it is matched to.",
            )
        )
    return Section("Graph", [*blocks, *_tests_of_the_graph(fit.result)])


def _tests_of_the_graph(result: Result) -> list[Block]:
    """Show how the whole model fits, and how sure each edge is."""
    blocks: list[Block] = []
    if result.goodness_of_fit is not None:
        blocks.append(Text(f"Goodness of fit against a saturated model: {result.goodness_of_fit}."))
    if not result.edge_tests:
        return blocks
    names = result.latent_names
    rows = [
        [f"{names[i]} → {names[j]}", Cell(f"{p_value:.2g}", p_value)]
        for (i, j), p_value in result.edge_tests.items()
    ]
    caption = "P-value of each edge: of the hypothesis that it is not there."
    return [*blocks, Table(["edge", "p-value"], rows, caption)]


def _alternatives(fit: Fit) -> Section | None:
    """Say what else explains the data, the best first."""
    found = fit.result.alternatives
    if not found:
        return None
    names = fit.result.latent_names
    rows = []
    for other in found[:_MOST_ALTERNATIVES]:
        edges = [f"{names[i]} → {names[j]}" for i, j in np.argwhere(other.adjacency)]
        rows.append(
            [
                Cell(f"{other.gap:.1f}", other.gap, "bad" if other.is_close else ""),
                Cell(f"{other.agreement:.2f}", other.agreement),
                "another" if other.is_another_answer else "the same",
                ", ".join(edges) or "none",
            ]
        )
    text = f"{fit.result.summary()['alternatives']}."
    caption = (
        "Nats of log evidence by which each is behind the answer, and how far its latents or "
        "noises agree with those of the answer. Latents are numbered in its own order."
    )
    heads = ["nats behind", "agreement", "answer", "edges"]
    return Section("Competing structures", [Text(text), Table(heads, rows, caption)])


def _instead_of_a_graph(fit: Fit) -> str:
    layers = fit.result.layers
    if fit.result.guarantee.graph != "layers" or layers is None:
        return f"{fit.name} recovers no graph."
    names = fit.result.latent_names
    listed = "; ".join(", ".join(names[i] for i in layer) for layer in layers)
    return f"{fit.name} recovers layers and no edges. Childless latents first: {listed}."


def _as_far_as_it_can_be_known(graph: BoolMatrix, level: GraphLevel) -> tuple[str, BoolMatrix]:
    """Return the true graph as far as the guarantee reaches."""
    if level == "closure":
        return "true graph: who is an ancestor of whom", transitive_closure(graph)
    if level == "cpdag":
        return "true graph up to equivalence", cpdag(graph)
    return "true graph", graph


def _in_order(graph: Drawing, order: NDArray[np.intp], n_nodes: int) -> Drawing:
    """Put the nodes in this order and add nodes for the latents that the other side has more."""
    n_more = n_nodes - len(order)
    adjacency = np.pad(graph.adjacency[np.ix_(order, order)], (0, n_more))
    return Drawing(graph.title, adjacency, [*graph.names, *["–"] * n_more])


def _count(result: Result) -> Section | None:
    """Show how the number of latents was found, if it was not given."""
    curve = result.details.get("latent_count")
    if curve is None or len(curve["beside"]) < 2:
        return None
    plot = count_curve(curve["beside"], curve["changes"], result.n_latents)
    return Section("Number of latents", [plot])


def _training(fit: Fit) -> Section | None:
    history = fit.result.history
    if not {"epoch", "train_loss", "validation_loss"} <= set(history):
        return None
    if not np.isfinite(history["validation_loss"]).any():
        return None
    return Section("Training", [training_curve(history, fit.result.details.get("stopped"))])


def _parameters(fit: Fit) -> Section:
    defaults = inspect.signature(type(fit.model)).parameters
    rows = []
    for name, value in fit.model.get_params(deep=False).items():
        default = defaults[name].default
        changed = repr(value) != repr(default)
        tone: Tone = "best" if changed else ""
        rows.append([name, Cell(shown(value), tone=tone), Cell(shown(default), tone="quiet")])
    caption = "Parameters of the estimator; those that differ from the default are bold."
    return Section("Parameters", [Table(["parameter", "value", "default"], rows, caption)])
