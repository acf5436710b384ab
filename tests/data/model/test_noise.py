from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from crlearn.data import Gaussian, make_noise
from crlearn.data.model._noise import NOISE_FAMILIES, Fixed

SCIPY: dict[str, Any] = {
    "gaussian": stats.norm(),
    "laplace": stats.laplace(scale=np.sqrt(0.5)),
    "exponential": stats.expon(loc=-1),
    "uniform": stats.uniform(-np.sqrt(3), 2 * np.sqrt(3)),
    "student_t": stats.t(5, scale=np.sqrt(3 / 5)),
    "gumbel": stats.gumbel_r(loc=-np.euler_gamma * np.sqrt(6) / np.pi, scale=np.sqrt(6) / np.pi),
}


@pytest.mark.parametrize("family", NOISE_FAMILIES)
def test_families_share_mean_and_scale(family):
    draws = make_noise(family, scale=2.0, mean=3.0).sample(np.random.default_rng(0), 200_000)
    assert draws.mean() == pytest.approx(3.0, abs=0.03)
    assert draws.std() == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("family", NOISE_FAMILIES)
def test_samples_and_densities_are_those_of_scipy(family):
    noise, reference = make_noise(family), SCIPY[family]
    draws = noise.sample(np.random.default_rng(1), 20_000)
    assert stats.kstest(draws, reference.cdf).pvalue > 0.01
    np.testing.assert_allclose(noise.log_density(draws[:50]), reference.logpdf(draws[:50]))


@pytest.mark.parametrize("family", NOISE_FAMILIES)
def test_densities_carry_mean_and_scale(family):
    noise, points = make_noise(family, scale=0.5, mean=-1.0), np.linspace(-1.4, 1.0, 9)
    expected = SCIPY[family].logpdf((points + 1.0) / 0.5) - np.log(0.5)
    np.testing.assert_allclose(noise.log_density(points), expected)


def test_nothing_lies_below_the_end_of_the_exponential():
    assert make_noise("exponential").log_density(np.array(-1.01)) == -np.inf


def test_nothing_lies_beyond_the_ends_of_the_uniform():
    assert (make_noise("uniform").log_density(np.array([-1.74, 1.74])) == -np.inf).all()


def test_scaled_follows_its_values():
    noise = make_noise("gumbel", scale=2.0, mean=3.0)
    before, after = (n.sample(np.random.default_rng(0), 100) for n in (noise, noise.scaled(0.25)))
    np.testing.assert_allclose(after, before / 4.0)


def test_fixed_is_zero():
    np.testing.assert_array_equal(Fixed().sample(np.random.default_rng(0), 3), 0.0)
    assert not Fixed().has_density


def test_unknown_family():
    with pytest.raises(ValueError, match=r"must be one of 'gaussian', .* Got 'cauchy'"):
        make_noise("cauchy")


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan])
def test_scale_must_be_positive(scale):
    with pytest.raises(ValueError, match="scale of noise must be positive"):
        Gaussian(scale)
