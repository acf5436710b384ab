from __future__ import annotations

import numpy as np
import pytest

from crlearn.data import Layer


def test_forward_by_hand():
    layer = Layer(np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([0.5, 0.0]), "leaky_relu", 0.1)
    values = layer.affine(np.array([[1.0, 1.0]]))
    np.testing.assert_array_equal(values, [[3.5, -1.0]])
    np.testing.assert_array_equal(layer.activate(values), [[3.5, -0.1]])
    np.testing.assert_array_equal(layer.derivative(values), [[1.0, 0.1]])


@pytest.mark.parametrize("slope", [0.01, 0.3])
def test_leaky_tanh(slope):
    layer = Layer(np.array([[1.0, 2.0], [0.5, -1.0]]), np.ones(2), "leaky_tanh", slope)
    Z = np.random.default_rng(0).normal(size=(200, 2)) * np.logspace(-3, 2, 200)[:, None]
    values = layer.affine(Z)
    outputs = layer.activate(values)
    np.testing.assert_allclose(outputs, slope * values + np.tanh(values))
    np.testing.assert_allclose(layer.inverse(outputs), Z, rtol=1e-9, atol=1e-9)
    step = 1e-6
    differences = (layer.activate(values + step) - layer.activate(values - step)) / (2 * step)
    np.testing.assert_allclose(layer.derivative(values), differences, atol=1e-6)


@pytest.mark.parametrize("slope", [0.05, 0.4, 1.0, 1.5])
def test_smooth_leaky_relu(slope):
    layer = Layer(np.array([[1.0, 2.0], [0.5, -1.0]]), np.ones(2), "smooth_leaky_relu", slope)
    Z = np.random.default_rng(0).normal(size=(200, 2)) * np.logspace(-3, 3, 200)[:, None]
    values = layer.affine(Z)
    outputs = layer.activate(values)
    np.testing.assert_allclose(layer.inverse(outputs), Z, rtol=1e-9, atol=1e-9)
    step = 1e-6
    differences = (layer.activate(values + step) - layer.activate(values - step)) / (2 * step)
    np.testing.assert_allclose(layer.derivative(values), differences, atol=1e-6)


def test_smooth_leaky_relu_is_a_leaky_relu_far_out():
    values = np.array([[-60.0, 60.0], [0.0, 0.0]])
    smooth = Layer(np.eye(2), activation="smooth_leaky_relu", slope=0.3).activate(values)
    np.testing.assert_allclose(smooth, [[-18, 60], [0.7 * np.log(2)] * 2], atol=1e-12)


@pytest.mark.parametrize(("activation", "power"), [("square", 2), ("cube", 3)])
def test_powers(activation, power):
    layer = Layer(np.array([[1.0, 2.0], [0.5, -1.0], [0.0, 1.0]]), np.ones(3), activation)
    Z = np.random.default_rng(0).normal(size=(50, 2))
    values = layer.affine(Z)
    outputs = layer.activate(values)
    np.testing.assert_allclose(outputs, values**power)
    np.testing.assert_allclose(layer.derivative(values), power * values ** (power - 1))
    if activation == "cube":
        np.testing.assert_allclose(layer.inverse(outputs), Z, atol=1e-9)
    else:
        with pytest.raises(ValueError, match="a square has lost its sign"):
            layer.inverse(outputs)


def test_sigmoid():
    layer = Layer(np.array([[1.0, 2.0], [0.5, -1.0], [0.0, 1.0]]), np.ones(3), "sigmoid")
    Z = np.random.default_rng(0).normal(size=(50, 2))
    values = layer.affine(Z)
    outputs = layer.activate(values)
    np.testing.assert_allclose(outputs, 1 / (1 + np.exp(-values)))
    np.testing.assert_allclose(layer.derivative(values), outputs * (1 - outputs), atol=1e-15)
    np.testing.assert_allclose(layer.inverse(outputs), Z, atol=1e-9)
    with pytest.raises(ValueError, match=r"2 values are not inside \(0, 1\)"):
        layer.inverse(np.array([[0.5, 1.0, -0.1]]))


def test_saturated_outputs_are_outvoted():
    weight = np.array([[40.0, 0.0], [1.0, 0.5], [0.5, -1.0]])
    Z = np.array([[1.0, 0.5], [-0.8, 0.2]])
    layer = Layer(weight, activation="tanh")
    outputs = layer.activate(layer.affine(Z))
    assert (np.abs(outputs[:, 0]) == 1).all()
    np.testing.assert_allclose(layer.inverse(outputs), Z, atol=1e-12)


def test_arrays_are_copied_and_read_only():
    weight = np.eye(2)
    layer = Layer(weight)
    weight[0, 0] = 5.0
    assert layer.weight[0, 0] == 1.0
    assert not layer.weight.flags.writeable


@pytest.mark.parametrize("slope", [0.0, -0.5, np.nan])
def test_slope_must_be_positive(slope):
    with pytest.raises(ValueError, match="'slope' of a leaky activation must be positive"):
        Layer(np.eye(2), activation="leaky_relu", slope=slope)


def test_unknown_activation():
    with pytest.raises(ValueError, match="'identity', 'tanh', 'leaky_relu', 'leaky_tanh'"):
        Layer(np.eye(2), activation="relu")


def test_bad_arrays():
    with pytest.raises(ValueError, match=r"'weight' of a mixing must be a finite array"):
        Layer(np.full((2, 2), np.nan))
    with pytest.raises(ValueError, match=r"'weight' of a mixing .* 2 axes"):
        Layer(np.ones(3))
    with pytest.raises(ValueError, match=r"each of its 2 outputs. Got 3"):
        Layer(np.eye(2), np.ones(3))
