from __future__ import annotations

import numpy as np
import pytest

from crlearn.published.gscale._pairs import axis_prices, changes, cheapest_groups, spread_prices


def pairwise_prices(cheap: list[tuple[int, int]], m: int) -> np.ndarray:
    prices = np.ones((m, m))
    for first, second in cheap:
        prices[first, second] = prices[second, first] = 0.0
    return prices


def test_differences_along_one_direction_are_free():
    rng = np.random.default_rng(0)
    scalar = rng.normal(size=(50, 1)) ** 3
    base = rng.normal(size=(50, 3))
    differences = np.array([base, base + scalar * [1.0, 2.0, 0.0], rng.normal(size=(50, 3))])
    prices = spread_prices(differences)
    assert prices[0, 1] == prices[1, 0] == pytest.approx(0, abs=1e-12)
    assert min(prices[0, 2], prices[1, 2]) > 0.2


def test_environments_that_are_alike_are_not_free():
    assert spread_prices(np.zeros((2, 5, 3)))[0, 1] == 1


def test_price_along_latents():
    pairwise = np.zeros((2, 2, 2))
    pairwise[0, 1] = pairwise[1, 0] = [3.0, 1.0]
    np.testing.assert_allclose(axis_prices(pairwise), [[1, 0.25], [0.25, 1]])


def test_the_cheapest_pairs_are_taken():
    prices = pairwise_prices([(0, 3), (1, 2)], 4)
    assert cheapest_groups(prices, 2) == ((1, 4), (2, 3))


def test_too_few_environments_leave_some_alone_and_latents_without_any():
    assert cheapest_groups(pairwise_prices([(0, 2)], 3), 2) == ((1, 3), (2,))
    assert cheapest_groups(np.ones((2, 2)), 3) == ((1,), (2,), ())


def test_changes_are_between_the_two_or_from_the_reference():
    differences = np.arange(3.0)[:, None, None] * np.ones((3, 4, 2))
    found = changes(differences, [(1, 3), (), (2,)])
    assert found.shape == (2, 4, 2)
    assert (found[0] == 2).all()
    assert (found[1] == 1).all()
