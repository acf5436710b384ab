from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crlearn.data import make_linear_interventional
from crlearn.graph import transitive_closure
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.interventional._linear import LinearProblem, fit_linear, rows_inside
from crlearn.likelihood.interventional._noise import fit_with_noise

N = 4


class World:
    """Rows, and what is to be found."""

    def __init__(self, noise: str, intervention: str, n_rows: int = 2000, seed: int = 0) -> None:
        world = make_linear_interventional(
            N,
            N,
            n_rows,
            noise=noise,
            intervention=intervention,  # type: ignore[arg-type]
            random_state=seed,
        )
        assert world.truth is not None
        self.rows = [world.X[world.y == e] for e in range(N + 1)]
        self.graph = world.truth.graph
        self.mixing = np.linalg.lstsq(world.truth.Z, world.X, rcond=None)[0].T
        pool = np.zeros((N, N + 1), dtype=int)
        pool[np.arange(N), np.arange(N) + 1] = 1
        self.problem = LinearProblem(Moments.of(self.rows), pool, intervention == "hard")
        self.linear = fit_linear(self.problem, np.random.default_rng(0))

    def error(self, H: np.ndarray) -> float:
        """What the rows have of latents that they should be free of."""
        mixed = H @ self.mixing
        mixed = mixed / np.diag(mixed)[:, None]
        allowed = np.eye(N, dtype=bool)
        if not self.problem.hard:
            allowed |= self.graph.T
        return float(np.linalg.norm(mixed[~allowed]))


@pytest.mark.parametrize("noise", ["laplace", "exponential", "gumbel"])
def test_hard_interventions_with_other_noise(noise: str):
    world = World(noise, "hard")
    found = fit_with_noise(world.rows, world.problem, world.linear)
    assert found is not None
    assert found.gain > 100
    assert (found.linear.adjacency == world.graph).all()
    assert world.error(found.linear.H) < 0.9 * world.error(world.linear.H)


def test_soft_interventions_with_other_noise():
    world = World("exponential", "soft")
    found = fit_with_noise(world.rows, world.problem, world.linear)
    assert found is not None
    closure = transitive_closure(found.linear.adjacency)
    assert (closure == transitive_closure(world.graph)).all()
    before = world.error(rows_inside(world.problem, world.linear))
    after = world.error(rows_inside(world.problem, found.linear))
    assert after < 0.5 * before


def test_gaussian_noise_is_left_alone():
    world = World("gaussian", "hard")
    assert fit_with_noise(world.rows, world.problem, world.linear) is None


@pytest.mark.parametrize("added", [True, False], ids=["added", "missing"])
def test_wrong_edges_are_mended(added: bool):
    world = World("laplace", "hard", seed=5)
    apart = ~(world.graph | world.graph.T | np.eye(N, dtype=bool))
    i, j = np.argwhere(apart if added else world.graph)[0]
    wrong = world.graph.copy()
    wrong[i, j] = added
    found = fit_with_noise(world.rows, world.problem, replace(world.linear, adjacency=wrong))
    assert found is not None
    assert (found.linear.adjacency == world.graph).all()


def test_edges_are_significant_and_errors_are_honest():
    found, world = None, None
    deviations = []
    for seed in range(6):
        world = World("laplace", "hard", seed=seed)
        found = fit_with_noise(world.rows, world.problem, world.linear)
        assert found is not None
        mixed = found.linear.H @ world.mixing
        # The truth is (I + D) H with D as small as the standard errors say.
        D = np.linalg.inv(mixed / np.diag(mixed)[:, None])
        scaled = D * np.linalg.norm(mixed, axis=0) / np.linalg.norm(mixed, axis=1)[:, None]
        off = ~np.eye(N, dtype=bool)
        deviations.append(np.abs(scaled[off]) / found.standard_errors[off])
        assert (found.edge_p_values[found.linear.adjacency] < 1e-3).all()
        assert (found.edge_p_values[~found.linear.adjacency] == 1).all()
    assert 0.3 < np.median(np.concatenate(deviations)) < 1.5


def test_many_rows_start_from_a_part():
    world = World("gumbel", "hard", n_rows=11_000)
    found = fit_with_noise(world.rows, world.problem, world.linear)
    assert found is not None
    assert world.error(found.linear.H) < world.error(world.linear.H)


def test_one_latent_has_nothing_to_gain():
    rng = np.random.default_rng(0)
    rows = [scale * rng.laplace(size=(500, 1)) for scale in (1, 2)]
    problem = LinearProblem(Moments.of(rows), np.array([[0, 1]]), hard=True)
    linear = fit_linear(problem, rng)
    assert fit_with_noise(rows, problem, linear) is None
