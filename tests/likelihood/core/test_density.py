from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import gumbel_r, laplace, norm

from crlearn.likelihood.core import _density
from crlearn.likelihood.core._density import Density, fit_density

GRID = np.linspace(-30, 30, 60_001)


def centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean()


def test_gaussian_noise_gets_a_gaussian_density():
    rng = np.random.default_rng(0)
    found = [fit_density(3 * centred(rng.standard_normal(3000))) for _ in range(20)]
    assert sum(density.freedom > 0 for density in found) <= 1
    density = Density.gaussian(2.0)
    np.testing.assert_allclose(density.log_density(GRID), norm.logpdf(GRID, scale=2))
    np.testing.assert_allclose(density.score(GRID), GRID / 4)


@pytest.mark.parametrize("family", [laplace, gumbel_r], ids=["laplace", "gumbel"])
def test_other_shapes_are_found(family):
    values = family.rvs(size=10_000, random_state=0)
    density = fit_density(centred(values))
    test = family.rvs(size=20_000, random_state=1)
    lost = family.logpdf(test).mean() - density.log_density(test - values.mean()).mean()
    assert 0 <= lost < 0.01
    gaussian = norm.logpdf(test, values.mean(), values.std()).mean()
    assert density.log_density(test - values.mean()).mean() > gaussian + 0.02


@pytest.mark.parametrize("draw", ["laplace", "standard_exponential", "uniform"])
def test_densities_have_mass_one_and_scores_are_their_slopes(draw: str):
    density = fit_density(2 * centred(getattr(np.random.default_rng(0), draw)(size=4000)))
    assert density.freedom > 0
    log_density = density.log_density(GRID)
    assert np.exp(log_density).sum() * (GRID[1] - GRID[0]) == pytest.approx(1, abs=3e-3)
    slopes = -(log_density[2:] - log_density[:-2]) / (GRID[2] - GRID[0])
    inside = np.abs(GRID[1:-1]) < 1.2 * density.scale
    np.testing.assert_allclose(density.score(GRID)[1:-1][inside], slopes[inside], atol=0.3)
    assert log_density[0] < -12
    assert log_density[-1] < -12


@pytest.mark.parametrize("n_values", [300, 301, 4000])
@pytest.mark.parametrize("draw", ["laplace", "standard_exponential", "uniform"])
def test_the_negative_of_a_variable_has_the_mirrored_density(draw: str, n_values: int):
    """Signs of latents are arbitrary, and must not change what is found."""
    values = centred(getattr(np.random.default_rng(0), draw)(size=n_values))
    density, mirrored = fit_density(values), fit_density(-values)
    assert density.freedom > 0
    assert mirrored.penalty == density.penalty
    np.testing.assert_allclose(mirrored.freedom, density.freedom, rtol=1e-6)
    np.testing.assert_allclose(
        mirrored.log_density(-values), density.log_density(values), atol=1e-6
    )


def test_a_density_like_another_is_as_smooth():
    values = centred(np.random.default_rng(0).laplace(size=2000))
    assert fit_density(values, Density.gaussian(1.0)).freedom == 0
    like = fit_density(values)
    again = fit_density(2 * values, like)
    assert again.penalty == like.penalty
    np.testing.assert_allclose(
        again.log_density(2 * values), like.log_density(values) - np.log(2), atol=1e-2
    )


@pytest.mark.parametrize("draw", ["standard_normal", "laplace", "uniform"])
def test_bic_chooses_the_penalty(draw: str, monkeypatch: pytest.MonkeyPatch):
    """No single penalty has a lower BIC than the one that is found on the way."""
    values = centred(getattr(np.random.default_rng(0), draw)(size=4000))

    def bic(density: Density) -> float:
        log_likelihood = density.log_density(values).sum()
        return -2 * log_likelihood + density.freedom * np.log(len(values))

    chosen = fit_density(values)
    for penalty in _density._PENALTIES:
        monkeypatch.setattr(_density, "_PENALTIES", (penalty,))
        assert bic(chosen) < bic(fit_density(values)) + 1


def test_constants_do_no_harm():
    assert fit_density(np.zeros(100)).freedom == 0
