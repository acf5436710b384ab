from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from crlearn.likelihood._price import (
    HYPERPARAMETER,
    edge_prior,
    parameter_price,
    price_together,
)


def test_by_hand():
    assert parameter_price(1) == 0
    assert parameter_price(10_000) == pytest.approx(4.60517)
    assert edge_prior(5) == pytest.approx(np.log(10))
    assert HYPERPARAMETER == 1


def test_together_by_hand():
    assert price_together(10_000, (1,)) == pytest.approx(parameter_price(10_000))
    assert price_together(10_000, (1, 1)) == pytest.approx(2 * parameter_price(10_000))
    assert price_together(10_000, (0,)) == price_together(10_000, ()) == 0
    level = chi2.sf(np.log(10_000), 1)
    expected = (chi2.isf(level, 6) + chi2.isf(level, 17)) / 2
    assert price_together(10_000, (6, 17)) == pytest.approx(expected)


@pytest.mark.parametrize("sizes", [(1,), (6,), (20,)])
def test_needless_sets_pay_as_often_as_a_needless_coefficient(sizes: tuple[int, ...]):
    gains = np.random.default_rng(0).chisquare(sum(sizes), 400_000) / 2
    expected = float(chi2.sf(np.log(1000), 1))
    assert np.mean(gains > price_together(1000, sizes)) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("before", "more"), [(10, 21), (20, 5)])
def test_a_set_pays_as_much_after_another(before: int, more: int):
    """Were both paid for as one, the second would be taken too often, as the first is there."""
    after = price_together(1000, (before, more)) - price_together(1000, (before,))
    assert after == pytest.approx(price_together(1000, (more,)))
    assert price_together(1000, (before + more,)) < price_together(1000, (before, more)) - 2


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
