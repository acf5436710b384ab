from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from crlearn.data import make_multi_domain
from crlearn.likelihood import Domains, Invariance
from crlearn.likelihood.domains._start import (
    rotation_by_shifts,
    rotation_by_spreads,
    unmixing_by_steps,
    with_signs,
    with_unit_columns,
)
from crlearn.metrics import frobenius


def domains_of(world: Any, **options: Any) -> Domains:
    """Moments in the coordinates of the true latents, turned by a random rotation."""
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((world.truth.n_latents,) * 2))[0]
    inner = np.linalg.qr(world.truth.mixing.matrix)[0]
    rows = world.X @ inner @ turn
    codes = world.y - world.y.min()
    variance = world.truth.measurement_noise**2
    targets, graph = world.truth.targets, world.truth.graph
    return Domains.of(rows, codes, targets, graph, noise_variance=variance, **options)


def true_unmixing(world: Any) -> Any:
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((world.truth.n_latents,) * 2))[0]
    inner = np.linalg.qr(world.truth.mixing.matrix)[0]
    return np.linalg.inv(turn.T @ inner.T @ world.truth.mixing.matrix)


def error(unmixing: Any, world: Any) -> float:
    return frobenius(np.linalg.inv(true_unmixing(world)), np.linalg.inv(unmixing))


def world(**options: Any) -> Any:
    return make_multi_domain(**{"n_features": 10, "n_samples": 1000, "random_state": 1, **options})


def test_what_an_intervention_moves():
    domains = domains_of(world(observational=True))
    np.testing.assert_array_equal(domains.moved[0], [False] * 4)
    np.testing.assert_array_equal(domains.moved[2], [False, True, True, True])
    assert domains.observational.tolist() == [0]
    assert domains.order == [3, 2, 1, 0]


def test_shifts_give_the_rotation():
    data = world()
    found, standing_out = rotation_by_shifts(domains_of(data))
    np.testing.assert_allclose(found @ found.T, np.eye(4), atol=1e-12)
    assert error(found, data) < 0.01
    assert standing_out > 30


def test_base_means_need_an_observational_domain():
    data = world(base_mean_sd=3.0)
    assert error(rotation_by_shifts(domains_of(data))[0], data) > 0.05
    data = world(base_mean_sd=3.0, observational=True)
    assert error(rotation_by_shifts(domains_of(data))[0], data) < 0.01


def test_spreads_give_the_rotation_where_means_do_not_move():
    data = world(intervened_mean=0.0, intervened_variance=30.0, observational=True)
    assert error(rotation_by_spreads(domains_of(data)), data) < 0.2


def test_steps_give_columns_that_are_not_orthogonal():
    data = world(mixing_skew=0.2, observational=True, mechanism="tanh", n_samples=20_000)
    found = unmixing_by_steps(domains_of(data))
    assert error(found, data) < 0.1
    np.testing.assert_allclose(np.linalg.norm(np.linalg.inv(found), axis=0), 1)
    with pytest.raises(ValueError, match="observational"):
        unmixing_by_steps(domains_of(world(mixing_skew=0.2)))


class TestInvariance:
    @pytest.mark.parametrize("zero_base", [False, True])
    @pytest.mark.parametrize("hard", [False, True])
    def test_gradient(self, zero_base: bool, hard: bool):
        criterion = Invariance(
            domains_of(world(observational=True), hard=hard), zero_base=zero_base
        )
        start = np.random.default_rng(1).standard_normal((4, 4))
        value = lambda w: criterion(w.reshape(4, 4))[0]  # noqa: E731
        numeric = np.asarray(approx_fprime(start.ravel(), value, 1e-7), dtype=float)
        exact = criterion(start)[1].ravel()
        np.testing.assert_allclose(exact, numeric, atol=1e-4 * np.abs(numeric).max())

    def test_the_truth_fits_and_others_do_not(self):
        data = world(observational=True)
        criterion = Invariance(domains_of(data))
        truth = true_unmixing(data)
        assert criterion(truth)[0] < 3 * criterion.freedom
        assert criterion(truth[[1, 0, 2, 3]])[0] > 100 * criterion.freedom

    def test_scales_and_signs_of_rows_do_not_matter(self):
        criterion = Invariance(domains_of(world(observational=True)))
        start = np.random.default_rng(1).standard_normal((4, 4))
        scaled = start * np.array([-2.0, 0.1, 30.0, 1.0])[:, None]
        assert criterion(scaled)[0] == pytest.approx(criterion(start)[0])

    def test_best_rotation_is_a_rotation_and_better(self):
        data = world(intervened_mean=2.0, observational=True)
        domains = domains_of(data)
        criterion = Invariance(domains)
        start = rotation_by_shifts(domains)[0]
        found, value = criterion.best_rotation(start)
        assert value < criterion(start)[0]
        np.testing.assert_allclose(found @ found.T, np.eye(4), atol=1e-10)
        assert error(found, data) < error(start, data)

    def test_best_unmixing(self):
        data = world(mixing_skew=0.2, observational=True)
        domains = domains_of(data)
        found, _ = Invariance(domains).best_unmixing(rotation_by_shifts(domains)[0])
        assert error(found, data) < 0.1


def test_signs_and_scales():
    domains = domains_of(world())
    truth = with_signs(np.random.default_rng(2).standard_normal((4, 4)), domains)
    turned = with_unit_columns(truth * np.array([1.0, -2.0, 3.0, -4.0])[:, None], domains)
    np.testing.assert_allclose(turned, with_unit_columns(truth, domains))
    assert ((turned @ domains.means.T).T[domains.targets] > 0).all()
