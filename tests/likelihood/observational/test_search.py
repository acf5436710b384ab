"""The fit of one environment: recovery, order, alternatives, Gaussian data, edge cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crlearn.config import config_context
from crlearn.likelihood import Fit, agreement, fit_observational
from crlearn.likelihood._price import relevance_edge_price
from crlearn.likelihood.observational import _search
from crlearn.likelihood.observational._model import RelevanceModel
from crlearn.likelihood.observational._search import in_order_of_layers

CHAIN = ((), (0,), (1,))


def fitted(y: np.ndarray, seed: int = 0, **options: Any) -> Fit:
    return fit_observational(y, rng=np.random.default_rng(seed), **{"n_starts": 2, **options})


def assert_same_bits(one: Fit, other: Fit) -> None:
    np.testing.assert_array_equal(one.H, other.H)
    assert one.graph == other.graph
    assert one.score == other.score
    assert [each.score for each in one.alternatives] == [each.score for each in other.alternatives]


def correlations(world: Any, fit: Fit) -> list[float]:
    residuals = world.model.residuals(fit)
    return [abs(np.corrcoef(a, b)[0, 1]) for a, b in zip(residuals.T, world.noise.T, strict=True)]


@pytest.fixture(scope="module")
def fit(chain: Any) -> Fit:
    return fitted(chain.model.y)


@pytest.fixture(scope="module")
def weak() -> tuple[np.ndarray, Fit]:
    """A chain whose second edge hardly shows, and its fit."""
    Z = np.random.default_rng(0).standard_normal((500, 3)) * [1.0, 0.5, 1.0]
    Z[:, 1] += np.sin(2 * Z[:, 0])
    Z[:, 2] += 0.26 * Z[:, 1] ** 2
    Z -= Z.mean(axis=0)
    y = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / len(Z))).T
    return y, fitted(y)


class TestTheAnswer:
    def test_a_chain_is_recovered(self, chain: Any, fit: Fit):
        assert fit.graph == CHAIN
        assert fit.layers == ((2,), (1,), (0,))
        assert min(correlations(chain, fit)) > 0.97

    def test_the_score_is_that_of_the_encoder(self, chain: Any, fit: Fit):
        again = chain.model.scored(fit)
        assert again.log_likelihood == pytest.approx(fit.log_likelihood)
        assert fit.price == pytest.approx(2 * relevance_edge_price(3))
        assert fit.score > 100

    def test_it_is_about_as_good_as_the_truth(self, chain: Any, fit: Fit):
        model = chain.model
        true = model.scored(model.fitted(model.start(chain.H, CHAIN), 100))
        assert fit.score == pytest.approx(true.score, rel=0.01)  # precisions have several optima

    def test_a_network_keeps_its_hidden_units(self, network: Any):
        found = fitted(network.model.y, n_starts=1)
        assert found.layers == ((2,), (0, 1))
        assert found.parameters[2].n_hidden > 0

    def test_gaussian_rows_gain_nothing(self, gaussian: Any):
        nothing = fitted(gaussian.model.y)
        assert -1e-6 < nothing.score < 5

    def test_one_latent(self):
        y = np.random.default_rng(0).standard_normal((100, 1))
        found = fitted((y - y.mean()) / y.std())
        assert found.graph == ((),)
        assert found.layers == ((0,),)
        assert found.score == pytest.approx(0, abs=1e-9)
        assert found.alternatives == ()


class TestTheSearch:
    def test_one_start_is_enough_to_work(self, chain: Any):
        found = fitted(chain.model.y, n_starts=1)
        assert found.graph == CHAIN

    def test_starts_replace_the_search_for_them(
        self, chain: Any, fit: Fit, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(_search, "starting_rotations", None)
        found = fitted(chain.model.y, starts=[np.eye(3)[[2, 0, 1]], chain.H])
        assert found.graph == CHAIN
        assert found.score > fit.score - 1

    def test_the_same_seed_gives_the_same_bits(self, chain: Any, fit: Fit):
        assert_same_bits(fitted(chain.model.y), fit)

    def test_threads_do_not_change_the_answer(
        self, chain: Any, fit: Fit, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(_search, "_ROWS_OF_THE_SEARCH", len(chain.model.y))
        for n_threads in (1, 3):
            monkeypatch.setattr(_search, "cpu_count", lambda n=n_threads: n)
            found = fitted(chain.model.y)
            assert found.graph == fit.graph
            # Up to rounding: sums may hang on where a processor finds arrays in memory.
            np.testing.assert_allclose(found.H, fit.H, rtol=0, atol=1e-9)
            np.testing.assert_allclose(found.score, fit.score)

    def test_more_rows_decide_and_all_are_fitted(
        self, chain: Any, fit: Fit, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(_search, "_ROWS_OF_THE_SEARCH", 200)
        found = fitted(chain.model.y)
        assert found.graph == CHAIN
        assert found.score == pytest.approx(fit.score, abs=2)

    def test_progress_says_what_is_under_way(self, chain: Any, capfd: pytest.CaptureFixture[str]):
        with config_context(progress=True):
            fitted(chain.model.y[:200, :2], n_starts=1)
        assert "Observational fit" in capfd.readouterr().err


class TestAlternatives:
    def test_the_structure_without_a_weak_edge(self, weak: tuple[np.ndarray, Fit]):
        y, fit = weak
        assert fit.graph == CHAIN
        without = next(other for other in fit.alternatives if other.graph == ((), (0,), ()))
        assert 0 < fit.score - without.score < 10
        assert agreement(fit, without, y) < 0.9

    def test_they_are_behind_and_the_best_comes_first(self, weak: tuple[np.ndarray, Fit]):
        _, fit = weak
        gaps = [fit.score - other.score for other in fit.alternatives]
        assert len(gaps) > 1
        assert gaps == sorted(gaps)
        assert gaps[0] >= 0

    def test_gaps_are_those_of_the_rows_that_decide(self, weak: tuple[np.ndarray, Fit]):
        y, fit = weak
        model = RelevanceModel(y)
        without = next(other for other in fit.alternatives if other.graph == ((), (0,), ()))
        again = model.scored(without)
        assert fit.score - without.score == pytest.approx(fit.score - again.score, abs=1)

    def test_what_is_as_good_and_says_something_else_stays(self, monkeypatch: pytest.MonkeyPatch):
        """Rows and their mirror images: the reverse of an answer has its score.

        They are no noise of one shape, so densities are left out.
        """
        gaussian = Fit(np.eye(2), ((), ()), 0.0)
        monkeypatch.setattr(_search, "local_optima", lambda *_: [gaussian])
        rows = np.random.default_rng(0).standard_normal((200, 2))
        rows[:, 1] += 0.5 * rows[:, 0] ** 2
        rows -= rows.mean(axis=0)
        white = rows @ np.linalg.inv(np.linalg.cholesky(rows.T @ rows / 200)).T
        y = np.stack([white, white[:, ::-1]], axis=1).reshape(-1, 2)
        monkeypatch.setattr(_search, "_ROWS_OF_THE_SEARCH", 398)
        fit = fitted(y)
        close = [other for other in fit.alternatives if fit.score - other.score < 1]
        assert min(agreement(fit, other, y) for other in close) < 0.5


class TestGaussianNoiseIsSearched:
    @pytest.mark.parametrize(("draw", "expected"), [("laplace", [1]), ("standard_normal", [2])])
    def test_unless_it_is_far_behind(
        self, monkeypatch: pytest.MonkeyPatch, draw: str, expected: list[int]
    ):
        """By how many starts it has: that of the encoder with densities, or all."""
        n_starts, complete_structures = list[int](), _search.complete_structures

        def counted(model: RelevanceModel, starts: Any, run: Any, n_followed: int) -> list[Fit]:
            n_starts.append(len(starts))
            return complete_structures(model, starts, run, n_followed)

        monkeypatch.setattr(_search, "complete_structures", counted)
        noise = getattr(np.random.default_rng(0), draw)(size=(1000, 2))
        noise[:, 1] += noise[:, 0] ** 2
        noise -= noise.mean(axis=0)
        fitted(noise @ np.linalg.inv(np.linalg.cholesky(noise.T @ noise / 1000)).T)
        assert n_starts == expected


@pytest.fixture(scope="module")
def model() -> RelevanceModel:
    """Of rows whose columns are latents: 0 -> 1 explains most, 2 and 3 stand alone."""
    y = np.random.default_rng(0).standard_normal((200, 4))
    y[:, 1] = y[:, 0] ** 2 + 0.1 * y[:, 1]
    y -= y.mean(axis=0)
    return RelevanceModel(y / y.std(axis=0) * [1.0, 1.0, 1.1, 1.2])


class TestInOrderOfLayers:
    def test_layers_then_what_is_explained(self, model: RelevanceModel):
        shuffled = model.start(np.eye(4)[[1, 3, 0, 2]], ((2,), (), (), ()))
        found = in_order_of_layers(shuffled, model.y)
        assert found.graph == ((), (0,), (), ())
        np.testing.assert_array_equal(found.H, np.eye(4))
        assert found.layers == ((1, 2, 3), (0,))

    def test_what_is_in_order_stays(self, model: RelevanceModel):
        fit = model.start(np.eye(4), ((), (0,), (), ()))
        np.testing.assert_array_equal(in_order_of_layers(fit, model.y).H, fit.H)

    def test_names_alone_change(self, network: Any):
        """Shapes go with their latents, and know their parents by the new order."""
        model = network.model
        fit = model.shaped(model.start(network.H[[2, 1, 0]], ((1, 2), (), ()), hidden_units=True))
        fit = model.scored(fit)
        found = in_order_of_layers(fit, model.y)
        assert found.graph == ((), (), (0, 1))
        assert model.scored(found).score == pytest.approx(fit.score)
        back = in_order_of_layers(replace(found, H=-found.H), model.y)
        np.testing.assert_array_equal(back.H, -found.H)


class TestAgreement:
    def test_a_structure_agrees_with_itself(self, chain: Any, fit: Fit):
        assert agreement(fit, fit, chain.model.y) == pytest.approx(1)

    def test_mixtures_inside_a_layer_are_the_same_answer(self, gaussian: Any):
        """Noises are 0; 1 and 2 of the layer before it, or combinations of them."""
        model = gaussian.model
        graph = ((1, 2), (), ())
        one = model.start(np.eye(3), graph)
        mixed = np.array([[1.0, 0, 0], [0, 1, 1], [0, -1, 1]])
        other = replace(one, H=mixed)
        assert one.layers == ((0,), (1, 2))
        far = replace(one, H=np.eye(3)[[1, 0, 2]])  # another latent is the effect
        assert agreement(one, other, model.y) == pytest.approx(1, abs=0.05)
        assert agreement(one, far, model.y) < 0.5

    def test_noises_in_another_layer_are_another_answer(self, gaussian: Any):
        y = gaussian.model.y
        one = gaussian.model.start(np.eye(3), ((), (), ()))
        other = gaussian.model.start(np.eye(3), ((), (0,), ()))
        assert one.layers == ((0, 1, 2),)
        assert other.layers == ((1, 2), (0,))
        assert agreement(one, other, y) == pytest.approx(2 / 3, abs=0.1)
