from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.bench import ExactPosterior
from crlearn.data import make_multi_domain
from crlearn.exceptions import IdentifiabilityError
from crlearn.inputs import read_domains, read_environments
from crlearn.methods import ScoreOptions, empirical_bayes_crl
from crlearn.methods.empirical_bayes._algorithm import denoised_span
from crlearn.metrics import frobenius, relmse


def strong(parents: Any) -> Any:
    return 3.0 * jnp.tanh(parents.sum() / 2)


def world(**options: Any) -> Any:
    return make_multi_domain(
        **{"n_latents": 4, "n_features": 30, "n_samples": 1000, "random_state": 1, **options}
    )


@pytest.fixture(scope="module")
def wide() -> Any:
    return world(n_samples=1500)


def result(data: Any, options: ScoreOptions | None = None, **arguments: Any) -> Any:
    environments = read_environments(data.y)
    known = read_domains(data.truth.graph, data.known_targets, environments)
    return empirical_bayes_crl(data.X, environments, known, options=options, **arguments)


def error(found: Any, data: Any) -> float:
    targets = data.truth.targets[np.unique(data.y, return_inverse=True)[1]]
    return relmse(data.truth.Z, found.encoder.posterior(data.X, targets).mean)


@pytest.mark.parametrize("mechanism", ["tanh5", "tanh", "mild"])
def test_within_a_few_percent_of_the_exact_posterior(mechanism: str):
    data: Any = make_multi_domain(
        n_features=30, n_samples=1500, mechanism=mechanism, random_state=2
    )
    found = result(data)
    floor = relmse(
        data.truth.Z, ExactPosterior(truth=data.truth).fit(data.X, data.y).transform(data.X, data.y)
    )
    assert floor < error(found, data) < 1.03 * floor
    assert frobenius(data.truth.mixing.matrix, found.decoder.matrix) < 0.005
    assert all(check.passed for check in found.checks)


def test_what_structure_is_worth_with_a_known_mixing(wide: Any):
    """The order of Figure 3: graph and full are best, no shrinkage is worst."""
    mixing = wide.truth.mixing.matrix
    errors = {
        structure: error(result(wide, ScoreOptions(structure=structure), mixing=mixing), wide)
        for structure in ("graph", "full", "empty", "pool")
    }
    assert errors["graph"] == pytest.approx(errors["full"], rel=0.03)
    assert errors["graph"] < 0.97 * min(errors["empty"], errors["pool"])
    none = error(result(wide, ScoreOptions(structure="none"), mixing=mixing), wide)
    assert max(errors["empty"], errors["pool"]) < 0.9 * none


class TestStructureOfTheWholeFit:
    def test_all_edges_of_the_order_cost_nothing(self, wide: Any):
        whole = result(wide, ScoreOptions(structure="full"))
        assert whole.adjacency.sum() == 6
        assert error(whole, wide) < 1.02 * error(result(wide), wide)
        assert all(check.passed for check in whole.checks)

    def test_no_edges_turn_the_mixing_and_that_is_noticed(self, wide: Any):
        empty = result(wide, ScoreOptions(structure="empty"))
        assert not empty.adjacency.any()
        assert frobenius(wide.truth.mixing.matrix, empty.decoder.matrix) > 0.05
        assert "targets and graph fit the data" in {c.name for c in empty.checks if not c.passed}

    def test_without_targets_latents_are_principal_components(self, wide: Any):
        pooled = result(wide, ScoreOptions(structure="pool"))
        assert pooled.guarantee.latents == "span"
        failed: Any = next(check for check in pooled.checks if not check.passed)
        assert failed.name == "targets are known"
        assert "structure='pool' ignores them" in failed.detail
        assert frobenius(wide.truth.mixing.matrix, pooled.decoder.matrix) > 1

    @pytest.mark.parametrize("kind", ["missing", "reversed"])
    @pytest.mark.parametrize(("i", "j"), [(0, 1), (1, 2), (2, 3)])
    def test_a_wrong_edge_is_noticed(self, kind: str, i: int, j: int):
        data: Any = make_multi_domain(
            n_features=30, n_samples=2000, mechanism=strong, random_state=0
        )
        graph = data.truth.graph.copy()
        graph[i, j], graph[j, i] = False, kind == "reversed"
        environments = read_environments(data.y)
        known = read_domains(graph, data.known_targets, environments)
        found: Any = empirical_bayes_crl(data.X, environments, known)
        assert "targets and graph fit the data" in {c.name for c in found.checks if not c.passed}


def test_sums_are_nearly_as_good_as_pairs(wide: Any):
    pairs, sums = (
        error(result(wide, ScoreOptions(interactions=kind)), wide) for kind in ("pairs", "sums")
    )
    assert pairs < sums < 1.05 * pairs


def test_known_mixing_and_noise(wide: Any):
    found = result(wide, mixing=wide.truth.mixing.matrix, noise_variance=2.0)
    np.testing.assert_allclose(found.decoder.matrix, wide.truth.mixing.matrix, atol=1e-10)
    assert error(found, wide) < 1.01 * error(result(wide), wide)


def test_columns_that_are_not_orthogonal():
    data: Any = make_multi_domain(
        n_features=30, n_samples=2000, mixing_skew=0.2, observational=True, random_state=0
    )
    free = result(data, orthogonal=False)
    assert frobenius(data.truth.mixing.matrix, free.decoder.matrix) < 0.02
    bound = result(data)
    assert frobenius(data.truth.mixing.matrix, bound.decoder.matrix) > 0.02
    noisy = result(data, ScoreOptions(structure="none"), orthogonal=False)
    assert error(free, data) < 0.7 * error(noisy, data)
    with pytest.raises(IdentifiabilityError, match="Add an observational environment"):
        result(make_multi_domain(n_features=10, n_samples=100, random_state=0), orthogonal=False)


def test_small_environments_are_refused():
    data = make_multi_domain(n_features=10, n_samples=[100, 100, 3, 100], random_state=0)
    with pytest.raises(ValueError, match=r"needs more than 4 rows.*Too few are in: 3"):
        result(data)


def test_latents_without_noise_that_are_set_to_one_value():
    data: Any = make_multi_domain(
        n_features=4, n_samples=500, measurement_noise=0.0, random_state=0
    )
    X, Z = data.X.copy(), data.truth.Z.copy()
    for j in range(4):
        Z[data.y == j + 1, j] = 10.0
    X = data.truth.mixing(Z)
    environments = read_environments(data.y)
    known = read_domains(data.truth.graph, data.known_targets, environments)
    found: Any = empirical_bayes_crl(X, environments, known)
    assert frobenius(data.truth.mixing.matrix, found.decoder.matrix) < 0.01


def test_many_parents_in_reasonable_time():
    graph = np.zeros((7, 7), dtype=bool)
    graph[:6, 6] = True
    data: Any = make_multi_domain(7, 20, 300, graph=graph, random_state=0)
    found = result(data)
    assert error(found, data) < 0.8 * error(result(data, ScoreOptions(structure="none")), data)
    assert found.seconds < 10


def test_centring_takes_the_base_off():
    data: Any = make_multi_domain(
        n_features=30, n_samples=500, base_mean_sd=3.0, observational=True, random_state=0
    )
    found = result(data, center=True)
    Z = found.encoder(data.X[data.y == 0])
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=0.2)


def test_weights_of_environments_matter(wide: Any):
    weights = np.where(wide.y == 1, 10.0, 1.0)
    plain, weighted = result(wide), result(wide, weights=weights / weights.mean())
    assert not np.array_equal(plain.encoder(wide.X), weighted.encoder(wide.X))
    np.testing.assert_array_equal(plain.decoder.matrix, weighted.decoder.matrix)


def test_without_targets_the_span_is_denoised(wide: Any):
    found: Any = denoised_span(wide.X, 4)
    assert found.guarantee.latents == "span"
    true = wide.truth.Z @ wide.truth.mixing.matrix.T
    denoised = found.decoder(found.encoder(wide.X))
    assert ((denoised - true) ** 2).sum() < 0.2 * ((wide.X - true) ** 2).sum()


@pytest.fixture(scope="module")
def dosed() -> Any:
    return world(intervention="shift", doses=(-1.0, 0.5, 2.0), intervened_mean=3.0, n_samples=500)


class TestDoses:
    """Known multiples of one shift, in place of targets alone."""

    def fit(self, data: Any, targets: Any = None, doses: bool = True, **arguments: Any) -> Any:
        environments = read_environments(data.y)
        targets = data.known_targets if targets is None else targets
        known = read_domains(data.truth.graph, targets, environments, doses=doses)
        options = ScoreOptions(hard=False)
        return empirical_bayes_crl(data.X, environments, known, options=options, **arguments)

    def error(self, found: Any, data: Any, acts: Any) -> float:
        rows = acts[np.unique(data.y, return_inverse=True)[1]]
        return relmse(data.truth.Z, found.encoder.posterior(data.X, rows).mean)

    def test_effects_of_doses_are_learned(self, dosed: Any):
        found = self.fit(dosed)
        np.testing.assert_allclose(found.details["dose_effects"], 3.0, atol=0.3)
        assert all(check.passed for check in found.checks)

    def test_doses_are_worth_more_than_targets(self, dosed: Any):
        acts = dosed.known_targets
        by_dose = self.error(self.fit(dosed), dosed, acts)
        by_target = self.error(self.fit(dosed, acts != 0, doses=False), dosed, acts != 0)
        assert by_dose < 0.96 * by_target

    def test_base_means_are_told_by_doses(self):
        data = world(
            intervention="shift",
            doses=(0.5, 2.0),
            intervened_mean=3.0,
            base_mean_sd=3.0,
            n_samples=2000,
        )
        found = self.fit(data)
        assert frobenius(data.truth.mixing.matrix, found.decoder.matrix) < 0.02
        assert all(check.passed for check in found.checks)

    def test_wrong_doses_do_not_fit(self, dosed: Any):
        wrong = dosed.known_targets.copy()
        wrong[[0, 2]] = wrong[[2, 0]]  # of latent 0: the largest and the negative one
        failed = {check.name for check in self.fit(dosed, wrong).checks if not check.passed}
        assert "targets and graph fit the data" in failed

    def test_doses_that_do_nothing_are_named(self):
        data = world(intervention="shift", doses=(0.5, 2.0), intervened_mean=1e-9, n_samples=500)
        failed = {c.name: c.detail for c in self.fit(data).checks if not c.passed}
        assert "alike at all doses" in failed["interventions are visible"]

    def test_a_known_mixing(self, dosed: Any):
        found = self.fit(dosed, mixing=dosed.truth.mixing.matrix)
        np.testing.assert_allclose(found.details["dose_effects"], 3.0, atol=0.3)

    def test_columns_that_are_not_orthogonal_need_hard_interventions(self, dosed: Any):
        with pytest.raises(IdentifiabilityError, match="hard interventions only"):
            self.fit(dosed, orthogonal=False)
