from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from crlearn.data import make_linear_interventional, make_multi_node
from crlearn.graph import graph_of, transitive_closure
from crlearn.likelihood import FITS, Fit, Moments, fit_interventional, pools_of
from crlearn.likelihood.interventional import _search
from crlearn.likelihood.interventional._search import (
    _with_any_noise,
    fit_linear,
    rows_inside,
)
from crlearn.likelihood.nodes._any_noise import AnyNoiseModel
from crlearn.likelihood.nodes._linear import LinearModel
from crlearn.metrics import match

N = 4


class TestLinear:
    @pytest.mark.parametrize("seed", range(6))
    def test_hard_interventions_are_solved_exactly(self, exact, seed: int):
        world = exact(seed)
        fit = fit_linear(world.model, np.random.default_rng(0))
        assert (fit.adjacency == world.graph).all()
        np.testing.assert_allclose(world.mixed(fit.H), np.eye(N), atol=1e-4)

    @pytest.mark.parametrize("seed", range(6))
    def test_soft_interventions_are_solved_up_to_parents(self, exact, seed: int):
        world = exact(seed, "soft")
        fit = fit_linear(world.model, np.random.default_rng(0))
        assert (transitive_closure(fit.adjacency) == transitive_closure(world.graph)).all()
        mixed = world.mixed(rows_inside(world.model, fit))
        assert np.abs(mixed[~(np.eye(N, dtype=bool) | world.graph.T)]).max(initial=0) < 1e-4

    def test_rows_of_soft_interventions_are_free_of_parents_inside(self, exact):
        world = exact(1, "soft")
        fit = fit_linear(world.model, np.random.default_rng(0))
        rows = rows_inside(world.model, fit)
        assert fit.n_edges
        for j, parents in enumerate(map(list, fit.graph)):
            inside = world.model.pools.covariances[j, 1]
            np.testing.assert_allclose(rows[j] @ inside @ fit.H[parents].T, 0, atol=1e-10)
            along = rows[j] - fit.H[j]  # made of parents alone
            assert np.linalg.matrix_rank(np.vstack([fit.H[parents], along])) == len(parents)

    def test_rows_of_hard_interventions_are_those_inside_already(self, exact):
        world = exact(0)
        fit = fit_linear(world.model, np.random.default_rng(0))
        assert rows_inside(world.model, fit) is fit.H

    def test_the_truth_fits_and_wrong_targets_do_not(self, exact):
        world = exact(1)
        fit = fit_linear(world.model, np.random.default_rng(0))
        assert world.model.goodness_of_fit(fit).p_value > 0.99
        swapped = world.model.pool.copy()
        swapped[[0, 1]] = 0
        swapped[0, [1, 2]] = [1, 2]  # both environments on one latent, none on the other
        wrong = LinearModel(world.model.moments, swapped, hard=True)
        bad = fit_linear(wrong, np.random.default_rng(0))
        assert wrong.goodness_of_fit(bad).p_value < 1e-6

    def test_goodness_of_fit_is_calibrated(self, drawn):
        """Over linear Gaussian worlds the p-values are those of chance, search and all."""
        p_values = []
        for seed in range(20):
            world = drawn(3, 400, seed=seed, min_edge_effect=None)
            fit = fit_linear(world.model, np.random.default_rng(0))
            p_values.append(world.model.goodness_of_fit(fit).p_value)
        assert 0.25 < np.mean(p_values) < 0.75
        assert np.mean(np.array(p_values) < 0.05) <= 0.2

    def test_latents_without_an_intervention_leave_the_others_alone(self, exact):
        world = exact(3)
        keep = [0, 1, 2]  # the reference and two interventions
        whole = world.model.moments
        moments = Moments(whole.sizes[keep], whole.means[keep], whole.covariances[keep])
        partial = LinearModel(moments, world.model.pool[:, keep], hard=True)
        fit = fit_linear(partial, np.random.default_rng(0))
        np.testing.assert_allclose(world.mixed(fit.H)[:2], np.eye(N)[:2], atol=1e-3)

    def test_many_latents_are_found(self, drawn):
        """Beyond ten latents starts and orders are found by changing one latent at a time."""
        world = drawn(12, 2000, min_edge_effect=None)
        fit = fit_linear(world.model, np.random.default_rng(0))
        assert (fit.adjacency == world.graph).all()
        assert world.model.goodness_of_fit(fit).p_value > 1e-3


class Noisy:
    """A linear world whose noise is not Gaussian, and its Gaussian fit."""

    def __init__(
        self, drawn, noise: str, intervention: str = "hard", n_rows: int = 2000, seed: int = 0
    ) -> None:
        world = drawn(N, n_rows, intervention, seed=seed, noise=noise)
        self.rows, self.graph, self.mixing = world.rows, world.graph, world.mixing
        self.model = world.model
        self.linear = fit_linear(self.model, np.random.default_rng(0))

    @property
    def gaussian_score(self) -> float:
        parents_in = "first" if self.model.hard else "others"
        model = AnyNoiseModel(self.rows, self.model.pool, parents_in=parents_in, linear=True)
        return model.gaussian(self.linear.H, self.linear.graph).score

    def refined(self, linear: Fit | None = None) -> Fit:
        found = _with_any_noise(self.rows, self.model, linear or self.linear)
        assert found is not None
        return found

    def error(self, H: np.ndarray) -> float:
        """What the rows have of latents that they should be free of."""
        mixed = H @ self.mixing
        mixed = mixed / np.diag(mixed)[:, None]
        allowed = np.eye(N, dtype=bool)
        if not self.model.hard:
            allowed |= self.graph.T
        return float(np.linalg.norm(mixed[~allowed]))


class TestAnyNoise:
    @pytest.mark.parametrize("noise", ["laplace", "exponential", "gumbel"])
    def test_hard_interventions_with_other_noise(self, drawn, noise: str):
        world = Noisy(drawn, noise)
        found = world.refined()
        assert found.score > world.gaussian_score + 100
        assert (found.adjacency == world.graph).all()
        assert world.error(found.H) < 0.9 * world.error(world.linear.H)

    def test_soft_interventions_with_other_noise(self, drawn):
        world = Noisy(drawn, "exponential", "soft")
        found = world.refined()
        closure = transitive_closure(found.adjacency)
        assert (closure == transitive_closure(world.graph)).all()
        before = world.error(rows_inside(world.model, world.linear))
        after = world.error(rows_inside(world.model, found))
        assert after < 0.5 * before

    def test_gaussian_noise_is_left_alone(self, drawn):
        world = Noisy(drawn, "gaussian")
        assert _with_any_noise(world.rows, world.model, world.linear) is None

    @pytest.mark.parametrize("added", [True, False], ids=["added", "missing"])
    def test_wrong_edges_are_mended(self, drawn, added: bool):
        world = Noisy(drawn, "laplace", seed=5)
        apart = ~(world.graph | world.graph.T | np.eye(N, dtype=bool))
        i, j = np.argwhere(apart if added else world.graph)[0]
        wrong = world.graph.copy()
        wrong[i, j] = added
        found = world.refined(replace(world.linear, graph=graph_of(wrong)))
        assert (found.adjacency == world.graph).all()
        directly = world.refined(replace(world.linear, graph=graph_of(world.graph)))
        assert found.score > directly.score - 1

    def test_edges_are_significant_and_errors_are_honest(self, drawn):
        deviations = []
        for seed in range(6):
            world = Noisy(drawn, "laplace", seed=seed)
            found = world.refined()
            assert found.edge_p_values is not None
            assert found.standard_errors is not None
            # The truth is (I + D) H, up to scales, with D as small as the standard errors say.
            D = np.linalg.inv(found.H @ world.mixing)
            D = D / np.diag(D)[:, None]
            off = ~np.eye(N, dtype=bool)
            deviations.append(np.abs(D[off]) / found.standard_errors[off])
            assert (found.edge_p_values[found.adjacency] < 1e-3).all()
            assert (found.edge_p_values[~found.adjacency] == 1).all()
        assert 0.5 < np.median(np.concatenate(deviations)) < 0.95  # 0.67 if they are normal

    def test_many_rows_start_from_a_part(self, drawn):
        world = Noisy(drawn, "gumbel", n_rows=11_000)
        assert world.error(world.refined().H) < world.error(world.linear.H)

    def test_one_latent_has_nothing_to_gain(self):
        rng = np.random.default_rng(0)
        rows = [scale * rng.laplace(size=(500, 1)) for scale in (1, 2)]
        model = LinearModel(Moments.of(rows), np.array([[0, 1]]), hard=True)
        assert _with_any_noise(rows, model, fit_linear(model, rng)) is None


class TestLadder:
    """Each step is climbed where the data ask for it, and not where they do not."""

    @pytest.mark.parametrize("intervention", ["hard", "soft"])
    def test_linear_latents_with_gaussian_noise(self, drawn, intervention: str):
        world = drawn(3, 2000, intervention, seed=1)
        found = fit_interventional(
            world.rows, world.model.pool, hard=world.model.hard, rng=np.random.default_rng(0)
        )
        assert (found.mechanisms, found.any_noise) == ("linear", False)
        assert found.goodness_of_fit is not None
        assert found.goodness_of_fit.p_value >= FITS
        closures = [transitive_closure(graph) for graph in (found.adjacency, world.graph)]
        assert (closures[0] == closures[1]).all()
        assert found.edge_p_values is not None
        assert (found.edge_p_values[found.adjacency] < 0.01).all()
        assert found.standard_errors is not None
        assert (found.standard_errors[~np.eye(3, dtype=bool)] > 0).all()

    def test_linear_latents_with_other_noise(self, drawn):
        world = drawn(3, 2000, seed=1, noise="laplace")
        found = fit_interventional(
            world.rows, world.model.pool, hard=True, rng=np.random.default_rng(0)
        )
        assert (found.mechanisms, found.any_noise) == ("linear", True)
        assert (found.adjacency == world.graph).all()

    def test_nonlinear_latents(self, chain: SimpleNamespace):
        rows = chain.rows(1500)
        found = fit_interventional(rows, chain.pool, hard=True, rng=np.random.default_rng(0))
        assert (found.mechanisms, found.any_noise) == ("nonlinear", False)
        assert found.goodness_of_fit is not None
        assert found.goodness_of_fit.p_value < FITS
        assert found.graph == chain.graph
        np.testing.assert_allclose(chain.mixture(found.H), np.eye(3), atol=0.1)

    def test_what_was_asked_for_is_done(self, drawn, chain: SimpleNamespace):
        """Linear mechanisms for bent ones, and nonlinear ones for straight ones."""
        linear = fit_interventional(
            chain.rows(600),
            chain.pool,
            hard=True,
            mechanisms="linear",
            rng=np.random.default_rng(0),
        )
        assert linear.mechanisms == "linear"
        assert linear.goodness_of_fit is not None
        assert linear.goodness_of_fit.p_value < FITS
        world = drawn(3, 600, seed=1)
        nonlinear = fit_interventional(
            world.rows,
            world.model.pool,
            hard=True,
            mechanisms="nonlinear",
            rng=np.random.default_rng(0),
        )
        assert nonlinear.mechanisms == "nonlinear"
        assert (nonlinear.adjacency == world.graph).all()

    def test_unknown_targets(self):
        world = make_multi_node(3, 3, 10_000, random_state=0)
        assert world.truth is not None
        rows = [world.X[world.y == e] for e in world.environments]
        found = fit_interventional(rows, None, hard=True, rng=np.random.default_rng(0))
        order = match(world.truth.Z, world.X @ found.H.T)[:, 1]
        assert (found.targets[:, order] == world.truth.targets).all()
        assert (found.adjacency[np.ix_(order, order)] == world.truth.graph).all()
        assert all(i < j for j, parents in enumerate(found.graph) for i in parents)  # causes first

    def test_same_seed_same_bits(self, drawn):
        world = drawn(3, 500, seed=2)
        first, second = (
            fit_interventional(
                world.rows, world.model.pool, hard=True, rng=np.random.default_rng(7)
            )
            for _ in range(2)
        )
        assert (first.H == second.H).all()
        assert first.score == second.score


def test_the_test_is_that_of_the_order_and_its_p_values_are_those_of_chance():
    """Weak edges are dropped by a criterion; what they were worth made 7 of these 20 small."""
    p_values = []
    for seed in range(20):
        world: Any = make_linear_interventional(
            5, 5, 1000, intervention="soft", variance_factor=5.0, random_state=seed
        )
        rows = [world.X[world.y == e] for e in range(6)]
        pool = np.insert(np.eye(5, dtype=np.intp), 0, 0, axis=1)
        fit = fit_linear(LinearModel(Moments.of(rows), pool, hard=False), np.random.default_rng(0))
        assert fit.goodness_of_fit is not None
        p_values.append(fit.goodness_of_fit.p_value)
    assert sum(p < 0.05 for p in p_values) <= binom.isf(0.01, 20, 0.05)
    assert np.mean(p_values) > 0.3


def test_competing_structures_are_compared_inside_soft_interventions():
    """Rows of the answer and of its alternatives are latents as their interventions leave them."""
    world: Any = make_linear_interventional(
        2, 2, 1000, intervention="soft", variance_factor=5.0, graph="chain", random_state=3
    )
    rows = [world.X[world.y == e] for e in range(3)]
    pool = np.array([[0, 1, 0], [0, 0, 1]])
    fit = fit_interventional(
        rows, pool, hard=False, mechanisms="linear", rng=np.random.default_rng(0)
    )
    with_edges = [each for each in (fit, *fit.alternatives) if each.n_edges]
    assert len(with_edges) == 2
    for each in with_edges:
        child = next(j for j, parents in enumerate(each.graph) if parents)
        inside = each.H @ np.cov(rows[child + 1].T) @ each.H.T
        assert inside[0, 1] == pytest.approx(0, abs=1e-8)


class TestMeans:
    @pytest.mark.parametrize("known", [True, False], ids=["known targets", "unknown targets"])
    def test_where_means_are_to_blame_others_are_not_searched(
        self, known: bool, monkeypatch: pytest.MonkeyPatch
    ):
        """Batches: the ladder with shared means, three attempts, is not climbed."""
        world = make_linear_interventional(3, 3, 1000, random_state=0)
        rng = np.random.default_rng(0)
        rows = [world.X[world.y == e] for e in range(4)]
        rows = [each + rng.standard_normal(3) * world.X.std(axis=0) for each in rows]
        attempts = []
        plain = _search._linear

        def counted(*args: Any, n_attempts: int = 3) -> Any:
            attempts.append(n_attempts)
            return plain(*args, n_attempts=n_attempts)

        monkeypatch.setattr(_search, "_linear", counted)
        pool = np.eye(4, dtype=np.intp)[1:] if known else None
        fit = fit_interventional(rows, pool, hard=True, rng=rng)
        assert fit.free_means
        assert fit.fits
        assert set(attempts) == {1}


def test_bent_mechanisms_are_fitted_where_linear_ones_fit_soft_interventions():
    """Covariances alone would be fitted by lines; the graph is shown by what they do not see."""
    rng = np.random.default_rng(0)
    H = np.linalg.inv(rng.standard_normal((3, 3)))
    environments = []
    for e in range(4):
        noise = rng.standard_normal((3, 3000)) * np.where(np.arange(3) == e - 1, 0.5, 1)[:, None]
        effect = np.where(np.arange(3) == e - 1, 0.5, 1)
        z = noise.copy()
        z[1] += effect[1] * 0.6 * (z[0] + 0.4 * z[0] ** 2)
        z[2] += effect[2] * 0.6 * (z[1] + 0.4 * z[1] ** 2)
        environments.append(np.linalg.solve(H, z).T)
    pool = pools_of(np.arange(3), 3)
    fit = fit_interventional(environments, pool, hard=False, rng=np.random.default_rng(0))
    assert (fit.mechanisms, fit.graph) == ("nonlinear", ((), (0,), (1,)))
    assert fit.straight_p_values is not None
    assert fit.straight_p_values.max() < FITS
    flat = fit_interventional(
        environments, pool, hard=False, mechanisms="linear", rng=np.random.default_rng(0)
    )
    assert flat.straight_p_values is None


def test_bends_among_latents_without_interventions_are_seen():
    """Covariances do not show them: the length of z1 is uncorrelated with it."""
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((3, 3))
    environments = []
    for scale in (1.0, 0.5):
        z = rng.standard_normal((3000, 3)) * [scale, 1, 0.5]
        z[:, 2] += np.abs(z[:, 1])
        environments.append((z - z.mean(axis=0)) @ mixing)
    pool = pools_of(np.array([0]), 3)
    fit = fit_interventional(environments, pool, hard=True, rng=np.random.default_rng(0))
    assert fit.mechanisms == "nonlinear"
    assert fit.graph in (((), (), (1,)), ((), (2,), ()))
    assert fit.straight_p_values is not None
    assert fit.straight_p_values.max() < FITS
