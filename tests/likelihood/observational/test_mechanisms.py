from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.likelihood import mechanisms_of
from crlearn.likelihood.observational._mechanisms import Mechanism, Mechanisms


@pytest.mark.parametrize("hidden_units", [False, True])
def test_latents_are_predictions_plus_residuals(network: Any, hidden_units: bool):
    model = network.model
    fit = model.shaped(model.start(network.H, ((), (), (0, 1)), hidden_units=hidden_units))
    Z = model.latents(fit)
    predicted = mechanisms_of(fit, model.y)(Z)
    np.testing.assert_allclose(Z - predicted - Z.mean(axis=0), model.residuals(fit), atol=1e-9)
    np.testing.assert_array_equal(predicted[:, :2], np.zeros((len(Z), 2)))
    assert predicted[:, 2].var() > 0.5 * Z[:, 2].var()


def test_a_row_is_predicted_from_itself_alone(network: Any):
    """New rows have neither means nor fits of their own."""
    model = network.model
    fit = model.start(network.H, ((), (), (0, 1)), hidden_units=True)
    mechanisms, Z = mechanisms_of(fit, model.y), model.latents(fit)
    np.testing.assert_allclose(mechanisms(Z[[7, 3]]), mechanisms(Z)[[7, 3]])
    effects_changed = Z * [1.0, 1.0, -5.0]
    np.testing.assert_array_equal(mechanisms(effects_changed), mechanisms(Z))


def test_a_mechanism_by_hand():
    """A parent, its square, and 13 hinges."""
    coefficients = np.zeros(15)
    coefficients[:2] = 2.0, 0.5
    means = np.zeros(15)
    means[1] = 1.0
    square = Mechanism((1,), np.zeros((0, 1)), np.zeros(0), coefficients, means)
    Z = np.array([[9.0, 0.0], [9.0, 2.0], [9.0, -4.0]])
    np.testing.assert_allclose(square(Z), [-0.5, 5.5, -0.5])
    nothing = Mechanism((), np.zeros((0, 0)), np.zeros(0), np.zeros(0), np.zeros(0))
    np.testing.assert_allclose(Mechanisms((square, nothing))(Z)[:, 0], square(Z))
    np.testing.assert_array_equal(Mechanisms((square, nothing))(Z)[:, 1], np.zeros(3))
