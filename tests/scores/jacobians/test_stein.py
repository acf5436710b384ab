from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from crlearn.scores import SteinJacobians

RNG = np.random.default_rng(0)
MIXTURE = np.array([[2.0, 0.0], [1.0, 0.5]])
GAUSSIAN = RNG.normal(size=(3000, 2)) @ MIXTURE.T + [5.0, -3.0]
CURVED = np.column_stack([GAUSSIAN[:, 0], 0.3 * GAUSSIAN[:, 0] ** 2 + GAUSSIAN[:, 1]])


def published(X: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """The estimator with the kernel matrix of all rows, formula by formula."""
    squares = cdist(X, X, "sqeuclidean")
    variance = np.median(pdist(X)) ** 2
    kernel = np.exp(-squares / (2 * variance))
    difference = X[:, None] - X[None]
    slopes = np.einsum("ikj,ik->kj", difference, kernel) / variance
    products = difference[:, :, :, None] * difference[:, :, None, :] / variance**2
    curvatures = np.einsum("ikab,ik->kab", products - np.eye(X.shape[1]) / variance, kernel)
    inverse = np.linalg.inv(kernel + ridge * np.eye(len(X)))
    scores = inverse @ slopes
    jacobians = np.einsum("mk,kab->mab", inverse, curvatures)
    return scores, jacobians - scores[:, :, None] * scores[:, None, :]


def test_with_a_centre_at_each_row_it_is_the_published_estimator():
    X = CURVED[:200]
    fitted = SteinJacobians(random_state=0).fit(X)
    scores, jacobians = fitted.evaluate(X)
    whitening = fitted.whitening_
    wanted_scores, wanted_jacobians = published(whitening(X), 1e-3)
    undo = np.linalg.inv(whitening.matrix)
    # The published one keeps directions of the kernel that are rounding.
    np.testing.assert_allclose(scores @ undo, wanted_scores, atol=1e-3)
    np.testing.assert_allclose(undo.T @ jacobians @ undo, wanted_jacobians, atol=1e-2)


def test_gaussian_rows_have_the_precision_as_jacobian():
    scores, jacobians = SteinJacobians(random_state=0).fit(GAUSSIAN).evaluate(GAUSSIAN)
    precision = np.linalg.inv(MIXTURE @ MIXTURE.T)
    centred = GAUSSIAN - [5.0, -3.0]
    inside = np.einsum("ra,ab,rb->r", centred, precision, centred) < 1
    error = np.abs(jacobians[inside].mean(axis=0) + precision).max()
    assert error < 0.05 * np.abs(precision).max()
    wanted = -centred[inside] @ precision
    assert ((scores[inside] - wanted) ** 2).mean() < 0.02 * (wanted**2).mean()


def test_few_centres_are_enough():
    X = CURVED[:1500]
    few, all_of_them = (
        SteinJacobians(n_centres=n, random_state=0).fit(X).evaluate(X)[0] for n in (300, 1500)
    )
    assert ((few - all_of_them) ** 2).mean() < 0.01 * (all_of_them**2).mean()


def test_units_and_axes_do_not_matter():
    X = CURVED[:300]
    change = np.array([[3.0, 1.0], [-20.0, 4.0]])
    scores, jacobians = SteinJacobians(random_state=0).fit(X).evaluate(X)
    turned = SteinJacobians(random_state=0).fit(X @ change.T + 7)
    new_scores, new_jacobians = turned.evaluate(X @ change.T + 7)
    np.testing.assert_allclose(new_scores @ change, scores, atol=1e-4 * np.abs(scores).max())
    pulled_back = change.T @ new_jacobians @ change
    np.testing.assert_allclose(pulled_back, jacobians, atol=1e-3 * np.abs(jacobians).max())


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch):
    whole = SteinJacobians(n_centres=50, random_state=0).fit(CURVED[:200]).evaluate(CURVED[:200])
    monkeypatch.setattr("crlearn.scores.jacobians._stein._ROWS_PER_BLOCK", 33)
    parts = SteinJacobians(n_centres=50, random_state=0).fit(CURVED[:200]).evaluate(CURVED[:200])
    np.testing.assert_allclose(parts[0], whole[0], atol=1e-6)
    np.testing.assert_allclose(parts[1], whole[1], atol=1e-5)


def test_same_seed_same_bits():
    one, same, other = (
        SteinJacobians(n_centres=20, random_state=s).fit(CURVED).evaluate(CURVED[:9])[1]
        for s in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_bad_input():
    with pytest.raises(ValueError, match="not fitted yet"):
        SteinJacobians().evaluate(CURVED)
    with pytest.raises(ValueError, match="must vary in all 2 directions"):
        SteinJacobians().fit(CURVED[:, [0, 0]])
    fitted = SteinJacobians(n_centres=20).fit(CURVED)
    with pytest.raises(ValueError, match=r"shape \(N, 2\)"):
        fitted.evaluate(CURVED[:, :1])
    assert fitted.evaluate(CURVED[:0])[1].shape == (0, 2, 2)


class TestTheKernelMatrixOfAllRows:
    def test_it_is_the_published_estimator(self):
        X = CURVED[:200]
        fitted = SteinJacobians(n_centres=None).fit(X)
        scores, jacobians = fitted.evaluate(X)
        wanted_scores, wanted_jacobians = published(fitted.whitening_(X), 1e-3)
        undo = np.linalg.inv(fitted.whitening_.matrix)
        np.testing.assert_allclose(scores @ undo, wanted_scores, atol=1e-7)
        np.testing.assert_allclose(undo.T @ jacobians @ undo, wanted_jacobians, atol=1e-6)

    def test_it_is_known_between_the_rows(self):
        rows, between = CURVED[:1000], CURVED[1000:1200]
        fitted = SteinJacobians(n_centres=None).fit(rows)
        nearby = fitted.evaluate(rows + 1e-4)
        for one, other in zip(fitted.evaluate(rows), nearby, strict=True):
            assert np.abs(one - other).max() < 0.02 * np.abs(one).max()
        scores = fitted.evaluate(between)[0]
        few = SteinJacobians(n_centres=1000, random_state=0).fit(rows).evaluate(between)[0]
        assert ((scores - few) ** 2).mean() < 0.1 * (few**2).mean()

    def test_too_many_rows_are_refused(self):
        with pytest.raises(ValueError, match=r"at most 20,000. Got 20,001 rows, .* has 3.2 GB"):
            SteinJacobians(n_centres=None).fit(np.zeros((20_001, 2)))
