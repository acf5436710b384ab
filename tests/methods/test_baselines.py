from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn import ICABaseline, PCABaseline
from crlearn.data import make_world
from crlearn.exceptions import AssumptionWarning
from crlearn.metrics import evaluate, mcc, r2


def linear_world(noise: str, graph: str = "empty", **options: Any) -> Any:
    return make_world(
        4,
        10,
        graph=graph,
        noise=noise,
        n_samples=4000,
        mixing="linear",
        random_state=0,
        **options,
    )


def test_pca_finds_the_span_and_nothing_inside_it():
    world = linear_world("gaussian")
    Z = PCABaseline(n_latents=4).fit_transform(world.X)
    assert r2(world.truth.Z, Z) == pytest.approx(1)
    assert mcc(world.truth.Z, Z) < 0.95


def test_pca_components_are_uncorrelated_with_variance_one():
    Z = PCABaseline(n_latents=4).fit_transform(linear_world("laplace").X)
    np.testing.assert_allclose(Z.T @ Z / len(Z), np.eye(4), atol=1e-8)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-10)


def test_pca_on_a_hand_built_case():
    X = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]])
    model = PCABaseline().fit(X)
    np.testing.assert_allclose(model.transform(X)[:, 0], [1, -1, 1, -1], atol=1e-12)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-12)


@pytest.mark.parametrize("noise", ["laplace", "exponential", "gumbel"])
def test_ica_finds_independent_latents_that_are_not_gaussian(noise: str):
    world = linear_world(noise)
    model = ICABaseline(n_latents=4, random_state=0).fit(world.X)
    scores = evaluate(model, world)
    assert scores["mcc"] > 0.995
    assert scores["scale_error"] < 0.1


def test_ica_fails_on_causally_related_latents():
    world = linear_world("laplace", graph="chain")
    model = ICABaseline(n_latents=4, random_state=0).fit(world.X)
    assert evaluate(model, world)["scale_error"] > 0.3


def test_ica_says_when_it_did_not_converge():
    world = linear_world("gaussian")
    with pytest.warns(AssumptionWarning, match=r"max_iter=2; the latents may be Gaussian"):
        model = ICABaseline(n_latents=4, max_iter=2, random_state=0).fit(world.X)
    assert model.n_iter_ == 2
    assert np.isfinite(model.transform(world.X)).all()


def test_labels_are_ignored():
    world = linear_world("laplace")
    labels = np.arange(world.n_samples) % 3
    without = PCABaseline().fit(world.X).transform(world.X)
    np.testing.assert_array_equal(PCABaseline().fit(world.X, labels).transform(world.X), without)
