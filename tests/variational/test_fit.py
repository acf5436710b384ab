from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.train import Training
from crlearn.variational import EvidenceBound, Rows, fit_prior, straight_start

OBJECTIVE = EvidenceBound(
    n_features=2,
    n_rest=0,
    own=((False, False), (True, False)),
    causes=((False, True), (False, False)),
    mixing="any",
    width=4,
    depth=1,
    n_components=1,
)
TURNED = np.array([[0.6, 0.8], [-0.8, 0.6]])


@pytest.fixture(scope="module")
def fit() -> Training:
    """Two restarts: one at the truth, one turned away from it, and hardly any training."""
    rng, codes = np.random.default_rng(0), np.arange(600) % 2
    z = rng.normal(size=(600, 2))
    z[codes == 1, 0] *= 0.1
    rows = Rows(jnp.asarray(z, float), jnp.zeros(600), jnp.asarray(codes))
    starts = [
        straight_start(OBJECTIVE, rows, turn, turn.T, 0.01, jax.random.key(0))
        for turn in (TURNED, np.eye(2))
    ]
    training, held_out = (
        Rows(*(np.asarray(part)[chosen] for part in rows))  # type: ignore[arg-type]
        for chosen in (slice(60, None), slice(60))
    )
    return fit_prior(OBJECTIVE, starts, training, held_out, n_steps=20, seed=0)


def test_the_best_restart_is_the_answer(fit: Training):
    first, second = fit.history["restart_loss"]
    assert fit.loss == second < first
    assert fit.gaps == (pytest.approx(first - second),)
    assert fit.stopped == "max_epochs"


def test_restarts_are_compared_latent_by_latent(fit: Training):
    assert len(fit.agreements) == 1
    assert 0.3 < fit.agreements[0] < 0.95
