from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from crlearn.graph import adjacency_of, graph_of, neighbours
from crlearn.likelihood import Fit
from crlearn.likelihood.nodes._any_noise import AnyNoiseModel
from crlearn.likelihood.nodes._selected import SelectedModel

N = 3
POOL = np.insert(np.eye(N, dtype=np.intp), 0, 0, axis=1)
GRAPH = ((), (0,), (0, 1))
MIXING = np.array([[1.0, 0.3, 0.2], [0.0, 1.0, 0.4], [0.1, 0.0, 1.0]])
TRUTH = np.linalg.inv(MIXING)


def environments(noise: str, n_rows: int = 1500) -> list[np.ndarray]:
    """Latents with curved mechanisms; each in turn becomes noise with a quarter of the variance."""
    rng = np.random.default_rng(0)
    found = []
    for e in range(N + 1):
        shape = {
            "gaussian": rng.standard_normal((n_rows, N)),
            "laplace": rng.laplace(scale=np.sqrt(0.5), size=(n_rows, N)),
            "exponential": rng.standard_exponential((n_rows, N)) - 1,
        }
        z = shape[noise]
        if e:
            z[:, e - 1] *= 0.5
        if e != 2:
            z[:, 1] += np.sqrt(1 + 2 * z[:, 0] ** 2)
        if e != 3:
            z[:, 2] += np.tanh(2 * z[:, 0]) + 0.5 * np.abs(z[:, 1])
        found.append(z @ MIXING.T)
    return found


def distance(H: np.ndarray, mixing: np.ndarray = MIXING) -> float:
    mixed = H @ mixing
    return float(np.linalg.norm(mixed / np.diag(mixed)[:, None] - np.eye(N)))


def check_derivatives(model: AnyNoiseModel, fit: Fit, places: range | list[int]) -> None:
    """Compare gradients with numerical ones; densities are held fixed, as they are in a step."""
    state = (fit.H, fit.parameters)
    gradient = model._expanded(state).gradient
    for k in places:
        step = np.zeros(len(gradient))
        step[k] = 1e-3
        ahead, behind = (model._value(model._moved(state, s)) for s in (step, -step))
        assert gradient[k] == pytest.approx((ahead - behind) / 2e-3, abs=3, rel=0.03)


@pytest.fixture(scope="module")
def linear_world(drawn):
    """Return a function that gives a model, its Gaussian fit of the true graph, and the mixing."""

    def world(
        noise: str, n_rows: int = 1500, intervention: str = "hard"
    ) -> tuple[AnyNoiseModel, Fit, np.ndarray]:
        found = drawn(N, n_rows, intervention, seed=1, noise=noise)
        graph = graph_of(found.graph)
        fit = found.model.fitted(np.linalg.inv(found.mixing), graph)
        model = AnyNoiseModel(
            found.rows,
            POOL,
            parents_in="first" if intervention == "hard" else "others",
            linear=True,
        )
        gaussian = model.gaussian(fit.H, graph)
        difference = (gaussian.log_likelihood - fit.log_likelihood) / model.n_rows
        assert difference == pytest.approx(0, abs=1e-9)
        return model, gaussian, found.mixing

    return world


class TestLinear:
    @pytest.mark.parametrize("intervention", ["hard", "soft"])
    @pytest.mark.parametrize("noise", ["gaussian", "gumbel"])
    def test_gradients_are_those_of_the_likelihood(
        self, linear_world, noise: str, intervention: str
    ):
        model, gaussian, _ = linear_world(noise, intervention=intervention)
        away = gaussian.H + 0.02 * np.roll(gaussian.H, 1, axis=0)
        start = model.with_densities(model.gaussian(away, gaussian.graph))
        n_coefficients = sum(len(each.kept) for each in start.parameters.values())
        check_derivatives(model, start, range(N * (N - 1) + n_coefficients))

    @pytest.mark.parametrize("noise", ["laplace", "exponential", "gumbel"])
    def test_the_fit_has_more_likelihood_and_less_error(self, linear_world, noise: str):
        model, gaussian, mixing = linear_world(noise, n_rows=4000)
        fit = model.fitted(gaussian.H, gaussian.graph)
        assert fit.any_noise
        assert fit.score > gaussian.score + 100
        assert distance(fit.H, mixing) < distance(gaussian.H, mixing)

    def test_gaussian_noise_changes_nothing(self, linear_world):
        model, gaussian, _ = linear_world("gaussian")
        fit = model.fitted(gaussian.H, gaussian.graph)
        assert not fit.any_noise
        np.testing.assert_allclose(fit.H, gaussian.H)

    def test_information_is_the_curvature(self, linear_world):
        """The scatter of the gradient's parts, up to sampling, predicts how it changes."""
        model, gaussian, _ = linear_world("gumbel", n_rows=8000)
        fit = model.fitted(gaussian.H, gaussian.graph)
        state = (fit.H, fit.parameters)
        point = model._expanded(state)
        step = np.zeros(len(point.gradient))
        step[0] = 0.01
        change = model._expanded(model._moved(state, step)).gradient - point.gradient
        assert change[0] == pytest.approx((point.hessian @ step)[0], rel=0.2)

    def test_a_step_never_loses(self, linear_world):
        model, gaussian, _ = linear_world("laplace")
        start = model.with_densities(gaussian)
        scores = [start.score, *(model._raised(start, n_steps).score for n_steps in (1, 3, 30))]
        assert (np.diff(scores) >= 0).all()
        assert scores[-1] > scores[0] + 1

    @pytest.mark.parametrize("intervention", ["hard", "soft"])
    def test_tests_of_edges_say_what_refitted_models_gain(self, linear_world, intervention: str):
        model, gaussian, _ = linear_world("laplace", 4000, intervention)
        fit = model.fitted(gaussian.H, gaussian.graph)
        tests = model.tests(fit)
        assert (tests.freedom[~np.eye(N, dtype=bool)] == 1).all()
        gains = {
            graph: model.refitted(fit, graph).log_likelihood - fit.log_likelihood
            for graph in neighbours(fit.graph)
            if sum(map(len, graph)) > fit.n_edges
        }
        assert gains
        for graph, gained in gains.items():
            (added,) = np.argwhere(adjacency_of(graph) & ~fit.adjacency)
            assert tests.statistics[tuple(added)] / 2 == pytest.approx(gained, rel=0.3, abs=1)
        assert (tests.statistics[fit.adjacency] > 50).all()
        assert (tests.p_values[fit.adjacency] < 1e-6).all()
        assert (tests.p_values[~fit.adjacency] == 1).all()

    def test_standard_errors_fall_as_one_over_the_root_of_the_rows(self, linear_world):
        errors = []
        for n_rows in (1500, 6000):
            model, gaussian, _ = linear_world("laplace", n_rows)
            errors.append(model.tests(model.fitted(gaussian.H, gaussian.graph)).standard_errors)
        few, many = errors
        assert (np.diag(few) == 0).all()
        off = ~np.eye(N, dtype=bool)
        assert np.median(few[off] / many[off]) == pytest.approx(2, rel=0.15)


@pytest.fixture(scope="module")
def laplace() -> AnyNoiseModel:
    return AnyNoiseModel(environments("laplace"), POOL, parents_in="first", linear=False)


@pytest.fixture(scope="module")
def laplace_fit(laplace: AnyNoiseModel) -> Fit:
    return laplace.fitted(TRUTH, GRAPH)


class TestNonlinear:
    @pytest.mark.parametrize("noise", ["laplace", "exponential"])
    def test_other_noise_is_no_obstacle(self, noise: str):
        rows = environments(noise)
        least_squares = SelectedModel(rows, POOL, hard=True, choose_features=False)
        H = least_squares.fitted(TRUTH, GRAPH).H
        model = AnyNoiseModel(rows, POOL, parents_in="first", linear=False, choose_features=False)
        fit = model.fitted(H, GRAPH)
        assert fit.any_noise
        assert distance(fit.H) < 0.6 * distance(H)
        assert distance(fit.H) < 0.05

    def test_gaussian_noise_changes_nothing(self):
        rows = environments("gaussian")
        H = SelectedModel(rows, POOL, hard=True, choose_features=False).fitted(TRUTH, GRAPH).H
        model = AnyNoiseModel(rows, POOL, parents_in="first", linear=False, choose_features=False)
        fit = model.fitted(H, GRAPH)
        assert not fit.any_noise
        assert distance(fit.H) == pytest.approx(distance(H), rel=1e-6)

    def test_gradients_are_those_of_the_likelihood(self):
        rows = environments("laplace", 600)
        model = AnyNoiseModel(rows, POOL, parents_in="first", linear=False, choose_features=False)
        fit = model.with_densities(model.gaussian(TRUTH + 0.03, GRAPH))
        point = model._expanded((fit.H, fit.parameters))
        assert point.hessian.shape == (len(point.gradient), len(point.gradient))
        check_derivatives(model, fit, range(N * (N - 1)))

    def test_the_true_graph_is_best_at_the_true_encoder(self, laplace: AnyNoiseModel):
        H = laplace.scaled(TRUTH)

        def score(graph: tuple[tuple[int, ...], ...]) -> float:
            return -float(laplace.values(H, list(enumerate(graph))).sum())

        others = [((), (0,), (1,)), ((), (), (0, 1)), ((), (0,), (0,)), ((1,), (), (0, 1))]
        assert all(score(GRAPH) > score(other) for other in others)

    def test_predictions_point_to_the_true_graph(self, laplace: AnyNoiseModel, laplace_fit: Fit):
        worse = [((), (0,), (1,)), ((), (), (0, 1)), ((), (0,), (0,))]
        predicted = laplace.predicted(laplace_fit, [GRAPH, *worse])
        assert predicted[0] == laplace_fit.score
        assert (predicted[1:] < laplace_fit.score - laplace.hopeless).all()
        for graph in worse:
            wrong = laplace.refitted(laplace_fit, graph)
            assert wrong.score < laplace_fit.score
            assert laplace.predicted(wrong, [GRAPH])[0] > wrong.score + 50

    def test_values_are_those_of_the_fit_without_steps(self, laplace: AnyNoiseModel):
        """Up to a constant that all graphs share."""
        apart = []
        for graph in (GRAPH, ((), (0,), ())):
            H = laplace.scaled(TRUTH)
            start = laplace.with_densities(laplace.gaussian(H, graph))
            without_prior = start.score + np.log(3) * start.n_edges
            value = laplace.values(H, list(enumerate(graph))).sum() - np.linalg.slogdet(H)[1]
            apart.append(without_prior + laplace.n_rows * value)
        assert apart[0] == pytest.approx(apart[1], abs=1e-3)

    def test_what_is_known_of_a_state_is_that_of_a_new_model(self, laplace: AnyNoiseModel):
        start = laplace.with_densities(laplace.gaussian(TRUTH, GRAPH))
        found = laplace.refitted(start, GRAPH)
        state = (found.H, found.parameters)
        new = AnyNoiseModel(environments("laplace"), POOL, parents_in="first", linear=False)
        assert -found.log_likelihood == pytest.approx(new._value(state), abs=1e-3)
        assert laplace._value(state) == pytest.approx(new._value(state), abs=1e-3)

    def test_features_pay_for_themselves(self, laplace: AnyNoiseModel):
        every = AnyNoiseModel(
            environments("laplace"), POOL, parents_in="first", linear=False, choose_features=False
        )
        chosen, all_of_them = (model.gaussian(TRUTH, GRAPH) for model in (laplace, every))
        assert chosen.score > all_of_them.score
        assert chosen.log_likelihood <= all_of_them.log_likelihood + 1e-6 * laplace.n_rows


@pytest.mark.parametrize(
    ("parents_in", "expected"),
    [("first", [(0,), ()]), ("others", [(), (0,)]), ("all", [(0,), (0,)])],
)
def test_where_latents_have_parents(
    parents_in: Literal["first", "others", "all"], expected: list[tuple[int, ...]]
):
    rows = [np.random.default_rng(e).standard_normal((50, N)) for e in range(N + 1)]
    fit = AnyNoiseModel(rows, POOL, parents_in=parents_in, linear=True).gaussian(
        np.eye(N), ((), (0,), ())
    )
    assert [fit.parameters[1, p].parents for p in (0, 1)] == expected
