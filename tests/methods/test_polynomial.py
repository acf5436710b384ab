from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils._param_validation import InvalidParameterError

from crlearn import LinearInterventionCRL, ObservationalCRL
from crlearn.data import make_linear_interventional, make_mixing, make_observational
from crlearn.exceptions import AssumptionWarning, IdentifiabilityError
from crlearn.methods import PolynomialReduction
from crlearn.methods._polynomial import matching_degree, monomials, n_monomials
from crlearn.metrics import evaluate, r2


def latents(n: int, n_rows: int = 800, seed: int = 0) -> Any:
    Z = np.random.default_rng(seed).normal(size=(n_rows, n))
    for j in range(1, n):
        Z[:, j] += 0.8 * Z[:, j - 1]
    return Z


def reduced(X: Any, n: int | None = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionWarning)
        return PolynomialReduction(n, random_state=0).fit(X)


@pytest.mark.parametrize(("name", "degree"), [("quadratic", 2), ("cubic", 3)])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_left_is_an_affine_function_of_the_latents(
    name: str, degree: int, n: int, seed: int
):
    Z = latents(n, seed=seed)
    X = make_mixing(name, n, n_monomials(n, degree) + 2, seed)(Z)
    model = reduced(X, n)
    assert model.degree_ == degree
    Y = model.transform(X)
    assert Y.shape == Z.shape
    assert r2(Y, Z) > 1 - 1e-5
    np.testing.assert_allclose(np.cov(Y.T, ddof=0).reshape(n, n), np.eye(n), atol=1e-6)
    assert model.share_left_ < 1e-5


def test_new_rows_and_units():
    Z = latents(2)
    X = make_mixing("quadratic", 2, 6, 0)(Z)
    model = reduced(X[:400], 2)
    assert r2(model.transform(X[400:]), Z[400:]) > 1 - 1e-9
    other = reduced(X * [1e3, 1, 1e-3, 5, 1, 1] + 7, 2)
    assert r2(other.transform(X * [1e3, 1, 1e-3, 5, 1, 1] + 7), Z) > 1 - 1e-5


def test_the_number_of_latents_follows_from_the_directions_of_x():
    X = make_mixing("quadratic", 3, 12, 0)(latents(3))
    assert reduced(X).encoder_.n_latents == 3
    assert matching_degree(9, None) == (3, 2)
    assert matching_degree(9, 2) == (2, 3)
    assert matching_degree(19, 3) == (3, 3)


@pytest.mark.parametrize("name", ["tanh", "leaky_relu", "curved"])
def test_other_mixings_are_warned_of(name: str):
    """They have as many directions as there are monomials."""
    X = make_mixing(name, 3, 9, 0)(latents(3))
    with pytest.warns(AssumptionWarning, match="X is no polynomial of degree 2 of 3 functions"):
        model = PolynomialReduction(3, random_state=0).fit(X)
    assert model.share_left_ > 0.03


def test_noise_is_warned_of():
    X = make_mixing("quadratic", 2, 5, 0)(latents(2))
    noisy = X + 0.01 * X.std(axis=0) * np.random.default_rng(1).normal(size=X.shape)
    with pytest.warns(AssumptionWarning, match="no polynomial"):
        PolynomialReduction(2, random_state=0).fit(noisy)


def test_linear_mixings_and_other_numbers_are_refused():
    X = make_mixing("gaussian", 3, 6, 0)(latents(3))
    with pytest.raises(IdentifiabilityError, match=r"monomials: 9 or 19. They span 3. A linear"):
        PolynomialReduction(3).fit(X)
    with pytest.raises(IdentifiabilityError, match=r"monomials: 2, 3, 5, .* They span 4"):
        PolynomialReduction().fit(latents(4))


def test_few_rows_are_refused():
    X = make_mixing("quadratic", 2, 5, 0)(latents(2, 20))
    with pytest.raises(ValueError, match="X must have more than 21 rows"):
        PolynomialReduction(2).fit(X)


def test_monomials():
    np.testing.assert_array_equal(monomials(np.array([[2.0, 3.0]]), 2), [[1, 2, 3, 4, 6, 9]])


def test_names_of_columns_and_clones():
    X = make_mixing("quadratic", 2, 5, 0)(latents(2))
    model = reduced(X, 2)
    assert list(model.get_feature_names_out()) == ["polynomialreduction0", "polynomialreduction1"]
    again: Any = clone(model)
    again.fit(X)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


def test_saved_and_loaded(tmp_path: Any):
    X = make_mixing("quadratic", 2, 5, 0)(latents(2))
    model = reduced(X, 2)
    model.save(tmp_path / "reduction.crl")
    again = PolynomialReduction.load(tmp_path / "reduction.crl")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert (again.degree_, again.share_left_) == (model.degree_, model.share_left_)
    assert again.get_params() == model.get_params()


def test_bad_input():
    X = make_mixing("quadratic", 2, 5, 0)(latents(2))
    with pytest.raises(NotFittedError):
        PolynomialReduction(2).transform(X)
    with pytest.raises(ValueError, match="NaN"):
        PolynomialReduction(2).fit(np.where(X[0, 0] == X, np.nan, X))
    with pytest.raises(ValueError, match="5 features"):
        reduced(X, 2).transform(X[:, :4])
    with pytest.raises(InvalidParameterError, match="n_latents"):
        PolynomialReduction(0).fit(X)


def test_interventions_behind_polynomials():
    world = make_linear_interventional(
        3, 12, 2000, intervention="hard", mixing="quadratic", random_state=0
    )
    model: Any = make_pipeline(
        PolynomialReduction(3, random_state=0),
        LinearInterventionCRL(3, interventions="hard", random_state=0),
    ).fit(world.X, world.y)
    scores = evaluate(model, world, ["mcc", "shd"])
    assert scores["mcc"] > 0.99
    assert scores["shd"] == 0
    assert model[-1].result_.guarantee.latents == "scale"


def test_observational_data_behind_polynomials():
    world = make_observational(3, 9, 1000, mixing="quadratic", random_state=0)
    reduction = PolynomialReduction(3, random_state=0)
    model: Any = make_pipeline(reduction, ObservationalCRL(3, random_state=0)).fit(world.X)
    assert evaluate(model, world, ["mac"])["mac"] > 0.97
    assert model[-1].layers_ == [[2], [1], [0]]
