from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crlearn import SparseMixtureCRL, load
from crlearn.data import make_sparse_mixture
from crlearn.exceptions import AssumptionWarning
from crlearn.metrics import evaluate, mcc, r2


def affine(n: int = 4, **options: Any) -> Any:
    settings: Any = {"n_samples": 3000, "n_layers": 1, "slope": 1.0, "random_state": 0, "active": 2}
    return make_sparse_mixture(n, **{**settings, **options})


@pytest.fixture(scope="module")
def world() -> Any:
    return affine(delta=1.5)


@pytest.fixture(scope="module")
def model(world: Any) -> Any:
    return SparseMixtureCRL(mixing="affine", random_state=0).fit(world.X)


def test_latents_of_an_affine_mixing(world: Any, model: Any):
    assert mcc(world.truth.Z, model.transform(world.X)) > 0.9999
    assert model.result_.guarantee.latents == "scale"
    assert not model.result_.failed_checks
    np.testing.assert_allclose(model.inverse_transform(model.transform(world.X)), world.X)


def test_latents_are_zero_where_they_are_off(world: Any, model: Any):
    Z = model.transform(world.X)
    on = model.active(world.X)
    assert np.abs(Z[~on]).max() < 0.05
    np.testing.assert_allclose(
        [z[rows].std() for z, rows in zip(Z.T, on.T, strict=True)], 1, atol=0.05
    )
    assert (on.sum(axis=1) == world.truth.active.sum(axis=1)).mean() > 0.95


def test_components_of_rows(world: Any, model: Any):
    """The sets of latents that are on together are those of the world, but for their order."""
    components = model.result_.details["components"]
    number = model.component(world.X)
    np.testing.assert_array_equal(components.sets[number], model.active(world.X))
    true_sets = np.unique(world.truth.active, axis=0)
    assert components.shares[: len(true_sets)].sum() > 0.95
    assert components.sets[: len(true_sets)].sum() == true_sets.sum()


def test_more_latents_asked_for_than_there_are(world: Any):
    found = SparseMixtureCRL(14, mixing="affine", random_state=0).fit(world.X)
    assert found.result_.n_latents == 4
    assert mcc(world.truth.Z, found.transform(world.X)) > 0.9999
    wide = affine(n_features=9)
    found = SparseMixtureCRL(9, mixing="affine", random_state=0).fit(wide.X)
    assert found.result_.n_latents == 4


def test_latents_that_are_always_on_together_are_one_block():
    world = affine(5, blocks=(2, 1, 2))
    found: Any = SparseMixtureCRL(mixing="affine", random_state=0).fit(world.X)
    assert sorted(map(len, found.result_.blocks)) == [1, 2, 2]
    assert found.result_.guarantee.latents == "blocks"
    assert evaluate(found, world, ["block_recovery"])["block_recovery"] > 0.999


def test_latents_that_never_switch_off():
    X = np.random.default_rng(0).standard_normal((3000, 3)) @ np.array(
        [[2.0, 1, 0], [0, 1, 1], [1, 0, 3]]
    )
    model = SparseMixtureCRL(mixing="affine", random_state=0)
    with pytest.warns(AssumptionWarning, match="latents switch off"):
        Z = model.fit(X).transform(X)
    assert model.result_.guarantee.latents == "span"
    assert r2(X, Z) > 0.9999


@pytest.fixture(scope="module")
def bent() -> Any:
    return make_sparse_mixture(3, n_samples=4000, n_layers=3, slope=0.5, random_state=0, active=2)


@pytest.fixture(scope="module")
def flow(bent: Any) -> Any:
    return SparseMixtureCRL(slab="gaussian", n_steps=600, random_state=0).fit(bent.X)


@pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
def test_latents_of_a_mixing_that_bends(bent: Any, flow: Any):
    linear = SparseMixtureCRL(mixing="affine", random_state=0).fit(bent.X)
    found = mcc(bent.truth.Z, flow.transform(bent.X))
    assert found > 0.99
    assert found > mcc(bent.truth.Z, linear.transform(bent.X))
    back = flow.inverse_transform(flow.transform(bent.X))
    np.testing.assert_allclose(back, bent.X, atol=1e-3 * bent.X.std())


def test_a_flow_is_saved_with_its_activity(bent: Any, flow: Any, tmp_path: Path):
    flow.save(tmp_path / "model.crl")
    again = load(tmp_path / "model.crl")
    np.testing.assert_array_equal(again.transform(bent.X), flow.transform(bent.X))
    np.testing.assert_array_equal(again.active(bent.X), flow.active(bent.X))


@pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
def test_an_interrupted_fit_goes_on_from_its_checkpoints(bent: Any, tmp_path: Path):
    """Each training has a file; with these a second fit has nothing left to train."""
    X = bent.X[:400]
    settings: Any = {"slab": "gaussian", "n_steps": 10, "random_state": 0}
    one = SparseMixtureCRL(**settings, checkpoint=tmp_path / "state").fit(X)
    files = {path.name for path in tmp_path.iterdir()}
    assert {"state.first_steps.gaussian", "state.last_steps.3.way_1"} < files
    assert len(files) == 8  # two rounds of large steps, and both ways in the first of the last
    other = SparseMixtureCRL(**settings, checkpoint=tmp_path / "state").fit(X)
    np.testing.assert_array_equal(one.transform(X), other.transform(X))


@pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
@pytest.mark.parametrize(("noise", "slab"), [("gaussian", "gaussian"), ("exponential", "mixture")])
def test_the_slab_is_chosen_by_held_out_likelihood(noise: Any, slab: str):
    world = make_sparse_mixture(
        3, n_samples=8000, n_layers=3, slope=0.8, active=2, noise=noise, random_state=0
    )
    model = SparseMixtureCRL(n_steps=1500, random_state=0).fit(world.X)
    losses = model.result_.details["slab_losses"]
    assert set(losses) == {"gaussian", "mixture"}
    assert model.result_.details["slab"] == slab


@pytest.mark.parametrize("name", ["mixing", "slab", "reduction"])
def test_words_that_are_not_known(name: str):
    with pytest.raises(ValueError, match=name):
        SparseMixtureCRL().set_params(**{name: "other"}).fit(np.zeros((10, 2)))
