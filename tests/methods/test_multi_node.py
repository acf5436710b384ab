from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn import MultiNodeCRL
from crlearn.data import make_multi_node, make_noisy_interventional
from crlearn.exceptions import AssumptionWarning, IdentifiabilityError
from crlearn.metrics import evaluate

METRICS = ["mcc", "shd", "shd_closure", "targets_right"]


def world(**options: Any) -> Any:
    return make_multi_node(
        **{"n_latents": 4, "n_features": 10, "n_samples": 3000, "random_state": 0, **options}
    )


def fitted(data: Any, **options: Any) -> Any:
    return MultiNodeCRL(**{"random_state": 0, **options}).fit(data.X, data.y)


class TestRecovery:
    @pytest.mark.parametrize("target_sets", ["triangular", "general"])
    @pytest.mark.parametrize("seed", range(3))
    def test_hard_interventions(self, seed: int, target_sets: str):
        data = world(random_state=seed, target_sets=target_sets)
        model = fitted(data, mechanisms="linear")
        scores = evaluate(model, data, METRICS)
        assert scores["mcc"] > 0.999
        assert scores["shd"] == 0
        assert scores["targets_right"] == 1
        assert model.result_.goodness_of_fit.p_value > 1e-3
        assert max(model.result_.edge_tests.values(), default=0) < 1e-3

    @pytest.mark.parametrize("seed", range(3))
    def test_soft_interventions(self, seed: int):
        data = world(intervention="soft", random_state=seed)
        scores = evaluate(fitted(data, interventions="soft", mechanisms="linear"), data, METRICS)
        assert scores["shd_closure"] == 0
        assert scores["targets_right"] == 1

    def test_nonlinear_mechanisms_are_noticed_and_fitted(self):
        data = world(n_latents=3, mechanism="quadratic", variance_factor=5.0, random_state=1)
        model = fitted(data)
        scores = evaluate(model, data, METRICS)
        assert model.result_.details["mechanisms"] == "nonlinear"
        assert model.result_.goodness_of_fit is None  # the linear test is not of this model
        assert scores["mcc"] > 0.995
        assert scores["shd"] == 0
        assert scores["targets_right"] == 1

    def test_more_environments_than_latents(self):
        data = world(target_sets="general", n_interventions=9, n_samples=1000)
        scores = evaluate(fitted(data, mechanisms="linear"), data, METRICS)
        assert scores["shd"] == 0
        assert scores["targets_right"] == 1

    def test_unequal_sample_sizes(self):
        data = world(n_samples=[4000, 800, 1000, 2000, 3000])
        scores = evaluate(fitted(data, mechanisms="linear"), data, METRICS)
        assert scores["shd"] == 0
        assert scores["targets_right"] == 1

    def test_measurement_noise(self):
        data = world(measurement_noise=0.01)
        scores = evaluate(fitted(data, n_latents=4, mechanisms="linear"), data, METRICS)
        assert scores["mcc"] > 0.99
        assert scores["targets_right"] == 1


def test_causes_come_first_and_targets_follow_the_labels():
    data = world()
    plain = fitted(data, mechanisms="linear").result_
    assert not np.tril(plain.adjacency).any()
    labels = np.array(["control", "d", "c", "b", "a"])[data.y]
    model: Any = MultiNodeCRL(reference="control", mechanisms="linear", random_state=0)
    renamed = model.fit(data.X, labels).result_
    assert not np.tril(renamed.adjacency).any()
    # The labels are a, b, c, control, d; latents that do not cause each other may change places.
    expected = plain.targets[[4, 3, 2, 0, 1]]
    assert sorted(renamed.targets.T.tolist()) == sorted(expected.T.tolist())
    assert renamed.latent_names == plain.latent_names
    relabelled = {"1": "d", "2": "c", "3": "b", "4": "a"}
    sets = [{relabelled[label] for label in own} for own in plain.interventions.values()]
    assert sorted(map(sorted, sets)) == sorted(renamed.interventions.values())


@pytest.mark.parametrize("interventions", ["hard", "soft"])
def test_the_guarantee_depends_on_the_interventions(interventions: str):
    data = world(intervention=interventions)
    guarantee = fitted(data, interventions=interventions, mechanisms="linear").result_.guarantee
    expected = {"hard": ("scale", "exact"), "soft": ("ancestors", "closure")}[interventions]
    assert (guarantee.latents, guarantee.graph) == expected
    assert "full rank" in guarantee.text


def test_units_of_the_features_do_not_matter():
    data = world()
    units = 10.0 ** np.arange(-4, 6)
    plain = fitted(data, mechanisms="linear")
    scaled = MultiNodeCRL(mechanisms="linear", random_state=0).fit(data.X * units, data.y)
    np.testing.assert_allclose(scaled.transform(data.X * units), plain.transform(data.X), atol=1e-5)


@pytest.mark.parametrize("interventions", ["hard", "soft"])
def test_one_latent_with_one_intervention(interventions: str):
    world: Any = make_multi_node(n_latents=1, n_features=4, n_samples=300, random_state=0)
    model = MultiNodeCRL(
        1, interventions=interventions, mechanisms="nonlinear", noise="none", random_state=0
    ).fit(world.X, world.y)
    np.testing.assert_array_equal(model.result_.targets, [[False], [True]])
    assert evaluate(model, world)["mcc"] == pytest.approx(1)


class TestHeldLatents:
    """Do-interventions: environments in which latents do not vary."""

    PAIRS: Any = ((1, 1, 0, 0), (0, 1, 1, 0), (1, 0, 1, 0), (0, 0, 0, 1))

    @pytest.mark.parametrize("seed", range(2))
    def test_latents_that_are_held_together(self, seed: int):
        data = world(intervention="do", target_sets=self.PAIRS, random_state=seed)
        model = fitted(data, mechanisms="linear")
        scores = evaluate(model, data, METRICS)
        assert scores["mcc"] == pytest.approx(1, abs=1e-10)
        assert scores["shd"] == 0
        assert scores["targets_right"] == 1
        assert not model.result_.failed_checks
        assert "held latents are targets" in {check.name for check in model.result_.checks}

    def test_others_may_be_hard(self):
        sets = [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 1]]
        data = world(intervention=["do", "hard", "hard", "hard"], target_sets=sets)
        scores = evaluate(fitted(data, mechanisms="linear"), data, METRICS)
        assert scores["mcc"] > 0.999
        assert scores["shd"] == 0
        assert scores["targets_right"] == 1

    def test_a_space_that_stays_open_is_refused(self):
        sets = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
        data = world(intervention="do", target_sets=sets)
        with pytest.raises(IdentifiabilityError, match="environments 2, 4: they are held at"):
            fitted(data)

    def test_soft_interventions_hold_nothing(self):
        data = world(intervention="do", target_sets=np.eye(4, dtype=int))
        with pytest.raises(ValueError, match="which is a hard intervention"):
            fitted(data, interventions="soft")


class TestBadInput:
    def test_fewer_environments_than_latents(self):
        data = world()
        kept = data.y < 4
        with pytest.raises(IdentifiabilityError, match="at least 4 interventional environments"):
            MultiNodeCRL(random_state=0).fit(data.X[kept], data.y[kept])

    def test_no_reference(self):
        data = world()
        with pytest.warns(AssumptionWarning, match="none is labelled 0"):
            MultiNodeCRL(mechanisms="linear", random_state=0).fit(data.X, data.y + 1)

    def test_an_environment_in_which_nothing_happens(self):
        data = world(n_samples=[6000, 3000, 3000, 3000, 3000])
        y = data.y.copy()
        y[np.flatnonzero(y == 0)[::2]] = 5
        with pytest.warns(AssumptionWarning, match="cannot be told from the reference: 5"):
            model: Any = MultiNodeCRL(mechanisms="linear", random_state=0).fit(data.X, y)
        assert not model.result_.targets[5].any()

    def test_an_environment_that_is_no_intervention_shows_in_the_fit(self):
        data = world()
        mixing = data.truth.mixing.matrix
        among = np.eye(4) + 0.3 * np.random.default_rng(0).standard_normal((4, 4))
        odd = data.y == 2
        X = data.X.copy()  # mixed anew inside the span, so that nothing shows but in the fit
        X[odd] = np.linalg.lstsq(mixing, X[odd].T)[0].T @ among @ mixing.T
        with pytest.warns(AssumptionWarning, match="interventions on sets of latents fit: fails"):
            MultiNodeCRL(4, mechanisms="linear", random_state=0).fit(X, data.y)

    def test_too_few_rows(self):
        data = world()
        kept = (data.y != 3) | (np.cumsum(data.y == 3) <= 4)
        with pytest.raises(ValueError, match="Every environment needs more than 4 rows"):
            MultiNodeCRL(random_state=0).fit(data.X[kept], data.y[kept])


@pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
def test_other_targets_compete_behind_noise():
    """Orders and targets that came close without noise may be the answer behind it."""
    data: Any = make_noisy_interventional(
        kind="multi-node", intervention="soft", variance_factor=5.0, random_state=39
    )
    model: Any = MultiNodeCRL(interventions="soft", random_state=0).fit(data.X, data.y)
    assert evaluate(model, data)["shd_closure"] == 0
