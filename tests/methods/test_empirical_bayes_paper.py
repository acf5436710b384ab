from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_multi_domain
from crlearn.exceptions import DivergenceError
from crlearn.methods._empirical_bayes_paper import em_f_modelling, match_columns, polar
from crlearn.scores import CubicSplines, StructuredScore


@pytest.fixture(scope="module")
def world() -> Any:
    return make_multi_domain(n_features=20, n_samples=400, random_state=0)


def run(world: Any, start: Any, n_iterations: int, **options: Any) -> Any:
    intervened = world.truth.targets[world.y - 1]

    def fit_score(rows: Any) -> StructuredScore:
        return StructuredScore.fit(
            rows,
            intervened,
            world.truth.graph,
            splines=CubicSplines.spanning(rows, 8),
            interactions="tensor",
            penalty="size",
            ridge=1e-4,
        )

    return em_f_modelling(
        world.X, intervened, start, 2.0, fit_score, n_iterations=n_iterations, **options
    )


def error(answer: Any, world: Any) -> float:
    return float(((answer.mixing - world.truth.mixing.matrix) ** 2).sum())


def test_columns_are_matched_to_targets():
    rng = np.random.default_rng(0)
    targets = np.eye(3, dtype=bool)
    means = 10 * np.eye(3) + 0.1 * rng.standard_normal((3, 3))
    shuffled = np.eye(3)[:, [2, 0, 1]] * [1, -1, 1]
    np.testing.assert_array_equal(match_columns(shuffled, means, targets, np.zeros(3)), np.eye(3))


def test_polar_factor():
    matrix = np.random.default_rng(0).standard_normal((5, 3))
    factor = polar(matrix)
    np.testing.assert_allclose(factor.T @ factor, np.eye(3), atol=1e-12)
    symmetric = factor.T @ matrix
    np.testing.assert_allclose(symmetric, symmetric.T, atol=1e-12)


def test_without_shrinkage_the_rotation_never_moves(world: Any):
    span = np.linalg.eigh(world.X.T @ world.X)[1][:, -4:]
    turn = polar(np.random.default_rng(0).standard_normal((4, 4)))
    answer = run(world, span @ turn, 3, shrinkage=0.0)
    np.testing.assert_allclose(answer.mixing, span @ turn, atol=1e-8)


def test_the_truth_is_no_fixed_point(world: Any):
    truth = world.truth.mixing.matrix
    first, last = (run(world, truth, n) for n in (1, 30))
    assert error(last, world) > 3 * error(first, world)


def test_the_noise_variance_is_right_at_the_truth(world: Any):
    answer = run(world, world.truth.mixing.matrix, 1)
    assert answer.noise_variance == pytest.approx(2, rel=0.03)
    assert answer.history["step"].shape == (1,)


def test_scales_drift_but_do_not_run_away(world: Any):
    answer = run(world, world.truth.mixing.matrix, 5, learn_scales=True)
    scales = np.linalg.norm(answer.mixing, axis=0)
    assert (np.abs(scales - 1) < 0.1).all()
    assert (scales != 1).all()


def test_divergence_is_said(world: Any):
    with pytest.raises(DivergenceError, match=r"diverged in iteration 1.*estimator='moments'"):
        em_f_modelling(
            np.zeros((10, 3)),
            np.zeros((10, 1), dtype=bool),
            np.eye(3, 1),
            0.0,
            lambda rows: lambda rows, _: (np.zeros_like(rows), np.zeros_like(rows)),  # type: ignore
            n_iterations=1,
        )
