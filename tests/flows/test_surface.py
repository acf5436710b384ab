from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.config import numerics
from crlearn.flows import OnSurface, SegmentObjective, SmoothFlow, SurfaceFlow
from crlearn.persist import read_record, write_record

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def in_double_precision() -> Any:
    with numerics():
        yield


@pytest.fixture
def flow() -> SurfaceFlow:
    return SurfaceFlow.random(jax.random.key(0), 4, 2)


def scaling(factors: list[float]) -> SmoothFlow:
    """Return a map that multiplies coordinates by factors."""
    n = len(factors)
    return SmoothFlow(
        np.stack([np.diag(factors), np.eye(n)]),
        np.zeros((2, n)),
        np.ones((1, n, 1)),
        np.full((1, 1), -800.0),
        np.zeros((1, 1)),
    )


def test_the_density_off_the_surface():
    """By hand: outputs (2, 3) of which the second is off the surface, noise 0.5, determinant 6."""
    z, density = SurfaceFlow(scaling([2.0, 3.0]), 1).forward(np.ones((1, 2)), noise=0.5)
    np.testing.assert_allclose(z, [[2.0]])
    np.testing.assert_allclose(density, np.log(6) - 0.5 * (3 / 0.5) ** 2 - np.log(0.5))


def test_it_starts_at_the_leading_coordinates(flow: SurfaceFlow):
    """Of rows as large as these, bends change little."""
    rows = 1e4 * RNG.normal(size=(200, 4))
    outputs = np.asarray(flow.whole(rows))
    slopes = np.linalg.lstsq(rows, outputs)[0]
    across = np.abs(slopes[:2, 2:]).max(), np.abs(slopes[2:, :2]).max()
    assert max(across) < 0.25
    assert np.abs(np.linalg.det(slopes[:2, :2])) > 0.9
    np.testing.assert_array_equal(flow(rows), outputs[:, :2])


def test_restarts_start_elsewhere():
    rows = RNG.normal(size=(50, 4))
    one, other = (SurfaceFlow.random(jax.random.key(k), 4, 2)(rows) for k in (0, 1))
    assert np.abs(np.asarray(one) - np.asarray(other)).max() > 0.1


def test_points_of_the_surface_have_their_latents(flow: SurfaceFlow):
    z = RNG.normal(size=(20, 2))
    points = flow.inverse(z)
    assert points.shape == (20, 4)
    np.testing.assert_allclose(flow(points), z, atol=1e-6)
    np.testing.assert_allclose(flow.whole(points)[:, 2:], 0, atol=1e-6)


def test_it_survives_saving(tmp_path: Path, flow: SurfaceFlow):
    write_record(tmp_path / "flow.crl", kind="test", record={"flow": flow})
    again = read_record(tmp_path / "flow.crl", kind="test")["flow"]
    rows = RNG.normal(size=(5, 4))
    np.testing.assert_array_equal(again(rows), flow(rows))
    assert again.n_latents == 2


class Weights(NamedTuple):
    flow: Any


class Spy:
    """An objective that returns what it is given."""

    n_latents, n_blocks, n_units = 1, 2, 3

    def init(self, key: Any) -> Weights:
        return Weights(None)

    def loss(self, params: Any, batch: Any, key: Any, progress: Any) -> Any:
        return params, batch


def test_the_objective_sees_noisy_rows_and_the_noise():
    batch = jnp.asarray(RNG.normal(size=(4000, 5)))
    objective = OnSurface(Spy(), n_variables=3, settled=0.5)
    params = objective.init(jax.random.key(0))
    assert params.flow.whole.directions.shape == (2, 3, 3)
    sizes = []
    for progress in (0.0, 0.25, 0.5, 1.0):
        seen, rows = objective.loss(params, batch, jax.random.key(1), jnp.asarray(progress))
        errors = np.asarray(rows - batch)
        np.testing.assert_array_equal(errors[:, 3:], 0)  # covariates
        assert errors[:, :3].std() == pytest.approx(float(seen.flow.noise), rel=0.05)
        sizes.append(float(seen.flow.noise))
    assert sizes == pytest.approx([0.3, np.sqrt(0.3 * 0.01), 0.01, 0.01])


def test_structure_is_revised_where_the_objective_does_that():
    """The second latent follows the first in steps that are different in each segment."""
    rows = RNG.normal(size=(200, 4, 3)).astype(np.float32)
    rows[..., 1] += np.array([-3, -1, 1, 3]) * np.tanh(4 * rows[..., 0])
    assert OnSurface(Spy(), 3).revise(Weights(None), rows, 0.3) is None
    objective = OnSurface(SegmentObjective(2, (200,) * 4), 3)
    params = objective.init(jax.random.key(0))
    params = params._replace(flow=SurfaceFlow(scaling([1.0, 1.0, 1.0]), 2))
    assert objective.revise(params, rows, 0.0) is None
    revised = objective.revise(params, rows, 0.3)
    assert revised is not None
    np.testing.assert_array_equal(revised.before, [[False, True], [False, False]])
