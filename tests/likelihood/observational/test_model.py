"""The log evidence of a structure: 0 for a Gaussian, exact derivatives, largest near the truth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crlearn.graph import complete_graph, graph_of
from crlearn.likelihood import Fit
from crlearn.likelihood._price import relevance_edge_price
from crlearn.likelihood.nodes._relevance import occam
from crlearn.likelihood.observational._model import RelevanceModel, _Coordinates, has_hidden_units

CHAIN = ((), (0,), (1,))
COLLIDER = ((), (), (0, 1))
COMPLETE = complete_graph(range(3))


def shaken(fit: Fit) -> Fit:
    """Return a structure whose shapes differ in every number."""
    rng = np.random.default_rng(1)
    flats = [shape.flat() for shape in fit.parameters]
    shapes = tuple(
        shape.filled(flat + 0.2 * rng.standard_normal(len(flat)))
        for shape, flat in zip(fit.parameters, flats, strict=True)
    )
    return replace(fit, parameters=shapes)


class TestScore:
    def test_a_gaussian_without_edges_has_zero_nats(self, chain: Any):
        rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
        fit = chain.model.scored(chain.model.start(rotation, ((),) * 3))
        assert fit.log_likelihood == pytest.approx(0, abs=1e-8)
        assert fit.score == fit.log_likelihood

    def test_every_edge_has_its_price(self, chain: Any):
        for graph in (CHAIN, COMPLETE):
            fit = chain.model.scored(chain.model.start(chain.H, graph))
            assert fit.price == pytest.approx(relevance_edge_price(3) * fit.n_edges)
            assert fit.score == fit.log_likelihood - fit.price

    def test_it_is_a_volume_and_a_node_for_each_latent(self, chain: Any):
        fit = chain.model.scored(chain.model.start(chain.H, CHAIN))
        volume = 500 * np.log(abs(np.linalg.det(fit.H)))
        assert fit.log_likelihood == pytest.approx(volume - chain.model.costs(fit).sum())

    def test_an_unscored_structure_is_behind_all_others(self, chain: Any):
        fit = chain.model.start(chain.H, CHAIN)
        assert fit.score < chain.model.scored(fit).score
        assert fit.mechanisms == "nonlinear"

    def test_without_hidden_units_it_is_what_fits_maximise(self, chain: Any):
        fit = chain.model.scored(chain.model.start(chain.H, COMPLETE))
        assert -chain.model.objective(fit) == pytest.approx(fit.log_likelihood)

    def test_with_hidden_units_it_counts_their_volume(self, chain: Any):
        model = chain.model
        fit = model.scored(model.start(chain.H, COMPLETE, hidden_units=True))
        (*_, found), causes = model.regressions(fit), model.latents(fit)[:, :2]
        volume = occam(found, causes, fit.parameters[2])
        assert abs(volume) > 1
        assert -model.objective(fit) - volume == pytest.approx(fit.log_likelihood)

    def test_a_needless_edge_costs_no_evidence(self, chain: Any):
        model = chain.model
        sparse, dense = (
            model.scored(model.fitted(model.start(chain.H, graph), 100))
            for graph in (CHAIN, COMPLETE)
        )
        assert dense.log_likelihood == pytest.approx(sparse.log_likelihood, abs=4)
        assert dense.score < sparse.score


class TestEquivalentDescriptions:
    """Names, signs and axes do not matter."""

    @pytest.fixture
    def fit(self, chain: Any) -> Fit:
        """All edges, hidden units, and shapes of which no two are alike."""
        return chain.model.scored(shaken(chain.model.start(chain.H, COMPLETE, hidden_units=True)))

    def test_signs_of_latents(self, chain: Any, fit: Fit):
        signs = np.array([-1.0, 1.0, -1.0])
        shapes = tuple(
            replace(shape, directions=shape.directions * signs[list(parents)])
            for parents, shape in zip(fit.graph, fit.parameters, strict=True)
        )
        mirrored = replace(fit, H=fit.H * signs[:, None], parameters=shapes)
        assert chain.model.scored(mirrored).score == pytest.approx(fit.score)

    def test_order_of_latents(self, chain: Any, fit: Fit):
        order = [2, 0, 1]
        place = np.argsort(order)
        shapes = tuple(
            fit.parameters[j].reordered(np.argsort(place[list(fit.graph[j])])) for j in order
        )
        graph = graph_of(fit.adjacency[np.ix_(order, order)])
        other = replace(fit, H=fit.H[order], graph=graph, parameters=shapes)
        assert other.graph == ((1, 2), (), (1,))
        assert chain.model.scored(other).score == pytest.approx(fit.score)

    def test_axes_and_order_of_rows(self, chain: Any, fit: Fit):
        rng = np.random.default_rng(2)
        Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        rotated = RelevanceModel(chain.model.y[rng.permutation(500)] @ Q)
        assert rotated.scored(replace(fit, H=fit.H @ Q)).score == pytest.approx(fit.score)

    def test_lengths_of_rows(self, chain: Any, fit: Fit):
        longer = chain.model.start(fit.H * [[3.0], [0.1], [7.0]], fit.graph)
        np.testing.assert_allclose(longer.H, fit.H)
        assert np.linalg.norm(longer.H, axis=1) == pytest.approx([1, 1, 1])


@pytest.mark.parametrize(
    ("graph", "hidden_units"), [(CHAIN, False), (COMPLETE, False), (COMPLETE, True)]
)
def test_derivatives(chain: Any, graph: Any, hidden_units: bool):
    """By encoder and shapes, along random directions, in the coordinates of the fit."""
    fit = shaken(chain.model.start(chain.H, graph, hidden_units=hidden_units))
    coordinates = _Coordinates(chain.model, fit)
    assert coordinates.slope(coordinates.start)[0] == pytest.approx(chain.model.objective(fit))
    rng = np.random.default_rng(0)
    at = coordinates.start + 0.3 * rng.standard_normal(len(coordinates.start))
    _, by_x = coordinates.slope(at)
    for along in rng.standard_normal((5, len(at))):
        up, down = (coordinates.slope(at + step * along)[0] for step in (1e-5, -1e-5))
        assert by_x @ along == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-4)


class TestFitted:
    def test_the_truth_is_found_again_from_nearby(self, chain: Any):
        model, rng = chain.model, np.random.default_rng(2)
        start = model.scored(model.start(chain.H + 0.1 * rng.standard_normal((3, 3)), CHAIN))
        fitted = model.scored(model.fitted(start, 100))
        assert fitted.score > start.score + 10
        residuals = model.residuals(fitted)
        for j in range(3):
            assert abs(np.corrcoef(residuals[:, j], chain.noise[:, j])[0, 1]) > 0.98

    def test_it_ends_where_derivatives_vanish(self, chain: Any):
        fitted = chain.model.fitted(chain.model.start(chain.H, CHAIN), 200)
        coordinates = _Coordinates(chain.model, fitted)
        _, by_x = coordinates.slope(coordinates.start)
        low, high = coordinates.bounds
        inside = (coordinates.start > low + 1e-6) & (coordinates.start < high - 1e-6)
        assert inside.sum() > 9  # the encoder, and precisions that matter
        assert np.abs(by_x[inside]).max() < 0.2  # curvature is about one: a fiftieth of a nat

    def test_more_steps_are_never_worse(self, chain: Any):
        fit = chain.model.start(np.eye(3), COMPLETE)
        values = [chain.model.objective(chain.model.fitted(fit, steps)) for steps in (0, 3, 10, 60)]
        assert values[0] == chain.model.objective(fit)
        assert values == sorted(values, reverse=True)
        assert values[-1] < values[0] - 50

    def test_rows_keep_their_length(self, chain: Any):
        fitted = chain.model.fitted(chain.model.start(np.eye(3), COMPLETE), 10)
        assert np.linalg.norm(fitted.H, axis=1) == pytest.approx([1, 1, 1])


class TestShaped:
    def test_the_encoder_stays_and_the_score_rises(self, chain: Any):
        fit = chain.model.scored(chain.model.start(chain.H, CHAIN))
        shaped = chain.model.scored(chain.model.shaped(fit))
        assert shaped.H is fit.H
        assert shaped.score > fit.score + 1

    def test_of_some_latents(self, chain: Any):
        fit = chain.model.start(chain.H, CHAIN)
        shaped = chain.model.shaped(fit, [2])
        kept = [new is old for new, old in zip(shaped.parameters, fit.parameters, strict=True)]
        assert kept == [True, True, False]


def test_residuals_are_what_mechanisms_leave(chain: Any):
    model = chain.model
    fit = model.shaped(model.start(chain.H, CHAIN))
    Z, residuals = model.latents(fit), model.residuals(fit)
    np.testing.assert_allclose(Z, model.y @ fit.H.T)
    np.testing.assert_allclose(residuals[:, 0], Z[:, 0] - Z[:, 0].mean())
    assert residuals[:, 1].var() < 0.5 * Z[:, 1].var()
    for found, residual in zip(model.regressions(fit), residuals.T, strict=True):
        np.testing.assert_array_equal(found.residual, residual)


class TestHiddenUnits:
    def test_useless_ones_are_left_out(self, chain: Any):
        fit = chain.model.start(chain.H, COMPLETE, hidden_units=True)
        assert [shape.n_hidden > 0 for shape in fit.parameters] == [False, False, True]
        assert has_hidden_units(fit)
        kept = chain.model.only_useful_hidden_units(chain.model.fitted(fit, 40))
        assert not has_hidden_units(kept)

    def test_useful_ones_stay(self, network: Any):
        fit = network.model.start(network.H, COLLIDER, hidden_units=True)
        fit = network.model.fitted(fit, 40)
        assert network.model.only_useful_hidden_units(fit).parameters[2] is fit.parameters[2]

    def test_other_starts_are_taken_where_they_fit_better(self, network: Any):
        model = network.model
        poor = model.scored(model.start(network.H, COLLIDER, hidden_units=True))
        better = model.scored(model.with_better_hidden_units(poor))
        assert better.score > poor.score + 10
        assert better.parameters[0] is poor.parameters[0]
        again = model.with_better_hidden_units(better)
        assert again.parameters[2] is better.parameters[2]
