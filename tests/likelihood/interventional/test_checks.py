from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from crlearn.graph import Graph
from crlearn.likelihood import FITS, Fit
from crlearn.likelihood.interventional._checks import (
    far_out,
    p_value_of_squares,
    same_answer,
    worst_dependence,
)

POOL = np.array([[0, 1, 0], [0, 0, 1]])
EDGE: Graph = ((), (0,))
NO_EDGE: Graph = ((), ())


class TestFarOut:
    def test_planted_rows_are_found_and_no_others(self):
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((1000, 3)) @ rng.standard_normal((3, 3))
        planted = np.arange(0, 1000, 100)
        directions = rng.standard_normal((10, 3))
        rows[planted] += 15 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
        assert np.flatnonzero(far_out(rows)).tolist() == planted.tolist()

    def test_gaussian_rows_seldom_stand_out(self):
        """One environment in a hundred has one."""
        rng = np.random.default_rng(0)
        n_out = sum(far_out(rng.standard_normal((300, 4))).any() for _ in range(100))
        assert n_out <= binom.isf(1e-4, 100, 0.01)

    def test_units_do_not_matter(self):
        rng = np.random.default_rng(0)
        rows = rng.standard_t(3, size=(500, 2))
        assert far_out(rows).any()
        matrix = rng.standard_normal((2, 2))
        np.testing.assert_array_equal(far_out(rows), far_out(1e3 * rows @ matrix + 7))

    def test_too_few_rows_to_say(self):
        rows = np.zeros((6, 3))
        rows[0] = 1e6
        assert not far_out(rows).any()

    def test_latents_that_are_zero_in_most_rows(self):
        """Whatever is not zero stands far out, and nothing is left to say how far."""
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((500, 3)) * (rng.random((500, 3)) < 0.02)
        assert not far_out(rows).any()


class TestSameAnswer:
    ANSWER = Fit(np.eye(2), EDGE, 0.0)

    def test_units_order_and_signs_do_not_matter(self):
        other = Fit(np.array([[0.0, -3.0], [2.0, 0.0]]), ((1,), ()), 0.0)
        assert same_answer(self.ANSWER, other)

    @pytest.mark.parametrize("graph", [NO_EDGE, ((1,), ())], ids=["no edge", "reversed"])
    def test_other_ancestors(self, graph: Graph):
        assert not same_answer(self.ANSWER, Fit(np.eye(2), graph, 0.0))

    def test_other_edges_with_the_same_ancestors(self):
        chain, triangle = ((), (0,), (1,)), ((), (0,), (0, 1))
        assert same_answer(Fit(np.eye(3), chain, 0.0), Fit(np.eye(3), triangle, 0.0))

    def test_other_latents(self):
        turned = np.array([[1.0, 1.0], [-1.0, 1.0]])
        assert not same_answer(self.ANSWER, Fit(turned, EDGE, 0.0))


def effect(
    bend: float = 1.0, n_rows: int = 600, seed: int = 0, noise: str = "normal"
) -> list[np.ndarray]:
    """Rows of z1 = z0 + bend z0^2 + noise in three environments; the last cuts it off."""
    rng = np.random.default_rng(seed)
    z0, e = getattr(rng, noise)(size=(2, 3, n_rows))
    z0[1] *= 2.0
    z1 = z0 + bend * z0**2 + e
    z1[2] = 0.5 * e[2]
    return [np.column_stack(pair) for pair in zip(z0, z1, strict=True)]


def fit_of(graph: Graph = EDGE, H: np.ndarray | None = None) -> Fit:
    return Fit(np.eye(2) if H is None else H, graph, 0.0, pool=POOL)


class TestDependence:
    def test_a_missing_edge_shows_where_it_is(self):
        found = worst_dependence(effect(), fit_of(NO_EDGE), hard=True)
        assert found.p_value < FITS
        assert found.share > 0.3
        assert (found.latent, found.environment) in {(1, 0), (1, 1)}

    def test_latents_that_are_mixed_show(self):
        mixed = np.array([[1.0, 0.3], [0.0, 1.0]])
        assert worst_dependence(effect(), fit_of(H=mixed), hard=True).p_value < FITS

    def test_an_environment_in_other_units_shows(self):
        rows = effect()
        rows[2] = 1.5 * rows[2]
        found = worst_dependence(rows, fit_of(), hard=True)
        assert found.p_value < FITS
        assert found.share > 0.1

    def test_a_soft_intervention_is_no_hard_one(self):
        rows = effect()
        rows[2][:, 1] += 0.5 * rows[2][:, 0]
        hard = worst_dependence(rows, fit_of(), hard=True)
        assert hard.p_value < FITS
        assert (hard.latent, hard.environment) == (1, 2)
        assert worst_dependence(rows, fit_of(), hard=False).p_value > FITS

    def test_where_all_is_chance_the_least_likely_is_named(self):
        """The largest share belongs to the smallest environment, whatever its p-value."""
        rows = effect(n_rows=2000)
        rows[2] = rows[2][:60]
        found = worst_dependence(rows, fit_of(), hard=True)
        assert found.p_value >= FITS
        assert found.environment != 2
        assert found.share < 0.05

    @pytest.mark.parametrize("noise", ["normal", "laplace"])
    def test_the_truth_is_seldom_rejected(self, noise: str):
        """What the regression itself misses must not count: it did, in 9 of 60 of these worlds."""
        p_values = [
            worst_dependence(
                effect(n_rows=2000, seed=seed, noise=noise), fit_of(), hard=True
            ).p_value
            for seed in range(60)
        ]
        assert sum(p < 0.05 for p in p_values) <= binom.isf(0.01, 60, 0.05)
        assert min(p_values) >= FITS


class TestSquares:
    """Rows are centred in each environment."""

    @staticmethod
    def p_value(rows: list[np.ndarray], graph: Graph = EDGE, *, hard: bool = True) -> float:
        centred = [each - each.mean(axis=0) for each in rows]
        return p_value_of_squares(centred, fit_of(graph), hard=hard)

    @pytest.mark.parametrize("graph", [EDGE, NO_EDGE], ids=["edge", "no edge"])
    def test_bent_mechanisms_are_not_linear(self, graph: Graph):
        assert self.p_value(effect(bend=0.2), graph) < FITS

    def test_means_of_their_own_do_not_matter(self):
        shifted = [rows + 5 * e for e, rows in enumerate(effect(bend=0.0))]
        assert self.p_value(shifted) == pytest.approx(self.p_value(effect(bend=0.0)))

    @pytest.mark.parametrize("hard", [True, False])
    def test_linear_mechanisms_are_seldom_rejected(self, hard: bool):
        p_values = [self.p_value(effect(0.0, 200, seed), hard=hard) for seed in range(60)]
        assert sum(p < 0.05 for p in p_values) <= binom.isf(1e-3, 60, 0.05)

    def test_one_latent(self):
        one = Fit(np.eye(1), ((),), 0.0, pool=np.array([[0, 1]]))
        rows = list(np.random.default_rng(0).standard_normal((2, 50, 1)))
        assert p_value_of_squares(rows, one, hard=True) == 1.0
