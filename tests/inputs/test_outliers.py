from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_broken, make_linear_interventional
from crlearn.inputs import MOST_FAR_OUT, robust_distances

N_LATENTS, N_FEATURES, N_ROWS = 3, 8, 1000


def clean(mechanism: str = "linear") -> Any:
    return make_linear_interventional(
        N_LATENTS, N_FEATURES, N_ROWS, mechanism=mechanism, random_state=0
    )


def moved(world: Any, where: str, size: float) -> tuple[Any, Any]:
    """Move one row in a hundred."""
    rng, X, sd = np.random.default_rng(0), np.array(world.X), world.X.std(axis=0)
    rows = rng.choice(len(X), len(X) // 100, replace=False)
    if where == "one feature":
        X[rows, 2] += size * sd[2]
    elif where == "all features":
        X[rows] += size * sd * rng.standard_normal((len(rows), len(sd)))
    else:
        directions = rng.standard_normal((len(rows), N_LATENTS))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        X[rows] += size * directions * world.truth.Z.std(axis=0) @ world.truth.mixing.matrix.T
    return X, np.isin(np.arange(len(X)), rows)


@pytest.mark.parametrize("mechanism", ["linear", "quadratic"])
def test_hardly_any_clean_row_is_far_out(mechanism: str):
    world = clean(mechanism)
    weights = robust_distances(world.X, world.y, N_LATENTS).weights()
    assert set(weights) <= {0.0, 1.0}
    assert (weights == 0).sum() <= 2


@pytest.mark.parametrize("n_latents", [None, N_LATENTS])
@pytest.mark.parametrize("size", [10, 100])
@pytest.mark.parametrize("where", ["latents", "all features", "one feature"])
def test_rows_far_out_are_found(where: str, size: float, n_latents: int | None):
    X, far = moved(clean(), where, size)
    weights = robust_distances(X, clean().y, n_latents).weights()
    assert (weights[far] == 0).mean() > 0.97
    assert (weights[~far] == 0).sum() <= 2


@pytest.mark.parametrize("size", [1e60, 1e300])
def test_no_row_is_too_far_out(size: float):
    X, far = moved(clean(), "one feature", size)
    weights = robust_distances(X, clean().y, N_LATENTS).weights()
    assert (weights[far] == 0).all()
    assert (weights[~far] == 0).sum() <= 2


def test_rows_that_do_not_vary_are_not_far_out():
    assert (robust_distances(np.ones((50, 3)), np.zeros(50, dtype=int)).weights() == 1).all()


def test_measurement_noise_is_not_far_out():
    world: Any = make_broken(N_LATENTS, N_FEATURES, N_ROWS, broken="30% noise", random_state=0)
    for n_latents in (None, N_LATENTS):
        assert (robust_distances(world.X, world.y, n_latents).weights() == 0).sum() <= 2


def test_more_features_than_rows():
    world: Any = make_linear_interventional(2, 300, 60, random_state=0)
    X, far = np.array(world.X), 7
    X[far] += 50 * X.std(axis=0)
    weights = robust_distances(X, world.y, 2).weights()
    assert weights[far] == 0
    assert (weights == 0).sum() <= 3


def test_nearest_rows_are_a_share_of_each_environment():
    world = clean()
    near = robust_distances(world.X, world.y, N_LATENTS).nearest(0.9)
    assert [len(rows) for rows in near] == [0.9 * N_ROWS] * (N_LATENTS + 1)
    assert all((world.y[rows] == e).all() for e, rows in enumerate(near))


def test_too_many_rows_are_no_outliers():
    """A fifth of the rows is a group of its own."""
    world = clean()
    X = np.array(world.X)
    X[:: int(1 / (4 * MOST_FAR_OUT))] += 20 * X.std(axis=0)
    assert (robust_distances(X, world.y, N_LATENTS).weights() == 1).all()


def test_units_do_not_matter():
    X, _ = moved(clean(), "latents", 10)
    units = 10.0 ** np.arange(N_FEATURES)
    before, after = (
        robust_distances(rows, clean().y, N_LATENTS).weights() for rows in (X, X * units)
    )
    assert np.array_equal(before, after)
