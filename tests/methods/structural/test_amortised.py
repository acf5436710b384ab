from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from crlearn import StructuralPriorCRL
from crlearn.data import make_multi_domain
from crlearn.methods.structural._amortised import AmortisedPosterior


@pytest.fixture(scope="module")
def data() -> Any:
    return make_multi_domain(n_latents=3, n_features=10, n_samples=300, random_state=1)


@pytest.fixture(scope="module")
def encoder(data: Any) -> AmortisedPosterior:
    known = {"graph": data.truth.graph, "targets": data.known_targets}
    model = StructuralPriorCRL(**known, n_steps=200, n_restarts=1, random_state=0)
    return model.fit(data.X, data.y).result_.encoder  # type: ignore[return-value]


def test_unknown_environments_are_a_mixture(data: Any, encoder: AmortisedPosterior):
    """Interventions of ten sds leave no doubt where a row is from."""
    known, mixed = encoder.posterior(data.X, data.y - 1), encoder.posterior(data.X)
    same = np.abs(known.mean - mixed.mean).max(axis=1) < 1e-3
    assert 0.5 < same.mean() < 1
    assert mixed.variance[~same].mean() > known.variance[~same].mean()


def test_a_row_has_the_same_bits_whatever_stands_beside_it(data: Any, encoder: AmortisedPosterior):
    few = encoder.posterior(data.X[:5])
    np.testing.assert_array_equal(few.mean, encoder.posterior(data.X).mean[:5])


def test_scored_draws_have_the_likelihood_of_the_bound(data: Any, encoder: AmortisedPosterior):
    """Draws that are wider than the posterior have the same evidence, and its moments."""
    codes = data.y - 1
    scored = encoder.scored(data.X, codes, seed=0)
    other = encoder.scored(data.X, codes, seed=1)
    assert scored.z.shape == (64, 900, 3)
    assert scored.evidence(scored.prior) == pytest.approx(other.evidence(other.prior), abs=0.02)
    weights = scored.ratio + scored.prior
    weights = np.exp(weights - np.asarray(logsumexp(weights, axis=0)))
    means = np.einsum("dr,dri->ri", weights, scored.z) / encoder.unit
    expected: Any = encoder.posterior(data.X, codes)
    assert np.abs((means - expected.mean) / expected.sd).mean() < 0.3


def test_rows_of_the_fit_are_not_far(data: Any, encoder: AmortisedPosterior):
    assert encoder.beyond(data.X).max() == pytest.approx(1, rel=1e-4)
    assert encoder.beyond(10 * data.X).max() == pytest.approx(10, rel=1e-4)
