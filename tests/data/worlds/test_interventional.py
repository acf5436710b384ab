# Simulated worlds always have a truth, and most have labels.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportOptionalOperand=false
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import (
    make_coupled_interventional,
    make_linear_interventional,
    make_multi_domain,
    make_multi_node,
)

MAKERS = {
    "linear": make_linear_interventional,
    "multi_node": make_multi_node,
    "coupled": make_coupled_interventional,
    "multi_domain": make_multi_domain,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_consistent_and_reproducible(make):
    world, again, other = (
        make(3, 6, 40, measurement_noise=0.0, random_state=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(world.X, again.X)
    assert not np.array_equal(world.X, other.X)
    truth = world.truth
    np.testing.assert_allclose(truth.mixing(truth.Z), world.X)
    assert truth.targets.shape == (world.n_environments, 3)
    assert len(truth.scms) == world.n_environments
    assert world.n_samples == 40 * world.n_environments


@pytest.mark.parametrize("mechanism", ["linear", "quadratic", "mlp"])
@pytest.mark.parametrize("intervention", ["hard", "soft"])
def test_linear_interventional(mechanism, intervention):
    world = make_linear_interventional(
        4, 6, 30, mechanism=mechanism, intervention=intervention, random_state=1
    )
    truth = world.truth
    assert world.environments == (0, 1, 2, 3, 4)
    np.testing.assert_array_equal(truth.targets, np.eye(5, 4, k=-1))
    for j in range(4):
        before, after = truth.scms[0], truth.scms[j + 1]
        expected_parents = before.parents(j) if intervention == "soft" else ()
        assert after.parents(j) == expected_parents
        ratio = (after.nodes[j].noise.scale / before.nodes[j].noise.scale) ** 2
        assert ratio == pytest.approx(0.25)
    variances = [node.noise.scale**2 for node in truth.scms[0].nodes]
    assert min(variances) >= 0.5
    assert max(variances) <= 1.5


def test_every_edge_is_visible():
    world = make_linear_interventional(5, 5, 3000, mechanism="mlp", random_state=0)
    truth, observational = world.truth, world.truth.Z[world.y == 0]
    for j in range(5):
        squares = (truth.score_difference(observational, j + 1) ** 2).mean(0)
        assert (squares[truth.graph[:, j]] > 0.015).all()


def test_models_are_not_filtered_when_told_so():
    def n_edges(threshold):
        worlds = [
            make_linear_interventional(
                5, 5, 10, mechanism="mlp", min_edge_effect=threshold, random_state=seed
            )
            for seed in range(5)
        ]
        return sum(world.truth.graph.sum() for world in worlds)

    assert n_edges(None) > n_edges(0.02)


def test_impossible_visibility_is_reported(monkeypatch):
    monkeypatch.setattr("crlearn.data.worlds._interventional._MOST_DRAWS", 3)
    with pytest.raises(ValueError, match=r"3 models were drawn.* min_edge_effect=1000"):
        make_linear_interventional(4, 4, 10, graph="full", min_edge_effect=1000, random_state=0)


def test_latents_with_two_environments_and_with_none():
    world = make_linear_interventional(3, 5, 50, intervened=[0, 1, 0], random_state=0)
    wanted = np.vstack([np.zeros(3), np.eye(3)[[0, 1, 0]]])
    np.testing.assert_array_equal(world.truth.targets, wanted)
    usual = make_linear_interventional(3, 5, 50, intervened=[0, 1, 2], random_state=0)
    np.testing.assert_array_equal(usual.X, make_linear_interventional(3, 5, 50, random_state=0).X)


def test_unequal_sizes_and_known_targets():
    world = make_linear_interventional(
        2, 3, [10, 20, 30], targets="known", noise="laplace", random_state=0
    )
    np.testing.assert_array_equal(np.bincount(world.y), [10, 20, 30])
    np.testing.assert_array_equal(world.known_targets, world.truth.targets)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("sets", "count"), [("triangular", None), ("general", None), ("general", 6)]
)
def test_multi_node_targets_have_full_rank(sets, count, seed):
    world = make_multi_node(4, 4, 10, target_sets=sets, n_interventions=count, random_state=seed)
    targets = world.truth.targets
    assert len(targets) == 1 + (count or 4)
    assert not targets[0].any()
    assert targets[1:].any(axis=1).all()
    assert np.linalg.matrix_rank(targets[1:].astype(float)) == 4


def test_own_target_sets():
    sets = [[1, 1, 0], [0, 1, 0], [0, 1, 1]]
    world = make_multi_node(3, 3, 10, target_sets=sets, random_state=0)
    np.testing.assert_array_equal(world.truth.targets[1:], sets)


@pytest.mark.parametrize("mixing", ["tanh", "tanh_mlp"])
def test_coupled_interventional(mixing):
    world = make_coupled_interventional(3, 5, 50, mixing=mixing, mechanism="mlp", random_state=0)
    truth = world.truth
    np.testing.assert_array_equal(truth.targets, np.vstack([np.zeros(3), np.eye(3), np.eye(3)]))
    assert np.abs(world.X).max() < 1
    scales = [float(truth.scms[e].nodes[0].noise.scale) for e in (0, 1, 4)]
    assert scales[1] / scales[0] == pytest.approx(0.5)
    assert scales[2] / scales[0] == pytest.approx(2.0)
    np.testing.assert_allclose(truth.mixing.inverse(world.X), truth.Z, atol=1e-5)


def test_pairs_of_hard_interventions_differ_along_the_target_only():
    truth = make_coupled_interventional(3, 5, 50, random_state=0).truth
    difference = truth.score_difference(truth.Z[:20], environment=2, reference=5)
    np.testing.assert_allclose(difference[:, [0, 2]], 0.0, atol=1e-12)
    assert (np.abs(difference[:, 1]) > 0).all()


def test_means_of_intervened_latents():
    options = {"intervened_means": (1.0, 2.0), "mechanism": "linear", "mixing": np.eye(3)}
    world = make_coupled_interventional(3, 3, 20_000, **options, random_state=0)
    hit = np.array([world.X[world.y == e].mean(axis=0) for e in range(7)])[1:]
    means = hit[world.truth.targets[1:]]
    assert ((np.abs(means) > 0.9) & (np.abs(means) < 2.1)).all()
    assert 0 < (means > 0).sum() < 6  # signs are random
    plain = make_coupled_interventional(3, 3, 50, mechanism="linear", random_state=0).truth
    np.testing.assert_array_equal(world.truth.graph, plain.graph)


def test_coupled_interventional_without_an_observational_environment():
    world = make_coupled_interventional(
        3, 5, 50, intervened=[1], observational=False, random_state=0
    )
    assert world.environments == (1, 2)
    assert world.truth.targets.tolist() == [[False, True, False]] * 2


def test_some_latents_are_intervened_on():
    world = make_coupled_interventional(3, 5, 50, intervened=[2, 0], random_state=0)
    wanted = np.eye(3)[[2, 0, 2, 0]]
    np.testing.assert_array_equal(world.truth.targets, np.vstack([np.zeros(3), wanted]))
    assert len(np.unique(world.y)) == 5


def test_the_gain_is_the_spread_that_the_mixing_sees():
    seen = [
        make_coupled_interventional(3, 3, 5000, mixing=np.eye(3), mixing_gain=gain, random_state=0)
        for gain in (None, 0.5)
    ]
    plain, scaled = (world.X[world.y == 0].std(axis=0) for world in seen)
    assert np.ptp(plain) > 0.1
    np.testing.assert_allclose(scaled, 0.5, rtol=0.05)
    np.testing.assert_array_equal(seen[0].truth.Z, seen[1].truth.Z)
    np.testing.assert_allclose(seen[1].truth.mixing.inverse(seen[1].X), seen[1].truth.Z, atol=1e-9)


def test_multi_domain():
    world = make_multi_domain(4, 20, 500, random_state=0)
    assert world.environments == (1, 2, 3, 4)
    np.testing.assert_array_equal(world.known_targets, np.eye(4))
    for j in range(4):
        intervened = world.truth.Z[world.y == j + 1, j]
        assert intervened.mean() == pytest.approx(10.0, abs=0.2)
        assert intervened.std() == pytest.approx(1.0, rel=0.1)
    residual = world.X - world.truth.mixing(world.truth.Z)
    assert residual.var() == pytest.approx(2.0, rel=0.05)


def test_multi_domain_with_an_observational_domain_and_several_domains_each():
    world = make_multi_domain(
        3, 5, 20, observational=True, domains_per_latent=2, targets="hidden", random_state=0
    )
    assert world.environments == tuple(range(7))
    assert world.known_targets is None
    np.testing.assert_array_equal(world.truth.targets.sum(0), [2, 2, 2])


def test_doses_of_multi_domain():
    world = make_multi_domain(
        3,
        5,
        2000,
        intervention="shift",
        intervened_mean=2.0,
        doses=(-1.0, 0.5),
        observational=True,
        random_state=0,
    )
    expected = np.vstack([np.zeros(3), np.kron(np.eye(3), [[-1.0], [0.5]])])
    np.testing.assert_array_equal(world.known_targets, expected)
    np.testing.assert_array_equal(world.truth.targets, expected != 0)
    rest = world.truth.Z[world.y == 0, 0]
    for label, dose in ((1, -1.0), (2, 0.5)):
        moved = world.truth.Z[world.y == label, 0]
        assert moved.mean() - rest.mean() == pytest.approx(2 * dose, abs=0.2)
        assert moved.std() == pytest.approx(rest.std(), rel=0.1)


def test_soft_interventions_of_multi_domain_keep_parents():
    options = {"n_samples": 4000, "intervened_variance": 1.0, "random_state": 1}
    soft, hard = (
        make_multi_domain(2, 5, intervention=kind, **options) for kind in ("soft", "hard")
    )
    for world, cut in ((soft, False), (hard, True)):
        Z = world.truth.Z[world.y == 2]
        assert Z[:, 1].mean() == pytest.approx(10.0, abs=0.5)
        assert (np.abs(np.array(np.corrcoef(Z.T)))[0, 1] < 0.05) == cut


def test_targets_together_in_multi_domain():
    world = make_multi_domain(3, 5, 50, target_sets=[[0, 1], [2]], random_state=0)
    np.testing.assert_array_equal(world.known_targets, [[1, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"doses": (1.0, 2.0)}, "are for intervention='shift'"),
        ({"intervention": "shift", "doses": (0.0,)}, "none zero"),
        ({"intervention": "do"}, "must be 'hard', 'soft' or 'shift'"),
    ],
)
def test_bad_doses_of_multi_domain(options, message):
    with pytest.raises(ValueError, match=message):
        make_multi_domain(2, 5, 10, random_state=0, **options)


@pytest.mark.parametrize("mechanism", ["tanh", "tanh5", "mild"])
def test_bounded_mechanisms_of_multi_domain(mechanism):
    world = make_multi_domain(4, 10, 500, mechanism=mechanism, random_state=0)
    assert np.abs(world.truth.Z).max() < 100


def test_the_literal_mechanism_explodes():
    world = make_multi_domain(4, 10, 500, mechanism="literal", random_state=0)
    assert np.abs(world.truth.Z).max() > 1e20


def test_base_means():
    world = make_multi_domain(4, 10, 50, base_mean_sd=3.0, random_state=0)
    means = [float(node.noise.mean) for node in world.truth.scms[0].nodes[1:]]
    assert np.std(means) > 0.5


def test_domains_that_shift_a_latent():
    plain: Any = {"n_latents": 3, "n_features": 5, "n_samples": 4000, "observational": True}
    world: Any = make_multi_domain(
        **plain, intervention="shift", intervened_mean=6.0, random_state=0
    )
    rest, moved = (world.truth.Z[world.y == label] for label in (0, 2))
    change = moved.mean(axis=0) - rest.mean(axis=0)
    assert change[0] == pytest.approx(0, abs=0.15)
    assert change[1] == pytest.approx(6, abs=0.25)
    assert np.corrcoef(moved[:, :2].T)[0, 1] == pytest.approx(
        np.corrcoef(rest[:, :2].T)[0, 1], abs=0.06
    )


def test_few_parents():
    options = {"graph": "er", "edge_probability": 0.6, "random_state": 0}
    assert make_multi_domain(8, 10, 10, **options).truth.graph.sum(axis=0).max() > 2
    assert make_multi_domain(8, 10, 10, **options, max_parents=2).truth.graph.sum(axis=0).max() == 2
    with pytest.raises(ValueError, match=r"more than max_parents=1 parents. Raise it"):
        make_multi_domain(4, 10, 10, graph="full", max_parents=1)


def test_a_mixing_whose_columns_lean():
    plain, leaning = (
        make_multi_domain(4, 10, 10, mixing_skew=skew, random_state=0) for skew in (0.0, 0.3)
    )
    matrix = np.asarray(leaning.truth.mixing.matrix)
    inner = matrix.T @ matrix
    np.testing.assert_allclose(np.diag(inner), 1)
    assert np.abs(inner - np.eye(4)).max() > 0.1
    # Nothing else is drawn differently.
    np.testing.assert_array_equal(leaning.truth.Z, plain.truth.Z)
    with pytest.raises(ValueError, match="needs a linear mixing"):
        make_multi_domain(4, 10, 10, mixing="tanh", mixing_skew=0.1)


def test_latents_that_are_set():
    world = make_linear_interventional(
        3, 5, 50, intervention=["do", "hard", "do"], value=2.5, intervened=[0, 1, 1], random_state=0
    )
    for e, (latent, is_set) in enumerate([(0, True), (1, False), (1, True)], start=1):
        z = world.truth.Z[world.y == e, latent]
        assert bool((z == 2.5).all()) == is_set
        assert (z.std() == 0) == is_set
    sets = make_multi_node(
        3, 5, 50, intervention="do", target_sets=[[1, 1, 0], [0, 1, 1], [1, 0, 1]], random_state=0
    )
    np.testing.assert_array_equal(sets.truth.Z[sets.y == 2][:, 1:], 1.0)


def test_latents_that_are_set_have_no_score_differences():
    world = make_linear_interventional(
        2, 4, 50, intervention=["do", "hard"], min_edge_effect=None, random_state=0
    )
    truth, Z = world.truth, world.truth.Z[:3]
    assert truth.observed_score_difference(Z, 2).shape == (3, 4)
    for environment, reference in ((1, 0), (0, 1)):
        with pytest.raises(ValueError, match="Environment 1 sets latents to values"):
            truth.score_difference(Z, environment, reference)


class TestBadInput:
    def test_intervention(self):
        with pytest.raises(ValueError, match=r"'hard', 'soft' or 'do'.* Got 'shift'"):
            make_linear_interventional(intervention="shift")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="for each of the 5 environments but the observ"):
            make_linear_interventional(intervention=["do", "hard"])

    def test_fewer_features_than_latents(self):
        with pytest.raises(ValueError, match="cannot be recovered"):
            make_linear_interventional(5, 4)

    def test_target_sets(self):
        with pytest.raises(ValueError, match=r"rank n_latents.* Got rank 1 for 2"):
            make_multi_node(2, 2, 10, target_sets=[[1, 1], [1, 1]])
        with pytest.raises(ValueError, match="one row for each interventional environment"):
            make_multi_node(2, 2, 10, target_sets=[[1, 0, 0]])
        with pytest.raises(ValueError, match="exactly n_latents interventions"):
            make_multi_node(2, 2, 10, n_interventions=3)
        with pytest.raises(ValueError, match="Got 'all' with 2"):
            make_multi_node(2, 2, 10, target_sets="all")
