from __future__ import annotations

import numpy as np
import pytest

from crlearn.data import (
    Layer,
    Mixing,
    leaky_relu_mixing,
    linear_mixing,
    make_mixing,
    network_mixing,
    polynomial_mixing,
    tanh_mixing,
    tanh_mlp_mixing,
)

NAMES = [
    "gaussian",
    "well_conditioned",
    "orthonormal",
    "tanh",
    "tanh_mlp",
    "leaky_relu",
    "smooth",
    "network",
]
LATENTS = np.random.default_rng(0).standard_normal((30, 3))


@pytest.mark.parametrize("n_features", [3, 7])
@pytest.mark.parametrize("name", NAMES)
def test_inverse_is_exact_on_the_image(name, n_features):
    mixing = make_mixing(name, 3, n_features, 1)
    X = mixing(LATENTS)
    assert X.shape == (30, n_features)
    np.testing.assert_allclose(mixing.inverse(X), LATENTS, atol=1e-8)


@pytest.mark.parametrize("name", [*NAMES, "curved"])
def test_jacobian_is_the_derivative(name, central_differences):
    mixing = make_mixing(name, 3, 5, 1)
    jacobian = mixing.jacobian(LATENTS)
    assert jacobian.shape == (30, 5, 3)
    np.testing.assert_allclose(jacobian, central_differences(mixing, LATENTS), atol=1e-6)


@pytest.mark.parametrize("name", [*NAMES, "curved", "wide_mlp"])
def test_same_seed_same_bits(name):
    first, second = (make_mixing(name, 3, 5, 4)(LATENTS) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_biases_and_slopes_by_layer(central_differences):
    mixing = leaky_relu_mixing(3, 6, 0, n_layers=3, slope=[0.2, 0.5, 0.9], bias_scale=1.0)
    assert [layer.slope for layer in mixing.layers[:-1]] == [0.2, 0.5, 0.9]
    np.testing.assert_allclose(mixing.inverse(mixing(LATENTS)), LATENTS, atol=1e-10)
    np.testing.assert_allclose(
        mixing.jacobian(LATENTS), central_differences(mixing, LATENTS), atol=1e-6
    )


@pytest.mark.parametrize("activation", ["leaky_relu", "smooth_leaky_relu", "sigmoid", "tanh"])
def test_networks_differ_by_their_activation_alone(activation, central_differences):
    plain = leaky_relu_mixing(3, 6, 0, n_layers=3, slope=0.5, bias_scale=0.3)
    mixing = network_mixing(3, 6, 0, activation=activation, n_layers=3, slope=0.5, bias_scale=0.3)
    for one, other in zip(plain.layers, mixing.layers, strict=True):
        np.testing.assert_array_equal(one.weight, other.weight)
        np.testing.assert_array_equal(one.bias, other.bias)
    assert [layer.activation for layer in mixing.layers] == [*[activation] * 3, "identity"]
    np.testing.assert_allclose(mixing.inverse(mixing(LATENTS)), LATENTS, atol=1e-8)
    np.testing.assert_allclose(
        mixing.jacobian(LATENTS), central_differences(mixing, LATENTS), atol=1e-6
    )


def test_leaky_relu_is_injective_even_when_deep():
    mixing = leaky_relu_mixing(5, 5, 0, n_layers=20, slope=0.2)
    Z = 3 * np.random.default_rng(1).standard_normal((200, 5))
    np.testing.assert_allclose(mixing.inverse(mixing(Z)), Z, atol=1e-8)


def test_leaky_relu_bends_the_manifold():
    X = leaky_relu_mixing(2, 6, 0)(np.random.default_rng(0).standard_normal((500, 2)))
    assert np.linalg.matrix_rank(X) > 2


def test_curved_maps_span_more_directions_than_there_are_latents():
    Z = np.random.default_rng(0).standard_normal((500, 2))
    for name, rank in (("smooth", 2), ("curved", 6), ("wide_mlp", 6)):
        assert np.linalg.matrix_rank(np.cov(make_mixing(name, 2, 6, 0)(Z).T)) == rank


@pytest.mark.parametrize(("name", "degree"), [("quadratic", 2), ("cubic", 3)])
def test_polynomials_span_all_monomials(name, degree, central_differences):
    mixing = make_mixing(name, 2, 12, 0)
    X, (a, b) = mixing(LATENTS[:, :2]), LATENTS[:, :2].T
    powers = [a**i * b**j for i in range(degree + 1) for j in range(degree + 1 - i)]
    assert np.linalg.matrix_rank(X - X.mean(axis=0)) == len(powers) - 1
    basis = np.column_stack(powers)
    np.testing.assert_allclose(basis @ np.linalg.lstsq(basis, X)[0], X, atol=1e-10)
    np.testing.assert_allclose(
        mixing.jacobian(LATENTS[:, :2]), central_differences(mixing, LATENTS[:, :2]), atol=1e-5
    )


def test_polynomials_need_features_and_a_degree():
    with pytest.raises(ValueError, match="must be at least 5, the number of monomials"):
        make_mixing("quadratic", 2, 4)
    with pytest.raises(ValueError, match=r"must be 2 or 3\. Got 4"):
        polynomial_mixing(2, degree=4)
    assert polynomial_mixing(2).n_features == 5


def test_wide_networks_have_pytorchs_default_weights():
    layers = make_mixing("wide_mlp", 5, 20, 0).layers
    assert [layer.weight.shape for layer in layers] == [(512, 5), *[(512, 512)] * 3, (20, 512)]
    for layer in layers:
        bound = layer.weight.shape[1] ** -0.5
        assert 0.9 * bound < np.abs(layer.weight).max() <= bound
        assert layer.bias is not None
        assert np.abs(layer.bias).max() <= bound


def test_linear_kinds():
    orthonormal = linear_mixing(3, 8, "orthonormal", 0).matrix
    assert orthonormal is not None
    np.testing.assert_allclose(orthonormal.T @ orthonormal, np.eye(3), atol=1e-12)
    well_conditioned = linear_mixing(5, 100, "well_conditioned", 0).matrix
    assert well_conditioned is not None
    np.testing.assert_allclose(np.abs(well_conditioned).max(axis=0), 1.0)


def test_matrix_of_linear_maps_only():
    assert linear_mixing(2, 3, random_state=0).is_linear
    assert tanh_mixing(2, 3, 0).matrix is None
    assert Mixing([Layer(np.eye(2), np.ones(2))]).matrix is None
    product = Mixing([Layer(np.ones((3, 2))), Layer(np.full((4, 3), 2.0))])
    np.testing.assert_array_equal(product.matrix, np.full((4, 2), 6.0))


def test_projection_off_the_image():
    mixing = linear_mixing(2, 4, "orthonormal", 0)
    assert mixing.matrix is not None
    X = np.random.default_rng(0).standard_normal((5, 4))
    np.testing.assert_allclose(mixing.inverse(X), X @ mixing.matrix)


def test_gain_scales_the_matrices():
    strong, weak = (tanh_mlp_mixing(3, 5, 0, gain=gain) for gain in (1.0, 0.1))
    for a, b in zip(strong.layers, weak.layers, strict=True):
        np.testing.assert_allclose(0.1 * a.weight, b.weight)


def test_own_matrix_and_own_mixing():
    matrix = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(make_mixing(matrix, 2).matrix, matrix)
    own = linear_mixing(2, 3, random_state=0)
    assert make_mixing(own, 2, 3) is own


def test_repr():
    assert repr(linear_mixing(2, 3, random_state=0)) == "Mixing(2 -> 3, linear)"
    assert repr(leaky_relu_mixing(2, 3, 0)) == "Mixing(2 -> 3, leaky_relu and identity)"


class TestBadInput:
    @pytest.mark.parametrize("name", NAMES)
    def test_fewer_features_than_latents(self, name):
        with pytest.raises(ValueError, match=r"cannot be recovered .* 2 features for 3 latents"):
            make_mixing(name, 3, 2)

    def test_matrix_with_fewer_features(self):
        with pytest.raises(ValueError, match="cannot be recovered"):
            make_mixing(np.ones((2, 3)), 3)

    def test_unknown_names(self):
        with pytest.raises(ValueError, match=r"'mixing' must be one of .* Got 'quartic'"):
            make_mixing("quartic", 2)
        with pytest.raises(ValueError, match=r"linear mixing must be one of .* Got 'sparse'"):
            linear_mixing(2, 3, "sparse")

    def test_mixing_of_another_size(self):
        with pytest.raises(ValueError, match=r"2 latents to 4 features. Got one from 2 to 3"):
            make_mixing(np.ones((3, 2)), 2, 4)

    def test_singular_matrix_has_no_inverse(self):
        mixing = make_mixing(np.ones((3, 2)), 2)
        with pytest.raises(ValueError, match="no inverse: a layer maps 2 dimensions on 1"):
            mixing.inverse(np.ones((1, 3)))

    def test_tanh_has_a_range(self):
        with pytest.raises(ValueError, match="2 values are not inside"):
            tanh_mixing(2, 3, 0).inverse([[0.1, 1.5, -2.0]])
        with pytest.raises(ValueError, match="smaller 'gain'"):
            tanh_mixing(2, 2, 0).inverse([[0.1, 1.0]])

    def test_wrong_columns(self):
        with pytest.raises(ValueError, match=r"'Z' must have shape \(n_samples, 2\)"):
            tanh_mixing(2, 3, 0)(np.zeros((4, 3)))

    def test_layers_that_do_not_fit(self):
        with pytest.raises(ValueError, match="3 outputs before one with 4 inputs"):
            Mixing([Layer(np.ones((3, 2))), Layer(np.ones((5, 4)))])
        with pytest.raises(ValueError, match="at least one layer"):
            Mixing([])

    def test_wrong_number_of_slopes(self):
        with pytest.raises(ValueError, match=r"each of the 3 layers. Got 2"):
            leaky_relu_mixing(2, 2, 0, n_layers=3, slope=[0.1, 0.2])
