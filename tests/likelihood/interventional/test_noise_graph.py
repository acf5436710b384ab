from __future__ import annotations

import numpy as np

from crlearn.likelihood.interventional import _noise_graph
from crlearn.likelihood.interventional._noise_graph import Judge, refine_nonlinear

POOL = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
GRAPH = ((), (0,), (1,))
MIXING = np.array([[1.0, 0.3, 0.2], [0.0, 1.0, 0.4], [0.1, 0.0, 1.0]])
TRUTH = np.linalg.inv(MIXING)


def environments(noise: str, n_rows: int = 1200) -> list[np.ndarray]:
    """A chain of curved mechanisms; each latent in turn becomes noise of its own."""
    rng = np.random.default_rng(1)
    found = []
    for e in range(4):
        z = rng.laplace(size=(n_rows, 3)) if noise == "laplace" else rng.normal(size=(n_rows, 3))
        if e:
            z[:, e - 1] *= 0.5
        if e != 2:
            z[:, 1] += np.sqrt(1 + 2 * z[:, 0] ** 2)
        if e != 3:
            z[:, 2] += 1.5 * np.tanh(z[:, 1] - 2)
        found.append(z @ MIXING.T)
    return found


def distance(H: np.ndarray) -> float:
    mixed = H @ MIXING
    return float(np.linalg.norm(mixed / np.diag(mixed)[:, None] - np.eye(3)))


def test_the_true_graph_is_best_at_the_true_encoder():
    judge = Judge(environments("laplace"), POOL, TRUTH, hard=True)
    assert judge.best_from(((), (), ())) == GRAPH
    assert judge.bic(GRAPH) < judge.bic(((), (0,), (0, 1))) < judge.bic(((), (), (1,)))


def test_encoder_and_graph_in_turns():
    near = TRUTH + 0.05 * np.random.default_rng(2).standard_normal((3, 3))
    far = TRUTH + 0.5 * np.random.default_rng(3).standard_normal((3, 3))
    starts = [(far, ((), (), ())), (near, ((), (), ()))]
    found = refine_nonlinear(environments("laplace"), POOL, starts, hard=True)
    assert found is not None
    assert found.graph == GRAPH
    assert distance(found.H) < 0.5 * distance(near)


def test_many_rows_are_searched_in_part(monkeypatch):
    monkeypatch.setattr(_noise_graph, "_ROWS_TO_SEARCH", 500)
    near = TRUTH + 0.03 * np.random.default_rng(2).standard_normal((3, 3))
    found = refine_nonlinear(environments("laplace"), POOL, [(near, GRAPH)], hard=True)
    assert found is not None
    assert distance(found.H) < 0.06


def test_gaussian_noise_is_left_alone():
    assert refine_nonlinear(environments("gaussian"), POOL, [(TRUTH, GRAPH)], hard=True) is None
