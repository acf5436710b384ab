from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from crlearn.likelihood.core._moments import Moments


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


@pytest.fixture
def multi_node() -> Callable[..., Population]:
    """Return a function that draws worlds."""
    return draw_population


@pytest.fixture
def rows_of() -> Callable[..., list[np.ndarray]]:
    """Return a function that draws Gaussian rows of a world, so many in each environment."""
    return draw_rows


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Linear algebra without threads of its own: for small matrices they only wait."""
    with threadpool_limits(1):
        yield
