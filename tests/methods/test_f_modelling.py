from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.bench import ExactPosterior
from crlearn.data import make_multi_domain
from crlearn.exceptions import IdentifiabilityError
from crlearn.inputs import read_environments
from crlearn.inputs._known import read_domains
from crlearn.methods._f_modelling import ScoreOptions, denoised_span, empirical_bayes_crl
from crlearn.metrics import frobenius, relmse


def result(world: Any, options: ScoreOptions | None = None, **arguments: Any) -> Any:
    environments = read_environments(world.y)
    known = read_domains(world.truth.graph, world.known_targets, environments)
    return empirical_bayes_crl(
        world.X, environments, known, options=options or ScoreOptions(), **arguments
    )


def error(found: Any, world: Any) -> float:
    targets = world.truth.targets[np.unique(world.y, return_inverse=True)[1]]
    return relmse(world.truth.Z, found.encoder.posterior(world.X, targets).mean)


@pytest.fixture(scope="module")
def world() -> Any:
    return make_multi_domain(n_features=30, n_samples=1500, random_state=1)


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


def test_what_structure_is_worth(world: Any):
    """The order of Figure 3: graph and full are best, no shrinkage is worst."""
    errors = {
        structure: error(result(world, ScoreOptions(structure=structure)), world)
        for structure in ("graph", "full", "empty", "pool")
    }
    assert errors["graph"] == pytest.approx(errors["full"], rel=0.03)
    assert errors["graph"] < 0.97 * min(errors["empty"], errors["pool"])
    none = error(result(world, shrinkage=0.0), world)
    assert max(errors["empty"], errors["pool"]) < 0.9 * none


def test_sums_are_nearly_as_good_as_pairs(world: Any):
    pairs, sums = (
        error(result(world, ScoreOptions(interactions=kind)), world) for kind in ("pairs", "sums")
    )
    assert pairs < sums < 1.05 * pairs


def test_known_mixing_and_noise(world: Any):
    found = result(world, mixing=world.truth.mixing.matrix, noise_variance=2.0)
    np.testing.assert_allclose(found.decoder.matrix, world.truth.mixing.matrix, atol=1e-10)
    assert error(found, world) < 1.01 * error(result(world), world)


def test_columns_that_are_not_orthogonal():
    data: Any = make_multi_domain(
        n_features=30, n_samples=2000, mixing_skew=0.2, observational=True, random_state=0
    )
    free = result(data, orthogonal=False)
    assert frobenius(data.truth.mixing.matrix, free.decoder.matrix) < 0.02
    bound = result(data)
    assert frobenius(data.truth.mixing.matrix, bound.decoder.matrix) > 0.02
    assert error(free, data) < 0.7 * error(result(data, orthogonal=False, shrinkage=0.0), data)
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
    found: Any = empirical_bayes_crl(X, environments, known, options=ScoreOptions())
    assert frobenius(data.truth.mixing.matrix, found.decoder.matrix) < 0.01


def test_many_parents_in_reasonable_time():
    graph = np.zeros((7, 7), dtype=bool)
    graph[:6, 6] = True
    data: Any = make_multi_domain(7, 20, 300, graph=graph, random_state=0)
    found = result(data)
    assert error(found, data) < 0.8 * error(result(data, shrinkage=0.0), data)
    assert found.seconds < 10


def test_a_latent_below_a_given_knot_range_is_said(world: Any):
    found = result(world, ScoreOptions(knot_range=(-1.0, 1.0)))
    assert "latents lie within the knots" in [
        check.name for check in found.checks if not check.passed
    ]


def test_centring_takes_the_base_off():
    data: Any = make_multi_domain(
        n_features=30, n_samples=500, base_mean_sd=3.0, observational=True, random_state=0
    )
    found = result(data, center=True)
    Z = found.encoder(data.X[data.y == 0])
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=0.2)


def test_weights_of_environments_matter(world: Any):
    weights = np.where(world.y == 1, 10.0, 1.0)
    plain, weighted = result(world), result(world, weights=weights / weights.mean())
    assert not np.array_equal(plain.encoder(world.X), weighted.encoder(world.X))
    np.testing.assert_array_equal(plain.decoder.matrix, weighted.decoder.matrix)


def test_without_targets_the_span_is_denoised(world: Any):
    found: Any = denoised_span(world.X, 4, options=ScoreOptions())
    assert found.guarantee.latents == "span"
    true = world.truth.Z @ world.truth.mixing.matrix.T
    denoised = found.decoder(found.encoder(world.X))
    assert ((denoised - true) ** 2).sum() < 0.2 * ((world.X - true) ** 2).sum()
