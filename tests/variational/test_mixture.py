from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from crlearn.variational import MixturePrior


@pytest.fixture
def mixture() -> MixturePrior:
    """Two components, the first with three quarters of the rows; weights are not normalised."""
    return MixturePrior(
        np.log([6.0, 2.0]),
        np.array([[0.0, 1.0], [3.0, -1.0]]),
        np.log([[1.0, 4.0], [0.25, 1.0]]),
    )


def density(z: Any) -> Any:
    first = norm.pdf(z[:, 0], 0, 1) * norm.pdf(z[:, 1], 1, 2)
    second = norm.pdf(z[:, 0], 3, 0.5) * norm.pdf(z[:, 1], -1, 1)
    return 0.75 * first + 0.25 * second


def test_the_density_is_that_of_scipy(mixture: MixturePrior):
    z = np.random.default_rng(0).normal(size=(20, 2)) * 2
    np.testing.assert_allclose(mixture.log_density(z), np.log(density(z)), rtol=1e-5)


def test_rows_belong_to_the_likeliest_component(mixture: MixturePrior):
    assert mixture.likeliest(np.array([[0.0, 1.0], [3.0, -1.0], [3.0, 20.0]])).tolist() == [0, 1, 0]


def test_variances_are_those_of_draws(mixture: MixturePrior):
    rng = np.random.default_rng(0)
    component = rng.choice(2, size=200_000, p=mixture.weights)
    deviations = np.exp(0.5 * mixture.log_variances)[component]
    draws = np.asarray(mixture.means)[component] + deviations * rng.normal(size=(200_000, 2))
    np.testing.assert_allclose(mixture.variances, draws.var(axis=0), rtol=0.02)


def test_other_units(mixture: MixturePrior):
    """Densities change by the volume, and what belongs to which component does not."""
    z, shift, stretch = np.random.default_rng(0).normal(size=(9, 2)), np.array([1, -2]), [0.5, 10]
    other = mixture.in_units(shift, np.array(stretch))
    there = z * stretch + shift
    np.testing.assert_allclose(other.log_density(there), np.log(density(z)) - np.log(5), rtol=1e-4)
    np.testing.assert_array_equal(other.likeliest(there), mixture.likeliest(z))


def test_the_mixture_of_codes_is_found():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], [3000, 1000])
    codes = np.array([[0.0, 5.0], [8.0, 0.0]])[truth] + rng.normal(size=(4000, 2)) * [1.0, 0.2]
    found = MixturePrior.of(codes, 2, seed=0)
    order = np.argsort(-found.weights)
    np.testing.assert_allclose(found.weights[order], [0.75, 0.25], atol=0.01)
    np.testing.assert_allclose(np.asarray(found.means)[order], [[0, 5], [8, 0]], atol=0.1)
    np.testing.assert_allclose(np.exp(found.log_variances), [[1, 0.04]] * 2, rtol=0.1)


@pytest.mark.filterwarnings("error")
def test_codes_that_are_all_alike_make_no_noise():
    """Fewer distinct codes than components: a start all the same."""
    found = MixturePrior.of(np.zeros((5, 2)), 3, seed=0)
    assert np.isfinite(found.log_density(np.zeros((1, 2)))).all()


def test_standard_components_are_one_gaussian():
    z = np.array([[0.5, -1.0]])
    expected = norm.logpdf(z).sum()
    assert MixturePrior.standard(4, 2).log_density(z)[0] == pytest.approx(expected, rel=1e-5)
