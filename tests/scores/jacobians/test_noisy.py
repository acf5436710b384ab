from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_observational
from crlearn.scores import ExactJacobians, NoisyJacobians, ScoreJacobian, make_jacobian


@pytest.fixture(scope="module")
def world() -> Any:
    return make_observational(n_samples=500, random_state=0)


@pytest.mark.parametrize("ratio", [0.1, 100.0])
def test_errors_have_the_size_that_was_asked_for(world: Any, ratio: float):
    exact = ExactJacobians(world.truth)
    noisy = NoisyJacobians(exact, ratio, random_state=0)
    scores, jacobians = exact.marginal(world.X, np.eye(4), 4)
    noisy_scores, noisy_jacobians = noisy.marginal(world.X, np.eye(4), 4)
    errors = noisy_jacobians - jacobians
    assert (jacobians**2).mean() / (errors**2).mean() == pytest.approx(ratio)
    np.testing.assert_array_equal(noisy_scores, scores)
    np.testing.assert_allclose(errors, np.swapaxes(errors, 1, 2), atol=1e-9)
    assert np.abs(np.corrcoef(errors[:, 0, 0], jacobians[:, 0, 0])[0, 1]) < 0.2
    assert noisy.accuracy == pytest.approx(ratio**-0.5)


def test_same_errors_at_each_call_and_others_with_another_seed(world: Any):
    first, again, other = (
        NoisyJacobians(ExactJacobians(world.truth), 1.0, random_state=seed).evaluate(world.X)[1]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_it_is_taken_as_it_is(world: Any):
    noisy = NoisyJacobians(ExactJacobians(world.truth), 1.0, random_state=0)
    assert isinstance(noisy, ScoreJacobian)
    made: Any = make_jacobian(noisy)
    assert made.signal_to_error == 1.0
    assert made.fit(world.X).original_coordinates
    assert repr(made) == "NoisyJacobians(ExactJacobians(truth), 1)"


def test_a_ratio_that_means_nothing(world: Any):
    with pytest.raises(ValueError, match=r"'signal_to_error' must be positive. Got 0.0"):
        NoisyJacobians(ExactJacobians(world.truth), 0.0)
