from __future__ import annotations

import numpy as np
import pytest

from crlearn.methods.gaussian._checks import explained_check, gaussian_check
from crlearn.variational import GaussianPrior, fit_exactly

LABELS = np.array(["control", "treated"])
NOISE = 0.25 * np.eye(2)
CODES = np.arange(2000) % 2


def rows(spread: float = 1.0, shift: float = 0.0) -> np.ndarray:
    z = np.random.default_rng(0).normal(size=(2000, 2)) * np.where(CODES, spread, 1.0)[:, None]
    return z + shift * CODES[:, None]


def explained(kind: str, noisy: np.ndarray, n_components: int = 1) -> tuple:
    prior = GaussianPrior.standard(kind, 2, 2, n_components)  # type: ignore[arg-type]
    fit = fit_exactly(prior, noisy, NOISE, CODES)
    return explained_check(fit.prior.components(), noisy, NOISE, CODES, LABELS)


@pytest.mark.parametrize("kind", ["normal", "conditional"])
def test_environments_that_are_alike_are_explained(kind: str):
    check, losses = explained(kind, rows())
    assert check.passed
    assert losses == pytest.approx([0, 0], abs=0.01)


def test_one_gaussian_does_not_explain_environments_that_differ():
    check, losses = explained("normal", rows(3.0))
    assert check.passed is False
    assert losses.max() > 0.1
    assert explained("conditional", rows(3.0))[0].passed


def test_a_mixture_need_not_know_the_labels():
    far = rows(3.0, shift=30.0)
    assert explained("normal", far)[0].passed is False
    check, losses = explained("mixture", far, 2)
    assert check.passed
    assert losses == pytest.approx([0, 0], abs=0.02)


def test_few_rows_say_nothing():
    noisy, codes = rows()[:6], CODES[:6]
    fit = fit_exactly(GaussianPrior.standard("normal", 2, 2), noisy, NOISE, codes)
    check, losses = explained_check(fit.prior.components(), noisy, NOISE, codes, LABELS)
    assert check.passed is None
    assert np.isnan(losses).all()
    assert gaussian_check(noisy, codes, LABELS).passed is None


def test_latents_that_are_gaussian_pass():
    passed = 0
    for seed in range(20):
        z = np.random.default_rng(seed).normal(size=(2000, 2)) @ [[1.0, 2.0], [0.0, 1.0]]
        passed += bool(gaussian_check(z + 9 * CODES[:, None], CODES, LABELS).passed)
    assert passed >= 19


@pytest.mark.parametrize("shape", ["laplace", "gumbel", "uniform"])
def test_latents_that_are_not_fail(shape: str):
    z = rows()
    z[CODES == 1] = getattr(np.random.default_rng(1), shape)(size=(1000, 2))
    check = gaussian_check(z, CODES, LABELS)
    assert check.passed is False
    assert "in treated" in check.detail
