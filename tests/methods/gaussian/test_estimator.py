from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from sklearn.decomposition import PCA

from crlearn import EmpiricalBayesCRL, GaussianPriorCRL, load
from crlearn.bench import ExactPosterior
from crlearn.data import (
    Intervention,
    make_linear_interventional,
    make_multi_domain,
    make_world,
)
from crlearn.exceptions import AssumptionWarning
from crlearn.methods import gaussian_prior_crl

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
PRIORS = ["normal", "mixture", "conditional", "shift"]


@pytest.fixture(scope="module")
def domains() -> Any:
    return make_multi_domain(3, 12, 800, observational=True, random_state=0)


@pytest.fixture(scope="module")
def shifted() -> Any:
    """A linear chain whose latents are shifted by 6, one in each environment."""
    return make_world(
        3,
        12,
        4000,
        graph="chain",
        interventions=[None, *(Intervention(j, "shift", shift=6.0) for j in range(3))],
        mixing="orthonormal",
        measurement_noise=0.7,
        targets="known",
        random_state=0,
    )


def with_known(world: Any, **options: Any) -> GaussianPriorCRL:
    known = {"graph": world.truth.graph, "targets": world.known_targets, "random_state": 0}
    return GaussianPriorCRL(**{**known, **options})


def error(Z: Any, world: Any) -> float:
    return float(((Z - world.truth.Z) ** 2).mean())


@pytest.fixture(scope="module")
def fits(domains: Any) -> tuple[GaussianPriorCRL, PCA]:
    with pytest.warns(AssumptionWarning):  # environments differ
        model = GaussianPriorCRL(3, prior="normal", center=True).fit(domains.X, domains.y)
    return model, PCA(3).fit(domains.X)


@quiet
class TestProbabilisticPCA:
    """One Gaussian, without a graph: the maximum likelihood of Tipping and Bishop."""

    def test_covariance(self, domains: Any, fits: tuple[GaussianPriorCRL, PCA]):
        model, pca = fits
        result: Any = model.result_
        prior = result.encoder.prior
        covariance = result.decoder.matrix @ prior.covariances[0] @ result.decoder.matrix.T
        covariance += result.details["noise_variance"] * np.eye(12)
        n = len(domains.X)
        np.testing.assert_allclose(covariance, pca.get_covariance() * (n - 1) / n, atol=1e-4)

    def test_posterior_means(self, domains: Any, fits: tuple[GaussianPriorCRL, PCA]):
        model, pca = fits
        n = len(domains.X)
        variance = pca.explained_variance_ * (n - 1) / n
        share = 1 - pca.noise_variance_ * (n - 1) / n / variance
        wanted = pca.transform(domains.X) * share @ pca.components_ + domains.X.mean(axis=0)
        found = model.inverse_transform(model.transform(domains.X))
        np.testing.assert_allclose(found, wanted, atol=1e-4)

    def test_likelihood(self, domains: Any, fits: tuple[GaussianPriorCRL, PCA]):
        model, pca = fits
        inside = model.result_.history["log_likelihood"][-1] / len(domains.X)
        unit = np.abs(domains.X - domains.X.mean(axis=0)).max()
        outside = 9 * (np.log(2 * np.pi * model.result_.details["noise_variance"]) + 1) / 2
        assert inside - 3 * np.log(unit) - outside == pytest.approx(pca.score(domains.X), abs=1e-4)

    def test_only_the_span_is_promised(self, fits: tuple[GaussianPriorCRL, PCA]):
        assert fits[0].result_.guarantee.latents == "span"
        assert fits[0].graph_ is None


@pytest.fixture(scope="module")
def model(shifted: Any) -> GaussianPriorCRL:
    return with_known(shifted, prior="shift").fit(shifted.X, shifted.y)


@quiet
class TestShift:
    def test_shifts_are_found(self, model: GaussianPriorCRL):
        shifts = model.result_.details["shifts"]
        np.testing.assert_allclose(shifts[1:], 6 * np.eye(3), atol=0.25)
        np.testing.assert_array_equal(shifts[0], 0)

    def test_effects_are_found(self, shifted: Any, model: GaussianPriorCRL):
        scm = shifted.truth.scms[0]
        for i in range(2):
            at = np.array([[0.0], [1.0]])
            slope = np.diff(np.ravel(scm.nodes[i + 1].without_noise(at)))[0]
            assert model.result_.details["effects"][i, i + 1] == pytest.approx(slope, abs=0.1)

    def test_all_checks_hold_and_posteriors_are_exact(self, shifted: Any, model: GaussianPriorCRL):
        assert not model.result_.failed_checks
        exact = ExactPosterior(truth=shifted.truth).fit(shifted.X, shifted.y)
        floor = error(exact.transform(shifted.X, shifted.y), shifted)
        assert error(model.transform(shifted.X, shifted.y), shifted) < 1.05 * floor
        low, high = model.posterior(shifted.X, shifted.y).interval(0.9)
        inside = (low < shifted.truth.Z) & (high > shifted.truth.Z)
        assert inside.mean() == pytest.approx(0.9, abs=0.02)

    def test_hard_interventions_are_not_shifts(self, domains: Any):
        model = with_known(domains, prior="shift").fit(domains.X, domains.y)
        failed = {check.name for check in model.result_.failed_checks}
        assert "each environment is explained" in failed
        assert model.result_.guarantee.latents == "scale"  # the axes do not rest on the prior

    def test_without_targets_one_covariance_is_left(self, shifted: Any):
        model = GaussianPriorCRL(3, prior="shift").fit(shifted.X, shifted.y)
        assert not model.result_.failed_checks
        encoder: Any = model.result_.encoder
        for covariance in encoder.prior.covariances:
            np.testing.assert_array_equal(covariance, encoder.prior.covariances[0])


@quiet
class TestLinear:
    def test_more_is_taken_off_with_more_knowledge(self, domains: Any):
        found = {
            prior: error(
                with_known(domains, prior=prior)
                .fit(domains.X, domains.y)
                .transform(domains.X, domains.y),
                domains,
            )
            for prior in PRIORS
        }
        known = {"graph": domains.truth.graph, "targets": domains.known_targets}
        f_model = EmpiricalBayesCRL(**known).fit(domains.X, domains.y)
        by_score = error(f_model.transform(domains.X, domains.y), domains)
        noisy = error(domains.X @ domains.truth.mixing.matrix, domains)
        assert found["conditional"] < 1.05 * by_score
        assert found["conditional"] < found["shift"] < found["normal"] < noisy
        assert found["conditional"] <= found["mixture"] < found["normal"]

    def test_axes_are_those_of_f_modelling(self, domains: Any):
        known = {"graph": domains.truth.graph, "targets": domains.known_targets}
        one = EmpiricalBayesCRL(**known, random_state=0).fit(domains.X, domains.y).result_
        other = with_known(domains).fit(domains.X, domains.y).result_
        np.testing.assert_allclose(
            one.decoder.matrix,  # type: ignore[union-attr]
            other.decoder.matrix,  # type: ignore[union-attr]
            atol=1e-6,
        )

    def test_a_mixture_is_the_same_with_labels_and_without(self, domains: Any):
        model = with_known(domains, prior="mixture").fit(domains.X, domains.y)
        np.testing.assert_allclose(
            model.transform(domains.X, domains.y), model.transform(domains.X), atol=1e-9
        )
        assert model.result_.details["n_components"] >= 3

    def test_any_columns(self):
        world = make_multi_domain(3, 12, 2000, mixing_skew=0.3, observational=True, random_state=1)
        fits = [
            with_known(world, mixing=name).fit(world.X, world.y) for name in ("any", "orthogonal")
        ]
        free, fixed = (error(fit.transform(world.X, world.y), world) for fit in fits)
        assert free < fixed

    def test_no_noise_to_take_off(self):
        world: Any = make_multi_domain(3, 12, 300, measurement_noise=0.0, random_state=0)
        model = with_known(world).fit(world.X, world.y)
        Z = model.transform(world.X, world.y)
        np.testing.assert_allclose(Z, world.truth.Z, atol=1.5)
        np.testing.assert_allclose(model.inverse_transform(Z), world.X, atol=1e-4)

    def test_names_and_targets(self, domains: Any):
        graph = nx.DiGraph([("a", "b"), ("b", "c")])
        model = with_known(domains, graph=graph, targets={0: [], 1: "a", 2: ["b"], 3: 2})
        model.fit(domains.X, domains.y)
        assert list(model.get_feature_names_out()) == ["a", "b", "c"]
        assert model.result_.interventions == {"a": ["1"], "b": ["2"], "c": ["3"]}

    def test_saved_and_loaded(self, domains: Any, tmp_path: Any):
        model = with_known(domains, prior="mixture").fit(domains.X, domains.y)
        model.save(tmp_path / "model.crl")
        again = load(tmp_path / "model.crl").posterior(domains.X, domains.y)
        np.testing.assert_array_equal(
            again.variance, model.posterior(domains.X, domains.y).variance
        )


@quiet
class TestNonlinear:
    @pytest.mark.parametrize("prior", ["mixture", "shift"])
    def test_networks_have_the_same_priors(self, prior: str, tmp_path: Any):
        world = make_multi_domain(2, 4, 150, observational=True, random_state=0)
        model = with_known(world, prior=prior, mixing="nonlinear", n_steps=5, n_restarts=1)
        model.fit(world.X, world.y)
        assert model.result_.guarantee.latents == "none"
        assert "no theory says" in model.result_.guarantee.text
        Z = model.transform(world.X, world.y)
        assert Z.shape == (450, 2)
        model.save(tmp_path / "model.crl")
        again = load(tmp_path / "model.crl")
        np.testing.assert_array_equal(again.transform(world.X, world.y), Z)


class TestRefusals:
    def refused(self, world: Any, message: str, **options: Any) -> None:
        with pytest.raises(ValueError, match=message):
            with_known(world, **options).fit(world.X, world.y)

    def test_an_unknown_prior(self, domains: Any):
        self.refused(domains, "The 'prior' parameter of GaussianPriorCRL must", prior="vamp")

    def test_targets_without_a_graph(self, domains: Any):
        self.refused(domains, "so that 'graph' has to be given too", graph=None)

    def test_a_graph_without_targets(self, domains: Any):
        with pytest.raises(ValueError, match="'graph' tells latents apart together with 'targets'"):
            GaussianPriorCRL(graph=np.zeros((3, 3))).fit(domains.X, domains.y)

    def test_behind_networks_latents_are_not_counted(self, domains: Any):
        with pytest.raises(ValueError, match="Set 'n_latents', or 'graph'"):
            GaussianPriorCRL(mixing="nonlinear").fit(domains.X, domains.y)

    def test_small_environments(self, domains: Any):
        few = np.concatenate([np.flatnonzero(domains.y < 3), np.flatnonzero(domains.y == 3)[:2]])
        with pytest.raises(ValueError, match=r"needs more than 3 rows.*Too few are in: 3"):
            with_known(domains).fit(domains.X[few], domains.y[few])


def test_a_prior_that_the_data_contradict_warns(domains: Any):
    with pytest.warns(AssumptionWarning, match="each environment is explained: fails"):
        with_known(domains, prior="normal").fit(domains.X, domains.y)


@quiet
@pytest.mark.parametrize("prior", PRIORS)
def test_environments_that_do_not_vary_along_some_direction(prior: str):
    world = make_linear_interventional(3, 6, 400, intervention="do", random_state=0)
    result = GaussianPriorCRL(3, prior=prior, random_state=0).fit(world.X, world.y).result_
    assert {"each environment is explained", "latents are Gaussian"} & {
        check.name for check in result.checks
    }


def test_the_function_behind_it_is_public():
    assert gaussian_prior_crl.__doc__
