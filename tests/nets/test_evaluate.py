from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.nets import MLP, apply_in_blocks, evaluate

X = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)


@pytest.mark.parametrize("n_rows", [0, 1, 4, 11])
def test_blocks_give_what_the_whole_gives(n_rows: int):
    network = MLP.random(jax.random.key(0), [3, 8, 2])
    found = apply_in_blocks(network, X[:n_rows], rows_per_block=4)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, network(X[:n_rows]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(evaluate(network, X[:n_rows]), found, rtol=1e-5, atol=1e-6)


def test_functions_with_several_outputs():
    square, cube = apply_in_blocks(lambda rows: (rows**2, {"cube": rows**3}), X, 4)
    np.testing.assert_allclose(square, X**2, rtol=1e-6)
    np.testing.assert_allclose(cube["cube"], X**3, rtol=1e-6)


def test_blocks_are_of_few_sizes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("crlearn.nets._evaluate._MOST_NUMBERS", 12)
    shapes: list[tuple[int, ...]] = []

    class Watched(eqx.Module):
        scale: Any

        def __call__(self, rows: Any) -> Any:
            shapes.append(rows.shape)  # only while it is compiled
            return self.scale * rows

    for scale, n_rows in [(2.0, 11), (3.0, 7), (4.0, 1)]:
        found = evaluate(Watched(jnp.asarray(scale)), X[:n_rows])
        np.testing.assert_allclose(found, scale * X[:n_rows], rtol=1e-6)
    assert shapes == [(4, 3), (1, 3)]
