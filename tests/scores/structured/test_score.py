from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.scores import CubicSplines, StructuredScore, score_graph
from crlearn.scores.structured import _terms
from crlearn.scores.structured._score import neighbourly_terms, tensor_terms
from crlearn.scores.structured._terms import Term

CHAIN = np.eye(4, k=1, dtype=bool)


def fitted(rows: Any, graph: Any, intervened: Any = None, **options: Any) -> StructuredScore:
    targets = np.zeros(rows.shape, dtype=bool) if intervened is None else intervened
    splines = CubicSplines.spanning(rows, options.pop("n_knots", 5))
    return StructuredScore.fit(rows, targets, graph, splines=splines, **options)


@pytest.fixture(scope="module")
def gaussian() -> tuple[Any, Any]:
    """Rows of a linear chain, and the precision matrix that is their exact score."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((20_000, 3))
    for j in (1, 2):
        z[:, j] += 0.8 * z[:, j - 1]
    return z, np.linalg.inv(np.cov(z.T))


class TestTerms:
    def test_a_latent_meets_its_neighbours_in_pairs(self):
        terms = neighbourly_terms(CHAIN, 1, is_target=False)
        assert Term((1,)) in terms
        assert Term((1, 0)) in terms
        assert Term((1, 2), unless=(2,)) in terms  # a child that is set says nothing of its cause
        assert Term((3,), unless=(2, 3)) in terms  # two edges away

    def test_a_target_is_cut_off_its_parents(self):
        latents = {k for term in neighbourly_terms(CHAIN, 1, True) for k in term.latents}
        assert 0 not in latents
        soft = {k for term in neighbourly_terms(CHAIN, 1, True, hard=False) for k in term.latents}
        assert 0 in soft

    def test_parents_of_a_common_child_are_neighbours(self):
        graph = np.zeros((3, 3), dtype=bool)
        graph[:2, 2] = True
        assert Term((0, 1), unless=(2,)) in neighbourly_terms(graph, 0, False)

    def test_many_parents_do_not_multiply(self):
        graph = np.zeros((7, 7), dtype=bool)
        graph[:6, 6] = True
        assert max(len(term.latents) for term in neighbourly_terms(graph, 6, False)) == 2
        assert tensor_terms(graph, 6) == (Term((6, 0, 1, 2, 3, 4, 5)),)

    def test_soft_interventions_have_terms_of_their_own(self):
        terms = neighbourly_terms(CHAIN, 0, False, hard=False)
        assert Term((0, 1), only_if=(1,)) in terms

    def test_dense_terms_reach_everyone(self):
        terms = neighbourly_terms(CHAIN, 0, False, dense=True)
        assert {k for term in terms for k in term.latents} == {0, 1, 2, 3}


def test_graphs_that_a_score_may_follow():
    np.testing.assert_array_equal(score_graph(CHAIN, "graph"), CHAIN)
    np.testing.assert_array_equal(score_graph(CHAIN, "pool"), CHAIN)
    assert not score_graph(CHAIN, "empty").any()
    full = score_graph(CHAIN[::-1, ::-1], "full")  # edges from the last latent to the first
    np.testing.assert_array_equal(full, np.tril(np.ones((4, 4), dtype=bool), k=-1))


class TestGaussian:
    @pytest.mark.parametrize("interactions", ["pairs", "sums"])
    def test_the_score_is_linear(self, gaussian: tuple[Any, Any], interactions: Any):
        rows, precision = gaussian
        graph = np.eye(3, k=1, dtype=bool)
        score, slope = fitted(rows, graph, interactions=interactions)(
            rows, np.zeros(rows.shape, dtype=bool)
        )
        exact = -rows @ precision
        assert ((score - exact) ** 2).mean() < 0.01 * (exact**2).mean()
        assert np.abs(slope.mean(axis=0) + np.diag(precision)).max() < 0.1  # the ridge shrinks it

    def test_stein_identity(self, gaussian: tuple[Any, Any]):
        rows, _ = gaussian
        score, _ = fitted(rows, CHAIN[:3, :3])(rows, np.zeros(rows.shape, dtype=bool))
        np.testing.assert_allclose((rows * score).mean(axis=0), -1, atol=0.03)

    def test_the_published_class_sees_parents_only(self, gaussian: tuple[Any, Any]):
        rows, _ = gaussian
        model = fitted(rows, CHAIN[:3, :3], interactions="tensor", penalty="size", ridge=1e-4)
        off = np.zeros(rows.shape, dtype=bool)
        changed = rows.copy()
        changed[:, 2] += 1
        np.testing.assert_array_equal(model(rows, off)[0][:, 0], model(changed, off)[0][:, 0])


def test_jacobian_is_the_derivative(gaussian: tuple[Any, Any]):
    rows = gaussian[0][:50]
    off = np.zeros(rows.shape, dtype=bool)
    model = fitted(gaussian[0], CHAIN[:3, :3])
    _, jacobian = model(rows, off, jacobian=True)
    for k in range(3):
        step = 1e-5 * np.eye(3)[k]
        numeric = (model(rows + step, off)[0] - model(rows - step, off)[0]) / 2e-5
        np.testing.assert_allclose(jacobian[:, :, k], numeric, atol=1e-5)
    np.testing.assert_allclose(model(rows, off)[1], np.einsum("nii->ni", jacobian), atol=1e-10)


def test_targets_have_a_score_of_their_own():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((8000, 1))
    intervened = np.arange(8000)[:, None] % 2 == 0
    rows[intervened[:, 0]] = 5 + 0.5 * rng.standard_normal((4000, 1))
    model = fitted(rows, np.zeros((1, 1), dtype=bool), intervened)
    at = np.array([[5.5]])
    assert model(at, np.array([[True]]))[0][0, 0] == pytest.approx(-2.0, abs=0.3)


def test_weights_are_as_good_as_repetition():
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((600, 2))
    twice = np.repeat(np.arange(600), np.where(np.arange(600) < 300, 2, 1))
    graph = CHAIN[:2, :2]
    splines = CubicSplines.spanning(rows, 4)
    off = np.zeros((600, 2), dtype=bool)
    weights = np.where(np.arange(600) < 300, 2.0, 1.0)
    one = StructuredScore.fit(rows, off, graph, splines=splines, ridge=0.01, weights=weights)
    two = StructuredScore.fit(
        rows[twice], off[:1].repeat(900, 0), graph, splines=splines, ridge=0.01
    )
    np.testing.assert_allclose(one(rows, off)[0], two(rows, off)[0], atol=1e-8)


def test_cross_validation_is_wary_of_few_rows():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((20_000, 2)) @ [[1, 0.5], [0, 1]]
    few, many = (fitted(rows[:n], CHAIN[:2, :2], n_knots=10).ridges[0][0] for n in (60, 20_000))
    assert few >= many


class TestProductsOfManyLatents:
    """Beyond two latents the design is sparse; the answer is that of the dense equations."""

    @pytest.mark.parametrize("ridge", [1e-4, None])
    @pytest.mark.parametrize("penalty", ["size", "curvature"])
    def test_as_the_dense_equations(
        self, monkeypatch: pytest.MonkeyPatch, ridge: Any, penalty: Any
    ):
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((400, 3)) * [1, 2, 3]
        rows[:3] *= 4  # outside the knots
        intervened = rng.random((400, 3)) < 0.3
        weights = rng.random(400)
        graph = np.triu(np.ones((3, 3), dtype=bool), k=1)
        options: Any = {"interactions": "tensor", "ridge": ridge, "penalty": penalty}
        answers = []
        for most_dense in (2, 3):
            monkeypatch.setattr(_terms, "_MOST_DENSE", most_dense)
            model = fitted(rows, graph, intervened, n_knots=4, weights=weights, **options)
            answers.append(model(rows, intervened, jacobian=True))
            assert model.coefficients[2][0].shape == (6**3,)  # type: ignore[union-attr]
        for sparse, dense in zip(*answers, strict=True):
            np.testing.assert_allclose(sparse, dense, atol=1e-6 * np.abs(dense).max())

    def test_the_published_size(self):
        """Ten splines of four latents: 10,000 features."""
        rng = np.random.default_rng(1)
        rows = rng.standard_normal((500, 4))
        graph = np.triu(np.ones((4, 4), dtype=bool), k=1)
        model = fitted(rows, graph, n_knots=8, interactions="tensor", penalty="size", ridge=1e-2)
        assert model.coefficients[3][0].shape == (10_000,)  # type: ignore[union-attr]
        score, _ = model(rows, np.zeros(rows.shape, dtype=bool))
        assert np.corrcoef(score[:, 3], -rows[:, 3])[0, 1] > 0.7

    def test_what_does_not_fit_into_memory_is_refused(self):
        graph = np.zeros((9, 9), dtype=bool)
        graph[:8, 8] = True
        rows = np.random.default_rng(0).standard_normal((500, 9))
        with pytest.raises(ValueError, match=r"7 splines of each of 9 latents.*fewer parents"):
            fitted(rows, graph, interactions="tensor")


def test_what_was_never_seen_is_refused():
    rows = np.random.default_rng(0).standard_normal((50, 2))
    model = fitted(rows, CHAIN[:2, :2])
    with pytest.raises(ValueError, match="No environment of the fit intervenes on latent 1"):
        model(rows, np.array([[False, True]] * 50))
