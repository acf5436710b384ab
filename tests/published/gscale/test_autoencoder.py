from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.nets import MLP
from crlearn.published.gscale._autoencoder import (
    AutoEncoder,
    TanhDecoder,
    TanhEncoder,
    coordinates_of,
    latent_differences,
    pulled_differences,
    undo_tanh,
)
from crlearn.result import LinearDecoder, LinearEncoder


def test_score_differences_are_those_of_the_jacobian():
    keys = jax.random.split(jax.random.key(0), 4)
    model = AutoEncoder(MLP.random(keys[0], [3, 5, 2]), MLP.random(keys[1], [2, 5, 3], "tanh"))
    x, differences = jax.random.normal(keys[2], (4, 3)), jax.random.normal(keys[3], (4, 6, 3))
    again, pulled = latent_differences(model, x, differences)
    z = model.encode(x)
    jacobians = jax.vmap(jax.jacfwd(model.decode))(z)
    np.testing.assert_allclose(
        pulled, jnp.einsum("rxz,rex->rez", jacobians, differences), atol=1e-5
    )
    np.testing.assert_allclose(again, model.decode(z), atol=1e-6)


def test_atanh_is_finite_up_to_one_and_not_beyond():
    values = undo_tanh(np.array([[-1.0, 0.5, 1.0, 1.1]]))
    assert np.isfinite(values[0, :3]).all()
    assert values[0, 1] == pytest.approx(np.arctanh(0.5), abs=1e-5)
    assert np.isnan(values[0, 3])


def test_blocks_of_rows_give_the_same():
    rng, keys = np.random.default_rng(0), jax.random.split(jax.random.key(0))
    model = AutoEncoder(MLP.random(keys[0], [3, 4, 2]), MLP.random(keys[1], [2, 4, 3], "tanh"))
    rows, differences = rng.normal(size=(7, 3)), rng.normal(size=(5, 7, 3))
    pulled = pulled_differences(model, rows, differences)
    _, expected = latent_differences(model, rows, differences.transpose(1, 0, 2))  # type: ignore[arg-type]
    np.testing.assert_allclose(pulled, np.asarray(expected).transpose(1, 0, 2), atol=1e-5)


def test_tanh_there_and_back():
    matrix = np.random.default_rng(0).normal(size=(2, 2))
    Z = np.random.default_rng(1).normal(size=(5, 2))
    encode = TanhEncoder(LinearEncoder(np.linalg.inv(matrix), np.zeros(2)))
    decode = TanhDecoder(LinearDecoder(matrix, np.zeros(2)))
    np.testing.assert_allclose(encode(decode(Z)), Z, atol=1e-6)
    assert encode.n_latents == 2


def test_coordinates_are_those_of_what_varies():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2)) @ rng.normal(size=(2, 4)) + 3
    found = coordinates_of(X, 2, "mlp")
    assert found.rows.shape == (50, 2)
    np.testing.assert_allclose(found.decoder(found.rows), X, atol=1e-8)
    np.testing.assert_allclose(found.encoder(X), found.rows, atol=1e-12)


def test_scores_are_led_through_the_links():
    """Differences of the slopes of a function of x, in coordinates of atanh(x)."""
    rng = np.random.default_rng(0)
    X = np.tanh(rng.normal(size=(30, 2)))
    direction = np.array([0.3, -0.7])

    class Slopes:
        original_coordinates = True

        def fit(self, X: object, codes: object) -> Slopes:
            return self

        def difference(self, X: np.ndarray, environment: int) -> np.ndarray:
            return np.broadcast_to(direction, X.shape)

    found = coordinates_of(X, 2, "tanh")
    slopes = found.differences(Slopes(), X, np.arange(30) % 2, np.arange(3))[0]
    step = 1e-6
    for j in range(2):
        moved = found.rows[:3] + step * np.eye(2)[j]
        change = (np.tanh(found.decoder(moved)) - X[:3]) @ direction / step
        np.testing.assert_allclose(slopes[:, j], change, atol=1e-4)
