from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from crlearn import LatentANM, load
from crlearn.data import make_latent_anm
from crlearn.exceptions import IdentifiabilityError
from crlearn.metrics import evaluate
from crlearn.train import _chunk

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")


@pytest.fixture(scope="module")
def world() -> Any:
    return make_latent_anm(2, n_samples=300, n_segments=20, quiet=0.4, random_state=1)


@pytest.fixture(scope="module")
def model(world: Any) -> Any:
    return LatentANM(n_steps=600, n_restarts=2, random_state=0).fit(world.X, world.y)


def short(**options: Any) -> Any:
    """As short as it can be, for what does not need the right answer."""
    settings: dict[str, Any] = {"n_steps": 20, "n_restarts": 1, "random_state": 0}
    return LatentANM(**settings | options)


def test_latents_noises_and_graph(world: Any, model: Any):
    found = evaluate(model, world, ["mcc", "noise_mcc", "shd"])
    assert found["mcc"] > 0.99  # chance 0.90
    assert found["noise_mcc"] > 0.97
    assert found["shd"] == 0
    assert model.result_.guarantee.latents == "scale"
    assert model.result_.guarantee.graph == "exact"


def test_where_mechanisms_vanish_is_found(world: Any, model: Any):
    vanishes = model.result_.details["vanishing"][:, 1]
    truth = np.array([not scm.graph.any() for scm in world.truth.scms])
    assert vanishes[truth].mean() > vanishes[~truth].mean() + 0.5


def test_units_are_those_of_all_rows(world: Any, model: Any):
    Z = model.transform(world.X)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(Z.std(axis=0), 1, atol=1e-5)


def test_the_inverse_is_exact_and_survives_a_file(world: Any, model: Any, tmp_path: Any):
    Z = model.transform(world.X)
    np.testing.assert_allclose(model.inverse_transform(Z), world.X, atol=1e-3)
    model.save(tmp_path / "model.crl")
    loaded = load(tmp_path / "model.crl")
    np.testing.assert_array_equal(loaded.inverse_transform(Z), model.inverse_transform(Z))
    np.testing.assert_array_equal(loaded.noises(world.X, world.y), model.noises(world.X, world.y))


def test_interventions_move_what_the_graph_says(world: Any, model: Any):
    """Setting the cause moves the effect as the true mechanism does; the other way nothing."""
    Z = model.transform(world.X)
    cause_set = model.transform(model.intervene(world.X, world.y, {"z0": 1.0}))
    np.testing.assert_allclose(cause_set[:, 0], 1.0, atol=1e-3)
    has_mechanism = np.array([scm.graph.any() for scm in world.truth.scms])[world.y]
    moved = np.abs(cause_set[:, 1] - Z[:, 1])
    assert moved[has_mechanism].mean() > 5 * moved[~has_mechanism].mean()
    effect_set = model.transform(model.intervene(world.X, world.y, {"z1": Z[:, 1] + 1}))
    np.testing.assert_allclose(effect_set, Z + np.array([0.0, 1.0]), atol=1e-3)


def test_interventions_agree_with_the_true_model(world: Any, model: Any):
    """Other values of the cause that its segment has: rows are those of the world's mechanisms."""
    Z, truth = model.transform(world.X), world.truth
    other = np.concatenate([np.roll(np.flatnonzero(world.y == u), 1) for u in range(20)])
    found = model.intervene(world.X, world.y, {"z0": Z[other, 0]})
    expected = truth.Z.copy()
    expected[:, 0] = truth.Z[other, 0]
    for u, scm in enumerate(truth.scms):
        rows, mechanism = world.y == u, scm.nodes[1].mechanism
        if mechanism is not None:
            change = mechanism(expected[rows, :1]) - mechanism(truth.Z[rows, :1])
            expected[rows, 1] += change
    X = truth.mixing(expected)
    assert np.square(found - X).mean() < 0.02 * X.var(axis=0).mean()


def test_interventions_name_latents_that_there_are(model: Any, world: Any):
    with pytest.raises(ValueError, match="must name latents among z0, z1"):
        model.intervene(world.X, world.y, {"z7": 0.0})


def test_labels_must_be_known(model: Any, world: Any):
    with pytest.raises(ValueError, match="labels that the model was fitted to: 0, 1"):
        model.noises(world.X[:2], np.array([0, 77]))


@quiet
@pytest.mark.parametrize("kind", ["linear", "polynomial"])
def test_other_kinds_of_mechanisms(world: Any, kind: str):
    found = short(mechanisms=kind).fit(world.X, world.y)
    assert found.result_.mechanisms.basis.kind == kind
    assert np.isfinite(found.transform(world.X)).all()


@quiet
def test_a_continuous_auxiliary_vector():
    world: Any = make_latent_anm(
        2, n_samples=500, n_segments=12, auxiliary="continuous", auxiliary_dim=2, random_state=0
    )
    found = short().fit(world.X, world.y)
    assert len(found.result_.environments) == 10
    assert found.noises(world.X[:5], world.y[:5]).shape == (5, 2)
    with pytest.raises(ValueError, match="y must have 2 columns"):
        found.noises(world.X[:5], world.y[:5, 0])


@quiet
def test_a_surface_is_made_flat_by_the_flow_itself(tmp_path: Any):
    """A strip that is bent, seen by three features, with a continuous auxiliary variable."""
    world: Any = make_latent_anm(2, n_samples=100, auxiliary="continuous", random_state=0)
    angle = 2 * np.tanh(world.truth.Z[:, 0] / 2)
    X = np.column_stack([np.cos(angle), np.sin(angle), world.truth.Z[:, 1]])
    file = tmp_path / "fit.checkpoint"
    model = short(n_latents=2, reduction="flow", n_steps=200, checkpoint=file).fit(X, world.y)
    Z, checks = model.transform(X), {check.name: check for check in model.result_.checks}
    assert Z.shape == (len(X), 2)
    lost = np.square(model.inverse_transform(Z) - X).mean(axis=0) / X.var(axis=0)
    assert lost.max() < 0.2
    assert "an invertible map makes flat" in checks["reduction"].detail
    assert "the reduction does not fold" in checks
    assert model.intervene(X[:3], world.y[:3], {"z0": 1.0}).shape == (3, 3)
    model.save(tmp_path / "model.crl")
    loaded = load(tmp_path / "model.crl")
    np.testing.assert_array_equal(loaded.transform(X), Z)
    np.testing.assert_array_equal(loaded.inverse_transform(Z[:9]), model.inverse_transform(Z[:9]))
    resumed = short(n_latents=2, reduction="flow", n_steps=200, checkpoint=file).fit(X, world.y)
    np.testing.assert_array_equal(resumed.transform(X), Z)


def test_a_constant_vector_identifies_nothing(world: Any):
    with pytest.raises(IdentifiabilityError, match="at least 2 distinct values"):
        short().fit(world.X, np.full((len(world.X), 2), 0.5))


@quiet
def test_a_latent_without_vanishing_mechanism_is_named():
    world: Any = make_latent_anm(2, n_samples=200, n_segments=20, quiet=0.0, random_state=1)
    found = LatentANM(n_steps=400, n_restarts=2, random_state=0).fit(world.X, world.y)
    named = {check.name: check.detail for check in found.result_.failed_checks}
    assert "mechanism of z1" in named["mechanisms vanish in some segments"]
    guarantee = found.result_.guarantee.intended or found.result_.guarantee
    assert guarantee.latents == "ancestors"
    assert guarantee.text.startswith("z0 up to order, scale and shift; z1 only up to a function")
    assert found.result_.details["identified"].tolist() == [True, False]


@quiet
def test_one_latent_has_no_mechanism():
    world: Any = make_latent_anm(1, n_samples=100, n_segments=5, random_state=0)
    found = short().fit(world.X, world.y)
    assert found.result_.adjacency.tolist() == [[False]]
    assert abs(np.corrcoef(found.transform(world.X)[:, 0], world.truth.Z[:, 0])[0, 1]) > 0.9


@quiet
def test_images(tmp_path: Any):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 60)
    centres = 8 + 2 * rng.normal(size=(300, 2)) * rng.uniform(0.5, 1.5, size=(5, 2))[y]
    pixels = np.stack(np.meshgrid(np.arange(16), np.arange(16), indexing="ij"), axis=-1)
    images = np.exp(-np.square(pixels[None] - centres[:, None, None]).sum(axis=-1) / 8)
    found = short(n_latents=2, n_steps=5).fit(images.astype(np.float32), y)
    assert found.transform(images).shape == (300, 2)
    assert found.inverse_transform(found.transform(images)).shape == images.shape


def test_an_interrupted_fit_says_so(world: Any, monkeypatch: pytest.MonkeyPatch):
    run_chunk, done = _chunk.run_chunk, []

    def interrupted(*arguments: Any) -> Any:
        if done:
            raise KeyboardInterrupt
        done.append(True)
        return run_chunk(*arguments)

    monkeypatch.setattr(_chunk, "run_chunk", interrupted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = short(n_steps=100).fit(world.X, world.y)
    check = next(c for c in found.result_.checks if c.name == "training came to its end")
    assert check.passed is False
