from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.bench import ExactPosterior, GaussianPosterior, NoisePosterior
from crlearn.bench._references import posterior_means, truth_parameters
from crlearn.data import (
    SCM,
    Gaussian,
    Linear,
    Node,
    make_count_interventional,
    make_multi_domain,
    make_noisy_interventional,
    make_observational,
)
from crlearn.metrics import evaluate, relmse


def linear_tree() -> SCM:
    """Two effects of one cause, all Gaussian: the posterior is known in closed form."""
    graph = np.zeros((3, 3))
    graph[0, 1:] = 1
    return SCM(
        graph,
        [
            Node(None, Gaussian(1.5), 1.0),
            Node(Linear([0.8]), Gaussian(1.0)),
            Node(Linear([-1.2]), Gaussian(0.7), -2.0),
        ],
    )


def test_gaussian_tree():
    scm = linear_tree()
    rng = np.random.default_rng(0)
    Z, _ = scm.sample(200, rng)
    sds = np.array([1.0, 0.5, 2.0])
    noisy = Z + sds * rng.standard_normal(Z.shape)
    mean = np.array([1.0, 0.8, -1.2 - 2.0])
    covariance = scm.covariance()
    gain = covariance @ np.linalg.inv(covariance + np.diag(sds**2))
    exact = mean + (noisy - mean) @ gain.T
    np.testing.assert_allclose(posterior_means(scm, noisy, sds, 400), exact, atol=1e-4)


def test_it_is_better_than_the_noisy_latents():
    world: Any = make_multi_domain(n_features=10, n_samples=300, random_state=0)
    model = ExactPosterior(truth=world.truth).fit(world.X, world.y)
    floor = relmse(world.truth.Z, model.transform(world.X, world.y))
    assert floor < 0.8 * relmse(world.truth.Z, model.result_.encoder(world.X))
    np.testing.assert_array_equal(model.result_.decoder.matrix, world.truth.mixing.matrix)  # type: ignore[union-attr]
    assert "reference" in model.result_.guarantee.text


def test_what_a_study_may_hand_over():
    truth: Any = make_multi_domain(n_features=5, n_samples=20, random_state=0).truth
    given = truth_parameters(truth)
    assert given["$truth"] is truth
    assert given["$true_noise_variance"] == pytest.approx(2)
    assert given["$true_mixing"].shape == (5, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixing_skew": 0.3}, "orthogonal columns"),
        ({"measurement_noise": 0.0}, "measurement noise"),
    ],
)
def test_worlds_without_an_exact_posterior(options: Any, message: str):
    world = make_multi_domain(n_features=5, n_samples=20, random_state=0, **options)
    with pytest.raises(ValueError, match=message):
        ExactPosterior(truth=world.truth).fit(world.X, world.y)


def test_two_parents_are_refused():
    world = make_multi_domain(3, 5, 20, graph="full", random_state=0)
    model = ExactPosterior(truth=world.truth).fit(world.X, world.y)
    with pytest.raises(ValueError, match="no latent has two parents"):
        model.transform(world.X, world.y)
    with pytest.raises(ValueError, match="label of each row"):
        model.transform(world.X)


@pytest.mark.parametrize(
    "world",
    [
        make_noisy_interventional(3, 10, 500, share=0.5, uneven=True, random_state=0),
        make_count_interventional(3, 10, 500, mean_count=10, shift=1.0, random_state=0),
    ],
    ids=["noise", "counts"],
)
def test_no_linear_map_is_better_than_the_gaussian_posterior(world: Any):
    """Regressions of the latents on the rows of each environment have errors as large."""
    model = GaussianPosterior(truth=world.truth).fit(world.X, world.y)
    Z, found = world.truth.Z, model.transform(world.X, world.y)
    for label in world.environments:
        rows = world.y == label
        design = np.column_stack([np.ones(rows.sum()), world.X[rows]])
        best = design @ np.linalg.lstsq(design, Z[rows], rcond=None)[0]
        ratio = ((found[rows] - Z[rows]) ** 2).mean() / ((best - Z[rows]) ** 2).mean()
        assert 1 <= ratio < 1.1
    assert model.result_.adjacency is None


def test_the_gaussian_posterior_is_that_of_the_rows_of_its_truth():
    world: Any = make_noisy_interventional(2, 6, 100, random_state=0)
    with pytest.raises(ValueError, match="of these rows"):
        GaussianPosterior(truth=world.truth).fit(world.X[:50], world.y[:50])


class TestNoisePosterior:
    def world(self, measurement_noise: float = 0.5, mechanism: str = "linear") -> Any:
        return make_observational(
            3,
            8,
            400,
            mechanism=mechanism,
            measurement_noise=measurement_noise,
            random_state=0,
        )

    def test_it_is_the_gaussian_posterior_of_gaussian_latents(self):
        world = self.world()
        model: Any = NoisePosterior(truth=world.truth).fit(world.X)
        truth = world.truth
        G, scm = truth.mixing.matrix, truth.scms[0]
        weights = np.asarray(scm.weights())
        mean = scm.from_noise(np.zeros((1, 3)))[0]
        covariance = scm.covariance()
        share = covariance @ G.T @ np.linalg.inv(G @ covariance @ G.T + 0.25 * np.eye(8))
        latents = mean + (world.X - truth.mixing(mean[None])) @ share.T
        np.testing.assert_allclose(model.transform(world.X), latents, atol=0.1)
        noises = (latents - mean) @ (np.eye(3) - weights)
        found = model.result_.noise_encoder(world.X)
        np.testing.assert_allclose(
            found - found.mean(axis=0), noises - noises.mean(axis=0), atol=0.1
        )

    def test_it_knows_the_layers(self):
        world = self.world(mechanism="norm_squared")
        model: Any = NoisePosterior(truth=world.truth).fit(world.X)
        assert 0.8 < evaluate(model, world, ["layer_recovery"])["layer_recovery"] < 1

    def test_without_noise_nothing_is_lost(self):
        world = self.world(0.0, "norm_squared")
        model: Any = NoisePosterior(truth=world.truth).fit(world.X)
        assert evaluate(model, world, ["layer_recovery"])["layer_recovery"] == pytest.approx(1)

    def test_worlds_of_several_environments_are_refused(self):
        world: Any = make_multi_domain(n_features=5, n_samples=20, random_state=0)
        with pytest.raises(ValueError, match="one environment"):
            NoisePosterior(truth=world.truth).fit(world.X)
