from __future__ import annotations

from itertools import product
from math import gcd
from typing import Any

import numpy as np
import pytest

from crlearn.data import Dataset, Truth, make_multi_node
from crlearn.exceptions import AssumptionWarning, IdentifiabilityError
from crlearn.graph import transitive_closure
from crlearn.inputs import read_environments
from crlearn.metrics import ancestor_error, evaluate, match, mcc, scale_error, targets_right
from crlearn.published import UMNICRL, umni_crl
from crlearn.published.umni import _estimator
from crlearn.published.umni._combinations import RankCuts, Samples
from crlearn.published.umni._estimator import (
    MultiNodeRecovery,
    causal_order,
    integer_vectors,
    sums_of_two,
)
from crlearn.scores import ExactScores


def make(seed: int, **options: Any) -> tuple[np.ndarray, np.ndarray, Any, np.ndarray]:
    settings = {"n_latents": 4, "n_features": 7, "n_samples": 2000, "random_state": seed}
    world: Dataset = make_multi_node(**{**settings, **options})
    assert world.y is not None
    assert world.truth is not None
    assert world.truth.mixing.matrix is not None
    return world.X, world.y.astype(int), world.truth, world.truth.mixing.matrix


def order_of_truth(X: np.ndarray, encoder: np.ndarray, truth: Truth) -> np.ndarray:
    """Recovered latents in the order of the true ones."""
    return match(truth.Z, X @ encoder.T)[:, 1]


# Worlds by hand: x = z, unit variances; targets lose their parents and keep a quarter of the
# variance. Rows are corners of a cube, so that moments, and Gaussian scores, are exact.


def by_hand(weights: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = len(weights)
    corners = np.repeat(np.array(list(product([1.0, -1.0], repeat=n))), 50, axis=0)
    rows = []
    for intervened in np.vstack([np.zeros((1, n)), targets]).astype(bool):
        kept = np.where(intervened[:, None], 0.0, weights)  # weights[j, i] is for i -> j
        noise = corners * np.where(intervened, 0.5, 1.0)
        rows.append(noise @ np.linalg.inv(np.eye(n) - kept).T)
    return np.concatenate(rows), np.repeat(np.arange(len(targets) + 1), len(corners))


def recover(X: np.ndarray, codes: np.ndarray, n: int, **options: Any) -> MultiNodeRecovery:
    settings = {"score": "gaussian", "hard": True, "rank_cut": 1e-6, **options}
    return _estimator.recover(X, codes, n, **settings)


TWO_TARGETS = np.array([[1, 0], [1, 1]])


def test_two_latents_by_hand():
    found = recover(*by_hand(np.array([[0.0, 0.0], [1.0, 0.0]]), TWO_TARGETS), 2)
    # The score difference of environment 2 is (2 z1 + z2, z1 + 3 z2), and row 2 is its covariance
    # with the second entry, (15, 25).
    np.testing.assert_allclose(found.soft_encoder, [[1, 0], [0.6, 1]], atol=1e-9)
    np.testing.assert_allclose(found.encoder, np.eye(2), atol=1e-9)
    assert found.adjacency.tolist() == [[False, True], [False, False]]
    assert found.combinations.tolist() == [[1, 0], [0, 1]]
    assert found.targets.tolist() == [[False, False], [True, False], [True, True]]
    assert found.diagnostics["uncertain"] == []
    assert found.diagnostics["targets_agree"]
    assert found.diagnostics["outside_span"] == 0


def test_two_latents_without_an_edge_by_hand():
    found = recover(*by_hand(np.zeros((2, 2)), TWO_TARGETS), 2, hard=False)
    np.testing.assert_allclose(found.encoder, np.eye(2), atol=1e-9)
    assert not found.adjacency.any()
    assert found.combinations.tolist() == [[1, -1], [0, 1]]  # the first target is taken out
    assert found.targets.tolist() == [[False, False], [True, False], [True, True]]
    assert found.diagnostics["p_values"] is None


def test_three_latents_by_hand():
    # 0 -> 1 -> 2: latent 0 is an ancestor of 2 and not a parent.
    weights = np.array([[0, 0, 0], [1.0, 0, 0], [0, -0.5, 0]])
    targets = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]])
    X, codes = by_hand(weights, targets)
    found = recover(X, codes, 3)
    np.testing.assert_allclose(found.encoder, np.eye(3), atol=1e-9)
    assert found.soft_adjacency.tolist() == np.triu(np.ones((3, 3)), 1).astype(bool).tolist()
    assert np.argwhere(found.adjacency).tolist() == [[0, 1], [1, 2]]
    assert found.targets[1:].tolist() == targets.astype(bool).tolist()
    assert found.diagnostics["p_values"][0, 2] == pytest.approx(1.0)
    soft = recover(X, codes, 3, hard=False)
    np.testing.assert_array_equal(soft.encoder, found.soft_encoder)
    np.testing.assert_array_equal(soft.adjacency, found.soft_adjacency)


# Exact scores


@pytest.mark.parametrize("n_latents", [4, 5])
@pytest.mark.parametrize("seed", range(3))
def test_hard_interventions_give_latents_graph_and_targets(n_latents: int, seed: int):
    X, codes, truth, G = make(seed, n_latents=n_latents, n_samples=20_000)
    found = recover(X, codes, n_latents, score=ExactScores(truth), independence_level=1e-3)
    order = order_of_truth(X, found.encoder, truth)
    np.testing.assert_array_equal(found.adjacency[np.ix_(order, order)], truth.graph)
    np.testing.assert_array_equal(found.targets[:, order], truth.targets)
    assert scale_error(found.encoder, G) < 0.05
    assert found.diagnostics["targets_agree"]
    assert np.linalg.matrix_rank(found.combinations) == n_latents


@pytest.mark.parametrize("mechanism", ["linear", "quadratic"])
@pytest.mark.parametrize("seed", range(3))
def test_soft_interventions_give_ancestors_and_targets(mechanism: str, seed: int):
    X, codes, truth, G = make(seed, intervention="soft", mechanism=mechanism)
    found = recover(X, codes, 4, score=ExactScores(truth), hard=False)
    order = order_of_truth(X, found.encoder, truth)
    closure = transitive_closure(truth.graph)
    np.testing.assert_array_equal(found.adjacency[np.ix_(order, order)], closure)
    np.testing.assert_array_equal(found.targets[:, order], truth.targets)
    assert ancestor_error(found.encoder[order], G, truth.graph, match=False) < 1e-5


def test_more_environments_than_latents():
    X, codes, truth, G = make(1, target_sets="general", n_interventions=7, n_samples=20_000)
    found = recover(X, codes, 4, score=ExactScores(truth))
    assert found.combinations.shape == (7, 4)
    order = order_of_truth(X, found.encoder, truth)
    np.testing.assert_array_equal(found.adjacency[np.ix_(order, order)], truth.graph)
    np.testing.assert_array_equal(found.targets[:, order], truth.targets)
    assert scale_error(found.encoder, G) < 0.05


def test_combinations_with_a_coefficient_of_two():
    # Each environment leaves one latent out: all together minus three times one leave one over.
    X, codes = by_hand(np.zeros((4, 4)), 1 - np.eye(4))
    found = recover(X, codes, 4)
    order = np.abs(found.encoder).argmax(axis=0)
    np.testing.assert_allclose(found.encoder[order], np.eye(4), atol=1e-9)
    np.testing.assert_array_equal(np.abs(found.combinations[:, order]), 1 + np.eye(4))
    # Without it the closest combination is taken, and that is said.
    assert recover(X, codes, 4, max_coefficient=1).diagnostics["uncertain"] == [0]


# Estimated scores


SIZES = [20_000, 15_000, 25_000, 20_000, 15_000]


@pytest.mark.parametrize("rank_cut", [0.05, "test"])
def test_estimated_scores(rank_cut: Any):
    X, codes, truth, _ = make(6, n_samples=SIZES)
    found = recover(X, codes, 4, rank_cut=rank_cut, random_state=0)
    order = order_of_truth(X, found.encoder, truth)
    np.testing.assert_array_equal(found.adjacency[np.ix_(order, order)], truth.graph)
    np.testing.assert_array_equal(found.targets[:, order], truth.targets)
    assert mcc(truth.Z, X @ found.encoder.T) > 0.999


def test_tests_succeed_where_the_published_cut_does_not():
    X, codes, truth, _ = make(5, n_samples=SIZES)
    right = {}
    for rank_cut in (0.05, "test"):
        found = recover(X, codes, 4, rank_cut=rank_cut, random_state=0)
        order = order_of_truth(X, found.encoder, truth)
        right[rank_cut] = targets_right(truth.targets, found.targets[:, order])
        # That something is wrong shows.
        assert found.diagnostics["targets_agree"] == (right[rank_cut] == 1)
    assert right["test"] == 1
    assert right[0.05] < 1


def test_same_seed_same_bits():
    X, codes, _, _ = make(0, n_samples=500)
    first, again = (recover(X, codes, 4, rank_cut="test", random_state=3) for _ in range(2))
    np.testing.assert_array_equal(first.encoder, again.encoder)
    np.testing.assert_array_equal(first.diagnostics["p_values"], again.diagnostics["p_values"])


def test_tests_do_not_depend_on_units_and_axes_of_x():
    X, codes, _, _ = make(2, n_samples=5000, n_features=4)
    other = X @ np.random.default_rng(0).normal(size=(4, 4)) + 3.0
    first, second = (
        recover(rows, codes, 4, rank_cut="test", random_state=0) for rows in (X, other)
    )
    np.testing.assert_array_equal(first.adjacency, second.adjacency)
    np.testing.assert_array_equal(first.targets, second.targets)
    assert mcc(X @ first.encoder.T, other @ second.encoder.T) > 1 - 1e-9


# Steps


@pytest.mark.parametrize(("length", "largest"), [(1, 3), (2, 3), (3, 2), (4, 1)])
def test_vectors_come_once_and_by_size(length: int, largest: int):
    blocks = list(integer_vectors(length, largest))
    for size, block in enumerate(blocks, start=1):
        assert (np.abs(block).sum(axis=1) == size).all()
    found = [tuple(vector) for block in blocks for vector in block.tolist()]
    everything = {
        vector
        for vector in product(range(-largest, largest + 1), repeat=length)
        if vector > (0,) * length and gcd(*vector) == 1
    }
    assert len(found) == len(everything)
    assert set(found) == everything


def test_vectors_are_tried_in_blocks_and_not_too_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_estimator, "_MOST_COMBINATIONS", 20)
    monkeypatch.setattr(_estimator, "_COMBINATIONS_AT_ONCE", 8)
    blocks = list(_estimator._blocks(integer_vectors(3, 2)))
    assert [len(block) for block in blocks] == [3, 6, 8, 3]
    everything = np.concatenate(list(integer_vectors(3, 2)))
    np.testing.assert_array_equal(np.concatenate(blocks), everything[:20])


def test_sums_that_may_take_a_latent_out():
    sums = sums_of_two(np.array([1, 1]), np.array([0, 1]))
    # a in -1, 0, 1 and b in 1, 2, the smallest first, without common factors.
    expected = [[0, 1], [-1, 0], [1, 2], [-1, 1], [1, 3]]
    assert sums.tolist() == expected


def samples_in(directions: list[list[list[float]]], n_rows: int = 400) -> Samples:
    """Differences that spread over given directions, one list for each environment."""
    rng = np.random.default_rng(0)
    differences = [rng.normal(size=(n_rows, len(spanned))) @ spanned for spanned in directions]
    return Samples(np.array(differences)[None], ())


SPANS = [[[1.0, 0, 0]], [[1.0, 0, 0], [0, 1, 0]], [[0, 0, 1.0]]]


def test_causes_come_first_and_the_closest_is_taken():
    samples = samples_in(SPANS)
    combinations, rows, excess = causal_order(RankCuts(samples, 1e-6), samples, 2)
    assert combinations.T.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    np.testing.assert_allclose(np.abs(rows[0, [0, 2]]), [[1, 0, 0], [0, 0, 1]], atol=0.2)
    assert (excess <= 1).all()
    wide = samples_in([[[1.0, 0, 0], [0, 0.5, 0]], [[0, 1.0, 0], [0, 0, 1]], [[1, 0, 1.0]]])
    assert causal_order(RankCuts(wide, 1e-6), wide, 1)[2][1] > 1


# Bad input


def test_bad_input():
    X, codes, _, _ = make(0, n_samples=50)
    with pytest.raises(IdentifiabilityError, match=r"for each latent. Got 4 for 5 latents"):
        recover(X, codes, 5)
    with pytest.raises(ValueError, match="The 'score' must be one of"):
        recover(X, codes, 4, score="best")
    few = (codes != 2) | (np.cumsum(codes == 2) <= 4)
    with pytest.raises(ValueError, match=r"at least 5 rows for 4 latents. Environments 2 have not"):
        recover(X[few], codes[few], 4)
    with pytest.raises(ValueError, match="at least 9 rows"):
        recover(X[few], codes[few], 4, rank_cut="test")


def test_environments_that_do_not_tell_latents_apart_are_refused():
    X, codes = by_hand(np.zeros((2, 2)), TWO_TARGETS)
    with pytest.raises(IdentifiabilityError, match="only 1 of their score differences"):
        recover(X, codes, 2, score=lambda X, e: e * X)


def test_latents_that_nothing_shows_are_named():
    X, codes = by_hand(np.zeros((2, 2)), TWO_TARGETS)
    message = "latents that no combination of environments shows: z0, z1; ask for fewer"
    with pytest.warns(AssumptionWarning, match=message):
        model = UMNICRL(2, rank_cut=1e6, random_state=0).fit(X, codes)
    assert np.isfinite(model.transform(X)).all()
    assert model.result_.details["uncertain"] == [0, 1]


@pytest.mark.parametrize("rank_cut", [0.05, "test"])
def test_one_latent(rank_cut: Any):
    X, codes, truth, _ = make(0, n_latents=1, n_features=3, n_samples=200)
    found = recover(X, codes, 1, rank_cut=rank_cut, random_state=0)
    assert found.adjacency.tolist() == [[False]]
    assert found.targets.tolist() == [[False], [True]]
    assert mcc(truth.Z, X @ found.encoder.T) == pytest.approx(1.0)


# The estimator


METRICS = ["mcc", "shd", "shd_closure", "targets_right"]


def world(**options: Any) -> Any:
    settings = {"n_latents": 3, "n_features": 10, "n_samples": 3000, "random_state": 1}
    return make_multi_node(**{**settings, **options})


def test_the_papers_choices_are_the_defaults():
    assert UMNICRL().get_params() == {
        "n_latents": None,
        "interventions": "hard",
        "reference": None,
        "scores": "gaussian",
        "max_coefficient": 2,
        "rank_cut": 0.05,
        "random_state": None,
    }


@pytest.mark.parametrize("interventions", ["hard", "soft"])
def test_exact_scores(interventions: Any):
    data = world(intervention=interventions)
    settings: dict[str, Any] = {"scores": ExactScores(data.truth), "rank_cut": 1e-6}
    model: Any = UMNICRL(interventions=interventions, **settings).fit(data.X, data.y)
    scores = evaluate(model, data, METRICS)
    assert scores["shd_closure"] == 0
    assert scores["targets_right"] == 1
    assert model.result_.guarantee.latents == {"hard": "scale", "soft": "ancestors"}[interventions]
    environments = read_environments(data.y)
    by_function = umni_crl(data.X, environments, interventions=interventions, **settings)
    np.testing.assert_array_equal(by_function.encoder(data.X), model.transform(data.X))


def test_estimated_scores_and_names_of_environments():
    data = world(n_samples=20_000, random_state=0)
    labels = np.array(["control", "c", "b", "a"])[data.y]
    result = UMNICRL(reference="control", random_state=0).fit(data.X, labels).result_
    assert result.targets is not None
    assert not result.targets[3].any()  # a, b, c, control
    plain = UMNICRL(random_state=0).fit(data.X, data.y).result_
    assert plain.targets is not None
    expected = plain.targets[[3, 2, 1, 0]]
    assert sorted(result.targets.T.tolist()) == sorted(expected.T.tolist())


def test_fewer_environments_than_latents():
    data = world()
    kept = data.y < 3
    with pytest.raises(IdentifiabilityError, match=r"for each latent. Got 2 for 3 latents"):
        UMNICRL(3).fit(data.X[kept], data.y[kept])


@pytest.mark.parametrize(
    "wrong",
    [{"interventions": "do"}, {"max_coefficient": 0}, {"rank_cut": "best"}, {"rank_cut": 0.0}],
    ids=str,
)
def test_wrong_parameters(wrong: dict[str, Any]):
    (name,) = wrong
    data = world(n_samples=50)
    with pytest.raises(ValueError, match=f"The '{name}' parameter of UMNICRL must be"):
        UMNICRL(**wrong).fit(data.X, data.y)
