from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from crlearn.methods.structural._checks import Scored, explanation_check, measured_check

LABELS = np.array(["control", "treated"])
NOISE = 0.5  # sd of the measurement


def scored(spread: float, n: int = 400, n_draws: int = 64) -> Scored:
    """Rows whose latents are standard normal in the prior; those treated have another spread."""
    rng, codes = np.random.default_rng(n), np.arange(n) % 2
    x = rng.normal(size=(n, 2)) * np.where(codes, spread, 1.0)[:, None]
    x = x + NOISE * rng.normal(size=x.shape)
    z = x + 2 * NOISE * rng.normal(size=(n_draws, n, 2))
    ratio = norm.logpdf(z, x, NOISE) - norm.logpdf(z, x, 2 * NOISE)
    return Scored(z, ratio.sum(axis=2), norm.logpdf(z).sum(axis=2), codes)


def test_draws_give_the_likelihood():
    rows = scored(1.0, n_draws=4000)
    wanted = rows.z.mean(axis=0)  # of the draws: the row
    exact = norm.logpdf(wanted, 0, np.sqrt(1 + NOISE**2)).sum(axis=1).mean()
    assert rows.evidence(rows.prior) == pytest.approx(exact, abs=0.02)


def test_an_environment_that_the_prior_explains():
    check, losses = explanation_check(scored(1.0), scored(1.0, 300), LABELS)
    assert check.passed
    assert losses == pytest.approx([0, 0], abs=0.05)


def test_an_environment_that_it_does_not_explain():
    check, losses = explanation_check(scored(2.0), scored(2.0, 300), LABELS)
    assert check.passed is False
    assert "in treated" in check.detail
    share = (4 + NOISE**2) / (1 + NOISE**2)
    assert losses[1] == pytest.approx(share - 1 - np.log(share), rel=0.3)  # of two latents
    assert losses[0] == pytest.approx(0, abs=0.05)


def test_a_prior_that_is_not_told_the_environment():
    """Half of the rows lie elsewhere, as the prior says, too: which half, it does not know."""
    rows, new = scored(1.0), scored(1.0, 300)
    moved = []
    for part in (rows, new):
        z = part.z + 9.0 * part.codes[:, None]
        both = np.logaddexp(norm.logpdf(z).sum(axis=2), norm.logpdf(z, 9.0).sum(axis=2))
        moved.append(Scored(z, part.ratio, both - np.log(2), part.codes))
    told, gains = explanation_check(moved[0], moved[1], LABELS)
    assert told.passed is False
    assert gains == pytest.approx([np.log(2)] * 2, abs=0.05)
    check, losses = explanation_check(moved[0], moved[1], LABELS, is_told=False)
    assert check.passed
    assert losses == pytest.approx([0, 0], abs=0.05)


def test_too_few_rows_to_tell():
    check, losses = explanation_check(scored(1.0, 6), scored(1.0, 6), LABELS)
    assert check.passed is None
    assert np.isnan(losses).all()


def test_means_of_environments_are_no_measurement():
    codes = np.arange(200) % 2
    mean = np.random.default_rng(0).normal(size=(200, 2))
    variance = np.full((200, 2), 0.25)
    check, share = measured_check(mean, variance, codes, ["a", "b"])
    assert check.passed
    assert share == pytest.approx([0.2, 0.2], abs=0.05)
    mean[:, 1] = 5.0 * codes + 0.01 * mean[:, 1]
    check, share = measured_check(mean, variance, codes, ["a", "b"])
    assert check.passed is False
    assert check.detail.endswith("ignores b: it is too noisy, or training failed")
    assert share[1] > 0.99
