import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from crlearn import LinearInterventionCRL, ObservationalCRL, PCABaseline, metrics
from crlearn.data import (
    make_linear_interventional,
    make_observational,
    make_segments,
    to_pandas,
)
from crlearn.exceptions import MissingExtraError
from crlearn.metrics import evaluate
from crlearn.result import Alternative, Check, Guarantee, LinearEncoder, Result

MIXING = np.random.default_rng(0).normal(size=(5, 3))
GRAPH = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=bool)
TARGETS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=bool)
LEVELS = (
    "scale",
    "elementwise",
    "surrounding",
    "parents",
    "ancestors",
    "layers",
    "blocks",
    "span",
    "none",
)


def world(mixing: Any = MIXING) -> Any:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(200, 3))
    Z = noise @ np.linalg.inv(np.eye(3) - 0.5 * GRAPH)
    truth = SimpleNamespace(
        Z=Z,
        noise=noise,
        graph=GRAPH,
        targets=TARGETS,
        mixing=SimpleNamespace(matrix=mixing),
        blocks=None,
    )
    return SimpleNamespace(X=Z @ MIXING.T, y=np.arange(200) % 2, covariates=None, truth=truth)


class FakeModel:
    """A fitted model that applies a matrix to the latents that the world's mixing hides."""

    n_features_in_ = 5

    def __init__(self, unmixing, latents: Any = "scale", graph: Any = "exact", **result):
        encoder = LinearEncoder(np.asarray(unmixing) @ np.linalg.pinv(MIXING), np.zeros(5))
        self.result_ = Result(encoder, Guarantee(latents, graph, "text"), **result)

    def transform(self, X):
        return self.result_.encoder(X)


def perfect(latents="scale", graph="exact", **result):
    """The truth in another order, sign and scale."""
    order = [2, 0, 1]
    unmixing = np.diag([-2.0, 0.5, 3.0])[order]
    adjacency = GRAPH[np.ix_(order, order)]
    return FakeModel(
        unmixing, latents, graph, adjacency=adjacency, targets=TARGETS[:, order], **result
    )


LATENT_METRICS = {
    "scale": ["mcc", "mcc_spearman", "r2", "scale_error"],
    "elementwise": ["mcc", "mcc_spearman", "r2"],
    "surrounding": ["mcc", "r2", "surrounding_error"],
    "parents": ["mcc", "r2", "parent_error"],
    "ancestors": ["mcc", "r2", "ancestor_error"],
    "layers": ["layer_recovery", "mac", "mac_matched", "r2"],
    "blocks": ["block_recovery", "r2"],
    "span": ["mcc", "r2"],
    "none": ["mcc", "r2"],
}
GRAPH_METRICS = {
    "exact": ["shd", "edge_precision", "edge_recall", "edge_f1"],
    "closure": ["shd_closure"],
    "cpdag": ["shd_cpdag"],
    "layers": [],
    "none": [],
}


def noise_encoder(X):
    return X @ np.linalg.pinv(MIXING).T @ (np.eye(3) - 0.5 * GRAPH)


class TestPipeline:
    data: Any = make_linear_interventional(3, 6, 500, random_state=0)

    @pytest.fixture
    def scaled(self) -> Pipeline:
        steps = make_pipeline(StandardScaler(), LinearInterventionCRL(random_state=0))
        return steps.fit(self.data.X, self.data.y)

    def test_of_one_step_is_that_step(self):
        model = make_pipeline(LinearInterventionCRL(random_state=0))
        model.fit(self.data.X, self.data.y)
        assert evaluate(model, self.data) == evaluate(model[-1], self.data)

    def test_after_other_steps(self, scaled: Pipeline):
        found = evaluate(scaled, self.data)
        by_hand = replace(self.data, X=scaled[:-1].transform(self.data.X))
        expected = dict(evaluate(scaled[-1], by_hand))
        assert expected.pop("scale_error") > 0  # it would compare units of X with others
        assert dict(found) == expected
        assert found["shd"] == 0
        assert found["mcc"] > 0.95

    def test_matrices_in_other_units_are_not_compared_with_the_mixing(self, scaled: Pipeline):
        with pytest.raises(
            ValueError, match=r"'scale_error'.*: the model has no linear encoder of"
        ):
            evaluate(scaled, self.data, ["scale_error"])

    def test_noises_are_those_of_the_last_step(self):
        data = make_observational(3, 4, 300, random_state=0)
        model = make_pipeline(StandardScaler(), PCABaseline(3)).fit(data.X)
        last: Any = model[-1]
        last.result_ = replace(last.result_, noise_encoder=lambda X: X[:, :3])
        by_hand = replace(data, X=model[:-1].transform(data.X))
        wanted = ["mac", "mac_matched"]
        assert evaluate(model, data, wanted) == evaluate(last, by_hand, wanted)

    def test_of_data_frames(self):
        model = make_pipeline(StandardScaler(), PCABaseline(3)).set_output(transform="pandas")
        frame = to_pandas(self.data)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = evaluate(model.fit(frame.drop(columns="environment")), self.data)
        assert found["r2"] > 0.9

    def test_not_fitted_or_of_others(self):
        ours = make_pipeline(StandardScaler(), PCABaseline())
        with pytest.raises(
            NotFittedError, match=r"Got a Pipeline that ends in PCABaseline\(\), that"
        ):
            evaluate(ours, self.data)
        theirs = make_pipeline(PCABaseline(), StandardScaler()).fit(self.data.X)
        with pytest.raises(NotFittedError, match=r"a fitted Pipeline that ends in one.*Scaler\(\)"):
            evaluate(theirs, self.data)


@pytest.mark.parametrize("latents", LEVELS)
def test_latent_metrics_follow_the_guarantee(latents):
    stated = {"blocks": [[0, 1], [2]], "noise_encoder": noise_encoder}
    model = FakeModel(np.eye(3), latents, "none", adjacency=GRAPH, **stated)
    evaluation = evaluate(model, world())
    assert list(evaluation) == LATENT_METRICS[latents]
    assert dict(evaluation) == pytest.approx(evaluation.perfect, abs=1e-9)


@pytest.mark.parametrize("graph", ["exact", "closure", "cpdag", "layers", "none"])
def test_graph_metrics_follow_the_guarantee(graph):
    evaluation = evaluate(perfect("none", graph), world())
    assert list(evaluation) == ["mcc", "r2", *GRAPH_METRICS[graph], "targets_right"]
    assert dict(evaluation) == pytest.approx(evaluation.perfect)


def test_metrics_are_those_of_the_guarantee_that_was_aimed_at():
    """What failed checks left of it says nothing about what a model recovers."""
    model, sound = perfect(), perfect()
    left = model.result_.guarantee.given((Check("rank of X", False, "rank 1"),))
    model.result_ = replace(model.result_, guarantee=left)
    assert left.latents == "none"
    assert dict(evaluate(model, world())) == dict(evaluate(sound, world()))


def test_everything_is_compared_in_the_matching():
    evaluation = evaluate(perfect(), world())
    assert evaluation.matching.tolist() == [[0, 1], [1, 2], [2, 0]]
    assert dict(evaluation) == pytest.approx(evaluation.perfect, abs=1e-9)


def test_chance_levels_stand_beside_correlations():
    chance = evaluate(perfect(), world()).chance
    assert chance["mcc"] == metrics.chance_level("mcc", 3)
    assert chance["mcc_spearman"] == metrics.chance_level("mcc_spearman", 3)
    assert {name for name, level in chance.items() if level is not None} == {"mcc", "mcc_spearman"}


def test_chance_of_layers_and_blocks_uses_their_sizes():
    evaluation = evaluate(perfect("layers", "none", layers=[[2], [0, 1]]), world())
    expected = metrics.chance_level("layer_recovery", 3, sizes=[1, 1, 1], sizes_hat=[1, 2])
    assert evaluation.chance["layer_recovery"] == expected
    evaluation = evaluate(perfect("blocks", "none", blocks=[[2], [0, 1]]), world())
    expected = metrics.chance_level("block_recovery", 3, sizes_hat=[1, 2])
    assert evaluation.chance["block_recovery"] == expected


def test_layers_without_noises_are_compared_up_to_upstream():
    # Row i may hold its parents, which are all upstream in this graph.
    unmixing = np.eye(3) + 0.7 * GRAPH.T
    model = FakeModel(unmixing, "layers", "none", adjacency=GRAPH)
    evaluation = evaluate(model, world())
    assert list(evaluation) == ["layer_recovery", "r2"]
    assert evaluation["layer_recovery"] == pytest.approx(1)


def test_parents_are_no_error_but_others_are():
    chain = nx.to_numpy_array(nx.path_graph(3, create_using=nx.DiGraph)) != 0
    data = world()
    data.truth.graph = chain
    unmixing = np.array([[1, 0, 0], [0.5, 1, 0], [0.4, 0.3, 1]])
    scores = evaluate(FakeModel(unmixing), data, ["scale_error", "parent_error", "ancestor_error"])
    assert scores["scale_error"] > scores["parent_error"] > 0.1
    assert scores["ancestor_error"] == pytest.approx(0, abs=1e-9)


def test_fewer_latents_than_true():
    model = FakeModel(np.eye(3)[[2, 1]], adjacency=[[False, False], [True, False]])
    evaluation = evaluate(model, world())
    assert evaluation["mcc"] < 0.9
    assert evaluation["shd"] == 2
    assert evaluation["edge_precision"] == 1
    assert "scale_error" not in evaluation
    assert evaluation.matching.tolist() == [[1, 1], [2, 0]]
    assert evaluation.chance["mcc"] == metrics.chance_level("mcc", 3, n_recovered=2)


def test_more_latents_than_true():
    adjacency = np.zeros((4, 4), dtype=bool)
    adjacency[:3, :3] = GRAPH
    adjacency[3, 0] = True
    unmixing = np.concatenate([np.eye(3), [[0.4, -0.3, 0.2]]])
    evaluation = evaluate(FakeModel(unmixing, adjacency=adjacency), world())
    assert evaluation["mcc"] == pytest.approx(1)
    assert evaluation["shd"] == 1
    assert evaluation["edge_recall"] == 1
    assert "scale_error" not in evaluation


def test_nonlinear_mixing_leaves_out_what_needs_linear():
    assert "scale_error" not in evaluate(perfect(), world(mixing=None))


def test_a_model_without_graph():
    assert list(evaluate(FakeModel(np.eye(3)), world())) == LATENT_METRICS["scale"]


def test_named_metrics_in_the_order_asked():
    names = ["relmse", "shd", "frobenius"]
    model = FakeModel(np.eye(3)[[1, 0, 2]] * -1.0, adjacency=GRAPH[np.ix_([1, 0, 2], [1, 0, 2])])
    evaluation = evaluate(model, world(), names)
    assert list(evaluation) == names
    assert dict(evaluation) == pytest.approx(dict.fromkeys(names, 0), abs=1e-9)
    assert list(evaluate(model, world(), "shd")) == ["shd"]


def test_log_evidence_that_a_model_states():
    others = (Alternative(GRAPH, None, 1.0, 0.99), Alternative(GRAPH, None, 3.5, 0.4))
    stated = perfect(alternatives=others, details={"gain_over_gaussian": 12.5})
    names = ["gain_over_gaussian", "evidence_gap"]
    scores = evaluate(stated, world(), names)
    assert dict(scores) == {"gain_over_gaussian": 12.5, "evidence_gap": 3.5}
    assert set(scores.perfect.values()) == {None}


def test_log_evidence_that_a_model_does_not_state():
    with pytest.raises(ValueError, match="does not state 'gain_over_gaussian'"):
        evaluate(perfect(), world(), ["gain_over_gaussian"])
    with pytest.raises(ValueError, match="met no other answer"):
        evaluate(perfect(), world(), ["evidence_gap"])
    assert not evaluate(perfect(), world(), ["evidence_gap"], unavailable="skip")


class DenoisingModel(FakeModel):
    """Adds noise where the environment is not told, and states intervals."""

    def transform(self, X, y=None):
        return self.result_.encoder(X) + (np.random.default_rng(0).normal() if y is None else 0)

    def posterior(self, X, y):
        Z = self.transform(X, y)
        reach = np.array([1.0, 1.0, -1.0])  # the last ones hold nothing
        return SimpleNamespace(interval=lambda level: (Z - reach, Z + reach))


def test_a_model_that_asks_for_environments_is_told_them():
    model = DenoisingModel(np.diag([1.0, -1.0, 1.0]))
    scores = evaluate(model, world(), ["relmse", "relmse_worst", "coverage"])
    assert scores["relmse"] == pytest.approx(0, abs=1e-20)
    assert scores["relmse_worst"] == pytest.approx(0, abs=1e-20)
    assert scores["coverage"] == pytest.approx(2 / 3)


def test_each_environment_has_a_metric():
    data = world()
    data.X[data.y == 1] *= 1.5
    scores = evaluate(FakeModel(np.eye(3)), data, ["relmse_environment_1", "relmse_environment_2"])
    assert list(scores.values()) == pytest.approx([0, 0.25])
    assert scores.perfect["relmse_environment_2"] == 0
    with pytest.raises(ValueError, match="there are 2 environments only"):
        evaluate(FakeModel(np.eye(3)), data, ["relmse_environment_3"])


def test_unknown_metric():
    with pytest.raises(ValueError, match=r"metrics must be among mcc, .* Got 'mmc', 'sdh'"):
        evaluate(perfect(), world(), ["mmc", "shd", "sdh"])


def test_metric_that_cannot_be_computed_says_why_and_what_can():
    message = "'mac' cannot be computed here: .* no exogenous noises. Available are mcc, .*shd"
    with pytest.raises(ValueError, match=message):
        evaluate(perfect(), world(), ["mac"])


def test_metric_that_a_model_with_a_posterior_of_every_row_does_not_have():
    data = make_observational(2, n_samples=500, random_state=0)
    model = ObservationalCRL(n_latents=2, random_state=0).fit(data.X)
    with pytest.raises(ValueError, match=r"'shd' cannot be computed here: .* recovers no graph"):
        evaluate(model, data, ["shd"])


def test_dataset_without_truth():
    data = world()
    data.truth = None
    with pytest.raises(ValueError, match="dataset must hold the truth"):
        evaluate(perfect(), data)


def test_dataset_with_other_features():
    data = world()
    data.X = data.X[:, :4]
    with pytest.raises(ValueError, match=r"must have the 5 features .* Got 4 features"):
        evaluate(perfect(), data)


def test_model_that_is_not_fitted():
    model = perfect()
    del model.result_
    with pytest.raises(NotFittedError, match="Got a FakeModel that is not; call its fit first"):
        evaluate(model, world())


def test_latents_that_are_not_finite():
    model: Any = perfect()
    model.transform = lambda X: np.full((len(X), 3), np.nan)
    with pytest.raises(ValueError, match=r"model.transform\(dataset.X\) must be finite"):
        evaluate(model, world())


def test_data_frames_from_set_output():
    pandas = pytest.importorskip("pandas")
    model: Any = perfect()
    encoder = model.result_.encoder
    model.transform = lambda X: pandas.DataFrame(encoder(X))
    assert evaluate(model, world())["mcc"] == pytest.approx(1)


def test_model_of_a_data_frame_without_a_warning_about_names():
    pd = pytest.importorskip("pandas")
    dataset = make_segments(2, 3, 20, n_segments=3, random_state=0)
    model = PCABaseline(n_latents=2).fit(pd.DataFrame(dataset.X, columns=list(dataset.names)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluate(model, dataset)["mcc"] > 0


def test_other_warnings_of_a_model_are_heard():
    model = perfect()
    model.transform = lambda X: warnings.warn("something else", stacklevel=2) or X[:, :3]
    with pytest.warns(UserWarning, match="something else"):
        evaluate(model, world(), ["mcc"])


def test_targets_are_compared_environment_by_environment_whatever_their_names():
    data = make_linear_interventional(3, 6, 1000, random_state=0)
    names = np.array(["control", "c", "b", "a"])
    assert data.y is not None
    named = replace(data, y=names[data.y], environments=tuple(names.tolist()))
    model = LinearInterventionCRL(reference="control", random_state=0).fit(named.X, named.y)
    assert evaluate(model, named, ["targets_right"])["targets_right"] == 1.0


class TestGraphByPC:
    """Graphs that PC finds, on recovered latents and on true ones."""

    @pytest.fixture(autouse=True)
    def _needs_causallearn(self):
        pytest.importorskip("causallearn", reason="PC is that of causal-learn, an extra")

    def data(self, **truth: Any) -> Any:
        rng = np.random.default_rng(0)
        Z = rng.normal(size=(20_000, 3)) @ np.linalg.inv(np.eye(3) - np.eye(3, k=1))
        active = rng.random(Z.shape) < 0.5
        latents = {"Z": np.where(active, Z, 0.0), "active": active, **truth}
        known = SimpleNamespace(**{**vars(world().truth), "graph": np.eye(3, k=1), **latents})
        return SimpleNamespace(X=known.Z @ MIXING.T, y=None, covariates=None, truth=known)

    def test_activity_of_model_and_truth_is_used(self):
        data = self.data()
        names = ["shd_pc", "shd_pc_of_truth"]
        without = perfect()
        assert dict(evaluate(without, data, names)) == {"shd_pc": 1, "shd_pc_of_truth": 0}
        informed: Any = perfect()
        informed.active = lambda X: data.truth.active[:, [2, 0, 1]]  # in the model's order
        assert dict(evaluate(informed, data, names)) == {"shd_pc": 0, "shd_pc_of_truth": 0}

    def test_activity_of_what_was_rotated_then_does_not_count(self):
        rotated = self.data().truth.Z @ [[0.6, -0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]]
        with_activity = evaluate(perfect(), self.data(Z=rotated), ["shd_pc_of_truth"])
        without = evaluate(perfect(), self.data(Z=rotated, active=None), ["shd_pc_of_truth"])
        assert dict(with_activity) == dict(without)

    def test_rows_that_pc_cannot_use(self):
        active = np.arange(20_000)[:, None] % 3 == np.arange(3)
        data = self.data(Z=active * np.random.default_rng(0).normal(size=(20_000, 3)))
        data.truth.active = active
        with pytest.raises(ValueError, match=r"'shd_pc_of_truth'.*needs at least 5 rows"):
            evaluate(perfect(), data, ["shd_pc_of_truth"])

    def test_fewer_latents_than_true(self):
        model = FakeModel(np.eye(3)[:2])
        with pytest.raises(ValueError, match=r"'shd_pc'.*the model recovers 2 latents"):
            evaluate(model, self.data(), ["shd_pc"])

    def test_the_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "causallearn.search.ConstraintBased.PC", None)
        for unavailable in ("raise", "skip"):
            with pytest.raises(MissingExtraError, match=r"pip install 'crlearn\[graph\]'"):
                evaluate(perfect(), self.data(), ["shd_pc"], unavailable=unavailable)
        with pytest.raises(ValueError, match=r"Available are mcc, .*shd_cpdag, edge_precision"):
            evaluate(perfect(), self.data(), ["mac"])
