from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.variational import EvidenceBound, Parameters, Rows, noise_variance, straight_start
from crlearn.variational import posterior as posterior_of

OBJECTIVE = EvidenceBound(
    n_features=3,
    n_rest=0,
    own=((False, False), (True, False)),
    causes=((False, True), (False, False)),
    mixing="any",
    width=4,
)


@pytest.fixture(scope="module", params=["any", "orthogonal", "nonlinear"])
def start(request: pytest.FixtureRequest) -> tuple[Parameters, Rows, np.ndarray]:
    rng = np.random.default_rng(0)
    codes = np.arange(60) % 2
    z = rng.normal(size=(60, 2)) * [3.0, 1.0] + np.outer(codes, [5.0, 0.0])
    mixing = np.linalg.qr(rng.normal(size=(3, 2)))[0]
    rows = Rows(jnp.asarray(z @ mixing.T, float), jnp.zeros(60), jnp.asarray(codes))
    objective = replace(OBJECTIVE, mixing=request.param)
    return straight_start(objective, rows, mixing.T, mixing, 0.04, jax.random.key(0)), rows, z


def test_networks_are_the_linear_maps(start: tuple[Parameters, Rows, np.ndarray]):
    params, rows, z = start
    standard = z / z.std(axis=0)
    found = posterior_of(params, rows.x, rows.codes)
    np.testing.assert_allclose(found.mean, standard, atol=1e-4)
    np.testing.assert_allclose(params.decoder(jnp.asarray(standard, float)), rows.x, atol=1e-4)
    sd = np.sqrt(np.asarray(found.root[0] @ found.root[0].T).diagonal())
    np.testing.assert_allclose(sd, np.maximum(0.2 / z.std(axis=0), 0.05), rtol=1e-3)
    assert float(noise_variance(params)) == pytest.approx(0.04, abs=2e-4)


def test_the_prior_has_the_moments_of_the_rows(start: tuple[Parameters, Rows, np.ndarray]):
    params, rows, z = start
    standard, codes = z / z.std(axis=0), np.asarray(rows.codes)
    prior: Any = params.prior
    first = standard[codes == 0]
    assert prior.mean[0] == pytest.approx(first[:, 0].mean(), abs=1e-4)
    assert prior.mean[1] == pytest.approx(standard[:, 1].mean(), abs=1e-4)
    hit = standard[codes == 1, 0]
    assert prior.own_mean[1, 0] == pytest.approx(hit.mean(), rel=1e-3)
    assert prior.own_log_scale[1, 0] == pytest.approx(np.log(hit.std()), abs=1e-3)
    np.testing.assert_array_equal(prior.slopes, 0)
