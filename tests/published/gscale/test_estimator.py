from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from crlearn.data import make_coupled_interventional, make_mixing
from crlearn.exceptions import AssumptionWarning, IdentifiabilityError
from crlearn.inputs import read_environments
from crlearn.metrics import mcc
from crlearn.published import GSCALEI, gscale_i
from crlearn.scores import ExactScores

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")


@cache
def data() -> Any:
    return make_coupled_interventional(2, 4, 500, graph="chain", random_state=0)


def known(n: int = 2) -> dict[int, list[int]]:
    return {0: [], **{e: [(e - 1) % n] for e in range(1, 2 * n + 1)}}


def fitted(world: Any = None, y: Any = None, **options: Any) -> Any:
    world = data() if world is None else world
    settings = {
        "decoder": "tanh",
        "scores": ExactScores(world.truth),
        "n_steps": 2000,
        "random_state": 0,
    }
    return GSCALEI(**{**settings, **options}).fit(world.X, world.y if y is None else y)


def test_defaults():
    assert GSCALEI().get_params() == {
        "n_latents": None,
        "targets": None,
        "reference": None,
        "scores": "ratio",
        "decoder": "mlp",
        "edge_cut": 0.25,
        "reconstruction_weight": 100.0,
        "n_steps": 5000,
        "n_restarts": 1,
        "random_state": None,
    }


@pytest.mark.parametrize("targets", [None, known()], ids=["uncoupled", "coupled"])
def test_exact_scores_recover_latents_pairs_and_graph(targets: Any):
    model = fitted(targets=targets)
    Z = model.transform(data().X)
    assert mcc(data().truth.Z, Z) > 0.999
    np.testing.assert_array_equal(model.result_.adjacency, data().truth.graph)
    np.testing.assert_array_equal(model.result_.targets, data().truth.targets)
    assert model.result_.guarantee.latents == "scale"
    np.testing.assert_allclose(model.inverse_transform(Z), data().X, atol=1e-4)
    reference = Z[data().y == 0]
    np.testing.assert_allclose(reference.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(reference.std(axis=0), 1, atol=1e-6)


def test_targets_number_the_latents():
    turned = {label: [1 - j for j in latents] for label, latents in known().items()}
    result = fitted(targets=turned).result_
    np.testing.assert_array_equal(result.targets, data().truth.targets[:, ::-1])
    np.testing.assert_array_equal(result.adjacency, data().truth.graph[::-1, ::-1])


def test_labels_are_names():
    labels = np.array(["control", "a", "b", "c", "d"])[data().y]
    result = fitted(y=labels, scores=ExactScores(data().truth)).result_
    assert result.interventions == {"a/c": ["a", "c"], "b/d": ["b", "d"]}


@quiet
def test_networks_undo_a_smooth_mixing():
    mixing = make_mixing("tanh_mlp", 2, 2, 1, gain=0.4)
    world: Any = make_coupled_interventional(
        2, 2, 1000, mixing=mixing, mechanism="mlp", graph="empty", random_state=1
    )
    result = gscale_i(
        world.X,
        read_environments(world.y),
        scores=ExactScores(world.truth),
        n_steps=1000,
        width=32,
        depth=2,
        seed=0,
    )
    reference = world.y == 0
    assert mcc(world.truth.Z[reference], result.encoder(world.X[reference]), "spearman") > 0.97
    np.testing.assert_array_equal(result.targets, world.truth.targets)
    assert result.guarantee.latents == "elementwise"
    assert not [check for check in result.checks if check.passed is False]


@quiet
def test_a_wrong_pair_is_noticed():
    wrong = {0: [], 1: [0], 2: [0], 3: [1], 4: [1]}
    with pytest.warns(AssumptionWarning, match="score differences are one-hot: fails"):
        model = fitted(targets=wrong)
    assert model.result_.guarantee.latents == "none"


@quiet
def test_a_missing_environment_is_noticed():
    kept = data().y < 4
    model = GSCALEI(decoder="tanh", scores="gaussian", n_steps=100, random_state=0)
    with pytest.warns(AssumptionWarning, match="latents with fewer than two: z"):
        model.fit(data().X[kept], data().y[kept])
    assert model.result_.n_latents == 2


@quiet
def test_same_seed_same_bits():
    first, second = (fitted(scores="gaussian", n_steps=200).transform(data().X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoder": "linear"}, "The 'decoder' parameter of GSCALEI must be"),
        ({"n_steps": 0}, "The 'n_steps' parameter of GSCALEI must be"),
        ({"targets": {0: [], 1: [0]}}, "'targets' must name every environment in y. Missing are 2"),
        ({"targets": {**known(), 1: [0, 1]}}, "one latent for each environment.*not so for: 1"),
        ({"targets": {**known(), 2: [0]}}, "two environments for each latent.*Got more for"),
    ],
)
def test_bad_parameters(options: Any, message: str):
    with pytest.raises(ValueError, match=message):
        fitted(**options)


def test_values_that_no_tanh_has():
    with pytest.raises(ValueError, match=r"between -1 and 1.*decoder='mlp'"):
        GSCALEI(decoder="tanh").fit(2 * data().X / np.abs(data().X).max(), data().y)


def test_more_environments_than_two_each():
    with pytest.raises(IdentifiabilityError, match="Got 4 for 1 latents; leave some out"):
        fitted(n_latents=1)


def test_environments_without_any_difference():
    nothing = lambda X, environment: np.zeros_like(X)  # noqa: E731
    with pytest.raises(IdentifiabilityError, match="some have the same scores"):
        fitted(scores=nothing)
