from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.data import (
    MLP,
    Linear,
    NormSquared,
    QuadraticForm,
    Scaled,
    Sine,
    TanhCubic,
    random_mechanism,
)
from crlearn.data.model._mechanisms import as_mechanism

KINDS = [
    "linear",
    "quadratic",
    "norm_squared",
    "tanh_cubic",
    "tanh_sum",
    "sin",
    "mlp",
    "tanh_mlp",
]

PARENTS = np.array([[1.0, -2.0], [0.5, 0.25]])
HAND_BUILT = [
    (Linear([2.0, 3.0]), [-4.0, 1.75]),
    (QuadraticForm([[3.0, 0.0], [0.0, 2.0]]), [5.0, np.sqrt(2.5)]),
    (NormSquared(), [5.0, 0.3125]),
    (
        TanhCubic([1.0, -1.0], amplitude=2.0, rate=0.5, cubic=4.0),
        [
            2 * (np.tanh(0.5) - np.tanh(-1.0)) + 4 * (0.125 + 1.0),
            2 * (np.tanh(0.25) - np.tanh(0.125)) + 4 * (0.25**3 - 0.125**3),
        ],
    ),
    (Sine([1.0, 2.0], rate=2.0), [np.sin(2) + 2 * np.sin(-4), np.sin(1) + 2 * np.sin(0.5)]),
    (MLP([[1.0, 1.0], [1.0, -1.0]], [0.0, 0.5], [2.0, 1.0], 0.25), [3.75, 2.5]),
    (Scaled(Linear([2.0, 3.0]), 0.5), [-2.0, 0.875]),
]


@pytest.mark.parametrize(("mechanism", "expected"), HAND_BUILT)
def test_values_by_hand(mechanism, expected):
    np.testing.assert_allclose(mechanism(PARENTS), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_parents", [1, 3])
def test_one_row_of_numpy_a_batch_and_jax_agree(kind, n_parents):
    mechanism = random_mechanism(kind, n_parents, 0)
    rows = np.random.default_rng(1).standard_normal((4, n_parents))
    batch = mechanism(rows)
    assert batch.shape == (4,)
    np.testing.assert_allclose([mechanism(row) for row in rows], batch)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.vmap(mechanism)(jnp.asarray(rows)), batch, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bits(kind):
    rows = np.random.default_rng(1).standard_normal((4, 2))
    first, second = (random_mechanism(kind, 2, 7)(rows) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_quadratic_form_has_a_finite_gradient_at_its_kink():
    gradient = jax.grad(lambda p: QuadraticForm(np.eye(2))(p))(jnp.zeros(2))
    np.testing.assert_array_equal(gradient, 0.0)


def test_default_weights_follow_the_paper():
    weights = np.abs(random_mechanism("linear", 500, 0).weights)  # pyright: ignore[reportAttributeAccessIssue]
    assert weights.min() >= 0.5
    assert weights.max() <= 1.5
    network = random_mechanism("mlp", 4, 0)
    assert isinstance(network, MLP)
    assert network.hidden.shape == (32, 4)
    assert np.abs(network.hidden).max() <= 0.5
    quadratic = random_mechanism("quadratic", 4, 0)
    assert isinstance(quadratic, QuadraticForm)
    assert np.linalg.svd(quadratic.matrix, compute_uv=False)[-1] >= 0.1


def test_options_reach_the_mechanism():
    mechanism = random_mechanism("tanh_cubic", 1, 0, amplitude=5.0, rate=0.5, cubic=0.0)
    assert isinstance(mechanism, TanhCubic)
    assert mechanism(np.array([100.0])) == pytest.approx(5.0 * mechanism.weights[0])


def test_a_function_of_ones_own():
    mechanism = random_mechanism(lambda p: p[0] * jnp.exp(p[1]), 2)
    np.testing.assert_allclose(mechanism(PARENTS), PARENTS[:, 0] * np.exp(PARENTS[:, 1]))
    np.testing.assert_allclose(mechanism(PARENTS[0]), np.exp(-2.0))


def test_a_network_of_ones_own():
    network = eqx.nn.MLP(2, "scalar", 4, 1, key=jax.random.key(0))
    mechanism = as_mechanism(network, 2)
    np.testing.assert_allclose(
        mechanism(PARENTS), jax.vmap(network)(jnp.asarray(PARENTS)), atol=1e-6
    )


def test_unknown_kind():
    with pytest.raises(ValueError, match=r"'mechanism' must be one of 'linear'.* Got 'quartic'"):
        random_mechanism("quartic", 2)


def test_mechanism_for_another_number_of_parents():
    with pytest.raises(ValueError, match="cannot be applied to 3 parents"):
        as_mechanism(Linear([1.0, 2.0]), 3)


def test_function_that_jax_cannot_trace():
    with pytest.raises(ValueError, match=r"write it with jax.numpy"):
        as_mechanism(lambda p: np.sin(p).sum(), 2)


def test_function_that_returns_a_vector():
    with pytest.raises(ValueError, match=r"must return one number .* shape \(2,\)"):
        as_mechanism(jnp.sin, 2)


def test_unknown_activation():
    with pytest.raises(ValueError, match=r"one of 'relu', 'tanh'.* Got 'gelu'"):
        MLP(np.ones((1, 1)), [0.0], [1.0], activation="gelu")


ROWS = np.random.default_rng(0).standard_normal((50, 3))


@pytest.mark.parametrize(("kind", "function"), [("abs", np.abs), ("cubic", lambda z: z**3 / 3)])
def test_sums_over_parents(kind: str, function: Any):
    mechanism: Any = random_mechanism(kind, 3, 0)
    inner = mechanism.mechanism if kind == "cubic" else mechanism
    np.testing.assert_allclose(mechanism(ROWS), function(ROWS) @ inner.output)


@pytest.mark.parametrize("kind", ["softplus", "fourier"])
def test_functions_of_directions(kind: str):
    mechanism: Any = random_mechanism(kind, 3, 0)
    units = ROWS @ mechanism.hidden.T + mechanism.bias
    expected = np.log1p(np.exp(units)) if kind == "softplus" else np.cos(units)
    np.testing.assert_allclose(mechanism(ROWS), expected @ mechanism.output)


def test_mixed_mechanisms_are_of_several_kinds():
    drawn = {str(random_mechanism("mixed", 2, seed)) for seed in range(20)}
    assert len(drawn) > 5
