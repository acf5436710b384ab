from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.nodes._basis import Basis, FormFit, LinearBasis

ROWS = np.random.default_rng(0).standard_normal((40, 2))
WIDTH, SMALLEST_ROOT = 0.3, 0.05
SINGLE = 1e-4  # features are computed in single precision


def mechanism(basis: Basis, t: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """What the docstring says, in double precision, for complex arguments, too."""
    one_and_t = np.column_stack([np.ones(len(t)), t])
    hinges = np.sqrt((t @ basis.directions.T.astype(float) - basis.knots) ** 2 + WIDTH**2)
    root = np.sqrt(((one_and_t @ basis.form) * one_and_t).sum(axis=1) + SMALLEST_ROOT**2)
    products = [t[:, 0] ** 2, t[:, 0] * t[:, 1], t[:, 1] ** 2]
    return np.column_stack([one_and_t, *products, hinges, root]) @ coefficients


def exact_slope(basis: Basis, t: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """The derivative of an analytic function by a step into the complex plane."""
    steps = 1e-30j * np.eye(2)
    values = [np.imag(mechanism(basis, t + step, coefficients)) / 1e-30 for step in steps]
    return np.stack(values, axis=1)


@pytest.fixture
def basis() -> Basis:
    plain = Basis.plain(2)
    form = np.array([[0.5, 0.1, 0.0], [0.1, 1.0, 0.2], [0.0, 0.2, 2.0]])
    return Basis(plain.directions.astype(float), plain.knots.astype(float), form, plain.n_axes)


@pytest.fixture
def coefficients(basis: Basis) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(basis.size)


@pytest.mark.parametrize("n_parents", [1, 2, 3])
def test_sizes_agree(n_parents: int):
    basis = Basis.plain(n_parents)
    assert basis(np.zeros((3, n_parents), np.float32)).values.shape == (3, basis.size)
    linear, quadratic, with_root, along_parents, every = (
        len(selection.kept) for selection in basis.selections()
    )
    assert (linear, with_root, every) == (1 + n_parents, 2 + n_parents, basis.size)
    assert quadratic == linear + n_parents * (n_parents + 1) // 2
    assert along_parents == linear + 5 * n_parents


@pytest.mark.parametrize("n_parents", [1, 2, 3])
def test_numbers_that_parents_bring(n_parents: int):
    """A form has an entry for each pair of one and the parents, but for its scale."""
    basis = Basis.plain(n_parents)
    linear, quadratic, with_root, along_parents, every = basis.selections()
    assert linear.brought == (0,) * n_parents
    for selection in (linear, quadratic, along_parents):
        assert selection.n_parameters == len(selection.kept)
    in_form = (n_parents + 1) * (n_parents + 2) // 2 - 1
    for selection in (with_root, every):
        assert selection.n_parameters == len(selection.kept) + in_form
    fewer = Basis.plain(max(1, n_parents - 1)).selections()
    for selection, before in zip(basis.selections(), fewer, strict=True):
        assert selection.brought[: n_parents - 1] == before.brought[: n_parents - 1]
        assert len(selection.brought) == n_parents


def test_features_are_those_that_the_docstring_says(basis: Basis):
    found, every = basis(ROWS).values, np.eye(basis.size)
    expected = np.column_stack([mechanism(basis, ROWS, one) for one in every])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32


def test_slopes_are_derivatives(basis: Basis, coefficients: np.ndarray):
    found = basis(ROWS).slope(coefficients)
    np.testing.assert_allclose(
        found, exact_slope(basis, ROWS, coefficients), rtol=SINGLE, atol=SINGLE
    )


def test_moments_of_slopes(basis: Basis, coefficients: np.ndarray):
    """Contracted with the coefficients they are the moments of the mechanism's slope."""
    weights = np.random.default_rng(2).standard_normal((len(ROWS), 3))
    features = basis(ROWS)
    contracted = np.einsum("kql,k->ql", features.moments_of_slopes(weights), coefficients)
    np.testing.assert_allclose(contracted, features.slope(coefficients).T @ weights, rtol=1e-5)


def test_curvature_of_the_hinges(basis: Basis, coefficients: np.ndarray):
    coefficients[-1] = 0.0  # the root's own curvature is left out
    step = 1e-5
    numerical = np.stack(
        [
            exact_slope(basis, ROWS + step * e, coefficients)
            - exact_slope(basis, ROWS - step * e, coefficients)
            for e in np.eye(2)
        ],
        axis=2,
    ) / (2 * step)
    np.testing.assert_allclose(
        basis(ROWS).curvature(coefficients), numerical, rtol=SINGLE, atol=SINGLE
    )


def test_the_form_of_a_cone_is_found():
    """z^2 = t'Mt + noise: the root is the cone itself."""
    rng = np.random.default_rng(3)
    t = rng.standard_normal((20_000, 2))
    cone = np.sqrt(2 * t[:, 0] ** 2 + t[:, 0] * t[:, 1] + t[:, 1] ** 2)
    child = cone + 0.1 * rng.standard_normal(len(t))
    basis = Basis.plain(2).fitted_to([(t[:9000], child[:9000]), (t[9000:], child[9000:])])
    root = basis(t).values[:, -1]
    assert np.corrcoef(root, cone)[0, 1] > 0.999


@pytest.mark.parametrize("slope", [0.0, 0.7])
def test_lines_beside_a_cone_and_noise_change_nothing(slope: float):
    """Linear functions of parents in the child are what mixtures of a latent are made of."""
    rng = np.random.default_rng(4)
    t, noise = rng.standard_normal((20_000, 2)).astype(np.float32), rng.standard_normal(20_000)
    cone = np.sqrt(2 * t[:, 0] ** 2 + t[:, 0] * t[:, 1] + t[:, 1] ** 2)
    child = (cone + slope * t[:, 0] + noise).astype(np.float32)
    basis = Basis.plain(2).fitted_to([(t, child)])
    features = basis(t).values[:, [0, 1, 2, -1]].astype(float)
    left = child - features @ np.linalg.lstsq(features, child, rcond=None)[0]
    lost = 0.5 * len(t) * np.log(left.var() / noise.var())
    assert abs(lost) < 8  # nats; a form with the noise in it loses a hundred


class TestFormFit:
    def test_its_products_are_those_of_the_features(self):
        rng = np.random.default_rng(5)
        t, child = rng.standard_normal((500, 2)), rng.standard_normal(500)
        fit = FormFit.of(Basis.plain(2), [(t[:300], child[:300]), (t[300:], child[300:])])
        columns = np.column_stack([fit.basis(t).values, child])
        np.testing.assert_allclose(fit.gram, columns.T @ columns, rtol=1e-4, atol=1e-2)
        assert fit.n_rows == 500

    def test_the_best_form_is_kept(self):
        rng = np.random.default_rng(6)
        t = rng.standard_normal((2000, 2))
        child = np.sign(t[:, 0]) + 0.1 * rng.standard_normal(2000)  # no form is like it
        plain = Basis.plain(2)
        features = np.column_stack([plain(t).values, child]).astype(float)
        best = np.linalg.lstsq(features[:, :-1], child, rcond=None)
        assert FormFit.of(plain, [(t, child)]).variance < float(best[1][0]) / 2000 * 1.001


def test_hinges_that_nobody_keeps_are_left_out(basis: Basis):
    for selection in basis.selections():
        reduced, kept = basis.reduced_to(selection.kept)
        np.testing.assert_array_equal(
            reduced(ROWS).values[:, kept], basis(ROWS).values[:, selection.kept]
        )
        has_hinges = len(reduced.knots) > 0
        assert has_hinges == (selection.kept[:-1] >= basis.first_hinge).any()


class TestLinearBasis:
    def test_features_are_the_constant_and_the_parents(self):
        basis = LinearBasis(2)
        features = basis(ROWS)
        assert basis.size == 3
        np.testing.assert_array_equal(features.values, np.column_stack([np.ones(40), ROWS]))

    def test_slopes_are_the_coefficients(self):
        slope = LinearBasis(2)(ROWS).slope(np.array([7.0, 1.0, -2.0]))
        np.testing.assert_array_equal(np.broadcast_to(slope, (40, 2)), [[1.0, -2.0]] * 40)

    def test_no_parents(self):
        features = LinearBasis(0)(ROWS[:, :0])
        np.testing.assert_array_equal(features.values, np.ones((40, 1)))
        assert features.slope(np.ones(1)).shape == (1, 0)
