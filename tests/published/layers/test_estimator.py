from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn import load
from crlearn.data import make_observational
from crlearn.exceptions import AssumptionWarning, IdentifiabilityError
from crlearn.graph import layers
from crlearn.metrics import evaluate, layer_recovery, mac
from crlearn.published import ScoreLayers, score_layers
from crlearn.scores import ExactJacobians, NoisyJacobians, SteinJacobians

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")


def world(**options: Any) -> Any:
    return make_observational(**{"n_samples": 1000, "graph": "chain", "random_state": 0, **options})


def fitted(data: Any, **options: Any) -> Any:
    settings: dict[str, Any] = {"scores": ExactJacobians(data.truth), "random_state": 0}
    return ScoreLayers(**{**settings, **options}).fit(data.X)


def scores_of(data: Any, model: Any) -> tuple[float, float]:
    """Recovery of latents up to upstream layers, and of noises up to layers."""
    true, found = layers(data.truth.graph), model.layers_
    return (
        layer_recovery(data.truth.Z, model.transform(data.X), true, found, upstream=True),
        layer_recovery(data.truth.noise, model.noises(data.X), true, found),
    )


def test_the_papers_choices_are_the_defaults():
    assert ScoreLayers().get_params() == {
        "n_latents": None,
        "scores": "stein",
        "threshold": 1e-3,
        "prune_outliers": 0.25,
        "regress_on": "latents",
        "random_state": None,
    }


class TestExactScores:
    @pytest.mark.parametrize("rescale", ["minmax", "standard"])
    @pytest.mark.parametrize("seed", range(3))
    def test_a_line_is_recovered_in_order(self, rescale: str, seed: int):
        data = world(rescale=rescale, random_state=seed)
        model = fitted(data)
        assert model.layers_ == [[3], [2], [1], [0]]
        assert scores_of(data, model)[0] > 1 - 1e-6
        # By regression alone: noise of a thousand rows cannot be told from a mechanism.
        assert 0.99 < mac(data.truth.noise, model.noises(data.X)) < 0.99999
        details = model.result_.details
        assert details["deviation"].max() < 1e-6
        assert np.nanmin(details["next_deviation"]) > 0.1
        assert np.isnan(details["p_values"]).all()

    def test_the_leaves_of_a_y_are_one_layer(self):
        data = world(graph="y", n_features=6)
        model = fitted(data)
        assert model.layers_ == [[2, 3], [1], [0]]
        latents, noises = scores_of(data, model)
        assert latents > 1 - 1e-6
        assert noises > 0.99
        assert evaluate(model, data)["layer_recovery"] > 0.99
        assert model.graph_ is None

    @pytest.mark.parametrize(
        ("n_latents", "seed", "mechanism"),
        [(6, 1, "norm_squared"), (8, 2, "norm_squared"), (8, 2, "sin"), (6, 1, "tanh_mlp")],
    )
    def test_random_graphs(self, n_latents: int, seed: int, mechanism: str):
        options = {"n_samples": 2000, "edge_probability": 0.4, "mechanism": mechanism}
        data = world(graph="er", n_latents=n_latents, random_state=seed, **options)
        model = fitted(data)
        sizes = [len(layer) for layer in layers(data.truth.graph)]
        assert [len(layer) for layer in model.layers_] == sizes
        latents, noises = scores_of(data, model)
        assert latents > 1 - 1e-6
        assert noises > 0.975  # 0.981 to 0.992 were seen with other starts

    def test_independent_latents_are_one_layer(self):
        with pytest.warns(AssumptionWarning, match="all 4 latents can be leaves"):
            model = fitted(world(graph="empty"))
        assert model.layers_ == [[0, 1, 2, 3]]

    def test_one_latent(self):
        data = world(n_latents=1, n_features=3)
        model = fitted(data, n_latents=1)
        assert mac(data.truth.noise, model.noises(data.X)) == pytest.approx(1.0)

    def test_latents_are_the_part_of_x_along_leaves(self):
        # As printed: what is left is orthogonal to the leaves, in the units of x.
        data = world(n_latents=2)
        rows = fitted(data).result_.encoder.matrix
        leaf = data.truth.mixing.matrix[:, 1]
        np.testing.assert_allclose(rows[0] @ leaf, 0, atol=1e-6)
        assert abs(rows[1] @ leaf) == pytest.approx(np.linalg.norm(rows[1]) * np.linalg.norm(leaf))

    def test_latents_have_variance_one_and_fixed_signs(self):
        data = world(graph="y")
        model = fitted(data)
        np.testing.assert_allclose(model.transform(data.X).std(axis=0), 1)
        matrix = model.result_.encoder.matrix * data.X.std(axis=0)
        assert (matrix[np.arange(4), np.abs(matrix).argmax(axis=1)] > 0).all()

    def test_a_users_function_does_as_well_as_the_truth(self):
        data = world(n_latents=2)
        model = fitted(data, scores=ExactJacobians(data.truth).evaluate)
        assert model.layers_ == [[1], [0]]
        assert evaluate(model, data)["mac"] > 0.99

    def test_noises_of_new_rows(self):
        data = world(n_samples=2000)
        half = data.subset(slice(1000))
        noises = fitted(half).noises(data.X[1000:])
        assert mac(data.truth.noise[1000:], noises) > 0.98

    def test_regression_on_noises_as_printed(self):
        """Line 4 of Algorithm 2: the same information, but harder to fit."""
        data = world(n_samples=2000)
        plain, printed = (fitted(data, regress_on=on) for on in ("latents", "noises"))
        np.testing.assert_array_equal(plain.transform(data.X), printed.transform(data.X))
        found = printed.noises(data.X)
        np.testing.assert_allclose(found[:, 0], plain.noises(data.X)[:, 0])
        Z = printed.transform(data.X)
        regressions = printed.result_.noise_encoder.regressions
        for j, explained in enumerate(regressions, start=1):  # on what was found before it
            np.testing.assert_allclose(found[:, j], Z[:, j] - explained(found[:, :j])[:, 0])
        assert mac(data.truth.noise, plain.noises(data.X)) > 0.995
        assert 0.8 < mac(data.truth.noise, found) < 0.97

    def test_noisy_jacobians_have_a_tolerance_of_their_own(self):
        data = world(graph="y")
        noisy = NoisyJacobians(ExactJacobians(data.truth), 1e12, random_state=0)
        assert fitted(data, scores=noisy).layers_ == [[2, 3], [1], [0]]

    def test_tolerances_are_in_the_units_of_x(self):
        data = world(n_latents=2)
        deviation = fitted(data).result_.details["next_deviation"][0]

        def in_other_units(X: Any) -> Any:
            scores, jacobians = ExactJacobians(data.truth).evaluate(X / 10)
            return scores / 10, jacobians / 100

        larger = ScoreLayers(scores=in_other_units, random_state=0).fit(10 * data.X)
        assert larger.result_.details["next_deviation"][0] == pytest.approx(deviation / 100)
        with pytest.raises(ValueError, match="give X in other units"):
            ScoreLayers().fit(1e200 * data.X)

    def test_the_function_gives_the_same(self):
        data = world(n_latents=2)
        result = score_layers(data.X, 2, scores=ExactJacobians(data.truth), seed=3)
        assert result.layers == ((1,), (0,))
        again = score_layers(data.X, 2, scores=ExactJacobians(data.truth), seed=3)
        np.testing.assert_array_equal(result.encoder(data.X), again.encoder(data.X))


class TestEstimatedScores:
    @quiet  # variables in [0, 1] look Gaussian
    def test_the_published_way_takes_latents_one_by_one(self):
        data = world(n_samples=500, rescale="minmax")
        model = fitted(data, scores=SteinJacobians(random_state=0))
        assert model.layers_ == [[3], [2], [1], [0]]
        assert np.isfinite(model.noises(data.X)).all()
        untested = {check.name for check in model.result_.checks if check.passed is None}
        assert untested == {"layers show in the scores"}

    def test_what_is_far_from_gaussian_is_not_one_layer(self):
        # One parent and one child whose noise is small: even a kernel sees this curve.
        data = world(n_latents=2, n_samples=2000, noise_variance=(0.3, 0.3))
        model = fitted(data, scores="stein", threshold="test", prune_outliers=0.0)
        assert model.layers_ == [[1], [0]]
        assert mac(data.truth.noise, model.noises(data.X)) > 0.9

    def test_same_seed_same_bits(self):
        data = world(n_samples=200)
        first, again = (fitted(data, scores="stein", random_state=3) for _ in range(2))
        np.testing.assert_array_equal(first.transform(data.X), again.transform(data.X))
        np.testing.assert_array_equal(first.noises(data.X), again.noises(data.X))

    def test_save_and_load(self, tmp_path: Any):
        data = world(n_samples=200)
        model = fitted(data, scores="stein")
        model.save(tmp_path / "model.crl")
        loaded = load(tmp_path / "model.crl")
        np.testing.assert_array_equal(loaded.noises(data.X), model.noises(data.X))
        assert loaded.layers_ == model.layers_

    @pytest.mark.parametrize("threshold", [1e-3, "test"])
    def test_gaussian_data(self, threshold: Any):
        X = np.random.default_rng(0).normal(size=(300, 3)) @ np.diag([1.0, 2.0, 3.0])
        with pytest.warns(AssumptionWarning) as caught:
            ScoreLayers(threshold=threshold, random_state=0).fit(X)
        said = " ".join(str(warning.message) for warning in caught)
        assert "data are not Gaussian: fails" in said
        assert "effects may be linear" in said
        assert ("layers show in the scores: fails" in said) is (threshold == "test")


class TestErrorsOfJacobians:
    """What Figure 4 of the paper has as its axis."""

    NAMES = ("signal_to_error", "centred_signal_to_error")

    @quiet
    def test_errors_that_were_added_are_measured(self):
        data = world()
        noisy = NoisyJacobians(ExactJacobians(data.truth), 4.0, random_state=0)
        found = evaluate(fitted(data, scores=noisy), data, self.NAMES)
        assert found["signal_to_error"] == pytest.approx(4.0)
        assert found["centred_signal_to_error"] < 4  # what is constant is no signal

    @quiet
    def test_those_of_an_estimate(self):
        data = world(n_samples=500)
        model = fitted(data, scores="stein")
        found = evaluate(model, data, self.NAMES)
        exact = ExactJacobians(data.truth).evaluate(data.X)[1]
        estimated = SteinJacobians(random_state=0).fit(data.X).evaluate(data.X)[1]
        # An estimate does not depend on axes, but for the choice of centres, all rows here.
        expected = (exact**2).mean() / ((estimated - exact) ** 2).mean()
        assert found["signal_to_error"] == pytest.approx(expected, rel=0.5)

    def test_exact_scores_have_none(self):
        data = world()
        with pytest.raises(ValueError, match="the model was given the true score"):
            evaluate(fitted(data), data, ["signal_to_error"])

    def test_tests_have_no_jacobians_in_units_of_x(self):
        data = world()
        details = fitted(data, threshold="test").result_.details
        assert "jacobians" not in details


class TestTheTest:
    """In place of the tolerance: calibrated, and free of units."""

    def test_exact_scores(self):
        data = world(graph="y")
        model = fitted(data, threshold="test")
        assert model.layers_ == [[2, 3], [1], [0]]
        assert scores_of(data, model)[0] > 1 - 1e-6
        assert model.result_.details["p_values"].tolist() == [1.0] * 3

    def test_what_noise_covers_is_one_layer(self):
        data = world(n_samples=500, rescale="minmax")
        with pytest.warns(AssumptionWarning) as caught:
            model = fitted(data, scores="stein", threshold="test")
        assert any("layers show in the scores: fails" in str(w.message) for w in caught)
        assert [len(layer) for layer in model.layers_] == [4]
        assert model.result_.details["p_values"].min() > 0.05

    def test_axes_and_units_of_x_do_not_matter(self):
        data = world(graph="y", n_samples=500)
        change = np.random.default_rng(0).normal(size=(4, 4)) * [1.0, 10.0, 0.1, 1.0]
        evaluate_exactly = ExactJacobians(data.truth).evaluate
        back = np.linalg.inv(change)

        def changed(X: Any) -> Any:
            scores, jacobians = evaluate_exactly(X @ back.T)
            return scores @ back, back.T @ jacobians @ back

        first = fitted(data, scores=evaluate_exactly, threshold="test")
        second: Any = ScoreLayers(scores=changed, threshold="test", random_state=0)
        second.fit(data.X @ change.T)
        assert first.layers_ == second.layers_
        noises = first.noises(data.X), second.noises(data.X @ change.T)
        assert layer_recovery(*noises, first.layers_) > 0.99


class TestBadInput:
    def test_labels_are_reported(self):
        data = world(n_samples=200)
        with pytest.warns(AssumptionWarning, match="y has 3 labels and was not used"):
            ScoreLayers(random_state=0).fit(data.X, np.arange(200) % 3)

    def test_rows_and_rank(self):
        data = world(n_samples=100)
        with pytest.raises(ValueError, match="4 latents need at least 12 rows of X"):
            ScoreLayers().fit(data.X[:10])
        with pytest.raises(IdentifiabilityError, match="at most the rank of X, which is 4"):
            ScoreLayers(5).fit(np.hstack([data.X, data.X]))

    @pytest.mark.parametrize(
        "wrong",
        [{"threshold": "paper"}, {"threshold": -1.0}, {"prune_outliers": 0.95}],
        ids=str,
    )
    def test_parameters(self, wrong: dict[str, Any]):
        (name,) = wrong
        with pytest.raises(ValueError, match=f"The '{name}' parameter of ScoreLayers must be"):
            ScoreLayers(**wrong).fit(world(n_samples=100).X)

    def test_scores_that_nobody_knows(self):
        with pytest.raises(ValueError, match=r"ExactJacobians\(truth\)"):
            ScoreLayers(scores="exact").fit(world(n_samples=100).X)

    def test_a_density_without_marginals_is_refused(self):
        def flat(X: Any) -> Any:
            # Constant slopes: the density has no maximum along any direction.
            curvature = 1 + X[:, :1, None] ** 2
            return np.ones_like(X), -curvature * np.diag([1.0, 2.0])

        X = np.random.default_rng(0).normal(size=(100, 2))
        with pytest.raises(ValueError, match="has no marginals"):
            ScoreLayers(scores=flat, random_state=0).fit(X)

    def test_noises(self):
        data = world()
        model = fitted(data)
        with pytest.raises(ValueError, match="is expecting 4 features"):
            model.noises(data.X[:, :3])
        with pytest.raises(ValueError, match="noises would have"), np.errstate(all="ignore"):
            model.noises(np.full((1, 4), 1e200))

    def test_before_fit(self):
        with pytest.raises(AttributeError, match="call fit first"):
            ScoreLayers().layers_  # noqa: B018
        with pytest.raises(ValueError, match="not fitted yet"):
            ScoreLayers().noises(np.zeros((2, 2)))
