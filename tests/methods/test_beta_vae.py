from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from crlearn import BetaVAE
from crlearn.data import make_segments
from crlearn.exceptions import AssumptionWarning
from crlearn.methods._beta_vae import WeightedBound

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")


@pytest.fixture(scope="module")
def world() -> Any:
    return make_segments(n_latents=2, n_samples=200, n_segments=10, random_state=1)


def small(**parameters: Any) -> BetaVAE:
    defaults = {"n_latents": 2, "width": 16, "depth": 1, "max_epochs": 100, "random_state": 0}
    return BetaVAE(**{**defaults, "n_restarts": 1, **parameters})


def linear_gaussian(objective: WeightedBound, direction: Any) -> dict[str, Any]:
    """Return the exact posterior of one standard Gaussian latent behind a unit direction."""
    variance = objective.noise / (1 + objective.noise)

    def encoder(x: Any) -> Any:
        mean = x @ direction / (1 + objective.noise)
        return jnp.column_stack([mean, jnp.full(len(x), np.log(variance))])

    return {"encoder": encoder, "decoder": lambda z: z * direction}


def test_with_beta_one_the_bound_is_tight_for_a_linear_gaussian_model():
    objective = WeightedBound(2, 1, beta=1.0, width=4, depth=1, noise=0.5)
    direction = np.array([0.6, 0.8])
    covariance: Any = np.outer(direction, direction) + 0.5 * np.eye(2)
    law = multivariate_normal(np.zeros(2), covariance)
    x = law.rvs(20_000, random_state=0)
    params, end = linear_gaussian(objective, direction), jnp.ones(())
    bound = -objective.loss(params, (jnp.asarray(x),), jax.random.key(1), end)
    assert float(bound) == pytest.approx(law.logpdf(x).mean(), abs=0.01)


def test_beta_weighs_the_divergence():
    """In one row of zeros it is that of a Gaussian with mean zero and variance 1/3."""
    direction, x = np.array([0.6, 0.8]), (jnp.zeros((1, 2)),)
    losses = []
    for beta in (1.0, 3.0):
        objective = WeightedBound(2, 1, beta=beta, width=4, depth=1, noise=0.5)
        params = linear_gaussian(objective, direction)
        losses.append(float(objective.loss(params, x, jax.random.key(1), jnp.ones(()))))
    expected = 0.5 * (1 / 3 - 1 + np.log(3))
    assert losses[1] - losses[0] == pytest.approx(2 * expected, rel=1e-4)


def test_latents_give_back_the_data(world: Any):
    model = small().fit(world.X)
    assert model.result_.details["reconstruction_r2"] > 0.9
    Z = model.transform(world.X)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(Z.std(axis=0), 1, atol=1e-6)


@quiet
def test_nothing_is_promised_and_labels_are_not_used(world: Any):
    one, two = (small(max_epochs=3).fit(world.X, y) for y in (None, world.y))
    np.testing.assert_array_equal(one.transform(world.X), two.transform(world.X))
    guarantee = one.result_.guarantee
    assert (guarantee.latents, guarantee.graph) == ("none", "none")
    assert guarantee.text.startswith("nothing")
    assert one.graph_ is None


def test_latents_that_are_not_used_are_named(world: Any):
    with pytest.warns(AssumptionWarning, match=r"every latent is used: fails .*Not used: z0, z1"):
        small(beta=1000.0).fit(world.X)


@quiet
def test_a_checkpoint_is_read_again(world: Any, tmp_path: Any):
    path = tmp_path / "state.crl"
    one, two = (small(max_epochs=3, checkpoint=path).fit(world.X) for _ in range(2))
    assert path.exists()
    np.testing.assert_array_equal(one.transform(world.X), two.transform(world.X))


@pytest.mark.parametrize("name", ["beta", "width", "depth", "noise", "max_epochs", "patience"])
def test_bad_parameters(world: Any, name: str):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of BetaVAE must be"):
        small(**{name: 0}).fit(world.X)
