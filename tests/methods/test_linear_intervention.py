from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from crlearn import LinearInterventionCRL
from crlearn.data import (
    Dataset,
    make_coupled_interventional,
    make_linear_interventional,
    make_multi_node,
    make_noisy_interventional,
)
from crlearn.exceptions import AssumptionWarning
from crlearn.graph import transitive_closure
from crlearn.methods._uncovered import COVERAGE
from crlearn.metrics import evaluate

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")


def world(**options: Any) -> Any:
    return make_linear_interventional(
        **{"n_latents": 4, "n_features": 10, "n_samples": 3000, "random_state": 0, **options}
    )


def fitted(data: Any, **options: Any) -> Any:
    return LinearInterventionCRL(**{"random_state": 0, **options}).fit(data.X, data.y)


class TestRecovery:
    @pytest.mark.parametrize("seed", range(3))
    def test_hard_interventions(self, seed: int):
        data = world(random_state=seed)
        model = fitted(data, mechanisms="linear")
        scores = evaluate(model, data)
        assert scores["mcc"] > 0.999
        assert scores["scale_error"] < 0.1
        assert scores["shd"] == 0
        assert model.result_.details["mechanisms"] == "linear"
        assert model.result_.goodness_of_fit.p_value > 1e-3
        assert max(model.result_.edge_tests.values(), default=0) < 1e-3

    @pytest.mark.parametrize("seed", range(3))
    def test_soft_interventions(self, seed: int):
        data = world(intervention="soft", random_state=seed)
        scores = evaluate(fitted(data, interventions="soft", mechanisms="linear"), data)
        assert scores["parent_error"] < 0.1
        assert scores["shd_closure"] == 0

    @pytest.mark.parametrize(
        ("last", "levels"),
        [("quadratic", ("surrounding", "exact")), ("linear", ("parents", "closure"))],
    )
    def test_bent_mechanisms_tell_parents_where_interventions_are_soft(
        self, last: str, levels: tuple[str, str]
    ):
        mechanisms = ["quadratic", "quadratic", last]
        data = world(n_latents=3, graph="full", mechanism=mechanisms, intervention="soft")
        model = fitted(data, interventions="soft")
        guarantee = model.result_.guarantee
        assert (guarantee.latents, guarantee.graph) == levels
        assert ("edges to z2 stand for ancestors" in guarantee.text) == (last == "linear")
        scores = evaluate(model, data, metrics=["surrounding_error", "shd_closure"])
        assert scores["surrounding_error"] < 0.1
        assert scores["shd_closure"] == 0

    def test_nonlinear_mechanisms_are_noticed_and_fitted(self):
        data = world(
            n_latents=3, mechanism="quadratic", variance_factor=5.0, n_samples=2000, random_state=2
        )
        model = fitted(data)
        assert model.result_.details["mechanisms"] == "nonlinear"
        assert model.result_.goodness_of_fit is None  # the linear tests are not of this model
        assert model.result_.edge_p_values is None
        scores = evaluate(model, data)
        assert scores["mcc"] > 0.995
        assert scores["shd"] == 0
        assert scores["mcc"] > evaluate(fitted_quietly(data, mechanisms="linear"), data)["mcc"]

    def test_unequal_sample_sizes(self):
        data = world(n_samples=[4000, 500, 1000, 2000, 3000])
        assert evaluate(fitted(data, mechanisms="linear"), data)["shd"] == 0

    def test_the_order_of_environments_is_that_of_the_latents(self):
        data = world()
        labels = np.array(["control", "d", "c", "b", "a"])[data.y]
        model = LinearInterventionCRL(reference="control", mechanisms="linear", random_state=0)
        model.fit(data.X, labels)
        assert (model.result_.adjacency == data.truth.graph[::-1, ::-1]).all()
        expected = np.insert(np.eye(4, dtype=bool), 3, False, axis=0)  # a, b, c, control, d
        assert (model.result_.targets == expected).all()


@pytest.fixture(scope="module")
def coupled() -> Any:
    return make_coupled_interventional(
        4, 10, 3000, mechanism="linear", mixing="well_conditioned", random_state=0
    )


class TestRepeatedTargets:
    def test_found_without_being_told(self, coupled: Any):
        model = fitted(coupled, n_latents=4, mechanisms="linear")
        scores = evaluate(model, coupled, ["mcc", "shd", "targets_right"])
        assert scores["mcc"] > 0.999
        assert (scores["shd"], scores["targets_right"]) == (0, 1)

    def test_named(self, coupled: Any):
        targets = {e: f"gene {(e - 1) % 4}" for e in range(1, 9)}
        model = fitted(coupled, targets=targets, mechanisms="linear")
        assert model.result_.n_latents == 4
        assert evaluate(model, coupled)["shd"] == 0

    def test_as_a_matrix(self, coupled: Any):
        """Its columns are the latents, whatever the order of the environments."""
        backwards = coupled.truth.targets[:, ::-1]
        model = fitted(coupled, targets=backwards, mechanisms="linear")
        assert (model.result_.targets == backwards).all()

    def test_a_name_is_missing(self, coupled: Any):
        with pytest.raises(ValueError, match="It has none for 2, 3"):
            fitted(coupled, targets={1: "a", 4: "b", 5: "a", 6: "c", 7: "d", 8: "b"})


class TestWhatDataContradict:
    def test_some_latents_are_not_intervened_on(self):
        data = world()
        part = data.subset(data.y < 3)
        with pytest.warns(AssumptionWarning, match="every latent is intervened on"):
            model = LinearInterventionCRL(4, mechanisms="linear", random_state=0).fit(
                part.X, part.y
            )
        assert "z2, z3" in model.result_.guarantee.text
        correlation = np.corrcoef(part.truth.Z.T, model.transform(part.X).T)[:4, 4:]
        np.testing.assert_allclose(np.abs(np.diag(correlation))[:2], 1, atol=0.01)

    def test_the_rank_tells_of_a_latent_without_an_intervention(self, tmp_path: Any):
        data = world(n_latents=5)
        part = data.subset(data.y < 5)
        with pytest.warns(AssumptionWarning) as caught:
            model: Any = fitted(part, mechanisms="linear")
        assert len(caught) == 1
        assert "latents without an intervention: z4" in str(caught[0].message)
        result = model.result_
        assert result.n_latents == 5
        assert (result.guarantee.latents, result.guarantee.graph) == ("span", "none")
        assert result.guarantee.intended is None
        assert "no environment intervenes on z4, which is recovered" in result.guarantee.text
        assert not result.targets[:, 4].any()
        assert not result.adjacency[4].any()
        assert not result.adjacency[:, 4].any()
        correlation = np.corrcoef(part.truth.Z.T, model.transform(part.X).T)[:5, 5:]
        np.testing.assert_allclose(np.abs(np.diag(correlation))[:4], 1, atol=0.02)
        model.save(tmp_path / "model.crl")
        loaded = LinearInterventionCRL.load(tmp_path / "model.crl")
        assert loaded.result_.guarantee == result.guarantee

    @pytest.mark.parametrize("share", [0.0, 0.2])
    def test_soft_interventions_on_all_but_one(self, share: float):
        """Soft interventions say nothing of what causes a latent that none is on."""
        data: Any = make_noisy_interventional(
            5, 30, 2000, share=share, intervention="soft", variance_factor=0.25, random_state=1
        )
        kept = data.y != 2
        model: Any = LinearInterventionCRL(5, interventions="soft", random_state=0)
        with pytest.warns(AssumptionWarning, match="latents without an intervention: z4"):
            result = model.fit(data.X[kept], data.y[kept]).result_
        assert [check.name for check in result.failed_checks] == [COVERAGE]
        ancestors = transitive_closure(data.truth.graph)[[0, 2, 3, 4]][:, [0, 2, 3, 4]]
        np.testing.assert_array_equal(result.adjacency[:4, :4], ancestors)
        assert not result.adjacency[4].any()
        assert not result.adjacency[:, 4].any()
        assert np.isfinite(result.edge_p_values).all()

    def test_a_saved_model_keeps_what_was_intended(self, tmp_path: Any):
        data = world()
        with pytest.warns(AssumptionWarning, match="none is labelled 0"):
            model: Any = fitted(Dataset(data.X, data.y + 10), mechanisms="linear")
        model.save(tmp_path / "model.crl")
        guarantee = LinearInterventionCRL.load(tmp_path / "model.crl").result_.guarantee
        assert guarantee == model.result_.guarantee
        assert guarantee.intended is not None
        assert (guarantee.latents, guarantee.intended.latents) == ("none", "scale")

    def test_an_environment_like_the_reference(self):
        data = world()
        y = np.where(data.y == 4, 0, data.y)
        y[np.flatnonzero(data.y == 0)[::2]] = 4
        with pytest.warns(AssumptionWarning, match="cannot be told from the reference: 4"):
            LinearInterventionCRL(mechanisms="linear", random_state=0).fit(
                data.X[data.y != 4], y[data.y != 4]
            )

    def test_no_reference(self):
        data = world()
        with pytest.warns(AssumptionWarning, match="none is labelled 0"):
            LinearInterventionCRL(mechanisms="linear", random_state=0).fit(data.X, data.y + 10)

    @quiet
    def test_wrong_labels_fail_the_goodness_of_fit(self):
        data = world()
        wrong = np.random.default_rng(0).permutation(data.y[data.y > 0])
        y = data.y.copy()
        y[y > 0] = np.where(np.arange(len(wrong)) % 2, wrong, y[y > 0])
        model = LinearInterventionCRL(mechanisms="linear", random_state=0).fit(data.X, y)
        failed = [check.name for check in model.result_.failed_checks]
        assert "single-node interventions fit" in failed

    def test_too_few_rows(self):
        data = world()
        y = data.y.copy()
        few = np.flatnonzero(y == 1)[3:]
        y[few] = 0
        with pytest.raises(ValueError, match=r"needs more than 4 rows.*Too few are in: 1"):
            fitted(Dataset(data.X, y))


def off_rows(model: Any, data: Any, latents: Any) -> float:
    """Return the most that rows of these latents have of others, beside their own share."""
    rows = np.abs(model.result_.encoder.matrix @ data.truth.mixing.matrix)
    rows /= np.diag(rows)[:, None].copy()
    np.fill_diagonal(rows, 0)
    return float(rows[list(latents)].max())


def held_check(model: Any) -> Any:
    return next(c for c in model.result_.checks if c.name == "held latents are targets")


class TestHeldLatents:
    """Do-interventions: environments in which a latent does not vary."""

    @pytest.mark.parametrize("seed", range(2))
    @pytest.mark.parametrize("mechanism", ["linear", "quadratic"])
    def test_rows_are_exact_and_the_graph_is_right(self, mechanism: str, seed: int):
        data = world(n_latents=3, mechanism=mechanism, intervention="do", random_state=seed)
        model = fitted(data)
        assert off_rows(model, data, range(3)) < 1e-10
        assert evaluate(model, data)["shd"] == 0
        assert not model.result_.failed_checks
        assert held_check(model).detail.endswith("1 holds z0, 2 holds z1, 3 holds z2")

    @pytest.mark.parametrize("value", [0.0, 20.0])
    def test_others_may_be_hard(self, value: float):
        data = world(intervention=["do", "hard", "do", "hard"], value=value)
        model = fitted(data, mechanisms="linear")
        assert off_rows(model, data, [0, 2]) < 1e-10
        assert 1e-6 < off_rows(model, data, [1, 3]) < 0.05
        assert evaluate(model, data)["shd"] == 0
        assert model.result_.goodness_of_fit.p_value > 1e-3
        assert model.result_.guarantee.latents == "scale"

    @pytest.mark.parametrize("known", [True, False])
    def test_a_latent_may_be_held_more_than_once(self, known: bool):
        kinds = ["do", "do", "hard", "hard", "do", "hard"]
        data = world(intervention=kinds, intervened=[0, 1, 2, 3, 0, 1])
        targets = {1: "p", 2: "q", 3: "r", 4: "s", 5: "p", 6: "q"} if known else None
        model = fitted(data, n_latents=4, targets=targets, mechanisms="linear")
        scores = evaluate(model, data)
        assert scores["mcc"] > 0.9999
        assert scores["shd"] == 0
        assert scores["targets_right"] == 1
        assert held_check(model).passed

    @quiet
    def test_latents_that_nothing_is_done_to(self):
        data = world(intervention="do", intervened=[0, 2])
        model = fitted(data, mechanisms="linear")
        rows = np.abs(model.result_.encoder.matrix[:2] @ data.truth.mixing.matrix)
        np.testing.assert_allclose(rows / rows.max(axis=1)[:, None], np.eye(4)[[0, 2]], atol=1e-9)
        assert model.result_.guarantee.latents == "span"

    def test_measurement_noise_hides_nothing_of_it(self):
        data = world(intervention="do", n_features=40, measurement_noise=0.1)
        model = fitted(data, mechanisms="linear")
        assert all(check.name != "held latents are targets" for check in model.result_.checks)
        scores = evaluate(model, data)
        assert scores["mcc"] > 0.99
        assert scores["shd"] == 0
        assert not model.result_.failed_checks

    def test_single_precision_and_files(self, tmp_path: Any):
        data = world(intervention="do")
        model = fitted(Dataset(data.X.astype(np.float32), data.y), mechanisms="linear")
        assert off_rows(model, data, range(4)) < 1e-5
        model.save(tmp_path / "model.crl")
        again = LinearInterventionCRL.load(tmp_path / "model.crl")
        np.testing.assert_array_equal(again.transform(data.X), model.transform(data.X))
        assert again.result_.checks == model.result_.checks

    @quiet
    def test_the_same_seed_has_the_same_answer(self):
        data = world(intervention="do", mechanism="quadratic", n_latents=3, n_samples=500)
        one, other = (fitted(data).result_.encoder.matrix for _ in range(2))
        np.testing.assert_array_equal(one, other)

    def test_what_cannot_be_is_refused(self):
        data = world(intervention=["do", "hard", "hard", "hard"])
        with pytest.raises(ValueError, match="In environment 1 latents are held at values, which"):
            fitted(data, interventions="soft")
        with pytest.raises(ValueError, match="In the reference environment, 1, X varies in 3"):
            fitted(data, reference=1)
        X = data.X.copy()
        X[data.y == 2] = X[data.y == 2][0]
        with pytest.raises(ValueError, match="In environment 2 no latent varies"):
            fitted(Dataset(X, data.y))
        twice = world(intervention="do", intervened=[0, 1, 1])
        with pytest.raises(ValueError, match="Environments 2 and 3 hold the same latent"):
            fitted(twice)
        pairs = [[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
        sets = make_multi_node(4, 10, 100, target_sets=pairs, intervention="do", random_state=0)
        with pytest.raises(ValueError, match=r"In environments 1, 2, 3 several.*MultiNodeCRL"):
            fitted(sets)


def fitted_quietly(data: Any, **options: Any) -> Any:
    with pytest.warns(AssumptionWarning):
        return fitted(data, **options)


class TestLayersOfLatentsWithoutAnIntervention:
    OPTIONS: ClassVar[dict[str, Any]] = {"n_latents": 3, "graph": "chain", "intervened": [0]}

    def test_nonlinear_mechanisms_show_them(self):
        """No check fails, and what is said of layers and edges is true."""
        data: Any = world(**self.OPTIONS, mechanism="quadratic")
        model: Any = fitted(data, n_latents=3)
        result = model.result_
        assert (result.guarantee.latents, result.guarantee.graph) == ("layers", "layers")
        assert "no environment intervenes on z1, z2" in result.guarantee.text
        assert not result.failed_checks
        scores = evaluate(
            model, data.subset(data.y == 0), ["layer_recovery", "mcc_latent_1", "shd"]
        )
        assert scores["layer_recovery"] > 0.99
        assert scores["mcc_latent_1"] > 0.99
        assert scores["shd"] == 0

    def test_one_linear_mechanism_hides_them(self):
        """What is linear in z1 may be part of z2."""
        data: Any = world(**self.OPTIONS, mechanism=["quadratic", "quadratic", "linear"])
        with pytest.warns(AssumptionWarning, match="no nonlinear effect was seen of or on"):
            result = fitted(data, n_latents=3).result_
        assert (result.guarantee.latents, result.guarantee.graph) == ("span", "none")
        assert result.layers is None

    def test_linear_mechanisms_do_not(self):
        data: Any = world(intervened=[0, 1])
        with pytest.warns(AssumptionWarning, match="nonlinear mechanisms.* were not seen"):
            result = fitted(data, n_latents=4).result_
        assert (result.guarantee.latents, result.guarantee.graph) == ("span", "none")
        assert result.layers is None


class TestNames:
    LABELS = np.array(["control", "KLF1", "GATA1", "SPI1", "MYC"])

    def test_latents_are_named_after_the_environments_that_intervene_on_them(self, tmp_path: Any):
        data = world()
        model: Any = LinearInterventionCRL(mechanisms="linear", reference="control", random_state=0)
        model.set_output(transform="pandas").fit(data.X, self.LABELS[data.y])
        names = ["GATA1", "KLF1", "MYC", "SPI1"]
        assert list(model.get_feature_names_out()) == names
        assert list(model.transform(data.X).columns) == names
        assert model.graph_ is not None
        assert list(model.graph_.nodes) == names
        assert model.result_.interventions == {name: [name] for name in names}
        model.save(tmp_path / "model.crl")
        loaded = LinearInterventionCRL.load(tmp_path / "model.crl")
        assert loaded.result_.latent_names == names
        assert loaded.result_.interventions == model.result_.interventions

    def test_numbers_are_no_names(self):
        result = fitted(world(), mechanisms="linear").result_
        assert result.latent_names == ["z0", "z1", "z2", "z3"]
        assert result.interventions == {"z0": ["1"], "z1": ["2"], "z2": ["3"], "z3": ["4"]}

    def test_names_of_targets_come_before_those_of_environments(self):
        data = world()
        targets = {1: "iron", 2: "salt", 3: "heat", 4: "light"}
        result = fitted(data, mechanisms="linear", targets=targets).result_
        assert result.latent_names == ["iron", "salt", "heat", "light"]

    def test_a_latent_without_an_intervention_has_its_number_everywhere(self):
        data = world()
        labels = self.LABELS[data.y]
        kept = labels != "MYC"
        model = LinearInterventionCRL(4, mechanisms="linear", reference="control", random_state=0)
        with pytest.warns(AssumptionWarning, match="latents without an intervention: z3"):
            model.fit(data.X[kept], labels[kept])
        assert model.result_.latent_names == ["GATA1", "KLF1", "SPI1", "z3"]
        assert "no environment intervenes on z3" in model.result_.guarantee.text


def test_the_order_of_soft_interventions_on_one_latent_does_not_matter():
    """One halves the noise of a latent, the other doubles it and weakens its parent."""
    rng = np.random.default_rng(0)
    n, labels, rows = 2000, [], []
    for label, (weight, scale) in enumerate([(1.0, 1.0), (1.0, 1.0), (0.8, 0.5), (0.3, 2.0)]):
        cause = rng.standard_normal(n) * (2.0 if label == 1 else 1.0)
        rows.append(np.column_stack([cause, weight * cause + scale * rng.standard_normal(n)]))
        labels.append(np.full(n, label))
    X, y = np.concatenate(rows) @ rng.standard_normal((2, 4)), np.concatenate(labels)
    targets: Any = {1: "cause", 2: "effect", 3: "effect"}
    model: Any = LinearInterventionCRL(
        interventions="soft", mechanisms="linear", targets=targets, random_state=0
    )
    swapped = np.array([0, 1, 3, 2])[y]
    Z = model.fit(X, y).transform(X)
    assert model.result_.adjacency.tolist() == [[False, True], [False, False]]
    np.testing.assert_allclose(model.fit(X, swapped).transform(X), Z, atol=1e-4)


@pytest.mark.parametrize("seed", [1, 3])
def test_ancestors_do_not_depend_on_the_mixing(seed: int):
    """Weak effects, one of them in doubt (1), and an order that is hardly determined (3)."""
    data = make_linear_interventional(
        5, 10, 5000, intervention="soft", variance_factor=5.0, random_state=seed
    )
    assert data.truth is not None
    found = []
    for mixing_seed in range(3):
        mixing = np.random.default_rng(mixing_seed).standard_normal((5, 10 + 20 * mixing_seed))
        model = LinearInterventionCRL(
            5, interventions="soft", mechanisms="linear", random_state=mixing_seed
        )
        with pytest.warns(AssumptionWarning):
            found.append(model.fit(data.truth.Z @ mixing, data.y).result_)
    for other in found[1:]:
        np.testing.assert_array_equal(other.adjacency, found[0].adjacency)
        np.testing.assert_allclose(other.edge_p_values, found[0].edge_p_values, atol=1e-4)


@quiet
def test_counts_that_are_zero_in_most_rows():
    data: Any = make_linear_interventional(3, 20, 300, random_state=0)
    rates = 0.02 * np.exp(0.8 * data.X / data.X.std(axis=0))
    counts = np.random.default_rng(0).poisson(rates)
    model = LinearInterventionCRL(3, mechanisms="linear", noise="poisson", random_state=0)
    assert np.isfinite(model.fit(counts, data.y).transform(counts)).all()


def test_orders_of_about_the_same_likelihood_are_compared_without_needless_edges():
    """The best order of eight latents needs more edges than the truth, and turns some around."""
    data = make_noisy_interventional(
        8, share=0.0, intervention="soft", variance_factor=5.0, random_state=13
    )
    model: Any = LinearInterventionCRL(
        interventions="soft", mechanisms="linear", random_state=0
    ).fit(data.X, data.y)
    assert evaluate(model, data)["shd_closure"] == 0
    assert any(other.is_reversed for other in model.result_.alternatives)


def test_the_likelihood_of_measured_rows_chooses_among_optima():
    """Covariances less those of the noise prefer a wrong optimum of the model without an order."""
    data = make_noisy_interventional(intervention="soft", random_state=3)
    model = fitted(data, n_latents=5, interventions="soft")
    assert model.result_.details["mechanisms"] == "linear"
    assert evaluate(model, data)["shd_closure"] == 0
