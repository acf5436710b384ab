from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from crlearn.graph import Graph
from crlearn.likelihood import Fit, pools_of
from crlearn.likelihood._fit import Dependence
from crlearn.likelihood.interventional import _nonlinear
from crlearn.likelihood.interventional._nonlinear import (
    Start,
    _nonlinear_with_any_noise,
    fit_nonlinear,
    with_free_means,
)

EMPTY: Graph = ((), (), ())


def bent_with_noise(mixing: np.ndarray, noise: str, n_rows: int = 1200) -> list[np.ndarray]:
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
        found.append(z @ mixing.T)
    return found


def distance(H: np.ndarray, mixing: np.ndarray) -> float:
    mixed = H @ mixing
    return float(np.linalg.norm(mixed / np.diag(mixed)[:, None] - np.eye(3)))


def near(truth: np.ndarray, size: float, seed: int = 1) -> np.ndarray:
    return truth + size * np.random.default_rng(seed).standard_normal((3, 3))


class TestNonlinear:
    @pytest.mark.parametrize("n_rows", [800, 2500])
    def test_few_rows_then_more_then_all(
        self, chain: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, n_rows: int
    ):
        monkeypatch.setattr(_nonlinear, "ROWS_TO_SEARCH", 1000)
        monkeypatch.setattr(_nonlinear, "ROWS_TO_REVISE", 2000)
        starts = [
            Start(near(chain.truth, 0.05), chain.pool, EMPTY),
            Start(near(chain.truth, 0.05), chain.pool),
        ]
        found = fit_nonlinear(chain.rows(n_rows), starts, hard=True)
        assert found.graph == chain.graph
        assert found.mechanisms == "nonlinear"
        assert (found.pool == chain.pool).all()
        np.testing.assert_allclose(chain.mixture(found.H), np.eye(3), atol=0.1)

    def test_competing_structures_are_kept(self, chain: SimpleNamespace):
        found = fit_nonlinear(chain.rows(800), [Start(chain.truth, chain.pool, EMPTY)], hard=True)
        assert found.alternatives
        assert max(other.score for other in found.alternatives) < found.score

    def test_unknown_targets_are_revised(self, chain: SimpleNamespace):
        wrong = chain.pool.copy()
        wrong[2] = [0, 0, 1, 1]
        start = Start(chain.truth, wrong, chain.graph)
        found = fit_nonlinear(chain.rows(1500), [start], hard=True, unknown_targets=True)
        assert (found.pool == chain.pool).all()

    def test_targets_of_the_best_start_are_taken(self, chain: SimpleNamespace):
        wrong = chain.pool.copy()
        wrong[2] = [0, 0, 1, 1]
        starts = [
            Start(chain.truth, wrong, chain.graph),
            Start(chain.truth, chain.pool, chain.graph),
        ]
        found = fit_nonlinear(chain.rows(1500), starts, hard=True)
        assert (found.pool == chain.pool).all()


class TestNonlinearWithAnyNoise:
    @pytest.fixture(autouse=True)
    def _targets(self, chain: SimpleNamespace):
        self.pool = chain.pool

    def fit(self, H: np.ndarray, graph: Graph) -> Fit:
        return Fit(H, graph, 0.0, pool=self.pool, mechanisms="nonlinear")

    def test_encoder_and_graph_from_the_better_start(self, chain: SimpleNamespace):
        far = chain.truth + 0.5 * np.random.default_rng(3).standard_normal((3, 3))
        start = near(chain.truth, 0.05, seed=2)
        found = _nonlinear_with_any_noise(
            bent_with_noise(chain.mixing, "laplace"), self.fit(far, EMPTY), self.fit(start, EMPTY)
        )
        assert found is not None
        assert found.any_noise
        assert found.graph == chain.graph
        assert distance(found.H, chain.mixing) < 0.5 * distance(start, chain.mixing)

    def test_many_rows_are_searched_in_part(
        self, chain: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(_nonlinear, "ROWS_TO_SEARCH", 500)
        start = self.fit(near(chain.truth, 0.03, seed=2), chain.graph)
        found = _nonlinear_with_any_noise(bent_with_noise(chain.mixing, "laplace"), start, start)
        assert found is not None
        assert distance(found.H, chain.mixing) < 0.06

    def test_gaussian_noise_is_left_alone(self, chain: SimpleNamespace):
        start = self.fit(chain.truth, chain.graph)
        assert (
            _nonlinear_with_any_noise(bent_with_noise(chain.mixing, "gaussian"), start, start)
            is None
        )


@pytest.mark.parametrize(("shares", "n_turns"), [((0.09, 0.08), 1), ((0.04, 0.03, 0.02), 2)])
def test_means_that_mend_little_are_given_up(
    shares: tuple[float, ...], n_turns: int, monkeypatch: pytest.MonkeyPatch
):
    """From a dependence of 0.1: a turn has to leave so little that all of them may leave none."""
    rows = [np.random.default_rng(e).standard_normal((50, 2)) for e in range(3)]
    shared, *others = (
        Fit(np.eye(2), ((), ()), 0.0, pool=pools_of(np.array([0, 1]), 2), dependence=each)
        for each in (Dependence(0, 1, share, 0.0) for share in (0.1, *shares))
    )
    turns = iter(others)
    monkeypatch.setattr(_nonlinear, "nonlinear", lambda *_: next(turns))
    found = with_free_means(rows, shared, shared, False, True, True)
    assert found is shared
    assert len(list(turns)) == len(shares) - n_turns
