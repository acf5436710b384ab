from __future__ import annotations

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.data import make_latent_anm
from crlearn.exceptions import AssumptionWarning, IdentifiabilityError
from crlearn.inputs import read_environments
from crlearn.metrics import mcc
from crlearn.published import LatentANMVAE, latent_anm_vae
from crlearn.published._latent_anm_vae import (
    CausalPrior,
    GatedBound,
    edges_of,
    effects_of_gates,
    guarantee_of,
    mean_gates,
    noises_of,
    sequential_draw,
    shares_explained,
)
from crlearn.variational import Diagonal

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
of_each_kind = pytest.mark.parametrize("kind", ["mlp", "polynomial", "linear"])


@cache
def data() -> Any:
    return make_latent_anm(2, n_segments=10, n_samples=200, random_state=3)


def tiny(**parameters: Any) -> LatentANMVAE:
    """Compiles fast; for what does not depend on how good the fit is."""
    settings = {"width": 4, "depth": 1, "max_epochs": 3, "n_restarts": 1, "random_state": 0}
    return LatentANMVAE(**{**settings, **parameters})


def random_prior(kind: Any, n_latents: int = 3, n_segments: int = 2) -> CausalPrior:
    return CausalPrior.random(jax.random.key(0), kind, n_latents, n_segments, [4])


def test_defaults():
    assert LatentANMVAE().get_params() == {
        "n_latents": None,
        "mechanisms": "mlp",
        "gate_penalty": 0.1,
        "edge_cut": 0.1,
        "width": 128,
        "depth": 3,
        "max_epochs": 400,
        "learning_rate": 5e-3,
        "n_restarts": 4,
        "random_state": None,
    }


# Prior


@of_each_kind
def test_what_is_behind_a_closed_gate_does_not_matter(kind: Any):
    prior = random_prior(kind)
    closed = jnp.asarray(prior.gates).at[:, 0, 1].set(0.0)
    part = eqx.tree_at(lambda p: p.gates, prior, closed).of_latent(2)
    z = jax.random.normal(jax.random.key(1), (6, 3)).at[:, 2].set(0.0)
    other = z.at[:, 1].add(5.0)
    segments = jnp.array([0, 0, 0, 1, 1, 1])
    one, two = (np.asarray(part.given_causes(rows, segments).mean[:, 0]) for rows in (z, other))
    np.testing.assert_allclose(one[:3], two[:3], rtol=1e-6)
    assert (np.abs(one[3:] - two[3:]) > 1e-3).all()


def test_polynomials_have_squares_and_products():
    prior = random_prior("polynomial", 2, 1)
    coefficients = jnp.array([[[1.0, 10.0, 100.0, 1000.0, 10_000.0]]] * 2)  # a, b, aa, ab, bb
    part = eqx.tree_at(lambda p: p.mechanisms.coefficients, prior, coefficients).of_latent(1)
    found = part.mechanisms(jnp.array([[2.0, 3.0]]), jnp.array([0]))
    assert float(found[0]) == pytest.approx(2 + 30 + 400 + 6000 + 90_000)


def linear_prior(coefficient: float) -> CausalPrior:
    """Two latents with unit noise, and one segment."""
    gates = jnp.zeros((2, 1, 2)).at[1, 0, 0].set(coefficient)
    zeros = jnp.zeros((2, 1))
    return CausalPrior(gates, zeros, zeros, random_prior("linear").mechanisms)


def test_rows_that_say_nothing_give_draws_from_the_prior():
    nothing = Diagonal(jnp.zeros((20_000, 2)), jnp.full((20_000, 2), 20.0))
    segments = jnp.zeros(20_000, dtype=int)
    z, distance = sequential_draw(linear_prior(2.0), nothing, segments, jax.random.key(0))
    np.testing.assert_allclose(np.cov(np.asarray(z).T), [[1, 2], [2, 5]], atol=0.15)
    assert float(jnp.abs(distance).max()) < 1e-3


def test_divergence_is_that_of_gaussians_where_latents_do_not_act():
    """Product of two unit Gaussians with means 0 and 2: mean 1 and variance 1/2."""
    from_x = Diagonal(jnp.full((1, 2), 2.0), jnp.zeros((1, 2)))
    segments = jnp.zeros(1, dtype=int)
    _, distance = sequential_draw(linear_prior(0.0), from_x, segments, jax.random.key(0))
    assert float(distance[0]) == pytest.approx(2 * 0.5 * (0.5 + 1 - 1 + np.log(2)))


def test_gates_of_later_latents_are_not_counted():
    prior = eqx.tree_at(lambda p: p.gates, random_prior("mlp"), -jnp.ones((3, 2, 3)))
    assert float(mean_gates(prior)) == pytest.approx(3)


def test_penalty_is_added_to_the_bound():
    batch: Any = (jnp.zeros((5, 3)), jnp.array([0, 1, 0, 1, 1]))
    plain, penalised = (GatedBound(3, 3, 2, "mlp", weight, 4, 1) for weight in (0.0, 2.0))
    params, end = plain.init(jax.random.key(0)), jnp.ones(())
    losses = [float(o.loss(params, batch, jax.random.key(1), end)) for o in (plain, penalised)]
    assert losses[1] - losses[0] == pytest.approx(2 * 3, rel=1e-4)


# Edges


def test_effects_of_linear_gates_are_standardised_coefficients():
    Z = np.random.default_rng(0).normal(size=(50, 2)) * [3.0, 4.0]
    effects = effects_of_gates(linear_prior(-0.5), Z, np.zeros(50, dtype=int))
    sds = Z.std(axis=0)
    expected = np.array([[0, 0.5 * sds[0] / sds[1]], [0, 0]])
    np.testing.assert_allclose(effects[0], expected, rtol=1e-6)


def test_a_segment_of_one_row_has_no_effects():
    segments = np.array([0, 0, 0, 1])
    effects = effects_of_gates(random_prior("mlp"), np.eye(4)[:, :3], segments)
    assert effects[0].any()
    np.testing.assert_array_equal(effects[1], 0)


def test_noises_are_what_mechanisms_leave():
    noise = np.random.default_rng(0).normal(size=(500, 2))
    Z = noise @ [[1.0, -0.5], [0.0, 1.0]]
    found = noises_of(linear_prior(-0.5), Z, np.zeros(500, dtype=int))
    standard = (noise - noise.mean(axis=0)) / noise.std(axis=0)
    np.testing.assert_allclose(found, standard, atol=1e-6)


def test_what_causes_explain_of_noises():
    rng = np.random.default_rng(0)
    Z, segments = rng.normal(size=(4000, 2)), np.arange(4000) % 2
    noise = rng.normal(size=4000)
    for bend in (0.0, 1.0):
        noises = np.column_stack([Z[:, 0], noise + bend * (Z[:, 0] ** 2 - 1)])
        noises = (noises - noises.mean(axis=0)) / noises.std(axis=0)
        shares = shares_explained(noises, Z, segments)
        np.testing.assert_allclose(shares, [0, 2 / 3 * bend], atol=0.03)


def test_segments_with_few_rows_say_nothing_of_noises():
    Z = np.random.default_rng(0).normal(size=(40, 2))
    np.testing.assert_array_equal(shares_explained(Z, Z, np.arange(40) // 2), 0)


def of_segments(*strengths: float) -> Any:
    effects = np.zeros((len(strengths), 2, 2))
    effects[:, 0, 1] = strengths
    return effects


@pytest.mark.parametrize(
    ("strengths", "is_edge"),
    [
        ((1, 1, 1, 1), True),
        ((1, 1, 0, 0), True),
        ((1, 1, 1, *[0] * 7), True),
        ((1, 1, *[0.05] * 8), False),
        ((0, 0, 0, 0), False),
    ],
    ids=["everywhere", "in half of them", "in as few as may be", "hardly anywhere", "nowhere"],
)
def test_quiet_segments_do_not_count(strengths: Any, is_edge: bool):
    np.testing.assert_array_equal(edges_of(of_segments(*strengths), 0.1), [[0, is_edge], [0, 0]])


def test_of_two_causes_one_may_be_seldom():
    effects = np.zeros((10, 3, 3))
    effects[:, 0, 2] = 1
    effects[:6, 1, 2] = 1
    np.testing.assert_array_equal(edges_of(effects, 0.1)[:, 2], [True, False, False])
    effects[:7, 1, 2] = 1
    np.testing.assert_array_equal(edges_of(effects, 0.1)[:, 2], [True, True, False])


# Estimator


def test_guarantees_say_what_mechanisms_are():
    assert "mechanisms are linear" in guarantee_of("linear").text
    assert "mechanisms are polynomials" in guarantee_of("polynomial").text
    assert (guarantee_of("mlp").latents, guarantee_of("mlp").graph) == ("scale", "exact")


@quiet
@of_each_kind
def test_latents_and_graph_of_a_small_world(kind: str):
    settings = {"width": 16, "depth": 2, "max_epochs": 200, "n_restarts": 4, "learning_rate": 0.01}
    model = tiny(mechanisms=kind, **settings).fit(data().X, data().y)
    Z = model.transform(data().X)
    assert mcc(data().truth.Z, Z) > 0.93
    np.testing.assert_array_equal(model.result_.adjacency, [[0, 1], [0, 0]])
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(Z.std(axis=0), 1, atol=1e-6)
    assert model.result_.details["reconstruction_r2"] > 0.98


@quiet
@of_each_kind
def test_tables_have_an_entry_for_each_segment(kind: str):
    model = tiny(mechanisms=kind).fit(data().X, data().y)
    result: Any = model.result_
    assert result.details["gates"].shape == result.details["effects"].shape == (10, 2, 2)
    for table in (result.details["gates"], result.details["effects"]):
        np.testing.assert_array_equal(np.tril(table), 0)
    np.testing.assert_array_equal(np.tril(result.adjacency), False)
    assert result.environments == tuple(map(str, range(10)))


@quiet
def test_goes_on_from_a_checkpoint(tmp_path: Any):
    settings: Any = {"width": 4, "depth": 1, "max_epochs": 3, "n_restarts": 1}
    segments, path = read_environments(data().y), tmp_path / "state.crl"
    one, two = (latent_anm_vae(data().X, segments, **settings, checkpoint=path) for _ in range(2))
    np.testing.assert_array_equal(one.encoder(data().X), two.encoder(data().X))


@quiet
def test_too_few_segments_are_noticed():
    with pytest.warns(AssumptionWarning, match="enough segments: fails .*asks for 5 for 2 latents"):
        tiny().fit(data().X, data().y % 4)


def test_one_segment():
    with pytest.raises(IdentifiabilityError, match="at least 2 environments"):
        tiny().fit(data().X, np.zeros(len(data().X), int))


@pytest.mark.parametrize("name", ["width", "depth", "max_epochs", "n_restarts", "edge_cut"])
def test_bad_parameters(name: str):
    wrong: Any = {name: 0}
    with pytest.raises(ValueError, match=f"The '{name}' parameter of LatentANMVAE must be"):
        LatentANMVAE(**wrong).fit(data().X, data().y)
