from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

from crlearn.flows import CouplingFlow
from crlearn.persist import read_record, write_record

RNG = np.random.default_rng(0)


def random_flow(n_variables: int, n_layers: int = 3, width: int = 8) -> CouplingFlow:
    """A flow whose last layers are not zero."""
    flow = CouplingFlow.random(jax.random.key(0), n_variables, n_layers, width)
    draw = lambda leaf: 0.4 * RNG.normal(size=leaf.shape).astype(np.float32)  # noqa: E731
    return jax.tree.map(draw, flow)


def rows(n_rows: int, n_variables: int) -> np.ndarray:
    return RNG.normal(size=(n_rows, n_variables)).astype(np.float32)


def test_it_starts_gaussian():
    flow, x = CouplingFlow.random(jax.random.key(0), 3, 2, 4), rows(5, 3)
    wanted = -0.5 * (x**2).sum(axis=1) - 1.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(flow.log_density(x), wanted, rtol=1e-5)


@pytest.mark.parametrize("n_variables", [1, 2, 5])
def test_the_inverse_is_exact(n_variables: int):
    flow, x = random_flow(n_variables), rows(50, n_variables)
    z, _ = flow.forward(x)
    assert np.abs(np.asarray(z) - x).max() > 0.1
    np.testing.assert_allclose(flow.inverse(z), x, atol=1e-5)


@pytest.mark.parametrize("n_variables", [1, 2, 5])
def test_the_log_determinant_is_that_of_the_jacobian(n_variables: int):
    flow, x = random_flow(n_variables), rows(10, n_variables)
    _, found = flow.forward(x)
    jacobians = jax.vmap(jax.jacfwd(lambda row: flow.forward(row)[0]))(x)
    _, wanted = np.linalg.slogdet(np.asarray(jacobians))
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_it_is_a_density_whatever_the_weights():
    axis = np.linspace(-15, 15, 601, dtype=np.float32)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    density = np.exp(np.asarray(random_flow(2).log_density(grid)))
    assert density.sum() * (axis[1] - axis[0]) ** 2 == pytest.approx(1.0, abs=1e-3)


def test_it_survives_saving(tmp_path: Path):
    flow, x = random_flow(3), rows(4, 3)
    write_record(tmp_path / "flow.crl", kind="test", record={"flow": flow})
    again = read_record(tmp_path / "flow.crl", kind="test")["flow"]
    np.testing.assert_array_equal(again.log_density(x), flow.log_density(x))
