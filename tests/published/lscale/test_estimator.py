from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crlearn.data import Dataset, Truth, make_linear_interventional
from crlearn.exceptions import IdentifiabilityError
from crlearn.graph import transitive_closure
from crlearn.inputs import read_environments
from crlearn.metrics import evaluate, mcc, parent_error, scale_error, surrounding_error
from crlearn.published import LSCALEI, lscale_i
from crlearn.published.lscale._decisions import Evidence
from crlearn.published.lscale._estimator import (
    acyclic_graph,
    full_rank_encoder,
    full_rank_graph,
    recover,
    span_of_mixing,
    unmix,
)
from crlearn.scores import ExactScores

CORNERS = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


def parts_of(world: Dataset) -> tuple[np.ndarray, np.ndarray, Truth, np.ndarray]:
    assert world.y is not None
    assert world.truth is not None
    assert world.truth.mixing.matrix is not None
    return world.X, world.y.astype(int), world.truth, world.truth.mixing.matrix


def make(seed: int, **options: Any) -> tuple[np.ndarray, np.ndarray, Any, np.ndarray]:
    settings = {"n_latents": 4, "n_features": 12, "n_samples": 2000, "random_state": seed}
    return parts_of(make_linear_interventional(**{**settings, **options}))


# Two latents, z1 -> z2 with weight one, variances one; the interventions are hard and leave a
# quarter of the variance. X = z, and rows have exactly these moments.


def two_latents() -> tuple[np.ndarray, np.ndarray]:
    mechanism = np.array([[1.0, 0.0], [1.0, 1.0]])  # (z1, z2) from (z1, noise)
    X = np.concatenate(
        [CORNERS @ mechanism.T, CORNERS * [0.5, 1.0] @ mechanism.T, CORNERS * [1.0, 0.5]]
    )
    return X, np.repeat([0, 1, 2], 4)


def difference_by_hand(X: np.ndarray, environment: int) -> np.ndarray:
    z1, z2 = X.T
    if environment == 1:  # -z1 against -4 z1
        return np.column_stack([3 * z1, np.zeros_like(z1)])
    return np.column_stack([z2 - z1, z1 - z2 + 4 * z2])


# The second moment of environment 2 is [[1, 3], [3, 25]], with leading eigenvector (3, 12 + r).
MIXTURE = 3 / (12 + np.sqrt(153))


def test_two_latents_by_hand_soft():
    found = recover(*two_latents(), 2, score=difference_by_hand, hard=False)
    np.testing.assert_allclose(found.encoder, [[1, 0], [MIXTURE, 1]], atol=1e-12)
    assert found.adjacency.tolist() == [[False, True], [False, False]]
    expected = [[9.0, 1 - 6 * MIXTURE + 25 * MIXTURE**2], [0.0, 25.0]]
    np.testing.assert_allclose(1e-3 * found.diagnostics["strength"], expected, atol=1e-12)
    assert found.diagnostics["outside_span"] == 0
    np.testing.assert_allclose(
        found.diagnostics["leading_share"], [1.0, (13 + np.sqrt(153)) / 26], atol=1e-12
    )


def test_two_latents_by_hand_hard():
    found = recover(*two_latents(), 2, score=difference_by_hand, hard=True)
    np.testing.assert_allclose(found.soft_encoder, [[1, 0], [MIXTURE, 1]], atol=1e-12)
    np.testing.assert_allclose(found.encoder, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(1e-3 * found.diagnostics["strength"], [[9, 1], [0, 25]], atol=1e-9)
    assert found.adjacency.tolist() == [[False, True], [False, False]]


def test_an_edge_below_the_cut_is_lost_and_its_mixture_stays():
    found = recover(*two_latents(), 2, score=difference_by_hand, hard=True, edge_cut=2.0)
    assert not found.adjacency.any()
    np.testing.assert_allclose(found.encoder, found.soft_encoder)


# Exact scores


@pytest.mark.parametrize("mechanism", ["linear", "mlp"])
@pytest.mark.parametrize("seed", range(3))
def test_hard_interventions_give_latents_and_graph(mechanism: str, seed: int):
    # Many rows: the regression leaves a trace of the parents, which must stay below the cut.
    X, codes, truth, G = make(seed, mechanism=mechanism, n_samples=20_000)
    found = recover(X, codes, 4, score=ExactScores(truth), hard=True)
    np.testing.assert_array_equal(found.adjacency, truth.graph)
    assert scale_error(found.encoder, G, match=False) < 0.1
    assert mcc(truth.Z, X @ found.encoder.T) > 0.999


@pytest.mark.parametrize("seed", range(5))
def test_soft_interventions_give_parents_and_ancestors(seed: int):
    X, codes, truth, G = make(seed, intervention="soft")
    found = recover(X, codes, 4, score=ExactScores(truth), hard=False)
    np.testing.assert_array_equal(
        transitive_closure(found.adjacency), transitive_closure(truth.graph)
    )
    assert parent_error(found.encoder, G, truth.graph, match=False) < 1e-6
    np.testing.assert_array_equal(found.encoder, found.soft_encoder)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("edge_cut", [1e-3, "test"])
def test_nonlinear_mechanisms_give_the_graph_from_soft_interventions(seed: int, edge_cut: Any):
    X, codes, truth, G = make(seed, mechanism="quadratic", intervention="soft", n_samples=1000)
    found = recover(
        X,
        codes,
        4,
        score=ExactScores(truth),
        hard=False,
        full_rank=True,
        rank_cut=1e-8,
        edge_cut=edge_cut,
    )
    np.testing.assert_array_equal(found.adjacency, truth.graph)
    assert found.diagnostics["ranks"].tolist() == (1 + truth.graph.sum(axis=0)).tolist()
    assert surrounding_error(found.encoder, G, truth.graph, match=False) < 1e-6


def test_nonlinear_and_hard_give_latents_and_graph():
    X, codes, truth, G = make(1, mechanism="quadratic", n_samples=5000)
    found = recover(X, codes, 4, score=ExactScores(truth), hard=True, full_rank=True, rank_cut=1e-8)
    np.testing.assert_array_equal(found.adjacency, truth.graph)
    assert scale_error(found.encoder, G, match=False) < 0.1


# Estimated scores


def test_tests_find_the_graph_where_the_published_cut_does_not():
    X, codes, truth, G = make(0, n_samples=[4000, 3000, 5000, 4000, 6000], variance_factor=5.0)
    paper, test = (
        recover(X, codes, 4, score="gaussian", hard=True, edge_cut=cut, random_state=0)
        for cut in (1e-3, "test")
    )
    np.testing.assert_array_equal(test.adjacency, truth.graph)
    assert not np.array_equal(paper.adjacency, truth.graph)
    assert scale_error(test.encoder, G, match=False) < scale_error(paper.encoder, G, match=False)
    assert test.diagnostics["p_values"][truth.graph].max() < 0.05 / 12
    assert paper.diagnostics["p_values"] is None


def test_permuted_environments_permute_the_answer():
    X, codes, _, _ = make(1)
    order = np.array([2, 0, 3, 1])
    place = np.argsort(order)
    permuted = np.concatenate([[0], 1 + place])[codes]
    first = recover(X, codes, 4, score="gaussian", hard=True)
    second = recover(X, permuted, 4, score="gaussian", hard=True)
    assert first.adjacency.any()
    np.testing.assert_array_equal(second.adjacency, first.adjacency[np.ix_(order, order)])
    np.testing.assert_allclose(second.encoder, first.encoder[order], atol=1e-9)


def test_tests_do_not_depend_on_the_axes_of_x():
    # The cuts do: they count in units of the largest loading.
    X, codes, _, _ = make(1)
    turned = X @ np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0]
    first, second = (
        recover(rows, codes, 4, score="gaussian", hard=True, edge_cut="test", random_state=0)
        for rows in (X, turned)
    )
    np.testing.assert_array_equal(first.adjacency, second.adjacency)
    assert mcc(X @ first.encoder.T, turned @ second.encoder.T) > 1 - 1e-9


def test_same_seed_same_bits():
    X, codes, _, _ = make(0, n_samples=300)
    first, again = (
        recover(X, codes, 4, score="gaussian", hard=True, edge_cut="test", random_state=3)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.encoder, again.encoder)
    np.testing.assert_array_equal(first.diagnostics["p_values"], again.diagnostics["p_values"])


# Steps


@pytest.mark.parametrize("n_samples", [3, 200])
def test_the_span_of_the_mixing_is_found_from_few_and_from_many_rows(n_samples: int):
    X, codes, _, G = make(0, n_samples=n_samples, n_features=30)
    basis, outside = span_of_mixing(X, codes, 4)
    np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(basis @ basis.T @ G, G, atol=1e-6)
    assert outside < 1e-12
    assert span_of_mixing(X, codes, 3)[1] > 1e-4


def test_each_environment_counts_alike_for_the_span():
    # The second environment alone varies along the second axis, and has few rows.
    X = np.concatenate([np.repeat(CORNERS * [1.0, 0.0], 100, axis=0), CORNERS * [0.0, 2.0]])
    basis, outside = span_of_mixing(X, np.repeat([0, 1], (400, 4)), 1)
    np.testing.assert_allclose(np.abs(basis[:, 0]), [0, 1], atol=1e-12)
    assert outside == pytest.approx(0.2)


def test_the_most_edges_are_kept_and_then_the_strongest():
    strength = np.array([[9.0, 2.0, 0.5], [3.0, 9.0, 2.0], [0.0, 0.0, 9.0]])
    assert acyclic_graph(strength).tolist() == [
        [False, False, False],
        [True, False, True],
        [False, False, False],
    ]
    # Two weak edges count for more than a strong one.
    strength = np.array([[0.0, 1e9, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    assert not acyclic_graph(strength)[0, 1]


def test_unmixing_uses_the_environment_of_the_latent_itself():
    encoder = np.array([[1.0, 0.0], [0.4, 1.0]])
    independent, related = np.eye(2), np.array([[1.0, 0.9], [0.9, 1.0]])
    graph = np.array([[False, True], [False, False]])
    found = unmix(encoder, graph, np.array([related, independent]))
    np.testing.assert_allclose(found, np.eye(2), atol=1e-12)


def test_an_ancestor_is_a_parent_if_it_shares_one_dimension_too_many():
    chain_and_more = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=bool)
    asked = []

    def shared(t: int, k: int) -> int:
        asked.append((t, k))
        return 0

    assert full_rank_graph(chain_and_more, shared).tolist() == [
        [False, True, False],
        [False, False, True],
        [False, False, False],
    ]
    assert asked == [(0, 2)]  # edges of the transitive reduction are edges
    np.testing.assert_array_equal(full_rank_graph(chain_and_more, lambda t, k: 1), chain_and_more)


def test_nonlinear_rows_mix_only_with_parents_of_all_children():
    # 0 -> 1 -> 2 and 0 -> 2 but not 3; 1 -> 3: latent 1 has a child that 0 has not.
    graph = np.zeros((4, 4), dtype=bool)
    graph[[0, 1, 0, 1], [1, 2, 2, 3]] = True
    rng = np.random.default_rng(0)
    spans = [np.flatnonzero(graph[:, m] | (np.arange(4) == m)) for m in range(4)]
    differences = np.zeros((4, 500, 4))
    for m, span in enumerate(spans):
        mixture = rng.normal(size=(len(span), len(span)))
        differences[m][:, span] = rng.normal(size=(500, len(span))) @ mixture
    rows = full_rank_encoder(Evidence(differences, np.array([np.eye(4)] * 4)), graph)
    assert np.abs(rows[1, [0, 2, 3]]).max() < 1e-6  # the leading eigenvector would hold latent 0
    assert np.abs(rows[2, 3]) < 1e-6


# Bad input


def test_bad_input():
    X, codes, _, _ = make(0, n_samples=50)
    with pytest.raises(IdentifiabilityError, match=r"for each latent. Got 4 for 3 latents"):
        recover(X, codes, 3, score="gaussian", hard=True)
    with pytest.raises(ValueError, match="The 'score' must be one of"):
        recover(X, codes, 4, score="best", hard=True)
    with pytest.raises(IdentifiabilityError, match="at least n_latents=4 directions"):
        recover(X[:, :3], codes, 4, score="gaussian", hard=True)
    few = (codes != 2) | (np.cumsum(codes == 2) <= 4)
    with pytest.raises(ValueError, match=r"more rows than the 4 latents. Environments 2 have not"):
        recover(X[few], codes[few], 4, score="gaussian", hard=True)


@pytest.mark.parametrize("edge_cut", [1e-3, "test"])
def test_one_latent(edge_cut: Any):
    X, codes, truth, _ = make(0, n_latents=1, n_features=3, n_samples=200)
    found = recover(X, codes, 1, score="gaussian", hard=True, full_rank=True, edge_cut=edge_cut)
    assert found.adjacency.tolist() == [[False]]
    assert mcc(truth.Z, X @ found.encoder.T) == pytest.approx(1.0)


def test_an_environment_without_an_intervention_is_named():
    X, codes = two_latents()
    with pytest.raises(IdentifiabilityError, match="Environments 2 have the same scores"):
        recover(X, codes, 2, score=lambda X, e: X * (e == 1), hard=False)


def test_two_environments_with_one_target_are_named():
    X, codes = two_latents()
    with pytest.raises(IdentifiabilityError, match="environments 1 and 2 are the most similar"):
        recover(X, codes, 2, score=lambda X, e: e * X * [1.0, 0.0], hard=False)


# The estimator


def world(**options: Any) -> Any:
    settings = {"n_latents": 4, "n_features": 10, "n_samples": 3000, "random_state": 0}
    return make_linear_interventional(**{**settings, **options})


def fitted(data: Any, **options: Any) -> Any:
    return LSCALEI(**{"scores": "gaussian", "random_state": 0, **options}).fit(data.X, data.y)


def test_the_papers_choices_are_the_defaults():
    assert LSCALEI().get_params() == {
        "n_latents": None,
        "interventions": "hard",
        "reference": None,
        "scores": "sliced",
        "full_rank": False,
        "edge_cut": 1e-3,
        "rank_cut": 1e-2,
        "random_state": None,
    }


def test_exact_scores_recover_everything():
    data = world()
    model = fitted(data, scores=ExactScores(data.truth))
    scores = evaluate(model, data)
    assert scores["mcc"] > 0.999
    assert scores["shd"] == 0
    assert model.result_.guarantee.graph == "exact"
    np.testing.assert_array_equal(model.result_.targets, data.truth.targets)
    by_function = lscale_i(data.X, read_environments(data.y), scores=ExactScores(data.truth))
    np.testing.assert_array_equal(by_function.encoder(data.X), model.transform(data.X))


def test_gaussian_scores_of_soft_interventions():
    data = world(intervention="soft", n_samples=20_000)
    model = fitted(data, interventions="soft", edge_cut=1e-2)
    assert evaluate(model, data)["parent_error"] < 0.1
    guarantee = model.result_.guarantee
    assert (guarantee.latents, guarantee.graph) == ("parents", "closure")


def test_the_nonlinear_variant_promises_the_graph():
    data = world(mechanism="quadratic", intervention="soft", n_samples=1000)
    scores = ExactScores(data.truth)
    model = fitted(data, interventions="soft", scores=scores, full_rank=True, rank_cut=1e-8)
    assert evaluate(model, data)["shd"] == 0
    guarantee = model.result_.guarantee
    assert (guarantee.latents, guarantee.graph) == ("surrounding", "exact")
    assert "sufficiently nonlinear" in guarantee.text


def test_environments_in_another_order():
    data = world()
    labels = np.array(["control", "d", "c", "b", "a"])[data.y]
    model = LSCALEI(scores="gaussian", reference="control", random_state=0).fit(data.X, labels)
    same = fitted(data).result_.adjacency
    assert (model.result_.adjacency == same[::-1, ::-1]).all()


def test_one_environment_for_each_latent():
    data = world()
    message = r"exactly one environment for each latent.*Got 4 for n_latents = 3; Linear"
    with pytest.raises(IdentifiabilityError, match=message):
        fitted(data, n_latents=3)
    with pytest.raises(IdentifiabilityError, match="at most the rank of X, which is 3"):
        LSCALEI().fit(data.X[:, :3], data.y)


def test_cuts_are_in_the_units_of_x():
    data = world()
    plain = fitted(data, edge_cut=1e-2).result_
    larger = LSCALEI(scores="gaussian", edge_cut=1e-4).fit(10 * data.X, data.y).result_
    np.testing.assert_array_equal(plain.adjacency, larger.adjacency)
    np.testing.assert_allclose(
        100 * larger.details["strength"] * 1e-4, 1e-2 * plain.details["strength"]
    )
    with pytest.raises(ValueError, match="give X in other units"):
        fitted(replace(data, X=data.X * 1e200))


@pytest.mark.parametrize(
    "wrong",
    [
        {"interventions": "do"},
        {"full_rank": "yes"},
        {"edge_cut": "best"},
        {"edge_cut": 0.0},
        {"rank_cut": -1.0},
    ],
    ids=str,
)
def test_wrong_parameters(wrong: dict[str, Any]):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"The '{name}' parameter of LSCALEI must be"):
        fitted(world(n_samples=50), **wrong)
