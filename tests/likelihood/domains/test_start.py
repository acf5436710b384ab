from __future__ import annotations

from typing import Any

import numpy as np

from crlearn.data import make_multi_domain
from crlearn.likelihood import Domains
from crlearn.likelihood.domains._start import (
    rotation_by_shifts,
    rotation_by_spreads,
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


def test_signs_and_scales():
    domains = domains_of(world())
    truth = with_signs(np.random.default_rng(2).standard_normal((4, 4)), domains)
    turned = with_unit_columns(truth * np.array([1.0, -2.0, 3.0, -4.0])[:, None], domains)
    np.testing.assert_allclose(turned, with_unit_columns(truth, domains))
    assert ((turned @ domains.means.T).T[domains.targets] > 0).all()
