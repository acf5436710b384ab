from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from crlearn.data import make_linear_interventional
from crlearn.likelihood.core._moments import Moments
from crlearn.likelihood.nodes._linear import LinearModel


@dataclass(frozen=True, eq=False)
class Population:
    """Exact moments of a world with interventions on several latents, as if from so many rows.

    `targets` is ``(n, E)``, `graph` is True at [i, j] if i causes j, latents are ordered causes
    first, and x = mixing z.
    """

    moments: Moments
    targets: np.ndarray
    graph: np.ndarray
    mixing: np.ndarray


def draw_population(
    seed: int,
    n: int = 4,
    n_interventions: int | None = None,
    *,
    soft: bool = False,
    shifted: bool = False,
    n_samples: int = 100_000,
) -> Population:
    rng = np.random.default_rng(seed)
    m = n if n_interventions is None else n_interventions
    graph = np.triu(rng.random((n, n)) < 0.5, 1)
    effects = np.where(graph, rng.uniform(0.5, 1.5, (n, n)) * rng.choice([-1, 1], (n, n)), 0)
    variance = rng.uniform(0.5, 1.5, n)
    while True:
        targets = np.insert(rng.random((n, m)) < 0.5, 0, False, axis=1)
        if np.linalg.matrix_rank(targets) == n:
            break
    mixing = rng.standard_normal((n, n))
    means, covariances = [], []
    for hit in targets.T:
        inside = np.where(hit, effects * (0.5 if soft else 0), effects)
        to_x = mixing @ np.linalg.inv(np.eye(n) - inside.T)
        means.append(to_x @ (1.0 * hit * shifted))
        covariances.append(to_x @ np.diag(np.where(hit, 0.25, 1) * variance) @ to_x.T)
    moments = Moments(np.full(m + 1, n_samples), np.array(means), np.array(covariances))
    whitener = np.linalg.inv(np.linalg.cholesky(np.mean(covariances, axis=0)))
    return Population(
        moments.transformed(whitener), targets.astype(np.intp), graph, whitener @ mixing
    )


def draw_rows(population: Population, sizes: list[int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    moments = population.moments
    return [
        rng.multivariate_normal(mean, covariance, size)
        for mean, covariance, size in zip(moments.means, moments.covariances, sizes, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class SingleNode:
    """A linear world with one intervention on each latent, and what is to be found.

    `graph` is True at [i, j] if i causes j, and x = mixing z. There are no rows behind exact
    covariances.
    """

    model: LinearModel
    graph: np.ndarray
    mixing: np.ndarray
    rows: list[np.ndarray]

    def mixed(self, H: np.ndarray) -> np.ndarray:
        """What each row of an encoder has of each latent, the largest part being 1."""
        mixed = np.abs(H @ self.mixing)
        return mixed / mixed.max(axis=1, keepdims=True)


def one_pool_each(n: int) -> np.ndarray:
    return np.insert(np.eye(n, dtype=np.intp), 0, 0, axis=1)


def exact_world(
    seed: int, intervention: str = "hard", *, n: int = 4, n_samples: int = 100_000
) -> SingleNode:
    """Exact covariances of a random world, as if from so many rows in each environment."""
    rng = np.random.default_rng(seed)
    weights = np.triu(rng.uniform(0.5, 1.5, (n, n)) * rng.choice([-1, 1], (n, n)), 1)
    weights *= np.triu(rng.random((n, n)) < 0.6, 1)
    mixing = rng.standard_normal((n, n))
    covariances = []
    for e in range(n + 1):
        effects, noise = weights.copy(), np.ones(n)
        if e:
            effects[:, e - 1] *= 0.0 if intervention == "hard" else 0.5
            noise[e - 1] = 0.25
        to_x = mixing @ np.linalg.inv(np.eye(n) - effects.T)
        covariances.append(to_x @ np.diag(noise) @ to_x.T)
    moments = Moments(np.full(n + 1, n_samples), np.zeros((n + 1, n)), np.array(covariances))
    whitener = np.linalg.inv(np.linalg.cholesky(np.mean(covariances, axis=0)))
    model = LinearModel(moments.transformed(whitener), one_pool_each(n), intervention == "hard")
    return SingleNode(model, weights != 0, whitener @ mixing, [])


def drawn_world(
    n: int,
    n_rows: int,
    intervention: Literal["hard", "soft"] = "hard",
    *,
    seed: int = 0,
    **options: Any,
) -> SingleNode:
    """So many rows in each environment of a random world."""
    world = make_linear_interventional(
        n, n, n_rows, intervention=intervention, random_state=seed, **options
    )
    assert world.truth is not None
    assert world.truth.graph is not None
    rows = [world.X[world.y == e] for e in range(n + 1)]
    mixing = np.linalg.lstsq(world.truth.Z, world.X, rcond=None)[0].T
    model = LinearModel(Moments.of(rows), one_pool_each(n), intervention == "hard")
    return SingleNode(model, world.truth.graph, mixing, rows)


@pytest.fixture(scope="session")
def exact() -> Callable[..., SingleNode]:
    """Return a function that gives worlds with known covariances, without rows."""
    return exact_world


@pytest.fixture(scope="session")
def drawn() -> Callable[..., SingleNode]:
    """Return a function that draws rows of worlds with one intervention on each latent."""
    return drawn_world


@pytest.fixture(scope="session")
def multi_node() -> Callable[..., Population]:
    """Return a function that draws worlds."""
    return draw_population


@pytest.fixture(scope="session")
def rows_of() -> Callable[..., list[np.ndarray]]:
    """Return a function that draws Gaussian rows of a world, so many in each environment."""
    return draw_rows
