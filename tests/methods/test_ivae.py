from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from crlearn import IVAE, load
from crlearn.data import make_latent_anm, make_segments
from crlearn.exceptions import AssumptionWarning, DivergenceError, IdentifiabilityError
from crlearn.methods._ivae import EvidenceBound
from crlearn.metrics import evaluate
from crlearn.train import _chunk

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")


def test_the_bound_is_tight_for_a_linear_gaussian_model():
    """With a linear decoder and the exact posterior the bound is the log-likelihood itself."""
    objective = EvidenceBound(
        n_features=2,
        n_latents=1,
        n_environments=2,
        width=4,
        depth=1,
        activation="leaky_relu",
        min_noise=0.03,
    )
    params = objective.init(jax.random.key(0))
    direction, noise = np.array([0.6, 0.8]), 0.5
    mean, variance = np.array([1.0, -2.0]), np.array([0.3, 2.0])
    params["prior"] = jnp.asarray(np.column_stack([mean, np.log(variance)]))
    params["log_noise"] = jnp.log(noise - 0.03)
    params["decoder"] = lambda z: z * direction  # z -> x
    # p(x | z) as a function of z has mean direction'x and variance `noise`: unit direction.
    params["encoder"] = lambda x: jnp.column_stack([x @ direction, jnp.full(len(x), np.log(noise))])
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 20_000)
    z = rng.normal(mean[y], np.sqrt(variance[y]))
    x = z[:, None] * direction + rng.normal(scale=np.sqrt(noise), size=(len(z), 2))
    batch = (jnp.asarray(x), jnp.asarray(y))
    bound = -objective.loss(params, batch, jax.random.key(1), jnp.asarray(1.0))
    exact = 0.0
    for environment in (0, 1):
        covariance = variance[environment] * np.outer(direction, direction) + noise * np.eye(2)
        law = multivariate_normal(mean[environment] * direction, covariance)
        exact += law.logpdf(x[y == environment]).sum() / len(x)
    assert float(bound) == pytest.approx(exact, abs=0.01)


@pytest.fixture(scope="module")
def world() -> Any:
    return make_segments(n_latents=2, n_samples=200, n_segments=10, random_state=1)


def small(**parameters: Any) -> IVAE:
    defaults = {"n_latents": 2, "width": 16, "depth": 2, "max_epochs": 60, "random_state": 0}
    return IVAE(**{**defaults, **parameters})


def tiny(**parameters: Any) -> IVAE:
    """Compiles fast; for what does not depend on how good the fit is."""
    return small(**{"width": 4, "depth": 1, "n_restarts": 1, "max_epochs": 3, **parameters})


@pytest.fixture(scope="module")
def fitted(world: Any) -> IVAE:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        return small(max_epochs=150, n_restarts=4).fit(world.X, world.y)


def test_recovers_sources_that_change_between_segments(world: Any, fitted: IVAE):
    scores = evaluate(fitted, world)
    assert scores["mcc"] > 0.95
    assert scores["mcc"] > (scores.chance["mcc"] or 0)
    assert fitted.result_.details["reconstruction_r2"] > 0.98


def test_training_curve_goes_down(fitted: IVAE):
    history = fitted.result_.history
    assert history["validation_loss"][-1] < history["validation_loss"][0]
    assert len(history["epoch"]) == len(history["train_loss"])


@quiet
def test_causal_latents_fail_the_check_of_independence():
    world = make_latent_anm(  # of the sizes of the other world, so that nothing is compiled anew
        n_latents=2, n_samples=200, n_segments=10, quiet=0.0, n_layers=1, random_state=0
    )
    model = small(max_epochs=100, n_restarts=4).fit(world.X, world.y)
    failed = [check.name for check in model.result_.failed_checks]
    assert "latents are independent given y" in failed


@quiet
def test_a_number_may_take_the_place_of_labels():
    rng = np.random.default_rng(0)
    u = rng.uniform(-2, 2, 1500)
    Z = np.column_stack([rng.normal(u, 0.3), rng.normal(0, np.exp(0.7 * u))])
    X = Z @ rng.normal(size=(2, 3))
    model = tiny().fit(X, u)
    assert model.transform(X).shape == (1500, 2)
    checks = {check.name: check for check in model.result_.checks}
    assert checks["enough environments"].passed is None


@quiet
def test_a_checkpoint_resumes_to_the_same_bits(
    world: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
):
    whole = tiny(max_epochs=30).fit(world.X, world.y)
    path = tmp_path / "state.crl"

    run_chunk, calls = _chunk.run_chunk, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return run_chunk(*arguments)

    monkeypatch.setattr(_chunk, "run_chunk", interrupted)
    with pytest.warns(UserWarning, match="interrupted"):
        part = tiny(max_epochs=30, checkpoint=str(path)).fit(world.X, world.y)
    assert part.result_.details["stopped"] == "interrupted"
    assert np.isfinite(part.transform(world.X)).all()
    monkeypatch.undo()
    resumed = tiny(max_epochs=30, checkpoint=str(path)).fit(world.X, world.y)
    np.testing.assert_array_equal(resumed.transform(world.X), whole.transform(world.X))


def test_networks_survive_saving(world: Any, fitted: IVAE, tmp_path: Any):
    fitted.save(tmp_path / "model.crl")
    loaded = load(tmp_path / "model.crl")
    Z = fitted.transform(world.X)
    np.testing.assert_array_equal(loaded.transform(world.X), Z)
    np.testing.assert_array_equal(loaded.inverse_transform(Z), fitted.inverse_transform(Z))


@quiet
def test_what_a_constant_column_holds_later_does_not_matter(world: Any):
    X = np.column_stack([world.X, np.full(len(world.X), 7.0)])
    model = tiny().fit(X, world.y)
    Z = model.transform(X)
    X[:, 2] = 7000.0
    np.testing.assert_array_equal(model.transform(X), Z)
    np.testing.assert_array_equal(model.inverse_transform(Z)[:, 2], 7.0)


def test_numbers_that_do_not_change_are_refused(world: Any):
    with pytest.raises(IdentifiabilityError, match=r"at least 2 distinct values. Got 0\.5"):
        small().fit(world.X, np.full(len(world.X), 0.5))


def test_a_reference_needs_labels(world: Any):
    with pytest.raises(ValueError, match="names an environment, but y holds numbers"):
        small(reference=0).fit(world.X, np.linspace(0, 1, len(world.X)))


@quiet
def test_independence_is_untested_where_no_environment_has_enough_rows():
    world = make_segments(n_latents=2, n_samples=2, n_segments=30, random_state=0)
    checks = {check.name: check for check in tiny().fit(world.X, world.y).result_.checks}
    assert checks["latents are independent given y"].passed is None


def check_of_restarts(model: IVAE) -> Any:
    return next(check for check in model.result_.checks if check.name == "restarts agree")


def test_restarts_that_were_after_the_same_latents(fitted: IVAE):
    check = check_of_restarts(fitted)
    assert check.passed
    agreement = fitted.result_.details["restart_agreement"]
    assert len(agreement) == 3
    assert ((agreement > 0) & (agreement < 1)).all()
    assert f"the best {agreement.max():.2f}" in check.detail


@quiet
def test_one_restart_says_nothing(world: Any):
    check = check_of_restarts(tiny().fit(world.X, world.y))
    assert check.passed is None
    assert "raise n_restarts" in check.detail


@quiet
def test_divergence_is_reported(world: Any):
    with pytest.raises(DivergenceError):
        tiny(learning_rate=1e8).fit(world.X, world.y)


@quiet
def test_one_latent(world: Any):
    assert tiny(n_latents=1).fit(world.X, world.y).transform(world.X).shape[1] == 1


@pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")  # one epoch is few
def test_single_precision_stays_and_changes_nothing(world: Any):
    X = world.X.astype(np.float32)
    model = tiny(max_epochs=1)
    in_single = model.fit(X, world.y).transform(X)
    np.testing.assert_array_equal(model.fit(X.astype(float), world.y).transform(X), in_single)
