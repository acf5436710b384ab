from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from crlearn.config import config_context, numerics
from crlearn.flows import SmoothFlow
from crlearn.persist import read_record, write_record


def bent_flow(n_variables: int) -> SmoothFlow:
    """A flow with bends that are stronger than those of a fresh one."""
    normal = np.random.default_rng(0).normal
    n, n_blocks, n_units = n_variables, 2, 4
    return SmoothFlow(
        matrices=np.eye(n) + 0.3 * normal(size=(n_blocks + 1, n, n)),
        offsets=normal(size=(n_blocks + 1, n)),
        directions=normal(size=(n_blocks, n, n_units)),
        strengths=normal(size=(n_blocks, n_units)),
        thresholds=normal(size=(n_blocks, n_units)),
    )


def rows(n_rows: int, n_variables: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n_rows, n_variables))


@jax.jit
def forward_and_back(flow: SmoothFlow, x: Any) -> tuple[Any, Any, Any]:
    z, log_determinant = flow.forward(x)
    return z, log_determinant, flow.inverse(z)


@jax.jit
def jacobians(flow: SmoothFlow, x: Any) -> Any:
    return jax.vmap(jax.jacfwd(flow))(x)


@cache
def in_double_precision(n_variables: int) -> Any:
    x = 2 * rows(20, n_variables)
    with config_context(precision="float64"), numerics():
        flow = bent_flow(n_variables)
        return jax.tree.map(np.asarray, (x, *forward_and_back(flow, x), jacobians(flow, x)))


@pytest.mark.parametrize("n_variables", [1, 3])
def test_the_log_determinant_is_that_of_the_jacobian(n_variables: int):
    _, _, found, _, slopes = in_double_precision(n_variables)
    wanted = np.linalg.slogdet(slopes)[1]
    assert np.ptp(wanted) > 0.1  # it is not linear
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


@pytest.mark.parametrize("n_variables", [1, 3])
def test_the_inverse_is_exact(n_variables: int):
    x, _, _, back, _ = in_double_precision(n_variables)
    np.testing.assert_allclose(back, x, atol=1e-8)


def test_in_single_precision_with_rows_of_any_number_of_axes():
    x, z, log_determinants, *_ = in_double_precision(3)
    flow = jax.tree.map(lambda leaf: leaf.astype(np.float32), bent_flow(3))
    some = x.reshape(4, 5, 3).astype(np.float32)
    found, determinants, back = forward_and_back(flow, some)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, z.reshape(4, 5, 3), atol=1e-4)
    np.testing.assert_allclose(determinants, log_determinants.reshape(4, 5), atol=1e-4)
    np.testing.assert_allclose(back, some, atol=1e-4)
    far, _, back_from_far = forward_and_back(flow, 1e5 * some)
    np.testing.assert_allclose(back_from_far, 1e5 * some, rtol=1e-3, atol=10)
    farther, *_ = forward_and_back(flow, 2e5 * some)
    np.testing.assert_allclose(farther, 2 * far, rtol=1e-2, atol=1e3)  # linear there


def test_a_fresh_one_bends_a_little():
    x = rows(300, 4).astype(np.float32)
    flow = SmoothFlow.random(jax.random.key(0), 4)
    assert flow.n_variables == 4
    assert flow.directions.shape == (4, 4, 32)
    z = np.asarray(jax.jit(lambda flow, x: flow(x))(flow, x))
    centred, x = z - z.mean(axis=0), x - x.mean(axis=0)
    left = centred - x @ np.linalg.lstsq(x, centred)[0]
    assert 0.001 < left.var() / centred.var() < 0.1


def test_it_survives_saving(tmp_path: Path):
    flow = jax.tree.map(lambda leaf: leaf.astype(np.float32), bent_flow(3))
    write_record(tmp_path / "flow.crl", kind="test", record={"flow": flow})
    again = read_record(tmp_path / "flow.crl", kind="test")["flow"]
    assert isinstance(again, SmoothFlow)
    jax.tree.map(np.testing.assert_array_equal, again, flow)
