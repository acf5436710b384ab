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
