from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_linear_interventional
from crlearn.scores import (
    ExactScores,
    FunctionScores,
    GaussianScores,
    ReducedScores,
    all_differences,
    in_basis,
)


@pytest.fixture(scope="module")
def world() -> Any:
    return make_linear_interventional(n_latents=2, n_features=6, n_samples=4000, random_state=0)


def test_known_and_fitted_scores_agree_in_the_span_of_the_mixing(world: Any):
    G, codes = world.truth.mixing.matrix, world.y.astype(int)
    basis = np.linalg.qr(G)[0]
    rows = world.X @ basis
    at = rows[codes == 0][:100]
    exact = in_basis(ExactScores(world.truth), basis, np.zeros(6))
    differences = all_differences(exact, rows, codes, at)
    assert differences.shape == (2, 100, 2)
    latent = world.truth.score_difference(world.truth.Z[codes == 0][:100], 2)
    np.testing.assert_allclose(differences[1] @ basis.T @ G, latent, atol=1e-9)
    fitted = all_differences(GaussianScores(), rows, codes, at)
    assert ((fitted - differences) ** 2).sum() < 0.02 * (differences**2).sum()


def test_a_score_is_given_the_rows_as_they_were_observed():
    seen = []
    basis, offset = np.eye(3)[:, :2], np.array([0.0, 0.0, 7.0])

    def function(X: np.ndarray, environment: int) -> np.ndarray:
        seen.append(X)
        return X

    score = in_basis(FunctionScores(function), basis, offset)
    found = score.fit([[1.0, 2.0]], [0]).difference([[1.0, 2.0]], 1)
    np.testing.assert_array_equal(found, [[1.0, 2.0]])
    np.testing.assert_array_equal(seen, [[[1.0, 2.0, 7.0]]])


def test_other_scores_stay_as_they_are():
    score = GaussianScores()
    assert in_basis(score, np.eye(2), np.zeros(2)) is score
    assert isinstance(
        in_basis(FunctionScores(lambda X, _: X), np.eye(2), np.zeros(2)), ReducedScores
    )
