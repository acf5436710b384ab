"""The fit of one environment: recovery, order, rivals, Gaussian data, edge cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from crlearn.config import config_context
from crlearn.data import make_observational
from crlearn.likelihood.observational import _search as _observational
from crlearn.likelihood.observational._edges import Candidate, StructureSearch
from crlearn.likelihood.observational._model import Structure
from crlearn.likelihood.observational._search import (
    agreement,
    causes_first,
    decided_again,
    fit_observational,
    layers_roots_first,
    random_order,
    starting_rotations,
)

Matrix = NDArray[np.floating]


def _whitened(X: Matrix) -> Matrix:
    X = X - X.mean(axis=0)
    return X @ np.linalg.inv(np.linalg.cholesky(X.T @ X / len(X))).T


@pytest.fixture(scope="module")
def line() -> tuple[Matrix, Matrix]:
    """Whitened rows of a line of three latents, and the noises."""
    world = make_observational(
        3, None, 1000, graph="chain", mechanism="sin", rescale="standard", random_state=1
    )
    assert world.truth is not None
    assert world.truth.noise is not None
    return _whitened(world.X), world.truth.noise


def test_a_line_is_recovered(line: tuple[Matrix, Matrix]) -> None:
    y, noise = line
    fit = fit_observational(y, rng=np.random.default_rng(0))
    assert fit.layers == ((0,), (1,), (2,))
    Z = y @ fit.H.T
    found = Z - fit.mechanisms(Z)
    for j in range(3):
        assert abs(np.corrcoef(found[:, j], noise[:, j])[0, 1]) > 0.97
    assert fit.gain == -fit.evidence
    assert fit.gain > 20
    assert all(rival.evidence_gap >= 0 for rival in fit.rivals)


def test_an_edge_that_hardly_shows_makes_a_rival_without_it() -> None:
    noise = np.random.default_rng(0).standard_normal((500, 3))
    Z = noise * [1.0, 0.5, 1.0]
    Z[:, 1] += np.sin(2 * Z[:, 0])
    Z[:, 2] += 0.26 * Z[:, 1] ** 2
    fit = fit_observational(_whitened(Z), rng=np.random.default_rng(0))
    assert fit.graph == ((), (0,), (1,))
    without = next(rival for rival in fit.rivals if rival.graph == ((), (0,), ()))
    assert 0 < without.evidence_gap < 10
    assert without.agreement < 0.9


def test_progress_says_what_is_under_way(
    line: tuple[Matrix, Matrix], capfd: pytest.CaptureFixture[str]
) -> None:
    y, _ = line
    with config_context(progress=True):
        fit_observational(y[:200, :2], rng=np.random.default_rng(0))
    shown = capfd.readouterr().err
    assert "Observational fit" in shown


def test_the_same_seed_gives_the_same_fit(line: tuple[Matrix, Matrix]) -> None:
    y, _ = line
    first, second = (fit_observational(y[:300], rng=np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(first.H, second.H)
    assert first.graph == second.graph


def test_a_start_replaces_the_search(line: tuple[Matrix, Matrix]) -> None:
    y, noise = line
    H = np.linalg.lstsq(y, noise, rcond=None)[0].T
    fit = fit_observational(y, rng=np.random.default_rng(0), starts=[H])
    assert fit.layers == ((0,), (1,), (2,))


def test_gaussian_rows_gain_nothing() -> None:
    y = _whitened(np.random.default_rng(0).standard_normal((500, 3)))
    assert fit_observational(y, rng=np.random.default_rng(0)).gain < 5


def test_one_latent() -> None:
    y = _whitened(np.random.default_rng(0).standard_normal((100, 1)))
    fit = fit_observational(y, rng=np.random.default_rng(0))
    assert fit.graph == ((),)
    assert fit.layers == ((0,),)
    assert np.array_equal(fit.mechanisms(y), np.zeros_like(y))


@pytest.mark.usefixtures("one_thread")
def test_starts_are_rotations(line: tuple[Matrix, Matrix]) -> None:
    y, _ = line
    for Q in starting_rotations(y, np.random.default_rng(0)):
        assert np.allclose(Q @ Q.T, np.eye(3))


def test_order_by_layers_then_by_what_is_explained() -> None:
    rng = np.random.default_rng(0)
    y = _whitened(rng.standard_normal((200, 4)))
    y[:, 1] = y[:, 0] ** 2 + 0.1 * y[:, 1]  # 0 -> 1 explains most; 2 and 3 stand alone
    structure = causes_first(Structure.start(np.eye(4), ((), (0,), (), ())), y)
    assert structure.graph == ((), (0,), (), ())
    assert np.array_equal(structure.H[0], np.eye(4)[0])
    shuffled = Structure.start(np.eye(4)[[1, 3, 0, 2]], ((2,), (), (), ()))
    again = causes_first(shuffled, y)
    assert again.graph == ((), (0,), (), ())
    assert np.array_equal(again.H[:2], np.eye(4)[:2])


def test_layers_are_counted_from_the_leaves_and_listed_roots_first() -> None:
    assert layers_roots_first(((), (0,), (1,), ())) == ((0,), (1,), (2, 3))


def test_agreement() -> None:
    noise = np.random.default_rng(0).standard_normal((500, 3))
    layers = ((0,), (1, 2))
    mixed = noise.copy()
    mixed[:, 1:] = noise[:, 1:] @ np.array([[1.0, 1.0], [-1.0, 1.0]])
    assert agreement(noise, layers, mixed, layers) == pytest.approx(1)
    assert agreement(noise, layers, mixed, ((1,), (0, 2))) < 0.8


def test_of_several_searches_the_best_counts(
    line: tuple[Matrix, Matrix], monkeypatch: pytest.MonkeyPatch
) -> None:
    y, _ = line
    reached: list[Candidate] = []
    chosen: list[Candidate] = []

    def better_each_time(search: StructureSearch, start: Candidate, *_: object) -> Candidate:
        reached.append(replace(start, cost=start.cost - 1000.0 * len(reached)))
        return reached[-1]

    def remembered(search: StructureSearch, best: Candidate) -> Candidate:
        chosen.append(best)
        return best

    wider = _observational._effort(3)._replace(turned=2)
    monkeypatch.setattr(_observational, "_effort", lambda n: wider)
    monkeypatch.setattr(_observational, "_turned_and_improved", better_each_time)
    monkeypatch.setattr(_observational, "with_hidden_leaves", remembered)
    fit = fit_observational(y, rng=np.random.default_rng(0))
    assert len(reached) == 2
    assert chosen[0] is reached[1]
    assert len(fit.rivals) > 0


def test_random_orders_have_causes_first_and_differ() -> None:
    graph = ((), (3,), (), (0, 2))
    rng = np.random.default_rng(0)
    orders = {tuple(random_order(graph, rng)) for _ in range(20)}
    assert orders == {(0, 2, 3, 1), (2, 0, 3, 1)}


@pytest.mark.usefixtures("one_thread")
def test_edges_that_few_rows_missed_are_decided_on_again() -> None:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((1500, 3)) * [1.0, 0.5, 0.5]
    for j in (1, 2):
        Z[:, j] += 0.7 * (Z[:, j - 1] ** 2 - (Z[:, j - 1] ** 2).mean())
    y = _whitened(Z)
    H = np.linalg.lstsq(y, Z, rcond=None)[0].T
    search = StructureSearch(y, edge_cost=4.0)
    missed = search.settled(Structure.start(H, ((), (0,), ())), max_steps=5)
    found = decided_again(search, missed, rng, lambda function, items: list(map(function, items)))
    assert found.cost < missed.cost - 100
    assert found.structure.n_edges == 2


@pytest.mark.usefixtures("one_thread")
def test_with_units_more_rows_turn_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crlearn.likelihood.observational._search._filled_up_and_sparsified", None)
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((600, 3)) * [1.0, 1.0, 0.3]
    Z[:, 2] += np.tanh(2 * Z[:, 0] + Z[:, 1]) - np.tanh(Z[:, 0] - 2 * Z[:, 1])
    y = _whitened(Z)
    H = np.linalg.lstsq(y, Z, rcond=None)[0].T
    search = StructureSearch(y, edge_cost=4.0)
    # The effect, counted as a cause of one of its causes.
    wrong = Structure.start(H[[0, 2, 1]], ((), (0,), (0, 1)), units=True).shaped(y)
    best = search.settled(wrong, max_steps=20)
    assert best.structure.has_units
    found = decided_again(search, best, rng, lambda function, items: list(map(function, items)))
    assert found.cost < best.cost - 5
