from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import Dataset, Truth, make_observational
from crlearn.exceptions import IdentifiabilityError
from crlearn.graph import layers
from crlearn.methods._score_layers import LayerRecovery, layers_from_scores
from crlearn.metrics import layer_recovery, mac
from crlearn.scores import ExactJacobians, SteinJacobians

EXACT: dict[str, Any] = {"random_state": 0}


def world_of(graph: Any = "chain", n_samples: int = 500, **options: Any) -> tuple[Dataset, Truth]:
    settings: dict[str, Any] = {"n_latents": 4, "random_state": 0, **options}
    world = make_observational(n_samples=n_samples, graph=graph, **settings)
    assert world.truth is not None
    return world, world.truth


def exact(world: Dataset, **options: Any) -> LayerRecovery:
    assert world.truth is not None
    return layers_from_scores(world.X, jacobian=ExactJacobians(world.truth), **{**EXACT, **options})


def scores_of(world: Dataset, found: LayerRecovery) -> tuple[float, float]:
    """Recovery of latents up to upstream layers, and of noises up to layers."""
    truth = world.truth
    assert truth is not None
    true_layers = layers(truth.graph)
    latents = (world.X - found.offset) @ found.encoder.T
    noises = found.noise_encoder(world.X)
    return (
        layer_recovery(truth.Z, latents, true_layers, found.layers, upstream=True),
        layer_recovery(truth.noise, noises, true_layers, found.layers),
    )


# Exact scores


@pytest.mark.parametrize("rescale", ["minmax", "standard"])
@pytest.mark.parametrize("seed", range(3))
def test_a_line_is_recovered_in_order(rescale: str, seed: int):
    world, truth = world_of(rescale=rescale, random_state=seed)
    found = exact(world)
    assert [layer.tolist() for layer in found.layers] == [[3], [2], [1], [0]]
    assert mac(truth.noise, found.noise_encoder(world.X)) > 0.9999
    assert found.diagnostics["deviation"].max() < 1e-10
    assert np.nanmin(found.diagnostics["next_deviation"]) > 1e-3
    assert found.diagnostics["p_values"].tolist() == [1.0] * 4


def test_the_leaves_of_a_y_are_one_layer():
    world, truth = world_of("y")
    found = exact(world)
    assert [layer.tolist() for layer in found.layers] == [[2, 3], [1], [0]]
    assert min(scores_of(world, found)) > 0.9999
    assert mac(truth.noise[:, :2], found.noise_encoder(world.X)[:, :2]) > 0.9999


@pytest.mark.parametrize(("n_latents", "seed"), [(6, 0), (6, 1), (8, 2), (10, 3)])
def test_random_graphs_are_recovered_layer_by_layer(n_latents: int, seed: int):
    world, truth = world_of(
        "er", 2000, n_latents=n_latents, edge_probability=0.4, random_state=seed
    )
    found = exact(world)
    assert [len(layer) for layer in found.layers] == [len(layer) for layer in layers(truth.graph)]
    latents, noises = scores_of(world, found)
    assert latents > 1 - 1e-6
    assert noises > 0.99


def test_networks_of_several_parents_are_recovered():
    # One of the worlds in which functions in random places had 0.974.
    options = {"n_latents": 6, "edge_probability": 0.4, "mechanism": "tanh_mlp"}
    world, _ = world_of("er", 2000, **options)
    half = world.subset(slice(1500))
    found = exact(half)
    assert min(scores_of(half, found)) > 0.999
    assert min(scores_of(world.subset(slice(1500, None)), found)) > 0.999


@pytest.mark.parametrize("mechanism", ["sin", "tanh_mlp"])
def test_other_mechanisms_and_more_features_than_latents(mechanism: str):
    world, truth = world_of(mechanism=mechanism, n_features=7)
    found = exact(world)
    assert found.encoder.shape == (4, 7)
    assert mac(truth.noise, found.noise_encoder(world.X)) > 0.99


def test_independent_latents_are_one_layer():
    world, _ = world_of("empty")
    found = exact(world)
    assert [layer.tolist() for layer in found.layers] == [[0, 1, 2, 3]]
    assert min(scores_of(world, found)) > 0.9999


def test_one_latent():
    world, truth = world_of(n_latents=1, n_features=3)
    found = exact(world, n_latents=1)
    assert mac(truth.noise, found.noise_encoder(world.X)) == pytest.approx(1.0)


def test_latents_are_uncorrelated_with_variance_one_and_signs_are_fixed():
    world, _ = world_of("y")
    found = exact(world)
    latents = (world.X - found.offset) @ found.encoder.T
    np.testing.assert_allclose(np.cov(latents.T, bias=True), np.eye(4), atol=1e-8)
    largest = np.abs(found.encoder).argmax(axis=1)
    assert (found.encoder[np.arange(4), largest] > 0).all()


def test_axes_and_units_of_x_do_not_matter():
    world, truth = world_of("y")
    change = np.random.default_rng(0).normal(size=(4, 4)) * [1.0, 10.0, 0.1, 1.0]
    evaluate = ExactJacobians(truth).evaluate
    back = np.linalg.inv(change)

    def changed(X: Any) -> Any:
        scores, jacobians = evaluate(X @ back.T)
        return scores @ back, back.T @ jacobians @ back

    first = layers_from_scores(world.X, jacobian=evaluate, **EXACT)
    second = layers_from_scores(world.X @ change.T, jacobian=changed, **EXACT)
    assert [x.tolist() for x in first.layers] == [x.tolist() for x in second.layers]
    noises = first.noise_encoder(world.X), second.noise_encoder(world.X @ change.T)
    assert layer_recovery(*noises, first.layers) > 0.9999


def test_a_users_function_does_as_well_as_the_truth():
    world, truth = world_of()
    found = layers_from_scores(world.X, jacobian=ExactJacobians(truth).evaluate, **EXACT)
    assert mac(truth.noise, found.noise_encoder(world.X)) > 0.9999


def test_scores_that_are_wrong_do_not_spoil_the_noises():
    # The Jacobians are right, but the scores have a part that is no noise.
    world, truth = world_of()

    class Wrong(ExactJacobians):
        def marginal(self, X: Any, encoder: Any, n_kept: int) -> Any:
            scores, jacobians = super().marginal(X, encoder, n_kept)
            return scores + 5 * scores.std() * (X @ encoder[:n_kept].T) ** 2, jacobians

    found = layers_from_scores(world.X, jacobian=Wrong(truth), **EXACT)
    assert mac(truth.noise, found.noise_encoder(world.X)) > 0.99


def test_noises_by_regression_alone():
    world, truth = world_of(n_samples=1000)
    found = exact(world, noise="regression")
    level = mac(truth.noise, found.noise_encoder(world.X))
    assert 0.99 < level < 0.9999  # the noise of a thousand rows cannot be told from a mechanism


def test_the_published_tolerance_finds_the_same_layers():
    world, _ = world_of("y")
    found = exact(world, threshold="paper")
    assert [layer.tolist() for layer in found.layers] == [[2, 3], [1], [0]]
    assert min(scores_of(world, found)) > 0.9999
    assert np.isnan(found.diagnostics["p_values"]).all()


def test_noises_of_new_rows():
    world, truth = world_of(n_samples=1000)
    half = world.subset(slice(500))
    found = exact(half)
    assert mac(truth.noise[500:], found.noise_encoder(world.X[500:])) > 0.9999
    assert found.noise_encoder.n_latents == 4


# Estimated scores


def test_what_noise_covers_is_one_layer_and_the_published_way_takes_one_by_one():
    world, _ = world_of(rescale="minmax")
    options: dict[str, Any] = {"jacobian": SteinJacobians(random_state=0), "random_state": 0}
    tested = layers_from_scores(world.X, n_halves=4, **options)
    assert [len(layer) for layer in tested.layers] == [4]
    assert tested.diagnostics["p_values"].min() > 0.05
    published = layers_from_scores(world.X, threshold="paper", prune_outliers=0.25, **options)
    assert [len(layer) for layer in published.layers] == [1, 1, 1, 1]
    assert np.isfinite(published.noise_encoder(world.X)).all()


def test_what_is_far_from_gaussian_is_not_one_layer():
    # One parent and one child whose noise is small: even a kernel sees this curve.
    world, truth = world_of(n_latents=2, n_samples=2000, noise_variance=(0.3, 0.3))
    found = layers_from_scores(world.X, jacobian="stein", random_state=0)
    assert [layer.tolist() for layer in found.layers] == [[1], [0]]
    assert mac(truth.noise, found.noise_encoder(world.X)) > 0.9


def test_same_seed_same_bits():
    world, _ = world_of(n_samples=200)
    first, again = (
        layers_from_scores(world.X, jacobian="stein", n_halves=2, random_state=3) for _ in range(2)
    )
    np.testing.assert_array_equal(first.encoder, again.encoder)
    np.testing.assert_array_equal(first.noise_encoder(world.X), again.noise_encoder(world.X))
    np.testing.assert_array_equal(first.diagnostics["p_values"], again.diagnostics["p_values"])


# Bad input


def test_bad_input():
    world, _ = world_of(n_samples=100)
    X = world.X
    with pytest.raises(ValueError, match="'X' must be a finite matrix"):
        layers_from_scores(np.full((5, 2), np.nan), jacobian="stein")
    with pytest.raises(ValueError, match=r"'threshold' must be 'test' or 'paper'. Got 'best'"):
        layers_from_scores(X, jacobian="stein", threshold="best")  # pyright: ignore
    with pytest.raises(ValueError, match=r"'noise' must be 'score' or 'regression'. Got 'none'"):
        layers_from_scores(X, jacobian="stein", noise="none")  # pyright: ignore
    with pytest.raises(ValueError, match="level"):
        layers_from_scores(X, jacobian="stein", level=0.0)
    with pytest.raises(ValueError, match="n_halves"):
        layers_from_scores(X, jacobian="stein", n_halves=1)
    with pytest.raises(ValueError, match="prune_outliers"):
        layers_from_scores(X, jacobian="stein", prune_outliers=1.0)
    with pytest.raises(ValueError, match="The 'jacobian' must be one of"):
        layers_from_scores(X, jacobian="best")
    with pytest.raises(IdentifiabilityError, match="at most the rank of X"):
        layers_from_scores(X, jacobian="stein", n_latents=5)
    with pytest.raises(ValueError, match="4 latents need at least 12 rows of X"):
        layers_from_scores(X[:10], jacobian="stein")


def test_a_density_without_marginals_is_refused():
    def flat(X: Any) -> Any:
        # Constant slopes: the density has no maximum along any direction.
        curvature = 1 + X[:, :1, None] ** 2
        return np.ones_like(X), -curvature * np.eye(X.shape[1])

    X = np.random.default_rng(0).normal(size=(100, 2))
    with pytest.raises(ValueError, match="has no marginals"):
        layers_from_scores(X, jacobian=flat, random_state=0)
