from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_count_interventional


def world(**options: Any) -> Any:
    return make_count_interventional(3, 30, 4000, random_state=0, **options)


@pytest.mark.parametrize("kind", ["single-node", "multi-node"])
def test_counts_have_the_rates_of_the_truth(kind: str):
    data = world(kind=kind, mean_count=8.0)
    rates = data.truth.mixing(data.truth.Z)
    noise = data.X - rates
    assert (data.X >= 0).all()
    np.testing.assert_array_equal(data.X, data.X.round())
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.1)
    np.testing.assert_allclose(noise.var(axis=0) / rates.mean(axis=0), 1, atol=0.05)
    assert data.truth.measurement_noise == pytest.approx(np.sqrt(data.X.mean()))


def test_means_differ_between_features():
    means = world(mean_count=8.0).X.mean(axis=0)
    assert means.mean() == pytest.approx(8, rel=0.15)
    assert means.min() < 4
    assert means.max() > 12


def test_rates_spread_as_asked_and_are_hardly_ever_clipped():
    data = world(spread=0.3)
    rates = data.truth.mixing(data.truth.Z)
    typical = data.truth.mixing(np.zeros((1, 3)))[0]
    sds = np.max([rates[data.y == e].std(axis=0) for e in range(4)], axis=0)
    np.testing.assert_allclose(sds / typical, 0.3)
    assert (rates < 0).mean() < 1e-3


def test_shifts_move_the_means_of_environments():
    still, moved = world(), world(shift=2.0)
    spread = [
        np.std([each.X[each.y == e].mean(axis=0) for e in range(4)], axis=0).max()
        for each in (still, moved)
    ]
    assert spread[1] > 5 * spread[0]
    Z, y = moved.truth.Z, moved.y
    for j in range(3):
        off = Z[y == j + 1, j].mean() - Z[y == 0, j].mean()
        assert abs(off) == pytest.approx(2 * Z[y == 0, j].std(), rel=0.15)


def test_targets_and_graph_are_those_of_the_interventions():
    data = world()
    np.testing.assert_array_equal(data.truth.targets, np.eye(4, 3, -1))
    assert data.truth.graph.shape == (3, 3)


@pytest.mark.parametrize("name", ["mean_count", "spread"])
def test_sizes_must_be_positive(name: str):
    with pytest.raises(ValueError, match=f"'{name}' must be a positive number. Got 0"):
        world(**{name: 0})
