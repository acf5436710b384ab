from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.data import make_sparse_mixture
from crlearn.inputs import Scaling
from crlearn.metrics import mcc, r2
from crlearn.nets import MLP
from crlearn.published import PDGMM, pdgmm
from crlearn.published._pdgmm import (
    Reconstruction,
    SparseReconstruction,
    followed_by,
    multiplier_of,
    normalised,
    preceded_by,
    shares_in_peaks,
    with_unit_columns,
)
from crlearn.train import Settings, train

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
END = jnp.ones(())


@cache
def data() -> Any:
    return make_sparse_mixture(4, n_samples=3000, n_layers=3, random_state=0)


def tiny(**parameters: Any) -> PDGMM:
    """Compiles fast; for what does not depend on how good the fit is."""
    settings = {"width": 2, "n_steps": 20, "n_sparsity_steps": 20, "random_state": 0}
    return PDGMM(**{**settings, **parameters})


@cache
def fitted() -> PDGMM:
    settings: Any = {"n_steps": 200, "n_sparsity_steps": 3000, "learning_rate": 2e-3}
    return tiny(width=8, **settings).fit(data().X)


def affine(matrix: Any, shift: Any) -> MLP:
    return MLP((np.asarray(matrix, float),), (np.asarray(shift, float),))


def test_defaults():
    assert PDGMM().get_params() == {
        "n_latents": None,
        "sparsity_level": 0.01,
        "width": 50,
        "n_steps": 5000,
        "n_sparsity_steps": 80_000,
        "learning_rate": 1e-4,
        "checkpoint": None,
        "random_state": None,
    }


# Stage 1


def test_networks_have_the_layers_of_the_paper():
    params = Reconstruction(7, 3, 50).init(jax.random.key(0))
    sizes = [weight.shape for weight in params["encoder"].weights]
    assert sizes == [(7, 150), (150, 300), (300, 300), (300, 150), (150, 3)]
    assert [weight.shape for weight in params["decoder"].weights] == [
        (3, 150),
        (150, 300),
        (300, 300),
        (300, 150),
        (150, 7),
    ]


def test_normalised_outputs():
    outputs = jnp.asarray(np.random.default_rng(0).normal(5, 3, size=(500, 2)))
    found = np.asarray(normalised(outputs))
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(found.std(axis=0), 1, rtol=1e-4)
    np.testing.assert_array_equal(normalised(jnp.ones((4, 2))), 0)


def test_the_error_is_a_mean_over_entries():
    """A decoder that gives zeros misses the variance."""
    objective = Reconstruction(2, 2, 2)
    params = jax.tree.map(jnp.zeros_like, objective.init(jax.random.key(0)))
    rows = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    assert float(objective.loss(params, rows, jax.random.key(0), END)) == pytest.approx(30 / 4)


# Stage 2


def stage_two(dual: float, level: float = 0.25) -> tuple[Any, Any, Any]:
    """Return objective, parameters and a batch of which half is lost, with E |z| = 0.5."""
    params = {
        "encoder": MLP((0.5 * jnp.eye(2),), (jnp.zeros(2),)),
        "decoder": MLP((3 * jnp.eye(2),), (jnp.zeros(2),)),
        "dual": jnp.asarray(dual),
    }
    return SparseReconstruction(2, level), params, jnp.array([[1.0, 1.0], [-1.0, 1.0]])


def test_the_loss_is_the_lagrangian():
    """Errors are summed over the code, and the lengths of the decoder's columns do not matter."""
    objective, params, batch = stage_two(dual=4.0)
    loss = objective.loss(params, batch, jax.random.key(0), END)
    assert float(loss) == pytest.approx(2 * 0.5**2 + 2.0 * (0.5 - 0.25))


@pytest.mark.parametrize(
    ("dual", "level", "slope"),
    [(4.0, 0.25, -0.25), (4.0, 0.75, 0.25), (0.0, 0.25, -0.25), (0.0, 0.75, 0.0)],
)
def test_the_multiplier_ascends(dual: float, level: float, slope: float):
    """It falls where the constraint holds, and not below zero."""
    objective, params, batch = stage_two(dual, level)
    gradient = jax.grad(objective.loss)(params, batch, jax.random.key(0), END)
    assert float(gradient["dual"]) == pytest.approx(slope)


def test_sparsity_counts_as_much_as_the_multiplier():
    batch = stage_two(0.0)[2]

    def slope(dual: float) -> float:
        objective, params, _ = stage_two(dual)
        gradient = jax.grad(objective.loss)(params, batch, jax.random.key(0), END)
        return float(gradient["encoder"].weights[0][1, 1])

    # The second code is 1 in both rows: d E|z| / dA = 1 / 2.
    assert slope(4.0) - slope(0.0) == pytest.approx(2.0 * 0.5)


def test_multiplier_is_not_negative():
    assert float(multiplier_of(-1.0)) == 0
    assert float(multiplier_of(3.0)) == 1.5


def test_unit_columns():
    decoder = with_unit_columns(affine([[3.0, 4.0], [0.0, 2.0]], [1.0, 1.0]))
    np.testing.assert_allclose(decoder.weights[0], [[0.6, 0.8], [0, 1]], rtol=1e-6)
    np.testing.assert_array_equal(decoder.biases[0], [1, 1])


def test_the_last_weights_are_the_answer():
    """The multiplier grows to the end of the training, and the loss with it."""
    rows = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    settings = Settings(
        max_epochs=400, batch_size=200, learning_rate=0.02, validation_fraction=0.0, patience=None
    )
    training = train(SparseReconstruction(2, 0.01), rows, settings, seed=0)
    assert training.history["train_loss"][-1] > training.history["train_loss"].min()
    assert float(multiplier_of(training.params["dual"])) == pytest.approx(
        0.25 * 400 * 0.02, rel=0.1
    )


def test_sparse_latents_behind_a_matrix():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(3000, 4)) * (rng.random((3000, 4)) < 0.5)
    code = Z @ rng.normal(size=(4, 4))
    rows = Scaling.of(code)(code).astype(np.float32)
    settings = Settings(
        max_epochs=3000, batch_size=3000, learning_rate=2e-3, validation_fraction=0.0, patience=None
    )
    training = train(SparseReconstruction(4, 0.01), rows, settings, seed=0)
    found = np.asarray(training.params["encoder"](rows))
    assert mcc(Z, rows) < 0.9
    assert mcc(Z, found) > 0.99


# Maps


def test_affine_maps_become_part_of_networks():
    rng = np.random.default_rng(0)
    network = MLP.random(jax.random.key(0), [3, 5, 2])
    after, before = (affine(rng.normal(size=(n, n)), rng.normal(size=n)) for n in (2, 3))
    x = rng.normal(size=(10, 3))
    np.testing.assert_allclose(followed_by(network, after)(x), after(network(x)), rtol=1e-5)
    np.testing.assert_allclose(preceded_by(network, before)(x), network(before(x)), rtol=1e-5)


def test_shares_in_peaks():
    rng = np.random.default_rng(0)
    gaussian = rng.normal(size=20_000)
    half_off = np.where(rng.random(20_000) < 0.5, 3.0, gaussian)
    shares = shares_in_peaks(np.column_stack([gaussian, half_off, np.ones(20_000)]))
    assert shares[0] == pytest.approx(0.197, abs=0.01)
    assert shares[1] == pytest.approx(0.5, abs=0.03)
    assert shares[2] == 1


# The estimator


def test_latents_of_a_small_world():
    Z, truth = fitted().transform(data().X), data().truth.Z
    assert r2(truth, Z) > 0.9
    assert mcc(truth, Z) > 0.95
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(Z.std(axis=0), 1, atol=1e-6)
    assert fitted().result_.guarantee.latents == "scale"
    assert fitted().graph_ is None


def test_rows_come_back():
    model, X = fitted(), data().X
    missed = ((model.inverse_transform(model.transform(X)) - X) ** 2).sum()
    share = missed / ((X - X.mean(axis=0)) ** 2).sum()
    assert share < 0.02
    details: Any = model.result_.details
    assert share == pytest.approx(details["reconstruction_error"], rel=0.5)


def test_details():
    details: Any = fitted().result_.details
    assert details["multiplier"] == pytest.approx(0.25 * 3000 * 2e-3, rel=0.1)
    assert 0.2 < details["mean_absolute_latent"] < 0.8
    assert details["kept"].shape == details["shares_in_peaks"].shape == (4,)
    assert (details["kept"] > 0.5).all()
    assert (details["kept"] < 1).all()


@quiet
def test_stage_one_alone():
    """The code is the same, its latents are not told apart, and nothing is said of sparsity."""
    settings: Any = {"n_steps": 200, "learning_rate": 2e-3}
    model = tiny(width=8, n_sparsity_steps=0, **settings).fit(data().X)
    code, Z, truth = model.transform(data().X), fitted().transform(data().X), data().truth.Z
    assert r2(truth, code) == pytest.approx(r2(truth, Z), abs=1e-6)
    assert mcc(truth, code) < mcc(truth, Z) - 0.05
    np.testing.assert_allclose(code.std(axis=0), 1, atol=1e-6)
    assert model.result_.guarantee.latents == "span"
    assert "every latent switches off" not in {check.name for check in model.result_.checks}
    assert "sparsity_train_loss" not in model.result_.history


@quiet
def test_no_pressure_where_the_level_is_reached():
    details: Any = tiny(sparsity_level=100.0).fit(data().X).result_.details
    assert details["multiplier"] == 0


@quiet
def test_history_of_both_stages():
    history = tiny(n_steps=40, n_sparsity_steps=100).fit(data().X).result_.history
    assert len(history["train_loss"]) == 2
    assert len(history["sparsity_train_loss"]) == 5


@quiet
def test_constant_columns_do_not_matter():
    X = np.column_stack([data().X, np.full(len(data().X), 2.0)])
    model = tiny().fit(X)
    Z = model.transform(X)
    X[:, 4] = 7.0
    np.testing.assert_array_equal(model.transform(X), Z)
    np.testing.assert_allclose(model.inverse_transform(Z)[:, 4], 2.0)


@quiet
def test_goes_on_from_a_checkpoint(tmp_path: Any):
    settings: Any = {"width": 2, "n_steps": 20, "n_sparsity_steps": 20}
    path = tmp_path / "state.crl"
    one, two = (pdgmm(data().X, **settings, checkpoint=path) for _ in range(2))
    np.testing.assert_array_equal(one.encoder(data().X), two.encoder(data().X))
    assert (tmp_path / "state.crl.sparse").exists()


@quiet
def test_number_of_latents():
    assert tiny().fit(data().X).result_.n_latents == 4
    assert tiny(n_latents=2).fit(data().X).result_.n_latents == 2
    more = tiny(n_latents=6).fit(data().X)  # than there are, as in appendix D.8
    assert more.transform(data().X).shape == (len(data().X), 6)
    assert more.inverse_transform(more.transform(data().X)).shape == data().X.shape


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sparsity_level", -0.1),
        ("width", 0),
        ("n_steps", 0),
        ("n_sparsity_steps", -1),
        ("learning_rate", 0),
        ("checkpoint", 3),
    ],
)
def test_bad_parameters(name: str, value: Any):
    wrong: Any = {name: value}
    with pytest.raises(ValueError, match=f"The '{name}' parameter of PDGMM must be"):
        PDGMM(**wrong).fit(data().X)
