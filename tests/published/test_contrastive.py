from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from crlearn.data import Intervention, make_world
from crlearn.exceptions import AssumptionWarning, IdentifiabilityError
from crlearn.inputs import read_environments
from crlearn.metrics import mcc
from crlearn.published import ContrastiveCRL, contrastive_crl
from crlearn.published._contrastive import ContrastiveLoss, LogOdds

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")


@cache
def data() -> Any:
    moved = [Intervention(i, "hard", mean=1.5, variance_factor=0.5) for i in range(2)]
    graph = np.array([[0, 1], [0, 0]])
    return make_world(
        2, 4, 1500, graph=graph, mixing="leaky_relu", interventions=[None, *moved], random_state=0
    )


@cache
def fit() -> Any:
    return ContrastiveCRL(width=64, max_epochs=60, random_state=0).fit(data().X, data().y)


def test_defaults():
    assert ContrastiveCRL().get_params() == {
        "n_latents": None,
        "reference": None,
        "width": 512,
        "sparsity": 1e-4,
        "acyclicity": 1e-5,
        "edge_cut": 0.2,
        "max_epochs": 100,
        "learning_rate": 2e-3,
        "n_restarts": 1,
        "random_state": None,
    }


def test_log_odds_are_those_of_gaussian_models():
    """Densities of three latents, with each of them intervened on, say the same."""
    rng = np.random.default_rng(0)
    n, effects = 3, np.tril(rng.normal(size=(3, 3)), -1)
    scale, precision, eta = rng.uniform(0.5, 2, size=(3, n))
    rows = scale[:, None] * (np.eye(n) - effects)
    Z = rng.normal(size=(20, n))
    reference = density(rows, np.zeros(n))
    expected = []
    for i in range(n):
        own, shifts = rows.copy(), np.zeros(n)
        own[i], shifts[i] = precision[i] * np.eye(n)[i], eta[i]
        expected.append(density(own, shifts).logpdf(Z) - reference.logpdf(Z))
    constant = np.log(precision / scale) - eta**2 / 2
    found = LogOdds(constant, eta * precision, precision, scale, effects + 7 * np.eye(n))(Z)
    np.testing.assert_allclose(found, np.array(expected).T, atol=1e-10)


def density(rows: Any, shifts: Any) -> Any:
    """Of z if ``rows @ z - shifts`` is standard Gaussian."""
    inverse = np.linalg.inv(rows)
    return multivariate_normal(inverse @ shifts, inverse @ inverse.T)


def test_loss_counts_reference_and_environments_alike():
    """Two cross-entropies at even odds, whatever the sizes, and no penalty of what is zero."""
    objective = ContrastiveLoss(2, 1, 3, 1, 0.0, 0.0, weights=(4 / 3, 4.0))
    model = objective.init(_key())
    even = model._replace(stored_odds=LogOdds(*(0 * part for part in model.stored_odds)))
    batch: Any = (np.zeros((4, 2)), np.array([0, 0, 0, 1]))
    end: Any = np.ones(())
    loss = objective.loss(even, batch, _key(), end)
    assert float(loss) == pytest.approx(2 * np.log(2), rel=1e-5)


def test_cycles_and_effects_are_penalised():
    effects = np.array([[5.0, 0.3], [0.2, 5.0]])
    none, sparse, cyclic = (
        ContrastiveLoss(2, 2, 3, 1, *weights, weights=(1.0, 1.0, 1.0))
        for weights in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    )
    assert float(none._penalty(effects)) == 0
    assert float(sparse._penalty(effects)) == pytest.approx(0.5, rel=1e-5)
    expected = 2 * np.cosh(0.3 * 0.2) - 2
    assert float(cyclic._penalty(effects)) == pytest.approx(expected, abs=1e-5)


def _key() -> Any:
    return jax.random.key(0)


def test_latents_and_graph_of_a_linear_gaussian_world():
    model = fit()
    reference = data().y == 0
    Z = model.transform(data().X)[reference]
    assert mcc(data().truth.Z[reference], Z) > 0.95
    np.testing.assert_array_equal(model.result_.adjacency, data().truth.graph)
    np.testing.assert_array_equal(model.result_.targets, data().truth.targets)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(Z.std(axis=0), 1, atol=1e-6)
    assert model.result_.guarantee.latents == "scale"
    assert not hasattr(model, "inverse_transform")
    assert model.result_.details["effects"].shape == (2, 2)


@quiet
def test_same_seed_same_bits_and_names_of_environments():
    labels = np.array(["wt", "a", "b"])[data().y]
    models = [ContrastiveCRL(width=8, max_epochs=3, random_state=1) for _ in range(2)]
    first, second = (model.fit(data().X, labels).transform(data().X) for model in models)
    np.testing.assert_array_equal(first, second)
    assert models[0].result_.interventions == {"a": ["a"], "b": ["b"]}


@quiet
def test_goes_on_from_a_checkpoint(tmp_path: Any):
    settings = {"width": 8, "max_epochs": 3, "checkpoint": tmp_path / "state.crl"}
    environments = read_environments(data().y)
    first, second = (contrastive_crl(data().X, environments, **settings) for _ in range(2))
    np.testing.assert_array_equal(first.encoder(data().X), second.encoder(data().X))


@quiet
def test_an_environment_that_is_the_reference_is_noticed():
    y = data().y.copy()
    y[y == 2] = 1
    y[np.flatnonzero(y == 0)[::2]] = 2
    model = ContrastiveCRL(width=8, max_epochs=20, random_state=0)
    with pytest.warns(AssumptionWarning, match="interventions are visible: fails .*0.02: 2"):
        model.fit(data().X, y)


@pytest.mark.parametrize("name", ["width", "max_epochs", "n_restarts", "learning_rate", "edge_cut"])
def test_bad_parameters(name: str):
    wrong: Any = {name: 0}
    with pytest.raises(ValueError, match=f"The '{name}' parameter of ContrastiveCRL must be"):
        ContrastiveCRL(**wrong).fit(data().X, data().y)


def test_another_number_of_environments():
    with pytest.raises(IdentifiabilityError, match="Got 2 for n_latents = 3; leave some out"):
        ContrastiveCRL(3).fit(data().X, data().y)
