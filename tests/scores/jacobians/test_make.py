from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import Dataset, Truth, make_observational, make_world
from crlearn.scores import (
    JACOBIANS,
    ExactJacobians,
    FunctionJacobians,
    ScoreJacobian,
    SteinJacobians,
    make_jacobian,
)


def line(n_features: int = 4, **options: Any) -> tuple[Dataset, Truth]:
    settings: dict[str, Any] = {"n_samples": 50, "random_state": 0, **options}
    world = make_observational(4, n_features, **settings)
    assert world.truth is not None
    return world, world.truth


def encoder_of(truth: Truth, n_kept: int) -> np.ndarray:
    """Any rows, the first of which do not see the last latents."""
    mixture = np.random.default_rng(0).normal(size=(4, 4))
    mixture[:n_kept, n_kept:] = 0
    assert truth.mixing.matrix is not None
    return mixture @ np.linalg.pinv(truth.mixing.matrix)


# Exact


def test_exact_scores_and_jacobians_are_slopes_of_the_log_density():
    world, truth = line()
    at, step = world.X[:5], 1e-5
    scores, jacobians = ExactJacobians(truth).evaluate(at)

    def log_density(X: np.ndarray) -> np.ndarray:
        return truth.log_density(truth.mixing.inverse(X))

    for i, move in enumerate(step * np.eye(4)):
        slope = (log_density(at + move) - log_density(at - move)) / (2 * step)
        np.testing.assert_allclose(scores[:, i], slope, rtol=1e-5, atol=1e-5)
        ahead, behind = (ExactJacobians(truth).evaluate(at + s * move)[0] for s in (1, -1))
        np.testing.assert_allclose(jacobians[:, i], (ahead - behind) / (2 * step), rtol=1e-4)


@pytest.mark.parametrize("n_features", [4, 6])
def test_an_exact_marginal_is_that_of_the_model_without_the_last_latents(n_features: int):
    # The marginal of the root is Gaussian, with the variance of its noise.
    world, truth = line(n_features)
    assert truth.scms is not None
    root = truth.scms[0].nodes[0]
    encoder = encoder_of(truth, 1)
    scores, jacobians = ExactJacobians(truth).marginal(world.X, encoder, 1)
    scale = root.noise.scale * (encoder @ truth.mixing.matrix)[0, 0]
    np.testing.assert_allclose(jacobians[:, 0, 0], -(scale**-2), rtol=1e-9)
    values = world.X @ encoder[0]
    offset = (encoder @ truth.mixing.matrix)[0, 0] * (root.offset + root.noise.mean)
    np.testing.assert_allclose(scores[:, 0], (offset - values) / scale**2, rtol=1e-6, atol=1e-9)


def test_the_marginal_of_everything_is_the_density():
    world, truth = line()
    exact = ExactJacobians(truth)
    for found, wanted in zip(
        exact.marginal(world.X, np.eye(4), 4), exact.evaluate(world.X), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_exact_jacobians_need_a_linear_world_without_noise():
    with pytest.raises(ValueError, match="without measurement noise"):
        ExactJacobians(line(measurement_noise=0.1)[1])
    nonlinear = make_world(3, mixing="tanh", random_state=0).truth
    assert nonlinear is not None
    with pytest.raises(ValueError, match="a linear mixing"):
        ExactJacobians(nonlinear)


# Functions


@pytest.mark.parametrize(("mechanism", "n_features"), [("norm_squared", 4), ("sin", 6)])
@pytest.mark.parametrize("n_kept", [4, 3, 2, 1])
def test_marginals_of_a_function_are_exact_for_gaussian_noise(
    mechanism: str, n_features: int, n_kept: int
):
    world, truth = line(n_features, mechanism=mechanism)
    exact = ExactJacobians(truth)
    encoder = encoder_of(truth, n_kept)
    found = FunctionJacobians(exact.evaluate).marginal(world.X, encoder, n_kept)
    for value, wanted in zip(found, exact.marginal(world.X, encoder, n_kept), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def test_rows_without_a_maximum_are_missing():
    def saddle(X: Any) -> Any:
        # Flat along the second axis to the right: Newton's method runs on for ever.
        scores = np.column_stack([-X[:, 0], np.where(X[:, 0] > 0, 1.0, -X[:, 1])])
        jacobians = np.tile(-np.eye(2), (len(X), 1, 1))
        return scores, jacobians

    X = np.array([[1.0, 2.0], [-1.0, 1.0], [-2.0, -1.0]])
    scores, jacobians = FunctionJacobians(saddle).marginal(X, np.eye(2), 1)
    np.testing.assert_array_equal(np.isnan(scores[:, 0]), [True, False, False])
    np.testing.assert_allclose(jacobians[1:, 0, 0], -1.0)
    assert np.isnan(jacobians[0]).all()


def test_values_of_a_function_are_checked():
    X = np.zeros((3, 2))
    with pytest.raises(
        ValueError, match=r"two arrays, the scores and their Jacobians. Got ndarray"
    ):
        FunctionJacobians(lambda X: X).evaluate(X)  # pyright: ignore
    with pytest.raises(
        ValueError, match=r"Jacobians of shape \(3, 2, 2\). Got \(3, 2\) and \(3, 2\)"
    ):
        FunctionJacobians(lambda X: (X, X)).evaluate(X)
    with pytest.raises(ValueError, match="must return finite numbers"):
        FunctionJacobians(lambda X: (X, np.full((3, 2, 2), np.nan))).evaluate(X)


# Names


class Own:
    """A user's estimator without scikit-learn."""

    fitted = False

    def fit(self, X: Any) -> Own:
        self.fitted = True
        return self

    def evaluate(self, X: Any) -> Any:
        return X, X[:, :, None] * X[:, None, :]


def test_names_stand_for_estimators():
    for name, maker in JACOBIANS.items():
        made: Any = make_jacobian(name, random_state=3)
        assert made.get_params() == maker(random_state=3).get_params()
        assert isinstance(made, ScoreJacobian)
    assert set(JACOBIANS) == {"stein", "full-stein", "sliced", "flow"}
    full: Any = make_jacobian("full-stein")
    assert isinstance(full, SteinJacobians)
    assert full.n_centres is None


def test_objects_are_copied_and_keep_their_parameters():
    given = SteinJacobians(n_centres=7, random_state=1)
    made: Any = make_jacobian(given, random_state=3)
    assert made is not given
    assert (made.n_centres, made.random_state) == (7, 1)
    own = Own()
    make_jacobian(own).fit([[1.0]])
    assert not own.fitted
    exact = ExactJacobians(line()[1])
    assert make_jacobian(exact).fit([[1.0]]) is not None
    assert isinstance(make_jacobian(exact), ExactJacobians)


def test_a_function_becomes_a_known_density():
    made: Any = make_jacobian(lambda X: (X, X[:, :, None] * X[:, None]))
    assert isinstance(made, FunctionJacobians)
    assert made.original_coordinates
    np.testing.assert_array_equal(made.evaluate([[1.0, 2.0]])[1], [[[1.0, 2.0], [2.0, 4.0]]])


def test_bad_estimators_are_refused():
    with pytest.raises(ValueError, match=r"one of 'stein', 'full-stein', .*Got 'kernel'"):
        make_jacobian("kernel")
    with pytest.raises(ValueError, match=r"give ExactJacobians\(truth\)"):
        make_jacobian("exact")
    with pytest.raises(ValueError, match=r"write SteinJacobians\(\)"):
        make_jacobian(SteinJacobians)
    with pytest.raises(ValueError, match="Got 3 instead"):
        make_jacobian(3)
