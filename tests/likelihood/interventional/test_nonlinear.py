from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood import Moments, adjacency_of, fit_nonlinear
from crlearn.likelihood.interventional import _nonlinear as _nonlinear_search
from crlearn.likelihood.interventional._nonlinear import free_of_parents

POOL = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
MIXING = np.array([[1.0, 0.3, 0.2], [0.0, 1.0, 0.4], [0.1, 0.0, 1.0]])
GRAPH = ((), (0,), (1,))


def environments(n_rows: int, kept: float = 0.0) -> list[np.ndarray]:
    """A chain z0 -> |z0| -> |z1|; each latent in turn keeps so much of its mechanism."""
    rng = np.random.default_rng(0)
    found = []
    for e in range(4):
        z = rng.standard_normal((n_rows, 3)) * (1.0, 0.5, 0.5)
        z[:, 0] *= 2.0 if e == 1 else 1.0
        z[:, 1] += (kept if e == 2 else 1.0) * np.abs(z[:, 0])
        z[:, 2] += (kept if e == 3 else 1.0) * np.abs(z[:, 1] - 1)
        found.append(z @ MIXING.T)
    return found


def mixture(H: np.ndarray) -> np.ndarray:
    mixed = np.abs(H @ MIXING)
    return mixed / mixed.max(axis=1, keepdims=True)


@pytest.mark.parametrize("n_rows", [800, 2500])
def test_few_rows_then_more_then_all(monkeypatch: pytest.MonkeyPatch, n_rows: int):
    monkeypatch.setattr(_nonlinear_search, "ROWS_TO_SEARCH", 1000)
    monkeypatch.setattr(_nonlinear_search, "ROWS_TO_REVISE", 2000)
    near = np.linalg.inv(MIXING) + 0.05 * np.random.default_rng(1).standard_normal((3, 3))
    starts = [(near, ((), (), ())), (near, None)]
    found = fit_nonlinear(environments(n_rows), POOL, starts, hard=True)
    assert found.graph == GRAPH
    assert (found.pool == POOL).all()
    np.testing.assert_allclose(mixture(found.H), np.eye(3), atol=0.1)


def test_unknown_targets_are_revised():
    wrong = POOL.copy()
    wrong[2] = [0, 0, 1, 1]
    starts = [(np.linalg.inv(MIXING), GRAPH)]
    found = fit_nonlinear(environments(1500), wrong, starts, hard=True, unknown_targets=True)
    assert (found.pool == POOL).all()


def test_rows_of_a_part_are_spread_evenly():
    (part,) = _nonlinear_search._part([np.arange(1000.0)[:, None]], 10)
    assert len(part) == 10
    assert part[0, 0] == 0
    assert part[-1, 0] == 999


def test_soft_interventions_leave_mixtures_with_shared_parents_open():
    """z2 has no children, so that z1 can be taken out of it; z1 must keep what z2 needs of it."""
    rows = environments(4000, kept=0.5)
    mixed = np.linalg.inv(MIXING)
    mixed[2] += 0.7 * mixed[1]
    mixed[1] += 0.7 * mixed[0]
    free = free_of_parents(mixed, GRAPH, Moments.of(rows), POOL)
    np.testing.assert_allclose(free[:2], mixed[:2])  # z0 is no parent of z2
    inside = rows[3] @ free.T
    assert abs(np.corrcoef(inside[:, 1], inside[:, 2])[0, 1]) < 1e-8
    assert adjacency_of(GRAPH)[1, 2]
