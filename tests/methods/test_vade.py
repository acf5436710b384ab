from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score

from crlearn import VaDE, load
from crlearn.data import make_segments, make_sparse_mixture
from crlearn.exceptions import AssumptionWarning, DivergenceError
from crlearn.methods._vade import MixtureBound
from crlearn.metrics import mcc
from crlearn.variational import MixturePrior

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")


@pytest.fixture(scope="module")
def clusters() -> Any:
    """Three components that lie far apart behind a bent mixing, in three features."""
    rng = np.random.default_rng(0)
    component = np.repeat(np.arange(3), 300)
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    Z = centres[component] + rng.normal(size=(900, 2)) * [[1.0, 1.3]]
    X = np.column_stack([Z, Z.sum(axis=1)])
    return np.where(X > 0, X, 0.5 * X), component


@pytest.fixture(scope="module")
def fitted(clusters: Any) -> VaDE:
    X, _ = clusters
    return small(n_components=3).fit(X)


def small(**parameters: Any) -> VaDE:
    defaults = {"n_latents": 2, "width": 16, "depth": 1, "max_epochs": 60, "random_state": 0}
    return VaDE(**{**defaults, "n_restarts": 2, **parameters})


def test_the_bound_is_tight_for_a_linear_model_of_two_components():
    """With z = direction'x known up to noise, the posterior of far components is Gaussian."""
    direction, shift, variance = np.array([0.6, 0.8]), 40.0, 0.02
    objective = MixtureBound(2, 1, 2, width=4, depth=1)
    prior = MixturePrior(np.log([0.7, 0.3]), np.array([[-shift], [shift]]), np.zeros((2, 1)))

    def encoder(x: Any) -> Any:
        observed = x @ direction
        centre = jnp.where(observed > 0, shift, -shift)
        mean = centre + (observed - centre) / (1 + variance)
        return jnp.column_stack([mean, jnp.full(len(x), np.log(variance / (1 + variance)))])

    params = {
        "encoder": encoder,
        "decoder": lambda z: z * direction,
        "log_noise": jnp.log(0.01),  # and 0.01 that is always there
        "prior": prior,
    }
    covariance: Any = np.outer(direction, direction) + variance * np.eye(2)
    laws = [multivariate_normal(centre * direction, covariance) for centre in (-shift, shift)]
    x = np.concatenate([laws[0].rvs(14_000, random_state=0), laws[1].rvs(6_000, random_state=1)])
    exact = np.log(0.7 * laws[0].pdf(x) + 0.3 * laws[1].pdf(x)).mean()
    bound = -objective.loss(params, (jnp.asarray(x),), jax.random.key(1), jnp.ones(()))
    assert float(bound) == pytest.approx(exact, abs=0.02)


def test_components_far_apart_are_found(clusters: Any, fitted: VaDE):
    X, component = clusters
    assert adjusted_rand_score(component, fitted.components(X)) > 0.95
    mixture = fitted.result_.details["mixture"]
    np.testing.assert_allclose(mixture.weights, 1 / 3, atol=0.05)


def test_the_mixture_is_in_the_units_of_the_latents(clusters: Any, fitted: VaDE):
    X, _ = clusters
    Z, found = fitted.transform(X), fitted.components(X)
    np.testing.assert_allclose(Z.std(axis=0), 1, atol=1e-6)
    mixture = fitted.result_.details["mixture"]
    for number, mean in enumerate(mixture.means):
        np.testing.assert_allclose(mean, Z[found == number].mean(axis=0), atol=0.2)


def test_latents_give_back_the_data(fitted: VaDE):
    assert fitted.result_.details["reconstruction_r2"] > 0.95


def test_no_more_than_the_theory_says_is_intended(fitted: VaDE):
    guarantee = fitted.result_.guarantee
    assert (guarantee.latents, guarantee.graph) == ("none", "none")
    assert guarantee.intended is not None
    assert (guarantee.intended.latents, guarantee.intended.graph) == ("span", "none")
    (untested,) = fitted.result_.open_checks
    assert untested.passed is None
    assert untested.name == "mixing and mixture are as assumed"
    assert fitted.graph_ is None


def test_latents_that_switch_off_are_found_and_named_degenerate():
    """Components with diagonal covariances prefer the axes along which latents are constant."""
    world: Any = make_sparse_mixture(5, n_samples=5000, n_layers=3, random_state=1)
    assert mcc(world.truth.Z, world.X) < 0.7
    with pytest.warns(AssumptionWarning, match="no component is degenerate: fails"):
        model = VaDE(5, width=32, depth=2, max_epochs=60, random_state=0).fit(world.X)
    assert mcc(world.truth.Z, model.transform(world.X)) > 0.9


@quiet
def test_labels_are_not_used():
    world = make_segments(2, n_samples=60, n_segments=6, random_state=0)
    one, two = (small(max_epochs=3).fit(world.X, y) for y in (None, world.y))
    np.testing.assert_array_equal(one.transform(world.X), two.transform(world.X))


def test_a_file_keeps_the_components(clusters: Any, fitted: VaDE, tmp_path: Any):
    X, _ = clusters
    fitted.save(tmp_path / "model.crl")
    again = load(tmp_path / "model.crl")
    np.testing.assert_array_equal(again.components(X), fitted.components(X))


@quiet
def test_five_components_for_each_latent_unless_said_otherwise(clusters: Any):
    X, _ = clusters
    by_default = small(max_epochs=1).fit(X)
    assert by_default.result_.details["mixture"].means.shape == (10, 2)
    few_rows = small(max_epochs=1).fit(X[::150])
    assert few_rows.result_.details["mixture"].means.shape == (6, 2)
    with pytest.raises(ValueError, match=r"'n_components' parameter must be at most 6.*Got 7"):
        small(n_components=7).fit(X[::150])


def test_codes_that_ran_away_are_no_start(clusters: Any):
    with pytest.raises(DivergenceError, match="Give a smaller learning_rate"):
        small(max_epochs=2, learning_rate=100.0).fit(clusters[0])


@pytest.mark.parametrize(
    "name", ["n_components", "width", "depth", "max_epochs", "learning_rate", "n_restarts"]
)
def test_bad_parameters(clusters: Any, name: str):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of VaDE must be"):
        small(**{name: 0}).fit(clusters[0])
