from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from crlearn import EmpiricalBayesCRL, StructuralPriorCRL, load
from crlearn.data import make_coupled_interventional, make_multi_domain
from crlearn.exceptions import AssumptionWarning
from crlearn.methods import structural_prior_crl
from crlearn.metrics import mcc


@pytest.fixture(scope="module")
def domains() -> Any:
    return make_multi_domain(3, 12, 400, observational=True, random_state=0)


def with_known(world: Any, **options: Any) -> StructuralPriorCRL:
    known = {"graph": world.truth.graph, "targets": world.known_targets, "random_state": 0}
    return StructuralPriorCRL(**{**known, "n_steps": 300, "n_restarts": 1, **options})


def error(Z: Any, world: Any) -> float:
    return float(((Z - world.truth.Z) ** 2).mean())


@pytest.fixture(scope="module")
def model(domains: Any) -> StructuralPriorCRL:
    return with_known(domains).fit(domains.X, domains.y)


class TestLinear:
    def test_denoises_as_well_as_f_modelling(self, domains: Any, model: StructuralPriorCRL):
        known = {"graph": domains.truth.graph, "targets": domains.known_targets}
        other = EmpiricalBayesCRL(**known).fit(domains.X, domains.y)
        noisy = error(domains.X @ domains.truth.mixing.matrix, domains)
        found, reference = (
            error(fit.transform(domains.X, domains.y), domains) for fit in (model, other)
        )
        assert found < 1.1 * reference < 0.8 * noisy

    def test_posteriors_are_calibrated(self, domains: Any, model: StructuralPriorCRL):
        low, high = model.posterior(domains.X, domains.y).interval(0.9)
        inside = (low < domains.truth.Z) & (high > domains.truth.Z)
        assert 0.85 < inside.mean() < 0.94

    def test_mixing_and_noise_are_in_the_units_of_x(self, domains: Any, model: StructuralPriorCRL):
        decoder: Any = model.result_.decoder
        np.testing.assert_allclose(np.linalg.norm(decoder.matrix, axis=0), 1, rtol=1e-5)
        assert np.linalg.norm(decoder.matrix - domains.truth.mixing.matrix) < 0.3
        inner = decoder.matrix.T @ decoder.matrix
        np.testing.assert_allclose(inner, np.eye(3), atol=1e-4)
        assert model.result_.details["noise_variance"] == pytest.approx(2, rel=0.05)

    def test_graph_targets_and_names_are_those_given(self, domains: Any):
        graph = nx.DiGraph([("a", "b"), ("b", "c")])
        targets = {0: [], 1: "a", 2: ["b"], 3: 2}
        model = with_known(domains, graph=graph, targets=targets, n_steps=5)
        with pytest.warns(AssumptionWarning):  # one restart
            model.fit(domains.X, domains.y)
        assert list(model.get_feature_names_out()) == ["a", "b", "c"]
        assert set(model.graph_.edges) == {("a", "b"), ("b", "c")}  # type: ignore[union-attr]
        assert model.result_.interventions == {"a": ["1"], "b": ["2"], "c": ["3"]}


@pytest.fixture(scope="module")
def world() -> Any:
    return make_coupled_interventional(
        2,
        4,
        500,
        graph="chain",
        mixing="smooth",
        mixing_gain=1.0,
        measurement_noise=0.2,
        targets="known",
        random_state=2,
    )


@pytest.fixture(scope="module")
def bent(world: Any) -> StructuralPriorCRL:
    return with_known(world, mixing="nonlinear", n_steps=800).fit(world.X, world.y)


@pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
class TestNonlinear:
    def test_noise_is_taken_off(self, world: Any, bent: StructuralPriorCRL):
        known = {"graph": world.truth.graph, "targets": world.known_targets, "center": True}
        linear = EmpiricalBayesCRL(**known, mixing="any", random_state=0).fit(world.X, world.y)
        found, other = (
            mcc(fit.transform(world.X, world.y), world.truth.Z) for fit in (bent, linear)
        )
        assert found > max(other, 0.88)

    def test_latents_are_standard_where_nobody_acts(self, world: Any, bent: StructuralPriorCRL):
        Z = bent.transform(world.X, world.y)[world.y == 0]
        np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(Z.std(axis=0), 1, atol=1e-5)

    def test_the_decoder_leaves_noise_only(self, world: Any, bent: StructuralPriorCRL):
        left = world.X - bent.inverse_transform(bent.transform(world.X, world.y))
        assert left.std() < 0.22
        assert bent.result_.details["noise_variance"] ** 0.5 == pytest.approx(0.2, rel=0.1)

    def test_saved_and_loaded(self, world: Any, bent: StructuralPriorCRL, tmp_path: Any):
        bent.save(tmp_path / "model.crl")
        again = load(tmp_path / "model.crl")
        for y in (world.y, None):
            found, wanted = (one.posterior(world.X, y) for one in (again, bent))
            np.testing.assert_array_equal(found.mean, wanted.mean)
            np.testing.assert_array_equal(found.sd, wanted.sd)
        Z = bent.transform(world.X, world.y)
        np.testing.assert_array_equal(again.inverse_transform(Z), bent.inverse_transform(Z))


@pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
class TestTraining:
    def test_a_seed_decides_everything(self, domains: Any):
        fits = [
            with_known(domains, n_steps=5, random_state=seed)
            .fit(domains.X, domains.y)
            .transform(domains.X, domains.y)
            for seed in (0, 0, 1)
        ]
        np.testing.assert_array_equal(fits[0], fits[1])
        assert not np.array_equal(fits[0], fits[2])

    def test_a_checkpoint_is_kept(self, domains: Any, tmp_path: Any):
        path = tmp_path / "state.crl"
        first = with_known(domains, n_steps=5, checkpoint=path).fit(domains.X, domains.y)
        assert path.is_file()
        again = with_known(domains, n_steps=5, checkpoint=path).fit(domains.X, domains.y)
        one, other = (model.transform(domains.X, domains.y) for model in (first, again))
        np.testing.assert_array_equal(one, other)

    def test_an_interrupted_fit_is_kept_and_says_so(
        self, domains: Any, monkeypatch: pytest.MonkeyPatch
    ):
        from crlearn.train import _loop

        advance, calls = _loop._Run.advance, []

        def interrupted(run: Any, progress: Any) -> Any:
            calls.append(progress)
            if len(calls) > 1:
                raise KeyboardInterrupt
            return advance(run, progress)

        monkeypatch.setattr(_loop._Run, "advance", interrupted)
        with pytest.warns(UserWarning, match="Training was interrupted"):
            model = with_known(domains, n_steps=100).fit(domains.X, domains.y)
        names = [check.name for check in model.result_.failed_checks]
        assert "training came to its end" in names
        assert np.isfinite(model.transform(domains.X)).all()


class TestRefusals:
    def refused(self, world: Any, message: str, **options: Any) -> None:
        with pytest.raises(ValueError, match=message):
            with_known(world, **options).fit(world.X, world.y)

    def test_targets_without_a_graph(self, domains: Any):
        self.refused(domains, "so that 'graph' has to be given too", graph=None)

    def test_targets_of_too_few_environments(self, domains: Any):
        self.refused(
            domains, "must name every environment in y. Missing are 1, 2, 3", targets={0: []}
        )

    def test_an_unknown_mixing(self, domains: Any):
        self.refused(domains, "The 'mixing' parameter of StructuralPriorCRL must", mixing="linear")

    def test_small_environments(self, domains: Any):
        few = np.concatenate([np.flatnonzero(domains.y < 3), np.flatnonzero(domains.y == 3)[:2]])
        with pytest.raises(ValueError, match=r"needs more than 3 rows.*Too few are in: 3"):
            with_known(domains).fit(domains.X[few], domains.y[few])


@pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
def test_without_targets_nothing_is_guaranteed(domains: Any):
    model = StructuralPriorCRL(3, n_steps=5, random_state=0).fit(domains.X, domains.y)
    assert model.result_.guarantee.latents == "none"
    assert model.result_.targets is None
    assert model.transform(domains.X, domains.y).shape == (1600, 3)


def test_the_function_behind_it_is_public():
    assert structural_prior_crl.__doc__
