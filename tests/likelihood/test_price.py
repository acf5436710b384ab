from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from crlearn.likelihood._price import HYPERPARAMETER, edge_prior, parameter_price


def test_by_hand():
    assert parameter_price(1) == 0
    assert parameter_price(10_000) == pytest.approx(4.60517)
    assert edge_prior(5) == pytest.approx(np.log(10))
    assert HYPERPARAMETER == 1


@pytest.mark.parametrize("n_latents", [1, 2])
def test_there_is_nothing_to_choose_among_one_edge(n_latents: int):
    assert edge_prior(n_latents) == 0


@pytest.mark.parametrize("n_rows", [1000, 100_000])
@pytest.mark.parametrize("n_latents", [4, 8, 20])
def test_graphs_without_edges_hardly_ever_get_one(n_latents: int, n_rows: int):
    """Twice the gain of a needless coefficient is chi-square; there are m edges to take."""
    n_edges = n_latents * (n_latents - 1) // 2

    def expected_wrong(price: float) -> float:
        return n_edges * float(chi2.sf(2 * price, 1))

    assert expected_wrong(parameter_price(n_rows) + edge_prior(n_latents)) < 0.01
    if n_latents == 20:
        assert expected_wrong(parameter_price(n_rows)) > 0.1


def test_an_akaike_price_is_what_a_needless_parameter_gains_twice():
    """On average it gains half a nat, and costs one."""
    gains = np.random.default_rng(0).chisquare(1, 200_000) / 2
    assert gains.mean() == pytest.approx(HYPERPARAMETER / 2, abs=0.01)
